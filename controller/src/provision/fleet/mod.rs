//! Builds a managed fleet: the objects that make nodes serve one Gateway. Pure.
//!
//! In the Gateway's namespace, a fleet has two DaemonSets and a ServiceAccount. In the controller's
//! namespace, it has a Role and two RoleBindings, which let the agents read only this Gateway's
//! keys. `controller/deploy/agent` contains the same objects for applying them by hand. In a
//! managed fleet, paths on the nodes identify the Gateway, so that fleets can share nodes.
//! Alternatively, a Deployment on the Pod network replaces the DaemonSets; `switch` migrates
//! between the two.

mod access;
mod compare;
mod daemonsets;
mod deployment;
mod pods;
mod release;
mod switch;

pub(super) use self::compare::with_comparable_quantities;
pub(super) use self::deployment::{begun, selector};
pub(super) use self::release::{RELEASED_ANNOTATION, is_released_from, released};
pub(super) use self::switch::{is_served_by_pods, meanwhile};

use serde_json::{Value, json};

use super::Basis;
use super::kinds::OwnedKind;
use super::owned::{OwnedObject, beginning_of_names, beside, stamped};
use sesame_gateway_api::api::FleetImages;
use sesame_gateway_api::resolve::settings::GatewaySettings;

/// Name suffixes: one for the launcher's DaemonSet or the Deployment, and one for the agent's
/// DaemonSet and the ServiceAccount.
const ENVOY: &str = "-envoy";
const AGENT: &str = "-agent";
/// Value of the `app.kubernetes.io/name` label on Deployment Pods.
pub(super) const POD_LABEL_VALUE: &str = "sesame-gateway";

/// Images of agents and Envoys.
#[derive(Clone, Copy, Debug)]
struct Images<'a> {
    agent: &'a str,
    envoy: &'a str,
}

/// Returns the objects of a Gateway's fleet, or why the Gateway cannot have a fleet. The
/// ServiceAccount comes first: whichever Gateway gets its name gets all names. `namespace` is the
/// controller's namespace, and `spans` is the collector to which the agents send spans.
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
        let daemonset = |name: &str, value| beside(basis, OwnedKind::DaemonSet, name, &[], value);
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

/// Makes the agents of a workload send spans to this collector.
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
