//! Which Gateways a policy of Istio applies to.

use serde_json::{Map, Value};

use super::super::draft::ObjectId;
use super::{Mesh, ROOT_NAMESPACE};

/// Which Gateways a policy applies to.
pub(super) enum Reach {
    Sidecars,
    Unknown,
    Gateways(Vec<ObjectId>),
}

/// Returns true if Istio's charts give gateway pods this label in addition to the selected labels.
fn is_usual(selected: &Map<String, Value>, (key, value): (&String, &Value)) -> bool {
    let is_like = || {
        let text = value.as_str().unwrap_or_default();
        let text = text.strip_prefix("istio-").unwrap_or(text);
        selected.values().any(|it| it == value || it == text)
    };
    selected
        .get(key)
        .map_or_else(is_like, |known| known == value)
}

/// Returns true if policies in the namespace apply to all namespaces.
fn is_root(mesh: &Mesh, namespace: &str) -> bool {
    let maps = mesh.inputs.iter().filter(|(id, _)| id.kind == "ConfigMap");
    let settings = maps.filter_map(|(_, object)| object["data"]["mesh"].as_str());
    let mut names = settings
        .flat_map(str::lines)
        .filter_map(|it| it.trim().strip_prefix("rootNamespace:"));
    namespace == ROOT_NAMESPACE || names.any(|it| it.trim().trim_matches(['"', '\'']) == namespace)
}

fn labels(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

pub(super) fn reach(mesh: &Mesh, id: &ObjectId, object: &Value, selector: &Value) -> Reach {
    let spec = &object["spec"];
    let own = selector["matchLabels"]
        .as_object()
        .or_else(|| selector["labels"].as_object());
    let own = own.cloned().unwrap_or_default();
    let several = spec["targetRefs"].as_array().into_iter().flatten();
    let refs: Vec<&Value> = several.chain(spec.get("targetRef")).collect();
    if !refs.is_empty() {
        let gateways = refs.into_iter().filter(|it| it["kind"] == "Gateway");
        let name = |it: &Value| it["name"].as_str().unwrap_or_default().to_owned();
        let found: Vec<ObjectId> = gateways
            .map(|it| ObjectId::new("Gateway", &id.namespace, &name(it)))
            .collect();
        return if found.is_empty() {
            Reach::Sidecars
        } else {
            Reach::Gateways(found)
        };
    }
    let in_root = is_root(mesh, &id.namespace);
    let is_own = |(namespace, labels): &(String, Map<String, Value>)| {
        let mut own = own.iter();
        (in_root || *namespace == id.namespace)
            && own.all(|(key, value)| labels.get(key) == Some(value))
    };
    let names = |selected: &Map<String, Value>| {
        !own.is_empty() && own.iter().all(|label| is_usual(selected, label))
    };
    let has_named = mesh.selectors.iter().any(|(it, _)| names(it));
    let has_workloads = workloads(mesh).any(|it| is_own(&it));
    let mut found = Vec::new();
    for (selected, class) in &mesh.selectors {
        let pods = pods(mesh, selected);
        let differs = |(key, value)| selected.get(key).is_some_and(|it| it != value);
        let applies = if !pods.is_empty() {
            pods.iter().any(is_own)
        } else if own.is_empty() && in_root || names(selected) {
            true
        } else if has_named || own.iter().any(differs) {
            false
        } else if has_workloads && !selected.is_empty() {
            // It is for these.
            false
        } else {
            return Reach::Unknown;
        };
        let gateway = ObjectId::new("Gateway", "default", class);
        if applies && !found.contains(&gateway) {
            found.push(gateway);
        }
    }
    if found.is_empty() {
        Reach::Sidecars
    } else {
        Reach::Gateways(found)
    }
}

/// Returns namespaces and labels of the pods in the input.
fn workloads(mesh: &Mesh) -> impl Iterator<Item = (String, Map<String, Value>)> {
    let kinds = ["Deployment.apps", "DaemonSet.apps"];
    let workloads = mesh.inputs.iter();
    let workloads = workloads.filter(move |(id, _)| kinds.contains(&id.kind.as_str()));
    workloads.map(|(id, object)| {
        let labels = labels(&object["spec"]["template"]["metadata"]["labels"]);
        (id.namespace.clone(), labels)
    })
}

/// Returns the pods that a Gateway selects, as far as the input has them. Without labels, they are
/// all gateway pods, which the input does not name.
fn pods(mesh: &Mesh, selected: &Map<String, Value>) -> Vec<(String, Map<String, Value>)> {
    let is_selected = |labels: &Map<String, Value>| {
        let mut selected = selected.iter();
        selected.all(|(key, value)| labels.get(key) == Some(value))
    };
    let own = workloads(mesh).filter(|(_, labels)| is_selected(labels));
    own.filter(|_| !selected.is_empty()).collect()
}
