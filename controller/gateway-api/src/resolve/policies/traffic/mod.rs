//! TrafficPolicies: the limits and defaults for the requests of each listener and rule.
//!
//! What protects adds up, from the rule to the Gateway. What tunes is decided by the policy nearest
//! to the rule, section by section. A policy whose limits are invalid refuses the requests of its
//! targets; any other fault leaves the defaults.

mod check;
pub(crate) mod filters;
mod read;
mod read_filters;

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::{Forward, RateLimit, Retry};

use self::check::check;
use self::filters::FilterSettings;
use super::targets::{self, PolicyTargets};
use crate::api::TrafficPolicy;
use crate::resolve::context::ResolveContext;
use crate::status::{Condition, ConditionStatus, ConditionType, Grounds, Reason, Verdict};
use crate::world::{Kind, World};

/// The limits and defaults of one or several scopes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrafficSettings {
    pub(crate) rate_limits: Vec<Arc<RateLimit>>,
    timeouts: Option<Timeouts>,
    retry: Option<Retry>,
    pub(crate) filters: FilterSettings,
    /// True if all requests are refused, because a part that protects is not understood.
    pub(crate) refuses: bool,
}

/// Timeouts in milliseconds; 0 for none, `None` for the proxy's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Timeouts {
    request: Option<u64>,
    backend: Option<u64>,
    stream_idle: Option<u64>,
}

impl TrafficSettings {
    /// Adds the settings of a wider scope, or of a younger policy of the same one.
    fn add(&mut self, wider: &Self) {
        let Self {
            rate_limits,
            timeouts,
            retry,
            filters,
            refuses,
        } = wider;
        self.rate_limits.extend(rate_limits.iter().cloned());
        self.timeouts = self.timeouts.or(*timeouts);
        self.retry = self.retry.take().or_else(|| retry.clone());
        self.filters.add(filters);
        self.refuses |= refuses;
    }

    /// Returns true if a policy decides on timeouts.
    pub(crate) fn decides_timeouts(&self) -> bool {
        self.timeouts.is_some()
    }

    /// Sets the fields that a rule left open. `decided` is true if a nearer policy decides on
    /// timeouts.
    pub(crate) fn tune(&self, forward: &mut Forward, decided: bool) {
        if let Some(Timeouts {
            request,
            backend,
            stream_idle,
        }) = self.timeouts.filter(|_| !decided)
        {
            if forward.request_timeout_ms == 0 && !forward.request_timeout_disabled {
                forward.request_timeout_ms = request.unwrap_or_default();
                forward.request_timeout_disabled = request == Some(0);
            }
            if forward.backend_timeout_ms == 0 {
                forward.backend_timeout_ms = backend.unwrap_or_default();
            }
            forward.stream_idle_timeout_ms = forward.stream_idle_timeout_ms.or(stream_idle);
        }
        if forward.retry.is_none() {
            forward.retry = self.retry.clone().map(Box::new);
        }
    }
}

/// A checked policy.
pub(crate) struct CheckedTrafficPolicy<'w> {
    pub(crate) object: &'w TrafficPolicy,
    pub(crate) accepted: Verdict,
    /// Without the limits, whose names depend on the target.
    settings: TrafficSettings,
    limits: Vec<RateLimit>,
}

impl CheckedTrafficPolicy<'_> {
    /// Returns the sections that only one policy of a scope decides.
    fn tunes(&self) -> impl Iterator<Item = &'static str> {
        let TrafficSettings {
            rate_limits: _,
            timeouts,
            retry,
            filters,
            refuses: _,
        } = &self.settings;
        let timeouts = timeouts.as_ref().map(|_| "timeouts");
        let retry = retry.as_ref().map(|_| "retry");
        timeouts.into_iter().chain(retry).chain(filters.tunes())
    }
}

/// All policies, oldest first.
pub(crate) struct TrafficPolicies<'w> {
    all: Vec<CheckedTrafficPolicy<'w>>,
    targets: PolicyTargets<'w>,
}

const TARGETS: [Kind; 4] = [
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::HttpRoute,
    Kind::GrpcRoute,
];

impl Default for TrafficPolicies<'_> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            targets: PolicyTargets::new(Kind::TrafficPolicy, &TARGETS),
        }
    }
}

impl<'w> TrafficPolicies<'w> {
    pub(crate) fn check_all(cx: &mut ResolveContext<'w, '_>) -> Self {
        let mut policies = Self::default();
        for object in targets::by_age(&cx.world.traffic_policies) {
            let checked = check(object, &mut policies.targets, cx);
            policies.all.push(checked);
        }
        policies
    }

    /// Returns the settings for a part of an object, by its name, and for the object.
    pub(crate) fn of(&self, kind: Kind, name: (&str, &str), part: &str) -> TrafficSettings {
        let mut settings = TrafficSettings::default();
        if self.all.is_empty() || !self.targets.has(kind, name) {
            return settings;
        }
        let part = Some(part).filter(|part| !part.is_empty());
        for section in [part, None].into_iter().skip(usize::from(part.is_none())) {
            let at = [kind.as_str(), name.1].into_iter().chain(section);
            let at: Vec<&str> = at.collect();
            for policy in self.targets.at(kind, name, section) {
                let Some(policy) = self.all.get(policy) else {
                    continue;
                };
                settings.add(&policy.settings);
                let limits = policy.limits.iter().map(|limit| {
                    Arc::new(RateLimit {
                        name: format!("{}/{}", limit.name, at.join("/")),
                        ..limit.clone()
                    })
                });
                settings.rate_limits.extend(limits);
            }
        }
        settings
    }

    /// Returns the settings for a listener of a Gateway, which this object defines.
    pub(crate) fn of_listener(
        &self,
        gateway: (&str, &str),
        owner: (Kind, &str, &str),
        listener: &str,
    ) -> TrafficSettings {
        let (kind, namespace, name) = owner;
        let is_own = kind == Kind::Gateway;
        let own = if is_own { listener } else { "" };
        let of_gateway = self.of(Kind::Gateway, gateway, own);
        if is_own {
            return of_gateway;
        }
        let mut settings = self.of(kind, (namespace, name), listener);
        settings.add(&of_gateway);
        settings
    }

    /// Returns the condition of an object whose requests policies affect, or `None` without policies.
    pub(crate) fn affect(
        &self,
        kind: Kind,
        name: (&str, &str),
        generation: i64,
    ) -> Option<Condition> {
        let places = self.targets.places(kind, name);
        let places: BTreeSet<usize> = places.iter().map(|(place, _)| *place).collect();
        let policies = places.iter().filter_map(|place| self.all.get(*place));
        let key = |it: &CheckedTrafficPolicy<'_>| it.object.metadata.key().to_string();
        let names: Vec<String> = policies.clone().map(key).collect();
        let refusing: Vec<String> = policies.filter(|it| it.settings.refuses).map(key).collect();
        if names.is_empty() {
            return None;
        }
        let mut message = format!("TrafficPolicies: {}", names.join(", "));
        if !refusing.is_empty() {
            let refusing = refusing.join(", ");
            message = format!(
                "{message}; requests are answered with {}, because {refusing} is not valid",
                refusal::HTTP
            );
        }
        Some(Condition::new(
            ConditionType::TrafficPolicyAffected,
            ConditionStatus::True,
            Reason::PolicyAffected,
            &message,
            generation,
        ))
    }

    /// Returns the places of the policies for a target and its parts, each with its error there.
    pub(crate) fn judge(
        &self,
        kind: Kind,
        name: (&str, &str),
        world: &World,
    ) -> Vec<(usize, Option<Grounds>)> {
        let places = self.targets.places(kind, name);
        let judge = |(place, section): &(usize, Option<&str>)| {
            let fault = targets::missing(kind, name, *section, world);
            let older = places.iter().take_while(|it| *it != &(*place, *section));
            let older = older.filter(|(_, it)| it == section);
            let tuned = self.all.get(*place)?.tunes().collect::<BTreeSet<_>>();
            let mut lost = older.filter_map(|(place, _)| {
                let older = self.all.get(*place)?;
                let both = older.tunes().find(|field| tuned.contains(field))?;
                Some((older.object.metadata.key(), both))
            });
            let lost = lost.next().map(|(older, field)| {
                let at = targets::part(kind, name, *section);
                let why = format!(
                    "{at} has an older TrafficPolicy, {older}, which decides on {field} there"
                );
                (Reason::Conflicted, why)
            });
            Some((*place, fault.or(lost)))
        };
        places.iter().filter_map(judge).collect()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&CheckedTrafficPolicy<'w>> {
        self.all.get(place)
    }
}
