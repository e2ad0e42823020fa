//! How the endpoints of a Backend are chosen, checked and protected.

use sesame_proto::schema::{Backend, CircuitBreaker, HealthCheck, LoadBalancer, OutlierDetection};

use crate::api::Metadata;
use crate::resolve::context::Problems;
use crate::world::Kind;

/// Settings of a reference to a Backend. References with equal settings share a Backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BackendSettings {
    /// `None` for round robin.
    pub(crate) load_balancer: Option<LoadBalancer>,
    pub(crate) health_check: Option<HealthCheck>,
    pub(crate) outlier: Option<OutlierDetection>,
    /// `None` for the Service's own limits.
    pub(crate) breaker: Option<CircuitBreaker>,
    /// Milliseconds; 0 for the default.
    pub(crate) connect_timeout_ms: u64,
}

impl BackendSettings {
    /// Sets the fields of a Backend. Returns true if one differs from the default.
    pub(super) fn apply(&self, service: &Metadata, backend: &mut Backend) -> bool {
        let Self {
            load_balancer,
            health_check,
            outlier,
            breaker,
            connect_timeout_ms,
        } = self;
        let breaker = breaker.or_else(|| annotated(service));
        backend.load_balancer = load_balancer.map(Box::new);
        backend.health_check = health_check.clone().map(Box::new);
        backend.outlier = outlier.map(Box::new);
        backend.breaker = breaker.map(Box::new);
        backend.connect_timeout_ms = *connect_timeout_ms;
        backend.load_balancer.is_some()
            || backend.health_check.is_some()
            || backend.outlier.is_some()
            || backend.breaker.is_some()
            || backend.connect_timeout_ms > 0
    }
}

type Limit = fn(&mut CircuitBreaker) -> &mut u32;

/// Contour's annotations of Services.
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

/// Returns the limits that annotations of a Service set, or `None` if they set none. As in
/// Contour, 0 sets none.
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

/// Adds the problems of these annotations.
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
