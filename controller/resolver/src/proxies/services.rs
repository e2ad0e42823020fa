//! Reads a route's Services: traffic shares, mirrors, and header changes per Service.

use sesame_proto::refusal::UNAVAILABLE;
use sesame_proto::schema::{Mirror, WeightedBackend};

use super::connections::{self, RouteConnections};
use super::cookies;
use super::header_policies::{header_policy, response_policy};
use super::rules::{ReadRoute, RouteFault};
use crate::backends::{BackendTarget, ResolvedRef};
use crate::routes::rules::RuleContext;
use crate::syntax::limits::{self, MAX_BACKEND_REFS, MAX_WEIGHT};
use sesame_kinds::api::ProxyService;
use sesame_kinds::status::Reason;

#[derive(Debug, Default)]
pub(super) struct ServiceShares {
    /// An unusable Service's share has an empty backend name.
    pub(super) backends: Vec<WeightedBackend>,
    pub(super) mirrors: Vec<Mirror>,
}

/// If a Service is unusable, only requests in its share get an error.
pub(super) fn read<'w>(
    services: &'w [ProxyService],
    route_connections: &RouteConnections,
    cx: &mut RuleContext<'_, 'w, '_>,
    route: &mut ReadRoute<'w>,
) -> Result<ServiceShares, RouteFault> {
    let code = ("ServiceError", "ServicesNotValid");
    limits::entries("services", services.len(), 1..=MAX_BACKEND_REFS).map_err(|why| (code, why))?;
    let mut shares = ServiceShares::default();
    let even = shares_evenly(services);
    for service in services {
        let weight = weight(service).map_err(|why| (code, why))?;
        let at = format!("service {}: ", service.name);
        let warning = cookies::check(&at, &service.cookie_rewrite_policies)?;
        route.warnings.extend(warning);
        let backend = backend(service, route_connections, cx, route);
        if service.mirror {
            if !shares.mirrors.is_empty() {
                let code = ("ServiceError", "OnlyOneMirror");
                return Err((
                    code,
                    "only one service per route may be a mirror".to_owned(),
                ));
            }
            let percent = if weight == 0 { 100 } else { weight.min(100) };
            shares.mirrors.extend(backend.map(|backend| Mirror {
                backend,
                numerator: percent,
                denominator: 100,
            }));
            continue;
        }
        let weight = if even { 1 } else { weight };
        shares
            .backends
            .push(share(service, backend, weight, cx.referrer.namespace)?);
    }
    if shares.backends.iter().all(|share| share.weight == 0) {
        let code = ("ServiceError", "ServicesNotValid");
        return Err((
            code,
            "no service gets requests; add one that is not a mirror".to_owned(),
        ));
    }
    Ok(shares)
}

pub(super) fn weight(service: &ProxyService) -> Result<u32, String> {
    let ProxyService { name, weight, .. } = service;
    let checked = u32::try_from(*weight).ok();
    let checked = checked.filter(|weight| *weight <= MAX_WEIGHT);
    checked.ok_or_else(|| format!("service {name}: weight {weight}: expected 0 to {MAX_WEIGHT}"))
}

/// Returns true if all weights are 0, the default, so that all Services except mirrors get equal
/// shares.
pub(super) fn shares_evenly(services: &[ProxyService]) -> bool {
    let mut shares = services.iter().filter(|it| !it.mirror);
    shares.all(|it| it.weight == 0)
}

fn share(
    service: &ProxyService,
    backend: Option<String>,
    weight: u32,
    namespace: &str,
) -> Result<WeightedBackend, RouteFault> {
    let service_port = Some((service.name.as_str(), service.port));
    let code = ("ServiceError", "RequestHeadersPolicyInvalid");
    let request = header_policy(
        service.request_headers_policy.as_ref(),
        namespace,
        service_port,
    );
    let (request_headers, host) = request.map_err(|why| (code, why))?;
    if host.is_some() {
        return Err((code, "Host can only be set for the route".to_owned()));
    }
    let code = ("ServiceError", "ResponseHeadersPolicyInvalid");
    let response = response_policy(
        service.response_headers_policy.as_ref(),
        namespace,
        service_port,
    );
    let response_headers = response.map_err(|why| (code, why))?;
    Ok(WeightedBackend {
        backend: backend.unwrap_or_default(),
        weight,
        request_headers: request_headers.map(Box::new),
        response_headers: response_headers.map(Box::new),
        rewrite: None,
    })
}

fn backend<'w>(
    service: &'w ProxyService,
    route_connections: &RouteConnections,
    cx: &mut RuleContext<'_, 'w, '_>,
    route: &mut ReadRoute<'w>,
) -> Option<String> {
    let ProxyService {
        name,
        port,
        health_port: _,
        protocol: _,
        weight: _,
        validation: _,
        mirror: _,
        request_headers_policy: _,
        response_headers_policy: _,
        cookie_rewrite_policies: _,
        slow_start_policy: _,
    } = service;
    let refuse = |route: &mut ReadRoute<'_>, (code, why): RouteFault| {
        let share = format!("its share of the requests gets {UNAVAILABLE}");
        let why = format!("service {name}: {why}; {share}");
        route.errors.push((code, why));
        None
    };
    let connection = match connections::read(service, route_connections, cx, &mut route.warnings) {
        Ok(connection) => connection,
        Err(fault) => return refuse(route, fault),
    };
    let target = (cx.referrer.namespace, name.as_str());
    let ResolvedRef { policed, target } = cx
        .backends
        .of_service(target, *port, cx.traffic, connection, cx.cx);
    route.policed.extend(policed);
    let (reason, why) = match target.and_then(BackendTarget::served) {
        Ok(backend) => return Some(backend),
        Err(fault) => fault,
    };
    let code = match reason {
        Reason::BackendNotFound => ("ServiceError", "ServiceUnresolvedReference"),
        Reason::NoValidCaCertificate => connections::UNVERIFIED,
        _ => ("ServiceError", "ServiceNotValid"),
    };
    refuse(route, (code, why))
}
