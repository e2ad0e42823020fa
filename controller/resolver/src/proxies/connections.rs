//! Settings for connections to an HTTPProxy's Services.

use sesame_proto::schema::{BackendTls, HealthCheck, LoadBalancer, SessionPersistence};

use super::load_balancing::{Balance, with_slow_start};
use super::roots::Proxies;
use super::rules::RouteFault;
use super::{health_checks, load_balancing};
use crate::backends::{BackendSettings, Connection, OwnTls, UpstreamProtocol};
use crate::context::references::CoreReference;
use crate::routes::rules::RuleContext;
use crate::syntax::limits::{self, MAX_SUBJECT_NAMES};
use crate::syntax::{durations, hostnames, names};
use sesame_kinds::api::{
    ObjectRef, ProxyRoute, ProxyService, ProxyTcp, ProxyTimeouts, ProxyValidation, TargetPort,
};
use sesame_kinds::status::{Grounds, Reason};
use sesame_kinds::world::Kind;

#[derive(Debug, Default)]
pub(super) struct RouteConnections {
    /// If empty, the client's Host is kept.
    pub(super) host: String,
    /// Idle timeout in milliseconds. `Some(0)` disables the timeout, and `None` means the default.
    pub(super) idle_timeout_ms: Option<u64>,
    load_balancer: Option<LoadBalancer>,
    health_check: Option<HealthCheck>,
}

impl RouteConnections {
    /// As in Contour, a timeout of `0s` means the default.
    pub(super) fn read(timeouts: Option<&ProxyTimeouts>, host: &str) -> Result<Self, RouteFault> {
        let idle = timeouts.map(|it| it.idle_connection.as_str());
        let idle_timeout_ms = match idle.unwrap_or_default() {
            "" => None,
            "infinity" | "infinite" => Some(0),
            text => {
                let timeout = durations::of_go(text).map_err(|why| {
                    let code = ("RouteError", "TimeoutPolicyNotValid");
                    (code, format!("timeoutPolicy.idleConnection: {why}"))
                })?;
                Some(timeout).filter(|timeout| *timeout > 0)
            }
        };
        Ok(Self {
            host: host.to_owned(),
            idle_timeout_ms,
            ..Self::default()
        })
    }

    pub(super) fn balance(
        &mut self,
        route: &ProxyRoute,
        warnings: &mut Vec<RouteFault>,
    ) -> Option<SessionPersistence> {
        let policy = route.load_balancer_policy.as_ref();
        let Balance {
            load_balancer,
            session,
            warnings: ignored,
        } = load_balancing::of_requests(policy, &route.services);
        let ignored = ignored.into_iter();
        warnings.extend(ignored.map(|why| (("SpecError", "IgnoredField"), why)));
        let policy = route.health_check_policy.as_ref();
        let (health_check, warning) = health_checks::of_requests(policy);
        warnings.extend(warning.map(|why| (health_checks::INVALID, why)));
        self.load_balancer = load_balancer;
        self.health_check = health_check;
        session
    }

    pub(super) fn of_tcp(tcp: &ProxyTcp) -> (Self, Vec<RouteFault>) {
        let ProxyTcp {
            services: _,
            include: _,
            includes: _,
            load_balancer_policy,
            health_check_policy,
        } = tcp;
        let balance = load_balancing::of_connections(load_balancer_policy.as_ref());
        let ignored = balance.warnings.into_iter();
        let ignored = ignored.map(|why| (("TCPProxyError", "IgnoredField"), why));
        let mut warnings: Vec<RouteFault> = ignored.collect();
        let (health_check, warning) = health_checks::of_connections(health_check_policy.as_ref());
        warnings.extend(warning.map(|why| (health_checks::INVALID, why)));
        let settings = Self {
            load_balancer: balance.load_balancer,
            health_check,
            ..Self::default()
        };
        (settings, warnings)
    }
}

pub(super) fn read<'w>(
    service: &'w ProxyService,
    route_connections: &RouteConnections,
    cx: &mut RuleContext<'_, 'w, '_>,
    warnings: &mut Vec<RouteFault>,
) -> Result<Connection, RouteFault> {
    let protocol = service.protocol.as_deref().filter(|name| !name.is_empty());
    let protocol = protocol.map(|name| {
        UpstreamProtocol::named(name).ok_or_else(|| {
            let why = format!("protocol {name:?} is not supported; expected h2c, h2 or tls");
            (("ServiceError", "UnsupportedProtocol"), why)
        })
    });
    let protocol = protocol.transpose()?;
    let health_check = route_connections.health_check.as_ref();
    let health_check = checked_port(service, health_check, cx, warnings)?;
    let validation = service.validation.as_ref();
    let own_tls = validation.map(|validation| {
        own_tls(validation, &route_connections.host, cx).map_err(|(reason, why)| {
            let code = match reason {
                Reason::RefNotPermitted => ("TLSError", "CACertificateNotDelegated"),
                _ => UNVERIFIED,
            };
            (code, format!("validation.{why}"))
        })
    });
    let strategy = route_connections.load_balancer.as_ref();
    let load_balancer = with_slow_start(service, strategy).unwrap_or_else(|why| {
        let name = &service.name;
        let why = format!("service {name}: slowStartPolicy has no effect: {why}");
        warnings.push((("ServiceError", "SlowStartInvalid"), why));
        strategy.cloned()
    });
    Ok(Connection {
        protocol,
        own_tls: own_tls.transpose()?,
        unverified_sni: match protocol {
            Some(protocol) if protocol.needs_tls() => route_connections.host.clone(),
            _ => String::new(),
        },
        settings: BackendSettings {
            load_balancer,
            idle_timeout_ms: route_connections.idle_timeout_ms,
            health_check,
            ..BackendSettings::default()
        },
        ..Connection::default()
    })
}

/// As in Contour, a port that the Service lacks is invalid even without a health check.
fn checked_port(
    service: &ProxyService,
    check: Option<&HealthCheck>,
    cx: &RuleContext<'_, '_, '_>,
    warnings: &mut Vec<RouteFault>,
) -> Result<Option<HealthCheck>, RouteFault> {
    let name = &service.name;
    let number = service.health_port.filter(|number| *number != 0);
    let found = cx.cx.world.services.get(cx.referrer.namespace, name);
    let (Some(number), Some(found)) = (number, found) else {
        return Ok(check.cloned());
    };
    let mut ports = found.spec.ports.iter();
    let Some(port) = ports.find(|port| port.port == number) else {
        let code = ("ServiceError", "ServiceUnresolvedReference");
        let why =
            format!("healthPort {number}: the Service has no such port; use one of its ports");
        return Err((code, why));
    };
    let target = match &port.target_port {
        None => Some(number),
        Some(TargetPort::Number(target)) => Some(*target),
        Some(TargetPort::Name(_)) => None,
    };
    let target = target.and_then(names::port);
    if target.is_none() {
        let why = format!(
            "service {name}: healthPort {number} has no effect, because its targetPort is not a number"
        );
        warnings.push((("SpecError", "IgnoredField"), why));
    }
    Ok(check.map(|check| HealthCheck {
        port: target.map_or(0, u32::from),
        ..check.clone()
    }))
}

pub(super) const UNVERIFIED: (&str, &str) = ("ServiceError", "TLSUpstreamValidation");

pub(super) fn own_tls<'w>(
    validation: &'w ProxyValidation,
    host: &str,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Result<OwnTls, Grounds> {
    let ProxyValidation {
        ca_secret,
        subject_name: _,
        subject_names: _,
    } = validation;
    let dns_names = names(validation).map_err(|why| (Reason::Invalid, why))?;
    let (namespace, name) = secret(ca_secret);
    let authorities = CoreReference::of_kind(Kind::Secret.as_str(), namespace, name);
    let bundles = &mut cx.backends.ca_bundles;
    let bundle = bundles
        .of_secrets(cx.referrer, authorities, None, cx.cx)
        .map_err(|(reason, why)| (reason, format!("caSecret {ca_secret:?}: {why}")))?;
    let sni = dns_names.first().map(String::as_str);
    let sni = Some(host).filter(|host| !host.is_empty()).or(sni);
    let tls = BackendTls {
        sni: sni.unwrap_or_default().to_owned(),
        trust_bundle: bundle.name.clone(),
        dns_names,
        ..BackendTls::default()
    };
    Ok(OwnTls { tls, bundle })
}

/// Never empty. A certificate is accepted if it contains any of the names.
pub(super) fn names(validation: &ProxyValidation) -> Result<Vec<String>, String> {
    let ProxyValidation {
        ca_secret: _,
        subject_name: first,
        subject_names: all,
    } = validation;
    limits::entries("subjectNames", all.len(), 0..=MAX_SUBJECT_NAMES)?;
    let names = if all.is_empty() {
        std::slice::from_ref(first)
    } else {
        all.as_slice()
    };
    if !first.is_empty() && names.first() != Some(first) {
        return Err(format!(
            "the first entry of subjectNames differs from subjectName {first:?}; make them equal"
        ));
    }
    for name in names {
        hostnames::check_precise(name).map_err(|why| format!("subjectName {why}"))?;
    }
    Ok(names.to_vec())
}

/// Accepts `name` and `namespace/name`.
pub(super) fn secret(reference: &str) -> (Option<&str>, &str) {
    let parts = reference.split_once('/');
    parts.map_or((None, reference), |(namespace, name)| {
        (Some(namespace), name)
    })
}

pub(super) fn secret_ref(reference: &str) -> ObjectRef {
    let (namespace, name) = secret(reference);
    ObjectRef {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        ..ObjectRef::default()
    }
}

/// Reference from an HTTPProxy, or from its ExtensionService, to a Secret with CA certificates or a
/// token issuer's key set.
#[derive(Debug)]
pub struct AuthorityRef<'w> {
    /// Namespace and name of the Gateway that the HTTPProxy's class specifies.
    pub gateway: (&'w str, &'w str),
    /// Namespace of the referring object.
    pub namespace: &'w str,
    /// The reference to the Secret.
    pub secret: ObjectRef,
}

pub(super) fn authority_refs<'w>(proxies: &Proxies<'w>) -> Vec<AuthorityRef<'w>> {
    let with_gateway = proxies
        .values()
        .filter_map(|it| Some((it.proxy, it.gateway?)));
    let references = with_gateway.flat_map(|(proxy, gateway)| {
        let validations = proxy
            .spec
            .services()
            .filter_map(|it| it.validation.as_ref());
        validations.map(move |validation| AuthorityRef {
            gateway,
            namespace: &proxy.metadata.namespace,
            secret: secret_ref(&validation.ca_secret),
        })
    });
    references.collect()
}
