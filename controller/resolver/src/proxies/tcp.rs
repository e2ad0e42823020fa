//! Reads `tcpproxy`, which forwards the TLS connections of a root's host, either as they are or
//! after terminating TLS.
//!
//! On any error, the host's TLS connections are closed: they never reach an unintended Service, and
//! no other route serves the host over HTTPS.

use std::collections::BTreeSet;

use sesame_proto::schema::WeightedBackend;

use super::connections::{self, RouteConnections};
use super::details::{DetailCode, Details};
use super::roots::{Proxies, Root};
use super::services::{shares_evenly, weight};
use super::tree::path_fault;
use crate::backends::{BackendTarget, PolicedBackend, ResolvedRef, Traffic};
use crate::ingresses::listeners::{ListenersOfGateway, OwnerName};
use crate::ingresses::lookup::{LayeredLookup, RuleOwner};
use crate::policies::traffic::connections::ConnectionChecks;
use crate::routes::rules::{RuleContext, Rules, Shares, Terminated};
use crate::syntax::limits::{self, MAX_BACKEND_REFS};
use sesame_kinds::api::{HttpProxy, NamespacedName, ProxyHost, ProxyService, ProxyTcp};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::Kind;

const CLOSED: &str = "; the host's TLS connections are closed";

pub(super) struct Connections<'w> {
    proxy: &'w HttpProxy,
    tcp: &'w ProxyTcp,
}

pub(super) fn find<'w>(
    root: &Root<'w>,
    proxies: &Proxies<'w>,
    reached: &mut BTreeSet<NamespacedName>,
    details: &mut Details,
) -> Option<Connections<'w>> {
    let mut tcp = root.proxy.spec.tcpproxy.as_ref()?;
    let mut proxy = root.proxy;
    let mut path = Vec::new();
    let mut is_good = is_unprotected(root, details);
    loop {
        let name = proxy.metadata.key();
        path.push(name.clone());
        is_good &= is_known(proxy, details);
        let mut fault = |code, why: String| details.error(&name, code, why + CLOSED);
        let include = tcp.include.as_ref().or(tcp.includes.as_ref());
        let Some(include) = include else {
            if tcp.services.is_empty() {
                let why = "tcpproxy: either services or inclusion must be specified";
                fault(("TCPProxyError", "NothingDefined"), why.to_owned());
                return None;
            }
            return is_good.then_some(Connections { proxy, tcp });
        };
        if !tcp.services.is_empty() {
            let why = "tcpproxy: cannot specify services and include in the same httpproxy";
            fault(("TCPProxyError", "NoServicesAndInclude"), why.to_owned());
            return None;
        }
        let namespace = match include.namespace.as_str() {
            "" => &proxy.metadata.namespace,
            namespace => namespace,
        };
        let child = NamespacedName::new(namespace, &include.name);
        let mut fault = |reason, why: &str| {
            let why = format!("tcpproxy: include {child} {why}");
            fault(("TCPProxyIncludeError", reason), why);
        };
        let Some(found) = proxies.get(&child) else {
            fault("IncludeNotFound", "not found, or its class is not served");
            return None;
        };
        if found.proxy.spec.virtualhost.is_some() {
            fault(
                "RootIncludesRoot",
                "is a root HTTPProxy, which cannot be included",
            );
            return None;
        }
        if let Some((reason, why)) = path_fault(&path, &child) {
            fault(reason, &why);
            return None;
        }
        reached.insert(child.clone());
        proxy = found.proxy;
        let Some(next) = &proxy.spec.tcpproxy else {
            let why = "tcpproxy is missing, but another HTTPProxy includes it";
            let code = ("TCPProxyError", "NothingDefined");
            details.error(&child, code, format!("{why}{CLOSED}"));
            return None;
        };
        tcp = next;
    }
}

fn is_unprotected(root: &Root<'_>, details: &mut Details) -> bool {
    let ProxyHost {
        fqdn: _,
        tls: _,
        authorization,
        // CORS does not apply to connections, which have no headers.
        cors_policy: _,
        rate_limit_policy,
        jwt_providers,
        ip_allow_policy,
        ip_deny_policy,
    } = root.virtualhost;
    let protections = [
        ("authorization", authorization.is_some()),
        ("rateLimitPolicy", rate_limit_policy.is_some()),
        ("ipAllowPolicy", !ip_allow_policy.is_empty()),
        ("ipDenyPolicy", !ip_deny_policy.is_empty()),
        // Other providers protect only the routes that name them.
        (
            "jwtProviders with default: true",
            jwt_providers.iter().any(|it| it.default),
        ),
    ];
    let set = protections.into_iter().filter(|(_, is_set)| *is_set);
    let set: Vec<&str> = set.map(|(field, _)| field).collect();
    for field in &set {
        let why = format!("{field} of the virtual host is not supported with tcpproxy{CLOSED}");
        details.error(&root.name, ("TCPProxyError", "NotSupported"), why);
    }
    set.is_empty()
}

fn is_known(proxy: &HttpProxy, details: &mut Details) -> bool {
    let name = proxy.metadata.key();
    let unknown = proxy.metadata.unknown.refusal("routes");
    if let Some(why) = &unknown {
        details.error(
            &name,
            ("SpecError", "UnknownField"),
            format!("{why}{CLOSED}"),
        );
    }
    unknown.is_none()
}

pub(super) fn add<'w>(
    root: &Root<'w>,
    connections: &Connections<'w>,
    (gateway, listeners): (usize, &ListenersOfGateway<'_, 'w>),
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    details: &mut Details,
) -> Option<(NamespacedName, usize)> {
    let Connections { proxy, tcp } = connections;
    let owner = OwnerName::of(Kind::HttpProxy, &root.proxy.metadata);
    let (found, listener) = listeners.of_connections(&root.host, owner)?;
    let terminates = listener.tls.is_some();
    let owner = RuleOwner::of(Kind::HttpProxy, &proxy.metadata);
    let mut cx = lookup.rule_context(&owner);
    cx.traffic = if terminates {
        Traffic::Terminated
    } else {
        Traffic::Connections
    };
    let name = proxy.metadata.key();
    let (backends, policed) = match services(tcp, &mut cx, &name, details) {
        Ok(shares) => shares,
        Err((code, why)) => {
            details.error(&name, code, format!("tcpproxy: {why}{CLOSED}"));
            return None;
        }
    };
    let shares = if terminates {
        Shares {
            passed: Vec::new(),
            terminated: Some(Terminated {
                backends,
                resolved: Verdict::default(),
            }),
            checks: ConnectionChecks::default(),
        }
    } else {
        Shares {
            passed: backends,
            terminated: None,
            checks: ConnectionChecks::default(),
        }
    };
    let rules = Rules::Connections(shares);
    let added = lookup.push_rules(&owner, rules, policed, (gateway, found))?;
    Some((name, added))
}

fn services<'w>(
    tcp: &'w ProxyTcp,
    cx: &mut RuleContext<'_, 'w, '_>,
    name: &NamespacedName,
    details: &mut Details,
) -> Result<(Vec<WeightedBackend>, Vec<PolicedBackend<'w>>), (DetailCode, String)> {
    let services = tcp.services.as_slice();
    let invalid = ("TCPProxyError", "ServicesNotValid");
    limits::entries("services", services.len(), 1..=MAX_BACKEND_REFS)
        .map_err(|why| (invalid, why))?;
    let (proxy_connections, mut warnings) = RouteConnections::of_tcp(tcp);
    let even = shares_evenly(services);
    let (mut backends, mut all_policed) = (Vec::new(), Vec::new());
    for service in services {
        let weight = weight(service).map_err(|why| (invalid, why))?;
        let passes = cx.traffic == Traffic::Connections;
        check(service, passes, name, details).map_err(|why| (invalid, why))?;
        let connection = connections::read(service, &proxy_connections, cx, &mut warnings)
            .map_err(|(code, why)| (code, format!("service {}: {why}", service.name)))?;
        let target = (cx.referrer.namespace, service.name.as_str());
        let ResolvedRef { policed, target } =
            cx.backends
                .of_service(target, service.port, cx.traffic, connection, cx.cx);
        all_policed.extend(policed);
        let backend = target.and_then(BackendTarget::served);
        let backend = backend.map_err(|(reason, why)| {
            let reason = match reason {
                Reason::BackendNotFound => "ServiceUnresolvedReference",
                _ => "ServicesNotValid",
            };
            let why = format!("service {}: {why}", service.name);
            (("TCPProxyError", reason), why)
        })?;
        backends.push(WeightedBackend {
            backend,
            weight: if even { 1 } else { weight },
            ..WeightedBackend::default()
        });
    }
    for (code, why) in warnings {
        details.warn(name, code, format!("tcpproxy: {why}"));
    }
    Ok((backends, all_policed))
}

/// Fails if the Service is a mirror, or has TLS settings with passthrough.
fn check(
    service: &ProxyService,
    passes: bool,
    proxy: &NamespacedName,
    details: &mut Details,
) -> Result<(), String> {
    let ProxyService {
        name,
        port: _,
        health_port: _,
        protocol,
        weight: _,
        validation,
        mirror,
        request_headers_policy,
        response_headers_policy,
        cookie_rewrite_policies,
        slow_start_policy: _,
    } = service;
    let asks_for_tls = protocol.as_deref().is_some_and(|it| !it.is_empty()) || validation.is_some();
    if passes && asks_for_tls {
        return Err(format!(
            "service {name}: protocol and validation must not be set with tls.passthrough, because \
             the client's own TLS reaches the Service"
        ));
    }
    if *mirror {
        return Err(format!("service {name}: connections cannot be mirrored"));
    }
    let ignored = [
        ("requestHeadersPolicy", request_headers_policy.is_some()),
        ("responseHeadersPolicy", response_headers_policy.is_some()),
        ("cookieRewritePolicies", !cookie_rewrite_policies.is_empty()),
    ];
    for (field, _) in ignored.into_iter().filter(|(_, is_set)| *is_set) {
        let why = format!("tcpproxy: service {name}: {field} has no effect");
        details.warn(proxy, ("SpecError", "IgnoredField"), why);
    }
    Ok(())
}
