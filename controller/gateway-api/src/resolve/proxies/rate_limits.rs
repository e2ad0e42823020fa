//! Rate limits in HTTPProxies. All routes without their own limit share the virtual host's limit.

use std::sync::Arc;

use sesame_proto::schema::RateLimit;

use super::descriptors;
use super::header_policies::response_policy;
use super::roots::Root;
use super::rules::{ReadRoute, RouteFault};
use super::tree::Place;
use crate::api::{
    NamespacedName, ProxyGlobalRateLimits, ProxyHeaders, ProxyLocalRateLimit, ProxyRateLimits,
    ProxyRoute,
};
use crate::resolve::routes::rules::Action;
use crate::resolve::syntax::limits;
use crate::world::Kind;

type ReadLimit = Result<Option<Arc<RateLimit>>, RouteFault>;

pub(super) struct HostLimits {
    local: ReadLimit,
    by_service: Result<(), RouteFault>,
}

impl HostLimits {
    pub(super) fn read(root: &Root<'_>) -> Self {
        let (local, by_service) = parts(root.virtualhost.rate_limit_policy.as_ref());
        Self {
            local: local.map_or(Ok(None), |local| read(&root.name, "rateLimit", local)),
            by_service: by_service.unwrap_or(Ok(())),
        }
    }
}

/// Returns the local limit, and an error if there are limits that need a service.
fn parts(
    policy: Option<&ProxyRateLimits>,
) -> (Option<&ProxyLocalRateLimit>, Option<Result<(), RouteFault>>) {
    let Some(ProxyRateLimits { local, global }) = policy else {
        return (None, None);
    };
    (local.as_ref(), global.as_ref().map(by_service))
}

fn by_service(global: &ProxyGlobalRateLimits) -> Result<(), RouteFault> {
    let ProxyGlobalRateLimits {
        disabled,
        descriptors,
    } = global;
    if *disabled || descriptors.is_empty() {
        return Ok(());
    }
    descriptors::check(descriptors).map_err(|why| {
        let why = format!("rateLimitPolicy.global.{why}");
        (("RouteError", "RateLimitPolicyNotValid"), why)
    })?;
    let why = "rateLimitPolicy.global is not supported, because it needs a rate limit service";
    Err((("RouteError", "NotSupported"), why.to_owned()))
}

impl ReadRoute<'_> {
    /// If the limit is unsupported, the route responds with an error.
    pub(super) fn limit(
        &mut self,
        host: &HostLimits,
        place: &Place<'_>,
        (index, route): (usize, &ProxyRoute),
    ) {
        if !self.errors.is_empty() {
            return;
        }
        let (own, by_service) = parts(route.rate_limit_policy.as_ref());
        let by_service = by_service.unwrap_or_else(|| host.by_service.clone());
        let limit = by_service.and_then(|()| match own {
            Some(own) => read(&place.name, &format!("routes/{index}/rateLimit"), own),
            None => host.local.clone(),
        });
        match limit {
            Ok(limit) if matches!(self.rule.action, Action::Forward(_)) => {
                self.rule.rate_limits.extend(limit);
            }
            Ok(_) => {
                let why = "rateLimitPolicy has no effect: only requests to services are limited";
                let warning = own.map(|_| (("SpecError", "IgnoredField"), why.to_owned()));
                self.warnings.extend(warning);
            }
            Err(fault) => self.refuse(index, fault),
        }
    }
}

fn read(proxy: &NamespacedName, place: &str, local: &ProxyLocalRateLimit) -> ReadLimit {
    let name = format!("{}/{place}", Kind::HttpProxy.named(proxy.clone()));
    let limit = checked(name, local, &proxy.namespace);
    limit.map(|limit| Some(Arc::new(limit))).map_err(|why| {
        let why = format!("rateLimitPolicy.local.{why}");
        (("RouteError", "RateLimitPolicyNotValid"), why)
    })
}

fn checked(
    name: String,
    local: &ProxyLocalRateLimit,
    namespace: &str,
) -> Result<RateLimit, String> {
    let ProxyLocalRateLimit {
        requests,
        unit,
        burst,
        response_status_code,
        response_headers_to_add,
    } = local;
    let requests = u32::try_from(*requests).ok().filter(|it| *it > 0);
    let requests = requests.ok_or("requests must be a number from 1 to 4294967295")?;
    let per_ms = match unit.as_str() {
        "second" => 1_000,
        "minute" => 60_000,
        "hour" => 3_600_000,
        _ => return Err(format!("unit {unit:?}: expected second, minute or hour")),
    };
    let burst = u32::try_from(*burst).map_err(|_| format!("burst {burst}: expected 0 or more"))?;
    let status = match response_status_code.unwrap_or_default() {
        0 => 0,
        status => u32::try_from(status)
            .ok()
            .filter(|it| RateLimit::is_status(*it))
            .ok_or_else(|| {
                format!(
                    "responseStatusCode {status}: expected a status from 400 to 511 that Envoy \
                     supports"
                )
            })?,
    };
    let count = response_headers_to_add.len();
    limits::entries("responseHeadersToAdd", count, 0..=RateLimit::MAX_HEADERS)?;
    let set = ProxyHeaders {
        set: response_headers_to_add.clone(),
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
        report_only: false,
        draft_headers: false,
    })
}
