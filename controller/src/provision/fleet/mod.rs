//! Builds a managed fleet: the objects that make nodes or Pods serve one Gateway. Agents can read
//! only this Gateway's keys. Paths on the nodes identify the Gateway, so fleets can share nodes.

mod access;
mod compare;
mod daemonsets;
mod deployment;
mod pods;
mod release;
mod switch;

pub(super) use self::compare::with_comparable_quantities;
pub(super) use self::deployment::{selector, with_initial_replicas};
pub(super) use self::release::{RELEASED_ANNOTATION, is_released_from, released};
pub(super) use self::switch::{is_served_by_pods, retained};

use serde_json::{Value, json};

use super::Basis;
use super::kinds::OwnedKind;
use super::owned::{OwnedObject, beginning_of_names, local_object, stamped};
use sesame_kinds::api::FleetImages;
use sesame_resolver::settings::GatewaySettings;

const ENVOY: &str = "-envoy";
const AGENT: &str = "-agent";
pub(super) const POD_LABEL_VALUE: &str = "sesame-gateway";

#[derive(Clone, Copy, Debug)]
struct Images<'a> {
    agent: &'a str,
    envoy: &'a str,
}

/// The ServiceAccount comes first, because the Gateway that gets the first object also gets the
/// others.
pub(super) fn objects(
    basis: &Basis,
    settings: &GatewaySettings,
    namespace: &str,
    spans: Option<&str>,
) -> Result<Vec<OwnedObject>, String> {
    let images = images(settings.fleet.images.as_ref())?;
    let names = beginning_of_names(basis, ENVOY.len().max(AGENT.len()));
    let agent = format!("{names}{AGENT}");
    let mut all = vec![access::account(basis, &agent)];
    all.extend(access::rights(basis, &agent, namespace));
    let (fleet, name) = (&settings.fleet, format!("{names}{ENVOY}"));
    if settings.is_on_pod_network() {
        let whose = (agent.as_str(), namespace);
        all.extend(deployment::objects(basis, fleet, images, &name, whose));
    } else {
        let daemonset =
            |name: &str, value| local_object(basis, OwnedKind::DaemonSet, name, &[], value);
        let launcher = daemonsets::launcher(basis, fleet, images.envoy);
        all.push(daemonset(&name, launcher));
        let agents = daemonsets::agent(basis, fleet, images.agent, &agent, namespace);
        all.push(daemonset(&agent, agents));
    }
    if let Some(collector) = spans {
        for object in &mut all {
            send_spans_to(&mut object.value, collector);
        }
    }
    Ok(all.into_iter().map(stamped).collect())
}

fn send_spans_to(workload: &mut Value, collector: &str) {
    let containers = workload.pointer_mut("/spec/template/spec/containers");
    let containers = containers.and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if container["name"] == "agent"
            && let Some(variables) = container["env"].as_array_mut()
        {
            variables.push(json!({"name": "SESAME_SPANS_ENDPOINT", "value": collector}));
        }
    }
}

fn images(images: Option<&FleetImages>) -> Result<Images<'_>, String> {
    let missing = |field: &str, flag: &str| {
        format!(
            "spec.fleet.images.{field} is missing, and the controller has no --{flag}-image: set \
            one in the SesameConfiguration of the controller or of the GatewayClass"
        )
    };
    let FleetImages { agent, envoy } = images.ok_or_else(|| missing("agent", "agent"))?;
    Ok(Images {
        agent: agent.as_deref().ok_or_else(|| missing("agent", "agent"))?,
        envoy: envoy.as_deref().ok_or_else(|| missing("envoy", "envoy"))?,
    })
}
