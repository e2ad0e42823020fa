//! Limits of the requests of HTTPProxies: a route's own, or else its virtual host's, which counts
//! the requests of all routes without their own.

use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::RateLimit;

use super::header_policies::response_policy;
use super::roots::Root;
use super::rules::{ReadRoute, RouteFault};
use super::tree::Place;
use crate::api::{
    NamespacedName, ProxyGlobalRateLimits, ProxyHeaders, ProxyLocalRateLimit, ProxyRateLimits,
    ProxyRoute,
};
use crate::resolve::routes::rules::{Action, CheckedRule};
use crate::resolve::syntax::limits;
use crate::world::Kind;

impl ReadRoute<'_> {
    /// Adds the limit of the route. A route whose limit cannot be counted answers with an error.
    pub(super) fn limit(
        &mut self,
        root: &Root<'_>,
        place: &Place<'_>,
        (index, route): (usize, &ProxyRoute),
    ) {
        let is_own = route.rate_limit_policy.as_ref();
        let is_own = is_own.is_some_and(|policy| policy.local.is_some());
        match of_route(root, place, (index, route)) {
            _ if !self.errors.is_empty() => {}
            Ok(Some(limit)) if matches!(self.rule.action, Action::Forward(_)) => {
                self.rule.rate_limits.push(Arc::new(limit));
            }
            Ok(_) => {
                let why = "rateLimitPolicy has no effect: only requests for services are limited";
                let warning = is_own.then(|| (("SpecError", "IgnoredField"), why.to_owned()));
                self.warnings.extend(warning);
            }
            Err((words, why)) => {
                let status = refusal::HTTP;
                let why = format!("{why}; its requests are answered with {status}");
                self.errors.push((words, why));
                let matches = std::mem::take(&mut self.rule.matches);
                self.rule = CheckedRule::refusing(index, matches);
            }
        }
    }
}

/// Returns the limit of a route.
fn of_route(
    root: &Root<'_>,
    place: &Place<'_>,
    (index, route): (usize, &ProxyRoute),
) -> Result<Option<RateLimit>, RouteFault> {
    let parts = |policy: &'_ Option<ProxyRateLimits>| match policy {
        Some(ProxyRateLimits { local, global }) => (local.clone(), global.clone()),
        None => (None, None),
    };
    let (own, own_global) = parts(&route.rate_limit_policy);
    let (of_host, of_host_global) = parts(&root.virtualhost.rate_limit_policy);
    let of_host_global = of_host_global.filter(|_| own_global.is_none());
    let counts = |global: &ProxyGlobalRateLimits| {
        let ProxyGlobalRateLimits {
            disabled,
            descriptors,
        } = global;
        !disabled && !descriptors.is_empty()
    };
    if own_global.as_ref().is_some_and(counts) || of_host_global.as_ref().is_some_and(counts) {
        let why = "rateLimitPolicy.global is not supported, because it needs a service that counts";
        return Err((("RouteError", "NotSupported"), why.to_owned()));
    }
    let named = |name: &NamespacedName| Kind::HttpProxy.named(name.clone());
    let (name, local, object) = match (own, of_host) {
        (Some(own), _) => {
            let name = format!("{}/routes/{index}/rateLimit", named(&place.name));
            (name, own, &place.name)
        }
        (None, Some(local)) => (
            format!("{}/rateLimit", named(&root.name)),
            local,
            &root.name,
        ),
        (None, None) => return Ok(None),
    };
    let fault = |why| {
        let why = format!("rateLimitPolicy.local.{why}");
        (("RouteError", "RateLimitPolicyNotValid"), why)
    };
    read(name, local, &object.namespace)
        .map(Some)
        .map_err(fault)
}

/// Returns a limit with this name.
fn read(name: String, local: ProxyLocalRateLimit, namespace: &str) -> Result<RateLimit, String> {
    let ProxyLocalRateLimit {
        requests,
        unit,
        burst,
        response_status_code,
        response_headers_to_add,
    } = local;
    let requests = u32::try_from(requests).ok().filter(|it| *it > 0);
    let requests = requests.ok_or("requests must be a number from 1 to 4294967295")?;
    let per_ms = match unit.as_str() {
        "second" => 1_000,
        "minute" => 60_000,
        "hour" => 3_600_000,
        _ => return Err(format!("unit {unit:?}: expected second, minute or hour")),
    };
    let burst = u32::try_from(burst).map_err(|_| format!("burst {burst}: expected 0 or more"))?;
    let status = match response_status_code.unwrap_or_default() {
        0 => 0,
        status => u32::try_from(status)
            .ok()
            .filter(|it| RateLimit::is_status(*it))
            .ok_or_else(|| format!("responseStatusCode {status}: expected a status that Envoy knows, from 400 to 511"))?,
    };
    let count = response_headers_to_add.len();
    limits::entries("responseHeadersToAdd", count, 0..=RateLimit::MAX_HEADERS)?;
    let set = ProxyHeaders {
        set: response_headers_to_add,
        remove: Vec::new(),
    };
    let headers = response_policy(Some(&set), namespace, None);
    let headers = headers.map_err(|why| format!("responseHeadersToAdd: {why}"))?;
    Ok(RateLimit {
        name,
        requests,
        per_ms,
        burst,
        keys: Vec::new(),
        status,
        response_headers: headers.map(|it| it.set).unwrap_or_default(),
    })
}
