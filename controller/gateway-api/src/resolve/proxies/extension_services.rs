//! Resolves ExtensionServices to Backends. Their Services and Secrets are looked up in the
//! ExtensionService's own namespace.

use sesame_proto::schema::CircuitBreaker;

use super::connections::{AuthorityRef, RouteConnections, own_tls, secret_ref};
use super::load_balancing;
use super::roots::Root;
use crate::api::{
    ExtensionCircuitBreaker, ExtensionService, ExtensionServiceSpec, ExtensionTarget,
    ProxyAuthorization, ProxyExtensionRef,
};
use crate::resolve::backends::{
    BackendSettings, BackendTarget, Connection, PolicedBackend, ResolvedRef, Traffic,
    UpstreamProtocol,
};
use crate::resolve::context::grants::{Grants, Referent, Referrer};
use crate::resolve::routes::rules::RuleContext;
use crate::resolve::syntax::durations;
use crate::world::{Kind, World};

/// Maximum timeout; longer timeouts are invalid.
const MAX_TIMEOUT_MS: u64 = 3_600_000;

#[derive(Debug)]
pub(super) struct ReadExtension<'w> {
    pub(super) backend: String,
    pub(super) policed: Vec<PolicedBackend<'w>>,
    /// Timeout in milliseconds; 0 means the default.
    pub(super) timeout_ms: u64,
    pub(super) warnings: Vec<String>,
}

/// Contour's reason, and a message.
pub(super) type ExtensionFault = (&'static str, String);

pub(super) const NOT_FOUND: &str = "ExtensionServiceNotFound";

/// References to other namespaces need a ReferenceGrant.
pub(super) fn find<'w>(
    reference: &ProxyExtensionRef,
    namespace: &str,
    (world, grants): (&'w World, &Grants<'_>),
) -> Result<&'w ExtensionService, ExtensionFault> {
    let ProxyExtensionRef {
        api_version,
        namespace: of,
        name,
    } = reference;
    let kind = Kind::ExtensionService;
    if !api_version.is_empty() && !kind.api_versions().contains(&api_version.as_str()) {
        let known = kind.api_versions().join(" or ");
        let why = format!("apiVersion {api_version:?} is not supported; expected {known}");
        return Err(("AuthBadResourceVersion", why));
    }
    if name.is_empty() {
        let why = "name is missing; global authorization is not supported".to_owned();
        return Err((NOT_FOUND, why));
    }
    let of = if of.is_empty() { namespace } else { of };
    let from = Referrer::new(Kind::HttpProxy, namespace);
    let to = Referent::new(kind, of, name);
    grants
        .check(from, to)
        .map_err(|why| ("ExtensionServiceNotPermitted", why))?;
    let found = world.extension_services.get(of, name).map(AsRef::as_ref);
    found.ok_or_else(|| (NOT_FOUND, format!("{kind} {of}/{name} does not exist")))
}

/// The context's referrer must be the ExtensionService.
pub(super) fn read<'w>(
    extension: &'w ExtensionService,
    traffic: Traffic,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Result<ReadExtension<'w>, ExtensionFault> {
    let invalid = |why| (NOT_FOUND, why);
    if let Some(why) = extension.metadata.unknown.refusal("") {
        return Err(invalid(why));
    }
    let ExtensionServiceSpec {
        services,
        validation: _,
        protocol: _,
        load_balancer_policy: _,
        timeout_policy,
        protocol_version,
        circuit_breaker_policy: _,
    } = &extension.spec;
    let [service] = services.as_slice() else {
        let why = format!(
            "services has {} entries; exactly 1 is supported",
            services.len()
        );
        return Err(("NotSupported", why));
    };
    if !["", "v3"].contains(&protocol_version.as_str()) {
        let why = format!("protocolVersion {protocol_version:?} is not supported; expected v3");
        return Err(invalid(why));
    }
    let response = timeout_policy.as_ref().map(|it| it.response.as_str());
    let timeout_ms = timeout("timeoutPolicy.response", response.unwrap_or_default());
    let timeout_ms = timeout_ms.map_err(invalid)?;
    let (connection, warnings) = connection(&extension.spec, traffic, cx).map_err(invalid)?;
    let ExtensionTarget {
        name,
        port,
        weight: _,
    } = service;
    let target = (cx.referrer.namespace, name.as_str());
    let ResolvedRef { policed, target } = cx
        .backends
        .of_service(target, *port, traffic, connection, cx.cx);
    let backend = target.and_then(BackendTarget::served);
    let backend = backend.map_err(|(_, why)| invalid(format!("services[0]: {why}")))?;
    Ok(ReadExtension {
        backend,
        policed,
        timeout_ms,
        warnings,
    })
}

fn connection<'w>(
    spec: &'w ExtensionServiceSpec,
    traffic: Traffic,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Result<(Connection, Vec<String>), String> {
    let protocol = match spec.protocol.as_deref().unwrap_or_default() {
        "" | "h2" => UpstreamProtocol::H2,
        "h2c" => UpstreamProtocol::H2c,
        "http/1.1" if traffic == Traffic::Grpc => {
            return Err("protocol http/1.1 cannot carry gRPC; set h2 or h2c".to_owned());
        }
        "http/1.1" => UpstreamProtocol::Http1,
        other => {
            return Err(format!(
                "protocol {other:?} is not supported; expected h2, h2c or http/1.1"
            ));
        }
    };
    let own_tls = match &spec.validation {
        Some(_) if protocol != UpstreamProtocol::H2 => {
            return Err("validation has no effect without TLS; set protocol h2".to_owned());
        }
        Some(validation) => {
            let read = own_tls(validation, "", cx);
            Some(read.map_err(|(_, why)| format!("validation.{why}"))?)
        }
        None => None,
    };
    let timeouts = spec.timeout_policy.as_ref();
    let idle = RouteConnections::read(timeouts, "").map_err(|(_, why)| why)?;
    let balance = load_balancing::of_connections(spec.load_balancer_policy.as_ref());
    let mut warnings = balance.warnings;
    if timeouts.is_some_and(|it| !it.idle.is_empty()) {
        warnings.push("timeoutPolicy.idle has no effect".to_owned());
    }
    let settings = BackendSettings {
        load_balancer: balance.load_balancer,
        idle_timeout_ms: idle.idle_timeout_ms,
        breaker: breaker(spec.circuit_breaker_policy)?,
        ..BackendSettings::default()
    };
    let connection = Connection {
        protocol: Some(protocol),
        own_tls,
        settings,
    };
    Ok((connection, warnings))
}

fn breaker(policy: Option<ExtensionCircuitBreaker>) -> Result<Option<CircuitBreaker>, String> {
    let Some(ExtensionCircuitBreaker {
        max_connections,
        max_pending_requests,
        max_requests,
        max_retries,
        per_host_max_connections,
    }) = policy
    else {
        return Ok(None);
    };
    let limit = |field: &str, value: i64| {
        let most = u32::MAX;
        u32::try_from(value)
            .map_err(|_| format!("circuitBreakerPolicy.{field} {value}: expected 0 to {most}"))
    };
    Ok(Some(CircuitBreaker {
        max_connections: limit("maxConnections", max_connections)?,
        max_pending_requests: limit("maxPendingRequests", max_pending_requests)?,
        max_requests: limit("maxRequests", max_requests)?,
        max_retries: limit("maxRetries", max_retries)?,
        max_connections_per_endpoint: limit("perHostMaxConnections", per_host_max_connections)?,
        ..CircuitBreaker::default()
    }))
}

/// Returns milliseconds, or 0 for the default.
pub(super) fn timeout(field: &str, text: &str) -> Result<u64, String> {
    let timeout = match text {
        "" => 0,
        "infinity" | "infinite" => MAX_TIMEOUT_MS,
        text => durations::of_go(text).map_err(|why| format!("{field}: {why}"))?,
    };
    if timeout > MAX_TIMEOUT_MS {
        return Err(format!("{field} {text:?}: expected at most 1h"));
    }
    Ok(timeout)
}

pub(super) fn secret_refs<'w>(world: &'w World, roots: &[Root<'w>]) -> Vec<AuthorityRef<'w>> {
    let grants = Grants::new(world);
    let references = roots.iter().filter_map(|root| {
        let ProxyAuthorization { extension_ref, .. } = root.virtualhost.authorization.as_ref()?;
        let namespace = root.proxy.metadata.namespace.as_str();
        let extension = find(extension_ref, namespace, (world, &grants)).ok()?;
        let validation = extension.spec.validation.as_ref()?;
        Some(AuthorityRef {
            gateway: root.gateway,
            namespace: &extension.metadata.namespace,
            secret: secret_ref(&validation.ca_secret),
        })
    });
    references.collect()
}
