//! Gateway API objects pass through.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::stops::parents;
use super::super::verdicts::VerdictLog;
use super::{ANNOTATIONS, references, unneeded};

/// `controllerName` of Envoy Gateway's GatewayClasses.
const CONTROLLER: &str = "gateway.envoyproxy.io/gatewayclass-controller";
const OURS: &str = "projectsesame.io/gateway-controller";

pub(super) fn convert(draft: &mut Draft, id: &ObjectId, object: &Value) {
    if is_foreign(draft, id, object) {
        let reason = "another controller's GatewayClass; keep it as it is";
        unneeded(draft, id, reason);
        return;
    }
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let metadata = root.take_head(ANNOTATIONS);
    let mut output = Map::new();
    for name in ["apiVersion", "kind"] {
        output.insert(name.to_owned(), object[name].clone());
    }
    output.insert("metadata".to_owned(), Value::Object(metadata));
    if let Some(spec) = root.take("spec") {
        let mut spec = if id.kind == "GatewayClass" {
            class(spec.fields())
        } else {
            spec.carry(&format!("{} spec", id.kind))
        };
        references::rewrite(draft, id, "spec", &mut spec, &log);
        output.insert("spec".to_owned(), spec);
    }
    drop(root);
    draft.record(id, &log, [id.clone()]);
    draft.add(id, Value::Object(output));
}

/// A custom controller name is Envoy Gateway's too if nothing else is known about it.
fn is_foreign(draft: &Draft, id: &ObjectId, object: &Value) -> bool {
    let class = match id.kind.as_str() {
        "GatewayClass" => Some(object),
        "Gateway" => parents(id, object).first().and_then(|it| draft.input(it)),
        _ => None,
    };
    let name = class.and_then(|class| class["spec"]["controllerName"].as_str());
    name.is_some_and(|name| !name.starts_with(ANNOTATIONS))
}

fn class(mut spec: RemainingFields) -> Value {
    let mut output = Map::new();
    if let Some(field) = spec.take("controllerName") {
        let difference = if field.as_str() == CONTROLLER {
            "changed to Sesame's controller; the field of an existing GatewayClass is immutable, \
            so in the same cluster, rename the class. Fleets are unmanaged unless a \
            SesameConfiguration sets spec.fleet"
        } else {
            "changed to Sesame's controller; the class had its own controller name"
        };
        field.differ("GatewayClass spec.controllerName", difference);
        output.insert("controllerName".to_owned(), json!(OURS));
    }
    for name in ["description", "parametersRef"] {
        if let Some(field) = spec.take(name) {
            let value = field.carry(&format!("GatewayClass spec.{name}"));
            output.insert(name.to_owned(), value);
        }
    }
    Value::Object(output)
}

/// Returns the input's routes, Gateways and other Gateway API objects that refer to an object.
pub(super) fn referrers(draft: &Draft, id: &ObjectId) -> Vec<ObjectId> {
    let inputs = draft.inputs().into_iter();
    let refer = inputs.filter(|(own, object)| {
        own != id && references::refers(&object["spec"], &own.namespace, id)
    });
    refer.map(|(own, _)| own).collect()
}
