//! Changes Gateways and their SesameConfigurations on behalf of other objects.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::values::{mapping_at, put};
use sesame_kinds::api::SESAME_GROUP;

pub(super) fn has_listener_set(draft: &Draft, gateway: &ObjectId) -> bool {
    let mut children = draft.index().children(gateway);
    children.any(|child| child.kind == "ListenerSet")
}

pub(super) fn listeners(gateway: &mut Value) -> &mut [Value] {
    let listeners = gateway.pointer_mut("/spec/listeners");
    let listeners = listeners.and_then(Value::as_array_mut);
    listeners.map(Vec::as_mut_slice).unwrap_or_default()
}

pub(super) fn port(gateway: &mut Value, name: &str) -> Option<i64> {
    let listener = listeners(gateway).iter().find(|it| it["name"] == *name)?;
    listener["port"].as_i64()
}

/// Only listeners that terminate TLS have these settings.
pub(super) fn set_options(
    gateway: &mut Value,
    section: Option<&str>,
    options: &Map<String, Value>,
) {
    for listener in listeners(gateway) {
        let is_target = section.is_none_or(|name| listener["name"] == *name);
        let is_passed = listener["tls"]["mode"] == "Passthrough";
        if !is_target || is_passed || options.is_empty() {
            continue;
        }
        if let Some(tls) = listener.get_mut("tls").and_then(Value::as_object_mut) {
            let own = tls.entry("options").or_insert_with(|| json!({}));
            let Some(own) = own.as_object_mut() else {
                continue;
            };
            for (name, value) in options {
                // A listener's policy takes precedence over its Gateway's, in any order.
                if section.is_some() || !own.contains_key(name) {
                    own.insert(name.clone(), value.clone());
                }
            }
        }
    }
}

pub(super) fn set_validation(
    gateway: &mut Value,
    port: Option<i64>,
    validation: &Value,
) -> Result<(), String> {
    const OTHER: &str = "spec.tls.frontend is not a mapping";
    let frontend = mapping_at(gateway, &["spec", "tls", "frontend"]).ok_or(OTHER)?;
    let Some(port) = port else {
        if !frontend.is_empty() {
            return Err("the Gateway already has spec.tls.frontend".to_owned());
        }
        frontend.insert("default".to_owned(), json!({ "validation": validation }));
        return Ok(());
    };
    frontend.entry("default").or_insert_with(|| json!({}));
    let ports = frontend.entry("perPort").or_insert_with(|| json!([]));
    let ports = ports.as_array_mut().ok_or(OTHER)?;
    if ports.iter().any(|it| it["port"] == port) {
        return Err(format!(
            "port {port} already has settings in spec.tls.frontend"
        ));
    }
    ports.push(json!({"port": port, "tls": {"validation": validation}}));
    Ok(())
}

/// Adds settings to the SesameConfiguration of a Gateway, or creates one.
pub(super) fn configure(
    draft: &mut Draft,
    id: &ObjectId,
    gateway: &ObjectId,
    parts: Map<String, Value>,
) -> Result<(), String> {
    let sharing = |name: &str| {
        let gateways = draft.outputs.iter().filter(|(other, output)| {
            let parameters = &output.value["spec"]["infrastructure"]["parametersRef"];
            let class = &output.value["spec"]["parametersRef"];
            let is_class = class["name"] == *name && class["namespace"] == *gateway.namespace;
            is_class || other.namespace == gateway.namespace && parameters["name"] == *name
        });
        gateways.count()
    };
    let output = draft.outputs.get(gateway).ok_or("not in the input")?;
    let parameters = output.value["spec"]["infrastructure"]["parametersRef"].clone();
    let name = parameters["name"]
        .as_str()
        .unwrap_or(&gateway.name)
        .to_owned();
    let configuration = ObjectId::new("SesameConfiguration", &gateway.namespace, &name);
    let shared = sharing(&name);
    if parameters.is_null() {
        let mut metadata = Map::new();
        put(&mut metadata, "name", Some(name.as_str()));
        let namespace = output.value["metadata"].get("namespace").cloned();
        put(&mut metadata, "namespace", namespace);
        if shared > 0 || draft.outputs.contains_key(&configuration) {
            return Err(format!("{configuration} has another purpose"));
        }
        let object = sesame_object("SesameConfiguration", metadata, json!({}));
        draft.add(id, object);
        let gateway = draft.change(gateway, id).ok_or("not in the input")?;
        let infrastructure = mapping_at(gateway, &["spec", "infrastructure"]);
        let infrastructure = infrastructure.ok_or("spec.infrastructure is not a mapping")?;
        let reference = json!({"group": SESAME_GROUP, "kind": "SesameConfiguration", "name": name});
        infrastructure.insert("parametersRef".to_owned(), reference);
    } else if shared > 1 {
        return Err(format!("several objects share {configuration}"));
    }
    let object = draft
        .change(&configuration, id)
        .ok_or("its parameters are not in the input")?;
    for (part, settings) in parts {
        if let Value::Array(entries) = settings {
            append(object, &part, entries)?;
            continue;
        }
        let own = mapping_at(object, &["spec", &part]);
        let own = own.ok_or_else(|| format!("spec.{part} is not a mapping"))?;
        for (name, value) in settings.as_object().into_iter().flatten() {
            if own.contains_key(name) {
                return Err(format!("another policy also sets spec.{part}.{name}"));
            }
            own.insert(name.clone(), value.clone());
        }
    }
    Ok(())
}

/// Appends entries for ports that have none yet.
fn append(object: &mut Value, part: &str, entries: Vec<Value>) -> Result<(), String> {
    let spec = mapping_at(object, &["spec"]).ok_or("spec is not a mapping")?;
    let list = spec.entry(part).or_insert_with(|| json!([]));
    let list = list.as_array_mut();
    let list = list.ok_or_else(|| format!("spec.{part} is not a list"))?;
    for entry in entries {
        if list.iter().any(|other| other["port"] == entry["port"]) {
            let number = &entry["port"];
            return Err(format!(
                "another policy also sets spec.{part} for port {number}"
            ));
        }
        list.push(entry);
    }
    Ok(())
}
