//! Envoy Gateway's objects. Gateway API objects pass through; references in them are changed.

mod access;
mod authorization;
mod backends;
mod client;
mod cors;
mod credentials;
mod filters;
mod gateways;
mod index;
mod limits;
mod oidc;
mod passed;
mod proxy;
mod references;
mod responses;
mod targets;
mod tls;
mod traffic;

use serde_json::Value;

pub(super) use self::index::InputIndex;

use super::draft::{Draft, ObjectId};
use super::fields::RemainingFields;
use super::verdicts::VerdictLog;
use sesame_kinds::api::GATEWAY_GROUP;

pub(super) const GROUP: &str = "gateway.envoyproxy.io";
const VERSION: &str = "gateway.envoyproxy.io/v1alpha1";
const ANNOTATIONS: &str = "gateway.envoyproxy.io/";

type ConvertKind = fn(&mut Draft, &ObjectId, &Value);

/// Later kinds change the output of earlier kinds.
const KINDS: &[(&str, ConvertKind)] = &[
    ("Backend", filters::backend),
    ("HTTPRouteFilter", filters::route_filter),
    ("EnvoyProxy", proxy::convert),
    ("ClientTrafficPolicy", client::convert),
    ("SecurityPolicy", access::convert),
    ("BackendTrafficPolicy", traffic::convert),
    ("EnvoyExtensionPolicy", extension),
    ("EnvoyPatchPolicy", extension),
];

pub(super) fn convert(draft: &mut Draft) {
    let inputs = draft.inputs();
    for (id, object) in &inputs {
        match group(object) {
            GATEWAY_GROUP => passed::convert(draft, id, object),
            GROUP if is_known(id, object) => {}
            GROUP => {
                let reason = "Sesame has no counterpart of this kind or version";
                let remedy = "remove the object, or accept the loss";
                draft.refuse(id, "kind", reason, remedy);
            }
            _ => {
                let reason = "not an object of Envoy Gateway; keep it as it is";
                draft.unneeded(id, reason);
            }
        }
    }
    for (kind, convert) in KINDS {
        for (id, object) in &inputs {
            if id.kind == *kind && is_known(id, object) {
                convert(draft, id, object);
            }
        }
    }
}

fn group(object: &Value) -> &str {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    version.split_once('/').map_or("", |(group, _)| group)
}

fn is_known(id: &ObjectId, object: &Value) -> bool {
    object["apiVersion"] == VERSION && KINDS.iter().any(|(kind, _)| *kind == id.kind)
}

/// Extensions and patches may contain any protection, and refer to names in Envoy's configuration.
fn extension(draft: &mut Draft, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let targets = targets::read(draft, id, &mut spec, targets::ANY);
    drop(spec);
    drop(root);
    draft.record(id, &log, targets::ids(&targets));
}
