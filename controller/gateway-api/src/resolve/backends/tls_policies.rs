//! BackendTLSPolicies: the policy for each Service port, and the TLS that it configures.
//!
//! A policy that is invalid still takes its targets: traffic to them is refused, never sent in plain text.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sesame_proto::schema::{self, TrustBundle};

use super::BackendName;
use super::validation::Validation;
use crate::api::{BackendTlsPolicy, BackendTlsPolicySpec, PolicyTargetRef};
use crate::resolve::context::ResolveContext;
use crate::resolve::syntax::{limits, names};
use crate::resolve::tls::ca_bundles::CaBundles;
use crate::resolve::tls::subject_alt_names::{self, AltNames, PATTERNS};
use crate::status::{Grounds, Reason, Verdict};
use crate::world::{Kind, ObjectKey, World};

/// A checked policy.
pub(crate) struct Policy<'w> {
    pub(crate) object: &'w BackendTlsPolicy,
    pub(crate) accepted: Verdict,
    pub(crate) resolved: Verdict,
    /// `None` if the policy is invalid, and connections are refused.
    tls: Option<schema::BackendTls>,
    bundle: Option<Arc<TrustBundle>>,
}

/// A port of a Service by name, or `None` for the whole Service.
type PolicySection<'w> = Option<&'w str>;

/// The policies for one Service.
#[derive(Default)]
struct ServicePolicies<'w> {
    /// Index of each policy, with its part of the Service; oldest first.
    all: Vec<(usize, PolicySection<'w>)>,
    /// Index of the oldest policy for each part.
    winners: HashMap<PolicySection<'w>, usize>,
}

/// The effect of the policies on the traffic to a Service port.
pub(crate) enum Applied<'p> {
    Tls(&'p schema::BackendTls),
    /// Traffic is refused, with this message.
    Refused(String),
}

/// All policies, oldest first, which is their precedence.
#[derive(Default)]
pub(crate) struct Policies<'w> {
    all: Vec<Policy<'w>>,
    by_service: HashMap<BackendName<'w>, ServicePolicies<'w>>,
}

impl<'w> Policies<'w> {
    pub(crate) fn check_all(cx: &mut ResolveContext<'w, '_>, bundles: &mut CaBundles<'w>) -> Self {
        let world = cx.world;
        let objects = world.backend_tls_policies.iter();
        let mut objects: Vec<&'w BackendTlsPolicy> = objects.map(AsRef::as_ref).collect();
        objects.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        let mut policies = Self::default();
        for object in objects {
            let namespace = object.metadata.namespace.as_str();
            let targets = object
                .spec
                .target_refs
                .iter()
                .take(limits::MAX_POLICY_TARGETS);
            for target in targets.filter(|target| is_service(target)) {
                let place = policies.all.len();
                let by_service = policies
                    .by_service
                    .entry((namespace, &target.name))
                    .or_default();
                by_service.all.push((place, section(target)));
                by_service.winners.entry(section(target)).or_insert(place);
            }
            policies.all.push(check(object, cx, bundles));
        }
        policies
    }

    /// Returns the effect on traffic to the named port, or `None` if it is sent unchanged. A policy
    /// for the port takes precedence over one for the whole Service.
    pub(crate) fn of(&self, service: BackendName<'_>, port: &str) -> Option<Applied<'_>> {
        let winners = &self.by_service.get(&service)?.winners;
        let of_port = winners.get(&Some(port).filter(|name| !name.is_empty()));
        let policy = self.all.get(*of_port.or_else(|| winners.get(&None))?)?;
        Some(match &policy.tls {
            Some(tls) => Applied::Tls(tls),
            None => Applied::Refused(format!(
                "BackendTLSPolicy {} is not valid; see its status",
                policy.object.metadata.key()
            )),
        })
    }

    /// Returns true if a policy is for the Service or a port of it.
    pub(crate) fn has(&self, service: BackendName<'_>) -> bool {
        self.by_service.contains_key(&service)
    }

    /// Returns the indices of the policies for a Service and its ports, each with its error there.
    pub(crate) fn of_service(
        &self,
        service: BackendName<'_>,
        world: &World,
    ) -> Vec<(usize, Option<Grounds>)> {
        let Some(ServicePolicies { all, winners }) = self.by_service.get(&service) else {
            return Vec::new();
        };
        let (namespace, name) = service;
        let object = world.services.get(namespace, name);
        let judge = |(policy, section): &(usize, PolicySection<'w>)| {
            let at = match section {
                Some(section) => format!("port {section:?} of Service {namespace}/{name}"),
                None => format!("Service {namespace}/{name}"),
            };
            let winner = winners.get(section).filter(|winner| *winner != policy);
            let winner = winner.and_then(|winner| self.all.get(*winner));
            let is_port = |name: &str| {
                object.is_some_and(|it| it.spec.ports.iter().any(|port| *port.name == *name))
            };
            let fault = match (winner, object, section) {
                (Some(winner), ..) => Some((
                    Reason::Conflicted,
                    format!(
                        "{at} has an older BackendTLSPolicy, {}; only the oldest applies",
                        winner.object.metadata.key()
                    ),
                )),
                (None, None, _) => Some((Reason::TargetNotFound, format!("{at} does not exist"))),
                (None, Some(_), Some(section)) if !is_port(section) => {
                    Some((Reason::TargetNotFound, format!("there is no {at}")))
                }
                _ => None,
            };
            (*policy, fault)
        };
        all.iter().map(judge).collect()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Policy<'w>> {
        self.all.get(index)
    }

    /// Returns all trust bundles by name.
    pub(crate) fn bundles(&self) -> BTreeMap<&str, &TrustBundle> {
        self.all
            .iter()
            .filter_map(|policy| policy.bundle.as_deref())
            .map(|bundle| (bundle.name.as_str(), bundle))
            .collect()
    }
}

fn is_service(target: &PolicyTargetRef) -> bool {
    target.group.is_empty() && target.kind == "Service"
}

fn section(target: &PolicyTargetRef) -> PolicySection<'_> {
    target
        .section_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

fn check<'w>(
    object: &'w BackendTlsPolicy,
    cx: &mut ResolveContext<'w, '_>,
    bundles: &mut CaBundles<'w>,
) -> Policy<'w> {
    let BackendTlsPolicySpec {
        target_refs,
        // Read with its bundle.
        validation: _,
        options,
    } = &object.spec;
    let key = Kind::BackendTlsPolicy.named(object.metadata.key());
    let mut accepted = Verdict::default();
    let mut resolved = Verdict::default();
    let unknown = object.metadata.unknown.refusal("");
    accepted.refuse_if(Reason::UnsupportedValue, unknown);
    let number = limits::entries(
        "spec.targetRefs",
        target_refs.len(),
        1..=limits::MAX_POLICY_TARGETS,
    );
    accepted.refuse_if(Reason::Invalid, number.err());
    check_targets(target_refs, &key, &mut accepted, cx);
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

/// Reads the options. An invalid Sesame option rejects the policy, because its author wants the
/// protection.
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

/// Checks the targets. A policy with a duplicate target is refused; a target that is not a Service
/// has no effect.
fn check_targets(
    targets: &[PolicyTargetRef],
    policy: &ObjectKey,
    accepted: &mut Verdict,
    cx: &mut ResolveContext<'_, '_>,
) {
    for (i, target) in targets.iter().take(limits::MAX_POLICY_TARGETS).enumerate() {
        let PolicyTargetRef {
            group,
            kind,
            name,
            section_name: _,
        } = target;
        if !is_service(target) {
            let message = format!(
                "spec.targetRefs[{i}]: {} {name:?} is not supported and has no effect; expected a Service of the \
                 core group",
                names::group_kind(group, kind)
            );
            cx.problems.add(policy.clone(), message);
            continue;
        }
        let same = targets.iter().take(i).any(|earlier| {
            is_service(earlier) && earlier.name == *name && section(earlier) == section(target)
        });
        if same {
            let message = format!("spec.targetRefs[{i}]: Service {name:?} is already listed");
            accepted.refuse(Reason::Invalid, message);
        }
    }
}
