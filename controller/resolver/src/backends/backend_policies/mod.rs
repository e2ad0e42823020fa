//! Checks BackendPolicies. An invalid policy has no effect.

mod read;

use self::read::settings;
use super::references::BackendName;
use super::settings::BackendSettings;
use crate::context::ResolveContext;
use crate::policies::targets::{self, PolicyTargets};
use sesame_kinds::api::BackendPolicy;
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::Kind;

pub(crate) struct CheckedBackendPolicy<'w> {
    pub(crate) object: &'w BackendPolicy,
    pub(crate) accepted: Verdict,
    /// Has no effect if `accepted` contains an error.
    settings: BackendSettings,
}

/// Policies, oldest first.
pub(crate) struct BackendPolicies<'w> {
    all: Vec<CheckedBackendPolicy<'w>>,
    pub(crate) targets: PolicyTargets<'w>,
}

impl<'w> BackendPolicies<'w> {
    pub(crate) fn check_all(cx: &mut ResolveContext<'w, '_>) -> Self {
        let kinds = &[Kind::Service, Kind::XBackend];
        let mut targeted = PolicyTargets::new(Kind::BackendPolicy, kinds);
        let mut all = Vec::new();
        for object in targets::by_age(&cx.world.backend_policies) {
            let mut accepted = Verdict::default();
            let unknown = object.metadata.unknown.refusal("");
            accepted.refuse_if(Reason::UnsupportedValue, unknown);
            let target_refs = &object.spec.target_refs;
            targeted.add(&object.metadata, target_refs, &mut accepted, cx);
            let read = settings(&object.spec);
            let settings = read.unwrap_or_else(|why| {
                accepted.refuse(Reason::Invalid, format!("spec.{why}"));
                BackendSettings::default()
            });
            all.push(CheckedBackendPolicy {
                object,
                accepted,
                settings,
            });
        }
        Self {
            all,
            targets: targeted,
        }
    }

    /// Returns the policy's index and settings, or `None` if the policy is invalid.
    pub(super) fn applied(
        &self,
        kind: Kind,
        name: BackendName<'_>,
        port: &str,
    ) -> Option<(usize, &BackendSettings)> {
        let place = self.targets.applied(kind, name, port)?;
        let policy = self.all.get(place).filter(|it| it.accepted.good())?;
        Some((place, &policy.settings))
    }

    pub(crate) fn get(&self, place: usize) -> Option<&CheckedBackendPolicy<'w>> {
        self.all.get(place)
    }
}
