//! Validates BackendTLSPolicies.
//!
//! An invalid policy still applies: traffic to its targets is rejected, never sent in plaintext.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::schema::{self, TrustBundle};

use super::BackendName;
use super::validation::Validation;
use crate::context::ResolveContext;
use crate::policies::targets::{self, PolicyTargets};
use crate::syntax::names;
use crate::tls::ca_bundles::CaBundles;
use crate::tls::subject_alt_names::{self, AltNames, PATTERNS};
use sesame_kinds::api::{BackendTlsPolicy, BackendTlsPolicySpec};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::{Kind, ObjectKey};

pub(crate) struct Policy<'w> {
    pub(crate) object: &'w BackendTlsPolicy,
    pub(crate) accepted: Verdict,
    pub(crate) resolved: Verdict,
    /// `None` if the policy is invalid, so that traffic to its targets is rejected.
    tls: Option<schema::BackendTls>,
    bundle: Option<Arc<TrustBundle>>,
}

pub(crate) enum Applied<'p> {
    Tls(&'p schema::BackendTls),
    /// Traffic is rejected for this reason.
    Refused(String),
}

/// Sorted by precedence, oldest first.
pub(crate) struct Policies<'w> {
    all: Vec<Policy<'w>>,
    pub(crate) targets: PolicyTargets<'w>,
}

impl<'w> Policies<'w> {
    pub(crate) fn check_all(cx: &mut ResolveContext<'w, '_>, bundles: &mut CaBundles<'w>) -> Self {
        let mut targeted = PolicyTargets::new(Kind::BackendTlsPolicy, &[Kind::Service]);
        let mut all = Vec::new();
        for object in targets::by_age(&cx.world.backend_tls_policies) {
            all.push(check(object, &mut targeted, cx, bundles));
        }
        Self {
            all,
            targets: targeted,
        }
    }

    /// A policy for the port takes precedence over one for the whole Service.
    pub(crate) fn find(&self, service: BackendName<'_>, port: &str) -> Option<Applied<'_>> {
        let place = self.targets.applied(Kind::Service, service, port)?;
        let policy = self.all.get(place)?;
        Some(match &policy.tls {
            Some(tls) => Applied::Tls(tls),
            None => Applied::Refused(format!(
                "BackendTLSPolicy {} is not valid; see its status",
                policy.object.metadata.key()
            )),
        })
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Policy<'w>> {
        self.all.get(index)
    }

    pub(crate) fn bundles(&self) -> BTreeMap<&str, &TrustBundle> {
        self.all
            .iter()
            .filter_map(|policy| policy.bundle.as_deref())
            .map(|bundle| (bundle.name.as_str(), bundle))
            .collect()
    }
}

fn check<'w>(
    object: &'w BackendTlsPolicy,
    targets: &mut PolicyTargets<'w>,
    cx: &mut ResolveContext<'w, '_>,
    bundles: &mut CaBundles<'w>,
) -> Policy<'w> {
    let BackendTlsPolicySpec {
        target_refs,
        // `Validation::read` reads this field.
        validation: _,
        options,
    } = &object.spec;
    let key = Kind::BackendTlsPolicy.named(object.metadata.key());
    let mut accepted = Verdict::default();
    let mut resolved = Verdict::default();
    let unknown = object.metadata.unknown.refusal("");
    accepted.refuse_if(Reason::UnsupportedValue, unknown);
    targets.add(&object.metadata, target_refs, &mut accepted, cx);
    let patterns = patterns(options, &key, &mut accepted, cx);
    let asked = Validation {
        of: &object.spec.validation,
        at: "spec.validation",
        kind: Kind::BackendTlsPolicy,
        metadata: &object.metadata,
        patterns,
    };
    let (tls, bundle) = asked.read(&mut accepted, &mut resolved, bundles, cx);
    Policy {
        object,
        tls: accepted.good().then_some(tls),
        accepted,
        resolved,
        bundle,
    }
}

/// An invalid Sesame option makes the whole policy invalid, because ignoring the option could
/// weaken verification.
fn patterns(
    options: &BTreeMap<String, String>,
    policy: &ObjectKey,
    accepted: &mut Verdict,
    cx: &mut ResolveContext<'_, '_>,
) -> Option<AltNames> {
    let mut patterns = None;
    for (name, value) in options {
        if name == PATTERNS {
            match subject_alt_names::read_patterns(value) {
                Ok(names) => patterns = Some(names),
                Err(why) => {
                    let message = format!("spec.options {name:?} {why}");
                    accepted.refuse(Reason::Invalid, message);
                }
            }
        } else if names::is_ours(name) {
            let message = format!("spec.options {name:?} is unknown; expected {PATTERNS:?}");
            accepted.refuse(Reason::Invalid, message);
        } else {
            let message =
                format!("spec.options {name:?}: {value:?} is not supported and has no effect");
            cx.problems.add(policy.clone(), message);
        }
    }
    patterns
}
