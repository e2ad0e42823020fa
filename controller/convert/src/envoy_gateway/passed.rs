//! Gateway API objects pass through.

use serde_json::{Map, Value, json};
use sesame_kinds::api::CONTROLLER_NAME;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::stops::parents;
use super::super::verdicts::VerdictLog;
use super::{ANNOTATIONS, references};

/// `controllerName` of Envoy Gateway's GatewayClasses.
const CONTROLLER: &str = "gateway.envoyproxy.io/gatewayclass-controller";

pub(super) fn convert(draft: &mut Draft, id: &ObjectId, object: &Value) {
    if is_foreign(draft, id, object) {
        let reason = "another controller's GatewayClass; keep it as it is";
        draft.unneeded(id, reason);
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
    let mut protected = vec![id.clone()];
    if id.kind == "BackendTLSPolicy" {
        protected.extend(routes_to_targets(draft, id, &object["spec"]));
    }
    draft.record(id, &log, protected);
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
        output.insert("controllerName".to_owned(), json!(CONTROLLER_NAME));
    }
    for name in ["description", "parametersRef"] {
        if let Some(field) = spec.take(name) {
            let value = field.carry(&format!("GatewayClass spec.{name}"));
            output.insert(name.to_owned(), value);
        }
    }
    Value::Object(output)
}

/// Returns the routes to the targets of a BackendTLSPolicy. Without the policy, Envoy would send
/// their requests unencrypted.
fn routes_to_targets(draft: &Draft, id: &ObjectId, spec: &Value) -> Vec<ObjectId> {
    let targets = spec["targetRefs"].as_array().into_iter().flatten();
    let targets = targets.chain(spec.get("targetRef"));
    let names: Vec<&str> = targets.filter_map(|it| it["name"].as_str()).collect();
    let index = draft.index();
    let routes = names
        .iter()
        .flat_map(|name| index.routes_to(&id.namespace, name));
    routes.cloned().collect()
}

/// Returns the input's routes, Gateways and other Gateway API objects that refer to an object.
pub(super) fn referrers(draft: &Draft, id: &ObjectId) -> Vec<ObjectId> {
    let referring = draft.index().referring(id);
    referring.filter(|own| *own != id).cloned().collect()
}
