//! Fills in default values as the API server does, because stored objects contain them. A default
//! that is missing here may cause a false difference, but never hides a real one.

use serde_json::{Value, json};

pub(super) fn with_defaults(mut object: Value) -> Value {
    let Some(spec) = object
        .get_mut("spec")
        .filter(|spec| spec["template"].is_object())
    else {
        return object;
    };
    fill(spec, "revisionHistoryLimit", &json!(10));
    if spec["strategy"].is_object() {
        fill(spec, "progressDeadlineSeconds", &json!(600));
    }
    let pod = &mut spec["template"]["spec"];
    let account = pod["serviceAccountName"].clone();
    for (field, default) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("serviceAccount", account),
    ] {
        fill(pod, field, &default);
    }
    for volume in pod["volumes"].as_array_mut().into_iter().flatten() {
        let sources = volume.pointer_mut("/projected/sources");
        let sources = sources.and_then(Value::as_array_mut).into_iter().flatten();
        let items = sources.filter_map(|source| source.pointer_mut("/downwardAPI/items"));
        for item in items.filter_map(Value::as_array_mut).flatten() {
            fill_field_ref(item, "/fieldRef");
        }
    }
    for field in ["containers", "initContainers"] {
        for container in pod[field].as_array_mut().into_iter().flatten() {
            fill_container(container);
        }
    }
    object
}

fn fill_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let policy = json!(pull_policy(image));
    fill(container, "imagePullPolicy", &policy);
    fill(
        container,
        "terminationMessagePath",
        &json!("/dev/termination-log"),
    );
    fill(container, "terminationMessagePolicy", &json!("File"));
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        for (field, default) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            if let Some(probe) = container.get_mut(probe) {
                fill(probe, field, &json!(default));
            }
        }
    }
    let variables = container.get_mut("env").and_then(Value::as_array_mut);
    for variable in variables.into_iter().flatten() {
        fill_field_ref(variable, "/valueFrom/fieldRef");
    }
}

fn fill_field_ref(of: &mut Value, pointer: &str) {
    if let Some(reference) = of.pointer_mut(pointer) {
        fill(reference, "apiVersion", &json!("v1"));
    }
}

/// Returns `Always` if the image has no tag or the tag `latest`.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let is_pinned = name.contains('@');
    match name.split_once(':') {
        _ if is_pinned => "IfNotPresent",
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        _ => "Always",
    }
}

fn fill(value: &mut Value, field: &str, default: &Value) {
    if let Some(fields) = value.as_object_mut() {
        let there = fields.get(field).is_some_and(|there| !there.is_null());
        if !there && !default.is_null() {
            fields.insert(field.to_owned(), default.clone());
        }
    }
}
