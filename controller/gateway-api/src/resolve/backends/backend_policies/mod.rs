//! BackendPolicies: the settings of each Service port and XBackend. A policy with an error has no effect.

mod read;

use self::read::settings;
use super::references::BackendName;
use super::settings::BackendSettings;
use crate::api::{BackendPolicy, BackendPolicySpec};
use crate::resolve::context::ResolveContext;
use crate::resolve::policies::targets::{self, PolicyTargets};
use crate::status::{Grounds, Reason, Verdict};
use crate::world::{Kind, World};

/// A checked policy.
pub(crate) struct CheckedBackendPolicy<'w> {
    pub(crate) object: &'w BackendPolicy,
    pub(crate) accepted: Verdict,
    /// Without effect if the policy is not accepted.
    settings: BackendSettings,
}

/// All policies, oldest first.
pub(crate) struct BackendPolicies<'w> {
    all: Vec<CheckedBackendPolicy<'w>>,
    targets: PolicyTargets<'w>,
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
            let BackendPolicySpec { target_refs, .. } = &object.spec;
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

    pub(crate) fn has(&self, kind: Kind, name: BackendName<'_>) -> bool {
        self.targets.has(kind, name)
    }

    /// Returns the place and settings of the policy that applies to a port, by its name.
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

    /// Returns the places of the policies for a target, each with its error there.
    pub(crate) fn judge(
        &self,
        kind: Kind,
        name: BackendName<'_>,
        world: &World,
    ) -> Vec<(usize, Option<Grounds>)> {
        self.targets.judge(kind, name, world)
    }

    pub(crate) fn get(&self, place: usize) -> Option<&CheckedBackendPolicy<'w>> {
        self.all.get(place)
    }
}
