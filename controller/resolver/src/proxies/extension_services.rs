//! Resolves ExtensionServices to Backends. Their Services and Secrets are looked up in the
//! ExtensionService's own namespace. Only ExtensionServices that a served HTTPProxy needs have a
//! status, because Contour may use the others.

use std::collections::BTreeMap;

use sesame_proto::schema::{CircuitBreaker, EndpointSet};

use super::connections::{AuthorityRef, RouteConnections, UNVERIFIED, own_tls, secret_ref};
use super::details::{DetailCode, Details};
use super::load_balancing;
use super::roots::Root;
use super::rules::RouteFault;
use crate::backends::{BackendSettings, Connection, PolicedBackend, Traffic, UpstreamProtocol};
use crate::context::grants::{Grants, Referent, Referrer};
use crate::routes::rules::RuleContext;
use crate::syntax::{durations, limits};
use sesame_kinds::api::{
    ExtensionCircuitBreaker, ExtensionService, ExtensionServiceRef, ExtensionServiceSpec,
    ExtensionTarget, IngressSettings, Metadata, NamespacedName, ProxyExtensionRef,
};
use sesame_kinds::status::{ProxyDetail, Reason};
use sesame_kinds::world::{Kind, World};

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

/// The status of an ExtensionService.
pub(crate) struct CheckedExtension<'w> {
    pub(crate) metadata: &'w Metadata,
    /// The Gateway of the first HTTPProxy that needs it.
    pub(crate) gateway: NamespacedName,
    pub(crate) details: Vec<ProxyDetail>,
}

/// All ExtensionServices that served HTTPProxies need.
#[derive(Default)]
pub(crate) struct CheckedExtensions<'w>(BTreeMap<NamespacedName, Found<'w>>);

struct Found<'w> {
    metadata: &'w Metadata,
    gateway: NamespacedName,
    details: Details,
}

impl<'w> CheckedExtensions<'w> {
    fn record(
        &mut self,
        extension: &'w ExtensionService,
        (namespace, name): (&str, &str),
        read: &Result<ReadExtension<'w>, RouteFault>,
    ) {
        let key = extension.metadata.key();
        let found = self.0.entry(key.clone()).or_insert_with(|| Found {
            metadata: &extension.metadata,
            gateway: NamespacedName::new(namespace, name),
            details: Details::default(),
        });
        match read {
            Ok(read) => {
                for why in &read.warnings {
                    found.details.warn(&key, IGNORED, why);
                }
            }
            Err((code, why)) => found.details.error(&key, *code, why),
        }
    }

    pub(crate) fn finish(self) -> Vec<CheckedExtension<'w>> {
        let all = self.0.into_iter();
        let checked = all.map(|(key, mut found)| CheckedExtension {
            metadata: found.metadata,
            gateway: found.gateway,
            details: found.details.remove(&key),
        });
        checked.collect()
    }
}

const IGNORED: DetailCode = ("SpecError", "IgnoredField");
const SERVICES: DetailCode = ("SpecError", "ServicesNotValid");
const UNRESOLVED: DetailCode = ("ServiceError", "ServiceUnresolvedReference");

/// The context's referrer must be the ExtensionService. The error's reason is for HTTPProxies.
pub(super) fn read<'w>(
    extension: &'w ExtensionService,
    traffic: Traffic,
    gateway: (&str, &str),
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Result<ReadExtension<'w>, ExtensionFault> {
    let read = read_spec(extension, traffic, cx);
    cx.cx.extensions.record(extension, gateway, &read);
    read.map_err(|(_, why)| (NOT_FOUND, why))
}

fn read_spec<'w>(
    extension: &'w ExtensionService,
    traffic: Traffic,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Result<ReadExtension<'w>, RouteFault> {
    if let Some(why) = extension.metadata.unknown.refusal("") {
        return Err((("SpecError", "UnknownField"), why));
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
    check_services(services).map_err(|why| (SERVICES, why))?;
    if !["", "v3"].contains(&protocol_version.as_str()) {
        let why = format!("protocolVersion {protocol_version:?} is not supported; expected v3");
        return Err((("SpecError", "UnsupportedProtocolVersion"), why));
    }
    let response = timeout_policy.as_ref().map(|it| it.response.as_str());
    let timeout_ms = timeout("timeoutPolicy.response", response.unwrap_or_default());
    let timeout_ms = timeout_ms.map_err(|why| (("SpecError", "TimeoutPolicyNotValid"), why))?;
    let (connection, warnings) = connection(&extension.spec, traffic, cx)?;
    let backends = &mut *cx.backends;
    let found = backends.of_extension(extension, traffic, &connection, cx.cx);
    let (backend, policed) = found.map_err(|(index, (reason, why))| {
        let code = match reason {
            Reason::NoValidCaCertificate => UNVERIFIED,
            Reason::UnsupportedValue => ("ServiceError", "UnsupportedServiceType"),
            Reason::Invalid => SERVICES,
            _ => UNRESOLVED,
        };
        (code, format!("services[{index}]: {why}"))
    })?;
    Ok(ReadExtension {
        backend,
        policed,
        timeout_ms,
        warnings,
    })
}

fn check_services(services: &[ExtensionTarget]) -> Result<(), String> {
    limits::entries("services", services.len(), 1..=EndpointSet::MAX_WEIGHTS)?;
    let most = EndpointSet::MAX_WEIGHT;
    for (index, target) in services.iter().enumerate() {
        let weight = target.weight;
        if !(0..=i64::from(most)).contains(&weight) {
            return Err(format!(
                "services[{index}].weight {weight}: expected 0 to {most}"
            ));
        }
    }
    Ok(())
}

fn connection<'w>(
    spec: &'w ExtensionServiceSpec,
    traffic: Traffic,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Result<(Connection, Vec<String>), RouteFault> {
    let protocol = protocol(spec, traffic)?;
    let own_tls = match &spec.validation {
        Some(_) if protocol != UpstreamProtocol::H2 => {
            let why = "validation has no effect without TLS; set protocol h2";
            return Err((INCONSISTENT, why.to_owned()));
        }
        Some(validation) => {
            let read = own_tls(validation, "", cx);
            Some(read.map_err(|(reason, why)| {
                let code = match reason {
                    Reason::RefNotPermitted => ("TLSError", "CACertificateNotDelegated"),
                    _ => ("SpecError", "TLSUpstreamValidation"),
                };
                (code, format!("validation.{why}"))
            })?)
        }
        None => None,
    };
    let timeouts = spec.timeout_policy.as_ref();
    let idle = RouteConnections::read(timeouts, "");
    let idle = idle.map_err(|((_, reason), why)| (("SpecError", reason), why))?;
    let balance = load_balancing::of_connections(spec.load_balancer_policy.as_ref());
    let mut warnings = balance.warnings;
    if timeouts.is_some_and(|it| !it.idle.is_empty()) {
        warnings.push("timeoutPolicy.idle has no effect".to_owned());
    }
    let settings = BackendSettings {
        load_balancer: balance.load_balancer,
        idle_timeout_ms: idle.idle_timeout_ms,
        breaker: breaker(spec.circuit_breaker_policy)
            .map_err(|why| (("SpecError", "CircuitBreakerPolicyNotValid"), why))?,
        ..BackendSettings::default()
    };
    let connection = Connection {
        protocol: Some(protocol),
        own_tls,
        settings,
        must_verify: true,
        ..Connection::default()
    };
    Ok((connection, warnings))
}

const INCONSISTENT: DetailCode = ("SpecError", "InconsistentProtocol");

fn protocol(spec: &ExtensionServiceSpec, traffic: Traffic) -> Result<UpstreamProtocol, RouteFault> {
    let why = match spec.protocol.as_deref().unwrap_or_default() {
        "" | "h2" => return Ok(UpstreamProtocol::H2),
        "h2c" => return Ok(UpstreamProtocol::H2c),
        "http/1.1" if traffic == Traffic::Grpc => {
            "protocol http/1.1 cannot carry gRPC; set h2 or h2c".to_owned()
        }
        "http/1.1" => return Ok(UpstreamProtocol::Http1),
        other => format!("protocol {other:?} is not supported; expected h2, h2c or http/1.1"),
    };
    Err((INCONSISTENT, why))
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

pub(super) fn secret_refs<'w>(
    world: &'w World,
    roots: &[Root<'w>],
    settings: Option<&'w IngressSettings>,
) -> Vec<AuthorityRef<'w>> {
    let grants = Grants::new(world);
    let limits = settings.and_then(|it| it.rate_limit_service.as_ref());
    let limits = limits.and_then(|it| {
        let ExtensionServiceRef { namespace, name } = &it.extension_service;
        world.extension_services.get(namespace, name)
    });
    let references = roots.iter().flat_map(|root| {
        let authorization = root.virtualhost.authorization.as_ref();
        let namespace = root.proxy.metadata.namespace.as_str();
        let authorization =
            authorization.and_then(|it| find(&it.extension_ref, namespace, (world, &grants)).ok());
        let extensions = authorization.into_iter().chain(limits.map(AsRef::as_ref));
        extensions.filter_map(|extension| {
            let validation = extension.spec.validation.as_ref()?;
            Some(AuthorityRef {
                gateway: root.gateway,
                namespace: &extension.metadata.namespace,
                secret: secret_ref(&validation.ca_secret),
            })
        })
    });
    references.collect()
}
