//! Manifests of the Gateway API's conformance suite and examples must decode without unknown
//! fields. They come from the Go module cache (`go mod download`), as pinned in
//! `tests/conformance/go.mod`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sesame_kinds::decode::{DecodeLimits, decode, split};
use sesame_kinds::world::Kind;
use sesame_tests::cluster::{Channel, crd_files};
use sesame_tests::pinned;

const PINS: &str = include_str!("../../conformance/go.mod");

/// Directories whose YAML files are not Kubernetes manifests, with descriptions.
const NO_OBJECTS: &[(&str, &str)] = &[
    ("data", "options of the test suite"),
    ("reports", "conformance reports"),
];

fn modules() -> Vec<PathBuf> {
    let upstream = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
    let output = Command::new("go")
        .args(["mod", "download", "-json"])
        .args([
            "sigs.k8s.io/gateway-api",
            "sigs.k8s.io/gateway-api/conformance",
        ])
        .current_dir(&upstream)
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", pinned::version(PINS, "toolchain"))
        .output()
        .expect("this test requires Go");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "go mod download in {}: {errors}",
        upstream.display()
    );
    serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter::<serde_json::Value>()
        .map(|module| {
            let module = module.expect("go prints JSON");
            PathBuf::from(
                module["Dir"]
                    .as_str()
                    .expect("a downloaded module has a directory"),
            )
        })
        .collect()
}

fn manifests(dir: &Path, found: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            manifests(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            found.push(path);
        }
    }
}

#[test]
fn upstream_manifests_decode_without_unknown_fields() {
    let mut files = Vec::new();
    for module in modules() {
        let examples = module.join("examples");
        let from = files.len();
        manifests(
            if examples.is_dir() {
                &examples
            } else {
                &module
            },
            &mut files,
        );
        let skipped = |file: &PathBuf| {
            NO_OBJECTS
                .iter()
                .any(|(dir, _)| file.starts_with(module.join(dir)))
        };
        let kept: Vec<_> = files.drain(from..).filter(|file| !skipped(file)).collect();
        assert!(!kept.is_empty(), "no manifests in {}", module.display());
        files.extend(kept);
    }
    let mut decoded: BTreeMap<Kind, usize> = BTreeMap::new();
    let mut ignored: BTreeMap<String, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("readable");
        for document in split(&text) {
            for outcome in decode(document.text, &DecodeLimits::default()) {
                let place =
                    |line: usize| format!("{}:{}", file.display(), document.line + line - 1);
                match outcome {
                    Ok(object) if object.unknown_fields.is_empty() => {
                        *decoded.entry(object.object.kind()).or_default() += 1;
                    }
                    Ok(object) => {
                        faults.push(format!(
                            "{}: {:?}",
                            place(object.line),
                            object.unknown_fields
                        ));
                    }
                    Err(error) if error.is_unsupported() => {
                        *ignored.entry(error.reason.to_string()).or_default() += 1;
                    }
                    Err(error) => faults.push(format!("{}: {}", place(error.line), error.reason)),
                }
            }
        }
    }
    println!("decoded {decoded:?}");
    println!("ignored {ignored:#?}");
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );

    // Only unsupported kinds and v1alpha2 routes may be ignored.
    for reason in ignored.keys() {
        let is_older = reason.contains("Route of \"gateway.networking.k8s.io/v1alpha2\"");
        assert!(reason.starts_with("kind ") || is_older, "{reason}");
    }
    // Proves that the manifests were found.
    for kind in Kind::ALL.iter().filter(|kind| kind.is_gateway_api()) {
        assert!(
            decoded.contains_key(kind),
            "no {kind} among {} files",
            files.len()
        );
    }
    assert!(decoded.values().sum::<usize>() > 500, "{decoded:?}");
}

/// Returns a sample value with every schema field set.
fn filled(schema: &Value) -> Value {
    if let Some(value) = schema["enum"].as_array().and_then(|values| values.first()) {
        return value.clone();
    }
    // Only the pattern for durations contains `ms`.
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    if pattern.contains("ms") {
        return json!("1s");
    }
    match schema["type"].as_str() {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let mut object: serde_json::Map<String, Value> = fields
                .map(|(name, field)| (name.clone(), filled(field)))
                .collect();
            let values = &schema["additionalProperties"];
            if values.is_object() {
                object.insert("a".to_owned(), filled(values));
            }
            Value::Object(object)
        }
        Some("array") => json!([filled(&schema["items"])]),
        Some("boolean") => json!(true),
        Some("integer") => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        _ => json!("a"),
    }
}

#[test]
fn every_field_of_the_definitions_is_known() {
    let mut kinds = BTreeSet::new();
    let mut faults = Vec::new();
    for file in crd_files(Channel::Experimental) {
        let text = std::fs::read_to_string(&file).expect("readable");
        // One file contains an admission policy, which has no CRD versions.
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        let specs = objects.iter().map(|object| &object["spec"]);
        let versions = specs.flat_map(|spec| {
            let versions = spec["versions"].as_array().into_iter().flatten();
            versions.map(move |version| (spec, version))
        });
        for (spec, version) in versions {
            let [group, kind, version_name] =
                [&spec["group"], &spec["names"]["kind"], &version["name"]]
                    .map(|it| it.as_str().unwrap_or_default());
            let mut object = filled(&version["schema"]["openAPIV3Schema"]);
            object["apiVersion"] = json!(format!("{group}/{version_name}"));
            object["kind"] = json!(kind);
            object["metadata"] = json!({"name": "a", "namespace": "a"});
            object.as_object_mut().expect("an object").remove("status");
            for outcome in decode(&object.to_string(), &DecodeLimits::default()) {
                match outcome {
                    Ok(found) if found.unknown_fields.is_empty() => {
                        kinds.insert(found.object.kind());
                    }
                    Ok(found) => faults.push(format!("{kind}: {:?}", found.unknown_fields)),
                    Err(error) if error.is_unsupported() => {}
                    Err(error) => faults.push(format!("{kind}: {}", error.reason)),
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let lacking: Vec<&Kind> = Kind::ALL
        .iter()
        .filter(|kind| kind.is_gateway_api() && !kinds.contains(kind))
        .collect();
    assert!(lacking.is_empty(), "no CRD for {lacking:?}");
}
