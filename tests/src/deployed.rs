//! The objects that users deploy, as Helm and kustomize render them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::envoy::workspace;
use crate::pinned;

const PINS: &str = include_str!("../helm/go.mod");

const LABELS_OF_HELM: [&str; 3] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
];

/// Objects by kind and namespaced name.
pub type Objects = BTreeMap<(String, String), Value>;

/// Returns the chart's directory.
pub fn chart() -> PathBuf {
    workspace().join("controller/deploy/chart")
}

/// Runs Helm with an empty home directory and without a cluster.
pub fn helm(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(program("helm"));
    let command = command
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .env("KUBECONFIG", home.path().join("none"));
    command.output().expect("start helm")
}

/// Renders the chart. Returns the objects in the order in which Helm installs them, CRDs first.
pub fn rendered_by_helm(namespace: &str, values: &Value) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("values.json");
    std::fs::write(&file, values.to_string()).expect("write values");
    let (chart, file) = (chart(), file.display().to_string());
    let chart = chart.display().to_string();
    objects_of(&helm(&[
        "template",
        "sesame",
        &chart,
        "--namespace",
        namespace,
        "--include-crds",
        "--values",
        &file,
    ]))
}

/// Renders a kustomization.
pub fn rendered_by_kustomize(directory: &Path) -> Vec<Value> {
    let mut command = Command::new(program("kustomize"));
    let command = command.arg("build").arg(directory);
    objects_of(&command.output().expect("start kustomize"))
}

/// Renders `controller/deploy` with one of its kustomize components.
pub fn rendered_with_component(component: &str) -> Vec<Value> {
    let copy = tempfile::tempdir().expect("a directory");
    let copied = Command::new("cp")
        .arg("-R")
        .arg(workspace().join("controller/deploy/."))
        .arg(copy.path())
        .status();
    assert!(copied.expect("start cp").success());
    let file = copy.path().join("kustomization.yaml");
    let text = std::fs::read_to_string(&file).expect("a kustomization");
    std::fs::write(&file, format!("{text}components: [{component}]\n")).expect("write it");
    rendered_by_kustomize(copy.path())
}

/// Indexes objects by kind and name, without labels that only Helm adds.
pub fn by_name(objects: Vec<Value>) -> Objects {
    let count = objects.len();
    let named: Objects = objects
        .into_iter()
        .map(|mut object| {
            let labels = object.pointer_mut("/metadata/labels");
            if let Some(labels) = labels.and_then(Value::as_object_mut) {
                labels.retain(|name, _| !LABELS_OF_HELM.contains(&name.as_str()));
            }
            let text = |field: &str| {
                let value = object.pointer(field).and_then(Value::as_str);
                value.unwrap_or_default().to_owned()
            };
            let name = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
            ((text("/kind"), name), object)
        })
        .collect();
    assert_eq!(named.len(), count, "duplicate object names");
    named
}

/// Appends the paths and values that differ to `found`. Treats 0.0 and 0 as equal.
pub fn differences(at: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    let number = |value: &Value| value.as_f64().map(f64::to_bits);
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let in_ = |map: &serde_json::Map<String, Value>, name: &str| {
                map.get(name).cloned().unwrap_or_default()
            };
            for name in names {
                differences(
                    &format!("{at}/{name}"),
                    &in_(one, name),
                    &in_(other, name),
                    found,
                );
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{at}/{index}"), one, other, found);
            }
        }
        _ if one == other || number(one).is_some() && number(one) == number(other) => {}
        _ => found.push(format!("{at}: {one} and {other}")),
    }
}

fn objects_of(output: &Output) -> Vec<Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    objects.into_iter().filter(Value::is_object).collect()
}

/// Finds a program in `$HELM_TOOLS` or `.tools`.
fn program(name: &str) -> PathBuf {
    let directory = format!("helm-{}", pinned::version(PINS, "helm.sh/helm/v4"));
    pinned::program("HELM_TOOLS", &directory, name, "run `make helm`")
}
