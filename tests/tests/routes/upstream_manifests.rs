//! Every manifest of upstream's conformance suite and examples decodes, and no field of it is unknown.
//!
//! The modules are pinned in `tests/conformance/go.mod` and come from the Go module cache (`go mod download`); nothing of
//! them is copied into this tree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use sesame_gateway_api::decode::{DecodeLimits, decode, split};
use sesame_gateway_api::world::Kind;
use sesame_tests::pinned;

const PINS: &str = include_str!("../../conformance/go.mod");

/// Directories of the conformance module whose YAML is no Kubernetes object, and what it is.
const NO_OBJECTS: &[(&str, &str)] = &[
    ("data", "options of the suite itself"),
    ("reports", "reports of implementations"),
];

/// The directory of each pinned module.
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
        .expect("this test reads Go modules: install Go");
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

/// All YAML files below `dir`, sorted.
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
fn every_upstream_manifest_of_a_kind_we_read_decodes_without_unknown_fields() {
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

    // What is ignored is ignored for its kind, never for a version of a kind that we read; v1alpha2 is decided not to be.
    for reason in ignored.keys() {
        let is_older = reason.starts_with("TLSRoute of \"gateway.networking.k8s.io/v1alpha2\"");
        assert!(reason.starts_with("kind ") || is_older, "{reason}");
    }
    // The manifests were really there: each Gateway API kind occurs.
    for kind in Kind::ALL.iter().filter(|kind| kind.is_gateway_api()) {
        assert!(
            decoded.contains_key(kind),
            "no {kind} among {} files",
            files.len()
        );
    }
    assert!(decoded.values().sum::<usize>() > 500, "{decoded:?}");
}
