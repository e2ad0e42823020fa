//! All TrafficPolicies, or all AccessPolicies: how they affect their targets, and which are
//! accepted.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::RateLimit;

use super::TrafficSettings;
use crate::context::ResolveContext;
use crate::policies::targets::{self, PolicyTargets};
use sesame_kinds::api::{Metadata, PolicyTargetRef};
use sesame_kinds::status::{Condition, ConditionStatus, ConditionType, Grounds, Reason, Verdict};
use sesame_kinds::world::{Kind, World};

pub(crate) struct CheckedPolicy<'w> {
    pub(crate) metadata: &'w Metadata,
    pub(crate) accepted: Verdict,
    /// Excludes rate limits, because a rate limit's name depends on the target.
    pub(super) settings: TrafficSettings,
    pub(super) limits: Vec<RateLimit>,
    /// Fields of the spec that apply only to HTTP.
    pub(super) http_only: Vec<&'static str>,
    /// True if the policy never rejects a request.
    pub(super) reports: bool,
}

impl<'w> CheckedPolicy<'w> {
    /// If a field is unknown, requests to the targets are rejected, because the field might be
    /// security-relevant.
    pub(super) fn new(
        metadata: &'w Metadata,
        target_refs: &'w [PolicyTargetRef],
        targets: &mut PolicyTargets<'w>,
        cx: &mut ResolveContext<'w, '_>,
    ) -> Self {
        let mut checked = Self {
            metadata,
            accepted: Verdict::default(),
            settings: TrafficSettings::default(),
            limits: Vec::new(),
            http_only: Vec::new(),
            reports: false,
        };
        let unknown = metadata.unknown.refusal("");
        checked.settings.refuses = unknown.is_some();
        let accepted = &mut checked.accepted;
        accepted.refuse_if(Reason::UnsupportedValue, unknown);
        targets.add(metadata, target_refs, accepted, cx);
        checked
    }

    /// If `part` is an error, reports it and rejects requests to the policy's targets.
    pub(super) fn protecting<T>(&mut self, part: Result<T, String>) -> Option<T> {
        let status = refusal::HTTP;
        self.protecting_from(part, &format!("requests to the targets get {status}"))
    }

    /// Like [`Self::protecting`], but `consequence` describes what happens to the targets' traffic.
    pub(super) fn protecting_from<T>(
        &mut self,
        part: Result<T, String>,
        consequence: &str,
    ) -> Option<T> {
        part.map_err(|why| {
            let why = format!("{why}; {consequence}");
            self.accepted.refuse(Reason::Invalid, why);
            self.settings.refuses = true;
        })
        .ok()
    }

    pub(crate) fn message(&self) -> String {
        let mut message = if self.reports {
            "the policy only reports; it does not reject requests".to_owned()
        } else {
            "the policy applies".to_owned()
        };
        for note in self.settings.filters.notes() {
            message.push_str("; ");
            message.push_str(note);
        }
        message
    }

    /// Returns true if hosts share one of the policy's limits.
    pub(crate) fn limits_fleets(&self) -> bool {
        self.limits.iter().any(|limit| limit.fleet)
    }

    fn describe(&self) -> String {
        let exempt: Vec<String> = self.settings.filters.exempt().collect();
        let exempt = (!exempt.is_empty()).then(|| format!("exempts {}", exempt.join(", ")));
        let reports = self.reports.then(|| "only reports".to_owned());
        let notes: Vec<String> = reports.into_iter().chain(exempt).collect();
        let name = self.metadata.key();
        if notes.is_empty() {
            return name.to_string();
        }
        format!("{name} ({})", notes.join("; "))
    }

    fn tunes(&self) -> impl Iterator<Item = &'static str> {
        let TrafficSettings {
            rate_limits: _,
            timeouts,
            retry,
            filters,
            connections: _,
            reserved_headers: _,
            refuses: _,
        } = &self.settings;
        let timeouts = timeouts.as_ref().map(|_| "timeouts");
        let retry = retry.as_ref().map(|_| "retry");
        timeouts.into_iter().chain(retry).chain(filters.tunes())
    }

    fn refuses(&self, kind: Kind) -> bool {
        if kind.is_l4_route() {
            !self.http_only.is_empty() || self.settings.connections.refuses()
        } else {
            self.settings.refuses
        }
    }

    fn unsupported(&self, kind: Kind, at: &str) -> Option<Grounds> {
        if !kind.is_l4_route() {
            return None;
        }
        if self.reports && !self.settings.refuses {
            let why = format!("{at} does not support mode Report; the policy has no effect on it");
            return Some((Reason::Invalid, why));
        }
        if self.http_only.is_empty() {
            return None;
        }
        let fields = self.http_only.iter().map(|field| format!("spec.{field}"));
        let fields = fields.collect::<Vec<_>>().join(" and ");
        let consequence = consequence(kind);
        let why = format!("{at} does not support {fields}; expected only ipFilter; {consequence}");
        Some((Reason::Invalid, why))
    }
}

pub(crate) struct PoliciesOfKind<'w> {
    pub(crate) kind: Kind,
    affected: ConditionType,
    pub(super) all: Vec<CheckedPolicy<'w>>,
    pub(super) targets: PolicyTargets<'w>,
}

pub(super) const TARGETS: [Kind; 4] = [
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::HttpRoute,
    Kind::GrpcRoute,
];

pub(super) const ACCESS_TARGETS: [Kind; 7] = [
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TlsRoute,
    Kind::TcpRoute,
    Kind::UdpRoute,
];

/// Describes what happens to traffic of a target with an invalid policy.
fn consequence(kind: Kind) -> String {
    match kind {
        Kind::TlsRoute | Kind::TcpRoute => "its connections are closed".to_owned(),
        Kind::UdpRoute => "its datagrams are dropped".to_owned(),
        _ => format!("requests get {}", refusal::HTTP),
    }
}

impl<'w> PoliciesOfKind<'w> {
    pub(super) fn new(kind: Kind, affected: ConditionType, allowed: &'static [Kind]) -> Self {
        Self {
            kind,
            affected,
            all: Vec::new(),
            targets: PolicyTargets::new(kind, allowed),
        }
    }

    /// A policy for any ListenerSet counts, even if the ListenerSet belongs to another Gateway.
    pub(super) fn narrows_listeners(&self, gateway: (&str, &str)) -> bool {
        let gateway_places = self.targets.places(Kind::Gateway, gateway).iter();
        let mut sections = gateway_places.map(|(_, section)| section);
        sections.any(Option::is_some) || self.targets.has_kind(Kind::ListenerSet)
    }

    pub(super) fn add_to(
        &self,
        settings: &mut TrafficSettings,
        kind: Kind,
        name: (&str, &str),
        section: Option<&str>,
    ) {
        if self.all.is_empty() || !self.targets.has(kind, name) {
            return;
        }
        let at = [kind.as_str(), name.1].into_iter().chain(section);
        let at: Vec<&str> = at.collect();
        for policy in self.targets.at(kind, name, section) {
            let Some(policy) = self.all.get(policy) else {
                continue;
            };
            settings.add(&policy.settings);
            if kind.is_l4_route() && !policy.http_only.is_empty() {
                settings
                    .connections
                    .refuse(&self.kind.named(policy.metadata.key()));
            }
            let limits = policy.limits.iter().map(|limit| {
                Arc::new(RateLimit {
                    name: format!("{}/{}", limit.name, at.join("/")),
                    ..limit.clone()
                })
            });
            settings.rate_limits.extend(limits);
        }
    }

    pub(super) fn affect(
        &self,
        kind: Kind,
        name: (&str, &str),
        generation: i64,
    ) -> Option<Condition> {
        let places = self.targets.places(kind, name);
        let places: BTreeSet<usize> = places.iter().map(|(place, _)| *place).collect();
        let policies = places.iter().filter_map(|place| self.all.get(*place));
        let key = |it: &CheckedPolicy<'_>| it.metadata.key().to_string();
        let names: Vec<String> = policies.clone().map(CheckedPolicy::describe).collect();
        let refusing: Vec<String> = policies.filter(|it| it.refuses(kind)).map(key).collect();
        if names.is_empty() {
            return None;
        }
        let mut message = format!("{}: {}", self.kind.plural(), names.join(", "));
        if !refusing.is_empty() {
            let refusing = refusing.join(", ");
            let consequence = consequence(kind);
            message = format!("{message}; {consequence}, because {refusing} is not valid");
        }
        Some(Condition::new(
            self.affected,
            ConditionStatus::True,
            Reason::PolicyAffected,
            &message,
            generation,
        ))
    }

    pub(crate) fn judge(
        &self,
        kind: Kind,
        name: (&str, &str),
        world: &World,
    ) -> Vec<(usize, Option<Grounds>)> {
        let places = self.targets.places(kind, name);
        let judge = |(place, section): &(usize, Option<&str>)| {
            let policy = self.all.get(*place)?;
            let fault = targets::missing(kind, name, *section, world);
            let at = targets::part(kind, name, *section);
            let fault = fault.or_else(|| policy.unsupported(kind, &at));
            let older = places.iter().take_while(|it| *it != &(*place, *section));
            let older = older.filter(|(_, it)| it == section);
            let tuned = policy.tunes().collect::<BTreeSet<_>>();
            let mut lost = older.filter_map(|(place, _)| {
                let older = self.all.get(*place)?;
                let both = older.tunes().find(|field| tuned.contains(field))?;
                Some((older.metadata.key(), both))
            });
            let lost = lost.next().map(|(older, field)| {
                let why = format!(
                    "{at} has an older {}, {older}, which already sets {field}",
                    self.kind
                );
                (Reason::Conflicted, why)
            });
            Some((*place, fault.or(lost)))
        };
        places.iter().filter_map(judge).collect()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&CheckedPolicy<'w>> {
        self.all.get(place)
    }
}
