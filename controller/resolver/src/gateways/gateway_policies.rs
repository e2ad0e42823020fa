//! Finds the policies that target each Gateway. A policy can only target Gateways in its own
//! namespace.

use std::collections::HashMap;

use crate::context::ResolveContext;
use crate::syntax::{limits, names};
use sesame_kinds::api::{GATEWAY_GROUP, LocalPolicyTargetRef, Metadata};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::Kind;

pub(crate) trait GatewayPolicy {
    const KIND: Kind;

    fn metadata(&self) -> &Metadata;

    fn targets(&self) -> &[LocalPolicyTargetRef];
}

/// Results of the checks that do not depend on the targeted Gateway.
pub(crate) struct CheckedPolicy<'w, P> {
    pub(crate) object: &'w P,
    pub(crate) accepted: Verdict,
}

pub(crate) struct GatewayPolicies<'w, P> {
    all: Vec<CheckedPolicy<'w, P>>,
    /// Keyed by namespace and name of the targeted Gateway.
    by_gateway: HashMap<(&'w str, &'w str), Vec<usize>>,
}

impl<'w, P: GatewayPolicy> GatewayPolicies<'w, P> {
    pub(super) fn check_all(
        mut objects: Vec<&'w P>,
        cx: &mut ResolveContext<'w, '_>,
        check: impl Fn(&P, &mut Verdict),
    ) -> Self {
        objects.sort_by(|a, b| a.metadata().by_age(b.metadata()));
        let mut policies = Self {
            all: Vec::with_capacity(objects.len()),
            by_gateway: HashMap::new(),
        };
        for object in objects {
            let place = policies.all.len();
            let targets = object.targets().iter();
            for target in targets
                .take(limits::MAX_POLICY_TARGETS)
                .filter(|it| is_gateway(it))
            {
                let gateway = (object.metadata().namespace.as_str(), target.name.as_str());
                let places = policies.by_gateway.entry(gateway).or_default();
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
            let mut accepted = check_targets(object, cx);
            check(object, &mut accepted);
            policies.all.push(CheckedPolicy { object, accepted });
        }
        policies
    }

    pub(crate) fn for_gateway(&self, gateway: &Metadata) -> Vec<&CheckedPolicy<'w, P>> {
        let name = (gateway.namespace.as_str(), gateway.name.as_str());
        let places = self.by_gateway.get(&name).into_iter().flatten();
        places.filter_map(|place| self.all.get(*place)).collect()
    }
}

fn is_gateway(target: &LocalPolicyTargetRef) -> bool {
    target.group == GATEWAY_GROUP && target.kind == Kind::Gateway.as_str()
}

fn check_targets<P: GatewayPolicy>(object: &P, cx: &mut ResolveContext<'_, '_>) -> Verdict {
    let (metadata, targets) = (object.metadata(), object.targets());
    let mut accepted = Verdict::default();
    accepted.refuse_if(Reason::UnsupportedValue, metadata.unknown.refusal(""));
    let number = limits::entries(
        "spec.targetRefs",
        targets.len(),
        1..=limits::MAX_POLICY_TARGETS,
    );
    accepted.refuse_if(Reason::Invalid, number.err());
    let own = P::KIND.named(metadata.key());
    let namespace = metadata.namespace.as_str();
    for (i, target) in targets.iter().take(limits::MAX_POLICY_TARGETS).enumerate() {
        let LocalPolicyTargetRef { group, kind, name } = target;
        let fault = if !is_gateway(target) {
            format!(
                "{} {name:?} is not supported and has no effect; expected a Gateway of {GATEWAY_GROUP}",
                names::group_kind(group, kind)
            )
        } else if cx.world.gateways.get(namespace, name).is_none() {
            format!("Gateway {namespace}/{name} does not exist")
        } else {
            continue;
        };
        let message = format!("spec.targetRefs[{i}]: {fault}");
        cx.problems.add(own.clone(), message);
    }
    accepted
}
