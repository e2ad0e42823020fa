//! Preserves other writers' fields when an object is replaced. Without these fields, a load
//! balancer could leak or the API server could reject the object.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fleet::POD_LABEL_VALUE;

/// Lists the labels and annotations that Sesame wrote, so that only obsolete ones are removed.
pub(super) const WRITTEN_ANNOTATION: &str = "projectsesame.io/written";
const CLUSTER_FIELDS: [&str; 2] = ["loadBalancerClass", "loadBalancerIP"];
const NAMED: [&str; 2] = ["labels", "annotations"];

pub(super) fn record_written(object: &mut Value) {
    let names: Vec<String> = NAMED
        .into_iter()
        .flat_map(|part| names(object, part))
        .collect();
    object["metadata"]["annotations"][WRITTEN_ANNOTATION] = json!(names.join(" "));
}

pub(super) fn with_kept(mut object: Value, found: &Value) -> Value {
    let finalizers = &found["metadata"]["finalizers"];
    if finalizers.is_array() {
        object["metadata"]["finalizers"] = finalizers.clone();
    }
    let written = found["metadata"]["annotations"][WRITTEN_ANNOTATION].as_str();
    if let Some(written) = written {
        let written: BTreeSet<&str> = written.split(' ').collect();
        for part in NAMED {
            for (name, value) in found["metadata"][part].as_object().into_iter().flatten() {
                let ours = written.contains(noted(part, name).as_str());
                if !ours && object["metadata"][part].get(name).is_none() {
                    object["metadata"][part][name] = value.clone();
                }
            }
        }
    }
    keep_decided(&mut object, found);
    let balanced = |value: &Value| value["spec"]["type"] == "LoadBalancer";
    if balanced(&object) && balanced(found) {
        for field in CLUSTER_FIELDS {
            if object["spec"][field].is_null() && !found["spec"][field].is_null() {
                object["spec"][field] = found["spec"][field].clone();
            }
        }
    }
    object
}

/// Keeps a Deployment's replica count if it is not configured, and a Service's selector. Without
/// the selector, Kubernetes would never remove the last Pods' endpoints.
fn keep_decided(object: &mut Value, found: &Value) {
    let led_to_pods = found["spec"]["selector"]["app.kubernetes.io/name"] == POD_LABEL_VALUE;
    for (kind, field, keeps) in [
        ("Deployment", "replicas", true),
        ("Service", "selector", led_to_pods),
    ] {
        let value = &found["spec"][field];
        if keeps && object["kind"] == kind && object["spec"][field].is_null() && !value.is_null() {
            object["spec"][field] = value.clone();
        }
    }
}

fn names(object: &Value, part: &'static str) -> Vec<String> {
    let entries = object["metadata"][part].as_object();
    let names = entries.into_iter().flat_map(|entries| entries.keys());
    names.map(|name| noted(part, name)).collect()
}

fn noted(part: &str, name: &str) -> String {
    format!("{part}:{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_additions_stay_and_obsolete_fields_go() {
        let written = |labels: Value, annotations: Value| {
            let mut object = json!({
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"type": "LoadBalancer", "loadBalancerIP": "192.0.2.1"},
            });
            record_written(&mut object);
            object
        };
        let mut found = written(json!({"a": "1", "b": "1"}), json!({"c": "1"}));
        found["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
        found["metadata"]["labels"]["theirs"] = json!("x");
        found["metadata"]["annotations"]["example.com/pool"] = json!("y");
        found["spec"]["loadBalancerClass"] = json!("example.com/lb");
        found["spec"]["loadBalancerIP"] = json!("192.0.2.9");
        let object = with_kept(written(json!({"a": "2"}), json!({})), &found);
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"], json!({"a": "2", "theirs": "x"}));
        assert_eq!(metadata["annotations"]["example.com/pool"], "y");
        assert_eq!(metadata["annotations"]["c"], Value::Null);
        assert_eq!(metadata["annotations"][WRITTEN_ANNOTATION], "labels:a");
        assert_eq!(metadata["finalizers"], found["metadata"]["finalizers"]);
        assert_eq!(object["spec"]["loadBalancerClass"], "example.com/lb");
        assert_eq!(object["spec"]["loadBalancerIP"], "192.0.2.1");
    }
}
