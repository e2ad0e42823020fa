//! Checks XBackendTrafficPolicies. A policy with an unsupported setting has no effect.

use super::references::BackendName;
use crate::context::ResolveContext;
use crate::policies::targets::{self, PolicyTargets};
use sesame_kinds::api::{RetryConstraint, XBackendTrafficPolicy, XBackendTrafficPolicySpec};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::Kind;

pub(crate) struct XTrafficPolicy<'w> {
    pub(crate) object: &'w XBackendTrafficPolicy,
    pub(crate) accepted: Verdict,
}

/// Sorted by precedence, oldest first.
pub(crate) struct XTrafficPolicies<'w> {
    all: Vec<XTrafficPolicy<'w>>,
    pub(crate) targets: PolicyTargets<'w>,
}

impl<'w> XTrafficPolicies<'w> {
    pub(crate) fn check_all(cx: &mut ResolveContext<'w, '_>) -> Self {
        let kinds = &[Kind::Service, Kind::XBackend];
        let mut targeted = PolicyTargets::new(Kind::XBackendTrafficPolicy, kinds);
        let mut all = Vec::new();
        for object in targets::by_age(&cx.world.x_backend_traffic_policies) {
            let accepted = check(object, &mut targeted, cx);
            all.push(XTrafficPolicy { object, accepted });
        }
        Self {
            all,
            targets: targeted,
        }
    }

    pub(super) fn for_sessions(
        &self,
        kind: Kind,
        name: BackendName<'_>,
    ) -> Option<&'w XBackendTrafficPolicy> {
        let oldest = self.targets.applied(kind, name, "")?;
        let policy = self.all.get(oldest)?;
        let asks = policy.object.spec.session_persistence.is_some();
        (asks && policy.accepted.good()).then_some(policy.object)
    }

    pub(crate) fn get(&self, place: usize) -> Option<&XTrafficPolicy<'w>> {
        self.all.get(place)
    }
}

fn check<'w>(
    object: &'w XBackendTrafficPolicy,
    targets: &mut PolicyTargets<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> Verdict {
    let XBackendTrafficPolicySpec {
        target_refs,
        retry_constraint,
        // Validated separately for each rule.
        session_persistence: _,
    } = &object.spec;
    let mut accepted = Verdict::default();
    accepted.refuse_if(
        Reason::UnsupportedValue,
        object.metadata.unknown.refusal(""),
    );
    targets.add(&object.metadata, target_refs, &mut accepted, cx);
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
