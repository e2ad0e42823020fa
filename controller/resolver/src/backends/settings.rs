//! Applies load balancing, health checks and limits to Backends.

use sesame_proto::schema::health_check::Kind as CheckKind;
use sesame_proto::schema::{
    AppProtocol, Backend, BackendConnections, CircuitBreaker, HashPolicy, HealthCheck, HttpCheck,
    LoadBalancer, OutlierDetection, StatusRange, ZonePreference, hash_policy,
};

use super::Traffic;
use crate::context::Problems;
use crate::syntax::{limits, names};
use sesame_kinds::api::{Metadata, Service, TOPOLOGY_MODE};
use sesame_kinds::world::Kind;

/// `None` keeps the default. References with equal settings share a Backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BackendSettings {
    pub(crate) load_balancer: Option<LoadBalancer>,
    pub(crate) health_check: Option<HealthCheck>,
    pub(crate) outlier: Option<OutlierDetection>,
    pub(crate) panic_percent: Option<u32>,
    pub(crate) breaker: Option<CircuitBreaker>,
    pub(crate) connections: Option<BackendConnections>,
    /// 0 means no timeout.
    pub(crate) idle_timeout_ms: Option<u64>,
    pub(crate) zone_preference: Option<ZonePreference>,
}

impl BackendSettings {
    /// Settings in `self` take precedence over `others`.
    pub(super) fn or(&self, others: &Self) -> Self {
        let Self {
            load_balancer,
            health_check,
            outlier,
            panic_percent,
            breaker,
            connections,
            idle_timeout_ms,
            zone_preference,
        } = self.clone();
        Self {
            load_balancer: load_balancer.or_else(|| others.load_balancer.clone()),
            health_check: health_check.or_else(|| others.health_check.clone()),
            outlier: outlier.or(others.outlier),
            panic_percent: panic_percent.or(others.panic_percent),
            breaker: breaker.or(others.breaker),
            connections: connections.or(others.connections),
            idle_timeout_ms: idle_timeout_ms.or(others.idle_timeout_ms),
            zone_preference: zone_preference.or(others.zone_preference),
        }
    }

    pub(super) fn or_of_service(mut self, service: &Service) -> Self {
        self.breaker = self.breaker.or_else(|| annotated(&service.metadata));
        let mode = service.metadata.annotations.get(TOPOLOGY_MODE);
        let is_preferred =
            service.spec.prefers_zone() || mode.is_some_and(|it| it.eq_ignore_ascii_case("auto"));
        let preference = is_preferred.then(ZonePreference::default);
        self.zone_preference = self.zone_preference.or(preference);
        self
    }

    /// The Backend's protocol must already be set. Returns true if any setting applies. Adds a
    /// message to `unfit` for each unsupported setting.
    pub(super) fn apply(
        self,
        traffic: Traffic,
        backend: &mut Backend,
        unfit: &mut Vec<String>,
    ) -> bool {
        backend.zone_preference = self.zone_preference;
        // Other load balancing, health checks and limits do not apply to datagrams.
        if traffic == Traffic::Datagrams {
            let others = Self {
                zone_preference: None,
                ..self
            };
            if others != Self::default() {
                unfit
                    .push("no setting except zonePreference has an effect on datagrams".to_owned());
            }
            return backend.zone_preference.is_some();
        }
        let Self {
            load_balancer,
            health_check,
            outlier,
            panic_percent,
            breaker,
            connections,
            idle_timeout_ms,
            zone_preference,
        } = self;
        let protocol = backend.protocol();
        let load_balancer = load_balancer.map(|mut balancer| {
            let hashes = &mut balancer.hash_policies;
            let count = hashes.len();
            hashes.retain(|it| protocol != AppProtocol::TcpBytes || is_of_connections(it));
            if hashes.len() < count {
                unfit.push(
                    "loadBalancer.hash supports only ClientAddress for connections".to_owned(),
                );
            }
            balancer
        });
        let health_check = health_check.filter(|check| {
            let fault = match &check.kind {
                Some(CheckKind::GrpcService(_)) if protocol != AppProtocol::Http2 => {
                    "healthCheck.active.grpc has no effect without HTTP/2; set appProtocol \
                     kubernetes.io/h2c or grpc"
                }
                Some(CheckKind::Http(_)) if traffic == Traffic::Connections => {
                    "healthCheck.active.http has no effect with TLS passthrough; use tcp"
                }
                _ => return true,
            };
            unfit.push(fault.to_owned());
            false
        });
        backend.load_balancer = load_balancer.map(Box::new);
        backend.health_check = health_check.map(Box::new);
        backend.outlier = outlier.map(Box::new);
        backend.panic_percent = panic_percent;
        backend.breaker = breaker.map(Box::new);
        backend.connections = connections.map(Box::new);
        backend.idle_timeout_ms = idle_timeout_ms;
        backend.load_balancer.is_some()
            || backend.health_check.is_some()
            || backend.outlier.is_some()
            || backend.panic_percent.is_some()
            || backend.breaker.is_some()
            || backend.connections.is_some()
            || backend.idle_timeout_ms.is_some()
            || zone_preference.is_some()
    }
}

fn is_of_connections(policy: &HashPolicy) -> bool {
    matches!(policy.kind, Some(hash_policy::Kind::SourceAddress(_)))
}

pub(crate) fn http_check(
    path: &str,
    host: &str,
    statuses: Vec<StatusRange>,
) -> Result<HttpCheck, String> {
    let most = limits::MAX_PATH;
    let is_sent = |text: &str| text.len() <= most && text.bytes().all(|b| b.is_ascii_graphic());
    if !path.starts_with('/') || !is_sent(path) {
        return Err(format!(
            "path {path:?}: must start with / and have at most {most} printable ASCII characters, without spaces"
        ));
    }
    if !is_sent(host) || !names::is_field_value(host) {
        return Err(format!("host {host:?}: expected a hostname"));
    }
    Ok(HttpCheck {
        path: path.to_owned(),
        host: host.to_owned(),
        statuses,
    })
}

type Limit = fn(&mut CircuitBreaker) -> &mut u32;

const ANNOTATIONS: [(&str, Limit); 5] = [
    ("projectcontour.io/max-connections", |it| {
        &mut it.max_connections
    }),
    ("projectcontour.io/max-pending-requests", |it| {
        &mut it.max_pending_requests
    }),
    ("projectcontour.io/max-requests", |it| &mut it.max_requests),
    ("projectcontour.io/max-retries", |it| &mut it.max_retries),
    ("projectcontour.io/per-host-max-connections", |it| {
        &mut it.max_connections_per_endpoint
    }),
];

/// Returns `None` if there are no limits. As in Contour, 0 means no limit.
fn annotated(service: &Metadata) -> Option<CircuitBreaker> {
    let mut breaker = CircuitBreaker::default();
    for (name, limit) in ANNOTATIONS {
        if let Some(text) = service.annotations.get(name)
            && let Ok(value) = text.parse()
        {
            *limit(&mut breaker) = value;
        }
    }
    (breaker != CircuitBreaker::default()).then_some(breaker)
}

pub(super) fn check(service: &Metadata, problems: &mut Problems) {
    for (name, _) in ANNOTATIONS {
        if let Some(text) = service.annotations.get(name)
            && text.parse::<u32>().is_err()
        {
            let message = format!(
                "annotation {name} {text:?} has no effect; expected a number from 0 to {}",
                u32::MAX
            );
            problems.add(Kind::Service.named(service.key()), message);
        }
    }
}
