//! Rate limits that a service decides.
//!
//! Envoy 1.39 cannot read the filter from a route table, so each service has an entry in a file.
//! The filter waits for the service and must be the last one of its placeholder. Therefore, all
//! limits of a route must have the same service.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::ApiVersion;
use envoy_types::pb::envoy::config::ratelimit::v3::RateLimitServiceConfig;
use envoy_types::pb::envoy::extensions::filters::http::ratelimit::v3::RateLimit as RateLimitFilter;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::Message as _;
use sesame_proto::digest::sha256;
use sesame_proto::schema::{RateLimit, RateLimitService};

use super::{composite, descriptors};
use crate::context::RenderContext;
use crate::rendered::Resource;
use crate::{collectors, wrappers};

pub(crate) const FILTER: &str = "service_limits";

/// Differs from all stages of limits without a service.
pub(crate) const STAGE: u32 = 4;

/// Default timeout, short because the client has to wait.
const TIMEOUT_MS: u64 = 1_000;

pub(crate) fn check(service: &RateLimitService) -> Result<(), String> {
    let RateLimitService {
        backend,
        domain,
        timeout_ms,
        fail_open: _,
        resource_exhausted: _,
    } = service;
    descriptors::check_text("domain", domain)?;
    let most = RateLimit::MAX_SERVICE_TIMEOUT_MS;
    if backend.is_empty() || *timeout_ms > most {
        return Err(format!(
            "service `{backend}` with a timeout of {timeout_ms} ms: expected a backend, and at most {most} ms"
        ));
    }
    Ok(())
}

/// All of `limits` must be valid.
pub(crate) fn file<'l>(limits: impl Iterator<Item = &'l RateLimit>) -> Resource {
    let services = limits.filter_map(|limit| limit.service.as_ref());
    let services: BTreeMap<String, &RateLimitService> =
        services.map(|service| (key(service), service)).collect();
    let chains = services.into_iter().map(|(key, service)| {
        let filter = composite::filter("envoy.filters.http.ratelimit", filter(service));
        (key, vec![filter])
    });
    composite::file(FILTER, chains)
}

fn key(service: &RateLimitService) -> String {
    let mut digest = sha256(&service.encode_to_vec());
    digest.truncate(32);
    digest
}

fn filter(service: &RateLimitService) -> Any {
    let RateLimitService {
        backend,
        domain,
        timeout_ms: _,
        fail_open,
        resource_exhausted,
    } = service;
    let timeout = timeout_ms(service);
    pack_any(RateLimitFilter {
        domain: domain.clone(),
        stage: STAGE,
        timeout: wrappers::milliseconds(timeout),
        failure_mode_deny: !fail_open,
        rate_limited_as_resource_exhausted: *resource_exhausted,
        // As in responses to exceeded limits without a service.
        disable_x_envoy_ratelimited_header: true,
        rate_limit_service: Some(RateLimitServiceConfig {
            grpc_service: Some(collectors::service(backend)),
            transport_api_version: ApiVersion::V3.into(),
        }),
        ..Default::default()
    })
}

fn timeout_ms(service: &RateLimitService) -> u64 {
    match service.timeout_ms {
        0 => TIMEOUT_MS,
        timeout_ms => timeout_ms,
    }
}

/// Returns the filter for a route's limits, or `None` if none has a service. If their other
/// settings differ, prefers enforced limits that fail closed, and the longest timeout.
pub(crate) fn of_route(
    limits: &[&RateLimit],
    context: &RenderContext<'_>,
) -> Result<Option<Any>, String> {
    let services = || {
        let limits = limits.iter();
        limits.filter_map(|limit| Some((limit.report_only, limit.service.as_ref()?)))
    };
    let strictest = |(report_only, service): &(bool, &RateLimitService)| {
        let timeout = Reverse(timeout_ms(service));
        (*report_only, service.fail_open, timeout)
    };
    let Some((report_only, service)) = services().min_by_key(strictest) else {
        return Ok(None);
    };
    let RateLimitService {
        backend, domain, ..
    } = service;
    for (_, other) in services() {
        if other.backend != *backend || other.domain != *domain {
            return Err(format!(
                "request limits have the services `{backend}` with domain `{domain}` and `{}` with \
                 domain `{}`; expected one service and domain",
                other.backend, other.domain
            ));
        }
    }
    if !context.has_cluster(backend) && !service.fail_open && !report_only {
        return Err(format!("rate limit service `{backend}` has no cluster"));
    }
    Ok(Some(composite::named(&key(service))))
}
