//! XTelemetryPolicies, and the Gateways that they are for.

use std::collections::HashMap;

use crate::api::{
    GATEWAY_GROUP, LocalPolicyTargetRef, Metadata, TracingSettings, XTelemetryPolicy,
    XTelemetryPolicySpec,
};
use crate::resolve::context::ResolveContext;
use crate::resolve::settings::tracing;
use crate::resolve::syntax::{limits, names};
use crate::status::{Reason, Verdict};
use crate::world::Kind;

/// A policy, checked as far as that needs no Gateway.
pub(crate) struct TelemetryPolicy<'w> {
    pub(crate) object: &'w XTelemetryPolicy,
    pub(crate) accepted: Verdict,
}

/// All policies, oldest first: the order in which they win.
#[derive(Default)]
pub(crate) struct TelemetryPolicies<'w> {
    all: Vec<TelemetryPolicy<'w>>,
    /// Places of the policies by namespace and name of the Gateway.
    by_gateway: HashMap<(&'w str, &'w str), Vec<usize>>,
}

impl<'w> TelemetryPolicies<'w> {
    pub(crate) fn check_all(cx: &mut ResolveContext<'w, '_>) -> Self {
        let objects = cx.world.x_telemetry_policies.iter();
        let mut objects: Vec<&'w XTelemetryPolicy> = objects.map(AsRef::as_ref).collect();
        objects.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        let mut policies = Self::default();
        for object in objects {
            let place = policies.all.len();
            let targets = object.spec.target_refs.iter();
            for target in targets
                .take(limits::MAX_POLICY_TARGETS)
                .filter(|it| is_gateway(it))
            {
                let gateway = (object.metadata.namespace.as_str(), target.name.as_str());
                let places = policies.by_gateway.entry(gateway).or_default();
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
            let accepted = check(object, cx);
            policies.all.push(TelemetryPolicy { object, accepted });
        }
        policies
    }

    /// Returns the policies for a Gateway, oldest first.
    pub(crate) fn of(&self, gateway: &Metadata) -> Vec<&TelemetryPolicy<'w>> {
        let name = (gateway.namespace.as_str(), gateway.name.as_str());
        let places = self.by_gateway.get(&name).into_iter().flatten();
        places.filter_map(|place| self.all.get(*place)).collect()
    }
}

fn is_gateway(target: &LocalPolicyTargetRef) -> bool {
    target.group == GATEWAY_GROUP && target.kind == Kind::Gateway.as_str()
}

fn check(object: &XTelemetryPolicy, cx: &mut ResolveContext<'_, '_>) -> Verdict {
    let XTelemetryPolicySpec {
        target_refs,
        tracing,
    } = &object.spec;
    let mut accepted = Verdict::default();
    accepted.refuse_if(
        Reason::UnsupportedValue,
        object.metadata.unknown.refusal(""),
    );
    let number = limits::entries(
        "spec.targetRefs",
        target_refs.len(),
        1..=limits::MAX_POLICY_TARGETS,
    );
    accepted.refuse_if(Reason::Invalid, number.err());
    let own = Kind::XTelemetryPolicy.named(object.metadata.key());
    let namespace = object.metadata.namespace.as_str();
    let targets = target_refs.iter().take(limits::MAX_POLICY_TARGETS);
    for (i, target) in targets.enumerate() {
        let LocalPolicyTargetRef { group, kind, name } = target;
        if target_refs.iter().take(i).any(|other| other == target) {
            let why = format!("spec.targetRefs[{i}] is the same as another one");
            accepted.refuse(Reason::Invalid, why);
            continue;
        }
        let fault = if !is_gateway(target) {
            format!(
                "{} {name:?} is not supported and has no effect; expected a Gateway of {GATEWAY_GROUP}",
                names::group_kind(group, kind)
            )
        } else if cx.world.gateways.get(namespace, name).is_none() {
            format!("there is no Gateway {namespace}/{name}")
        } else {
            continue;
        };
        let message = format!("spec.targetRefs[{i}]: {fault}");
        cx.problems.add(own.clone(), message);
    }
    let unsaid = TracingSettings::default();
    if let Err((reason, why)) = tracing::read(tracing.as_ref().unwrap_or(&unsaid)) {
        accepted.refuse(reason, format!("spec.tracing.{why}"));
    }
    accepted
}
