//! TrafficPolicies and AccessPolicies: access checks, limits and defaults for requests to each
//! listener and rule.
//!
//! Protective settings for the rule, its route and all wider scopes apply together. Header changes,
//! and each tuning setting, come only from the policy nearest to the rule. If a protective setting
//! is invalid, requests to the policy's targets are rejected. An invalid tuning setting is ignored.

pub(crate) mod access;
pub(crate) mod addresses;
mod authorization;
mod certificates;
mod check;
pub(crate) mod connections;
pub(crate) mod credentials;
mod csrf;
pub(crate) mod filters;
pub(crate) mod jwt;
pub(crate) mod of_kind;
mod of_routes;
mod oidc;
mod own_filters;
mod read;
mod read_filters;
mod reported;
mod service_limits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::schema::{Forward, RateLimit, RequestFilters, Retry};

use self::connections::ConnectionChecks;
use self::filters::FilterSettings;
use self::of_kind::PoliciesOfKind;
use super::targets;
use crate::backends::Backends;
use crate::context::ResolveContext;
use sesame_kinds::status::{Condition, ConditionType};
use sesame_kinds::world::Kind;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrafficSettings {
    pub(crate) rate_limits: Vec<Arc<RateLimit>>,
    timeouts: Option<Timeouts>,
    retry: Option<Retry>,
    pub(crate) filters: FilterSettings,
    /// Used only for layer 4 routes.
    pub(crate) connections: ConnectionChecks,
    /// Set only for listeners.
    pub(crate) reserved_headers: Arc<ReservedHeaders>,
    /// True if a protective setting is invalid or a field is unknown.
    pub(crate) refuses: bool,
}

/// The highest numbers of rate limits on a single listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitCounts {
    pub(crate) enforced: usize,
    pub(crate) reported: usize,
    /// The services that enforce limits, with their domains, for each listener.
    pub(crate) services: BTreeSet<BTreeSet<(String, String)>>,
}

impl LimitCounts {
    pub(crate) fn of(limits: &[Arc<RateLimit>]) -> Self {
        let reported = limits.iter().filter(|limit| limit.report_only).count();
        let enforced = limits.iter().filter(|limit| !limit.report_only);
        let services = enforced.filter_map(|limit| service_of(limit));
        let services = services.map(|(backend, domain)| (backend.to_owned(), domain.to_owned()));
        Self {
            enforced: limits.len() - reported,
            reported,
            services: [services.collect()].into(),
        }
    }

    pub(crate) fn larger(mut self, other: &Self) -> Self {
        self.enforced = self.enforced.max(other.enforced);
        self.reported = self.reported.max(other.reported);
        self.services.extend(other.services.iter().cloned());
        self
    }

    /// Returns an error if these limits and `inherited` limits are too many for a request, or have
    /// several services.
    pub(crate) fn check(&self, inherited: &Self) -> Result<(), String> {
        let most = RateLimit::MAX_OF_ROUTE;
        // Reports must not take places from limits that protect.
        let enforced = self.enforced + inherited.enforced;
        let count = enforced.max(self.reported + inherited.reported);
        if count > most {
            return Err(format!(
                "{count} rate limits apply; at most {most} are allowed"
            ));
        }
        self.check_services(inherited)
    }

    /// Returns an error if a listener's limits and `inherited` limits have several services,
    /// because Envoy can ask only one per request.
    fn check_services(&self, inherited: &Self) -> Result<(), String> {
        let own = self.services.iter().flatten();
        let none = BTreeSet::new();
        let listeners = inherited.services.iter().chain([&none]);
        for listener in listeners {
            let all: BTreeSet<_> = own.clone().chain(listener).collect();
            if all.len() > 1 {
                let all = all.into_iter();
                let all = all.map(|(backend, domain)| {
                    // Without the digest of its settings.
                    let name: Vec<&str> = backend.split('/').take(4).collect();
                    format!("{} with domain {domain:?}", name.join("/"))
                });
                return Err(format!(
                    "rate limits have several services, {}; expected one service and domain",
                    all.collect::<Vec<_>>().join(" and ")
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn sum(&self) -> usize {
        self.enforced + self.reported
    }
}

/// Returns the Backend and domain of the service that decides about a limit.
pub(crate) fn service_of(limit: &RateLimit) -> Option<(&str, &str)> {
    let service = limit.service.as_ref()?;
    Some((&service.backend, &service.domain))
}

/// Headers that policies set from claims or authorization responses, by policy namespace.
pub(crate) type ReservedHeaders = BTreeMap<String, BTreeSet<String>>;

/// Timeouts in milliseconds. 0 disables a timeout, and `None` means the proxy's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Timeouts {
    request: Option<u64>,
    backend: Option<u64>,
    stream_idle: Option<u64>,
}

impl TrafficSettings {
    /// Tuning settings in `self` take precedence.
    fn add(&mut self, wider: &Self) {
        let Self {
            rate_limits,
            timeouts,
            retry,
            filters,
            connections,
            reserved_headers: _,
            refuses,
        } = wider;
        self.rate_limits.extend(rate_limits.iter().cloned());
        self.timeouts = self.timeouts.or(*timeouts);
        self.retry = self.retry.take().or_else(|| retry.clone());
        self.filters.add(filters);
        self.connections.add(connections);
        self.refuses |= refuses;
    }

    /// Returns true if requests must never fall through to another route.
    pub(crate) fn protects(&self) -> bool {
        let limits = self.rate_limits.iter().any(|limit| !limit.report_only);
        self.refuses || limits || self.filters.protects()
    }

    pub(crate) fn decides_timeouts(&self) -> bool {
        self.timeouts.is_some()
    }

    /// Ignores timeouts in `self` if `decided` is true, because a policy nearer to the rule sets
    /// them.
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

pub(crate) struct TrafficPolicies<'w> {
    pub(crate) traffic: PoliciesOfKind<'w>,
    pub(crate) access: PoliciesOfKind<'w>,
    reserved_headers: Arc<ReservedHeaders>,
}

impl<'w> TrafficPolicies<'w> {
    pub(crate) fn check_all(backends: &mut Backends<'w>, cx: &mut ResolveContext<'w, '_>) -> Self {
        let traffic_condition = ConditionType::TrafficPolicyAffected;
        let mut traffic =
            PoliciesOfKind::new(Kind::TrafficPolicy, traffic_condition, &of_kind::TARGETS);
        for object in targets::by_age(&cx.world.traffic_policies) {
            let checked = check::check(object, &mut traffic.targets, backends, cx);
            traffic.all.push(checked);
        }
        let access_condition = ConditionType::AccessPolicyAffected;
        let mut access = PoliciesOfKind::new(
            Kind::AccessPolicy,
            access_condition,
            &of_kind::ACCESS_TARGETS,
        );
        for object in targets::by_age(&cx.world.access_policies) {
            let checked = access::check(object, &mut access.targets, backends, cx);
            access.all.push(checked);
        }
        let mut reserved_headers = ReservedHeaders::new();
        for policy in &access.all {
            for header in policy.settings.filters.reserved_headers() {
                let namespace_headers = reserved_headers.entry(policy.metadata.namespace.clone());
                namespace_headers.or_default().insert(header.to_owned());
            }
        }
        Self {
            traffic,
            access,
            reserved_headers: reserved_headers.into(),
        }
    }

    /// If `part` is empty, only settings for the whole object apply.
    pub(crate) fn settings_for(
        &self,
        kind: Kind,
        name: (&str, &str),
        part: &str,
    ) -> TrafficSettings {
        let mut settings = TrafficSettings::default();
        let part = Some(part).filter(|part| !part.is_empty());
        for section in [part, None].into_iter().skip(usize::from(part.is_none())) {
            for policies in [&self.traffic, &self.access] {
                policies.add_to(&mut settings, kind, name, section);
            }
        }
        settings
    }

    pub(crate) fn of_listener(
        &self,
        gateway: (&str, &str),
        owner: (Kind, &str, &str),
        listener: &str,
    ) -> TrafficSettings {
        let (kind, namespace, name) = owner;
        let is_own = kind == Kind::Gateway;
        let own = if is_own { listener } else { "" };
        let mut settings = if is_own {
            TrafficSettings::default()
        } else {
            self.settings_for(kind, (namespace, name), listener)
        };
        settings.add(&self.settings_for(Kind::Gateway, gateway, own));
        settings.reserved_headers = Arc::clone(&self.reserved_headers);
        settings
    }

    /// Returns `None` if a policy targets a single listener or any ListenerSet, because listeners
    /// may then have different filters.
    pub(crate) fn of_all_listeners(&self, gateway: (&str, &str)) -> Option<RequestFilters> {
        let mut kinds = [&self.traffic, &self.access].into_iter();
        if kinds.any(|it| it.narrows_listeners(gateway)) {
            return None;
        }
        let settings = self.settings_for(Kind::Gateway, gateway, "");
        settings.filters.to_schema(None)
    }

    pub(crate) fn affect(
        &self,
        kind: Kind,
        name: (&str, &str),
        generation: i64,
    ) -> impl Iterator<Item = Condition> {
        let kinds = [&self.traffic, &self.access].into_iter();
        kinds.filter_map(move |it| it.affect(kind, name, generation))
    }
}
