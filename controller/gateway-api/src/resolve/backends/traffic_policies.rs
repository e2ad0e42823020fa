//! XBackendTrafficPolicies: their targets, and unsupported settings. A policy with one has no
//! effect on traffic at all.

use std::collections::HashMap;

use super::references::BackendName;
use crate::api::{
    LocalPolicyTargetRef, RetryConstraint, XBackendTrafficPolicy, XBackendTrafficPolicySpec,
};
use crate::resolve::context::ResolveContext;
use crate::resolve::syntax::{limits, names};
use crate::status::{Grounds, Reason, Verdict};
use crate::world::Kind;

/// A checked policy.
pub(crate) struct TrafficPolicy<'w> {
    pub(crate) object: &'w XBackendTrafficPolicy,
    pub(crate) accepted: Verdict,
}

/// All policies, oldest first, which is their precedence.
#[derive(Default)]
pub(crate) struct TrafficPolicies<'w> {
    all: Vec<TrafficPolicy<'w>>,
    /// Indices of the policies by their target.
    by_target: HashMap<(Kind, BackendName<'w>), Vec<usize>>,
}

impl<'w> TrafficPolicies<'w> {
    pub(crate) fn check_all(cx: &mut ResolveContext<'w, '_>) -> Self {
        let objects = cx.world.x_backend_traffic_policies.iter();
        let mut objects: Vec<&'w XBackendTrafficPolicy> = objects.map(AsRef::as_ref).collect();
        objects.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        let mut policies = Self::default();
        for object in objects {
            let place = policies.all.len();
            let targets = object.spec.target_refs.iter();
            for target in targets.take(limits::MAX_POLICY_TARGETS) {
                let Some(kind) = kind_of(target) else {
                    continue;
                };
                let name = (object.metadata.namespace.as_str(), target.name.as_str());
                let places = policies.by_target.entry((kind, name)).or_default();
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
            let accepted = check(object, cx);
            policies.all.push(TrafficPolicy { object, accepted });
        }
        policies
    }

    /// Returns true if a policy is for the target.
    pub(crate) fn has(&self, kind: Kind, name: BackendName<'_>) -> bool {
        self.by_target.contains_key(&(kind, name))
    }

    /// Returns the indices of the policies for a target, each with its error there.
    pub(crate) fn of_target(
        &self,
        kind: Kind,
        name: BackendName<'_>,
    ) -> Vec<(usize, Option<Grounds>)> {
        let places = self.by_target.get(&(kind, name)).map(Vec::as_slice);
        let places = places.unwrap_or_default();
        let oldest = places.first().and_then(|place| self.all.get(*place));
        let oldest = oldest.map(|it| it.object.metadata.key());
        let at = format!("{kind} {}/{}", name.0, name.1);
        let judge = |(index, place): (usize, &usize)| {
            let oldest = oldest.as_ref().filter(|_| index > 0);
            let fault = oldest.map(|oldest| {
                let why = format!(
                    "{at} has an older XBackendTrafficPolicy, {oldest}; only the oldest applies"
                );
                (Reason::Conflicted, why)
            });
            (*place, fault)
        };
        places.iter().enumerate().map(judge).collect()
    }

    /// Returns the policy that decides on sessions with a target, if any.
    pub(super) fn for_sessions(
        &self,
        kind: Kind,
        name: BackendName<'_>,
    ) -> Option<&'w XBackendTrafficPolicy> {
        let oldest = self.by_target.get(&(kind, name))?.first()?;
        let policy = self.all.get(*oldest)?;
        let asks = policy.object.spec.session_persistence.is_some();
        (asks && policy.accepted.good()).then_some(policy.object)
    }

    pub(crate) fn get(&self, place: usize) -> Option<&TrafficPolicy<'w>> {
        self.all.get(place)
    }
}

fn kind_of(target: &LocalPolicyTargetRef) -> Option<Kind> {
    let LocalPolicyTargetRef {
        group,
        kind,
        name: _,
    } = target;
    [Kind::Service, Kind::XBackend]
        .into_iter()
        .find(|it| it.group() == group && it.as_str() == kind)
}

fn check(object: &XBackendTrafficPolicy, cx: &mut ResolveContext<'_, '_>) -> Verdict {
    let XBackendTrafficPolicySpec {
        target_refs,
        retry_constraint,
        // Handled with the rules that keep the sessions.
        session_persistence: _,
    } = &object.spec;
    let mut accepted = Verdict::default();
    accepted.refuse_if(
        Reason::UnsupportedValue,
        object.metadata.unknown.refusal(""),
    );
    let count = target_refs.len();
    let number = limits::entries("spec.targetRefs", count, 1..=limits::MAX_POLICY_TARGETS);
    accepted.refuse_if(Reason::Invalid, number.err());
    for (i, target) in target_refs
        .iter()
        .take(limits::MAX_POLICY_TARGETS)
        .enumerate()
    {
        let LocalPolicyTargetRef { group, kind, name } = target;
        if kind_of(target).is_none() {
            let message = format!(
                "spec.targetRefs[{i}]: {} {name:?} is not supported and has no effect; expected a Service of the core group or an \
                 XBackend of {}",
                names::group_kind(group, kind),
                Kind::XBackend.group()
            );
            let own = Kind::XBackendTrafficPolicy.named(object.metadata.key());
            cx.problems.add(own, message);
        }
        if target_refs.iter().take(i).any(|other| other == target) {
            let why = format!("spec.targetRefs[{i}] is listed twice");
            accepted.refuse(Reason::Invalid, why);
        }
    }
    // Destructured in full, so that a new field is noticed.
    if let Some(RetryConstraint {
        budget: _,
        min_retry_rate: _,
    }) = retry_constraint
    {
        let why = "spec.retryConstraint is not supported: minRetryRate, which always has a value, \
            counts retries in an interval, but Envoy's minimum counts concurrent retries; use \
            retry.attempts of rules to limit retries";
        accepted.refuse(Reason::UnsupportedValue, why);
    }
    accepted
}
