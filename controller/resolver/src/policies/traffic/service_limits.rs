//! Rate limits in TrafficPolicies that a rate limit service decides.

use sesame_proto::schema::{
    RateLimit, RateLimitEntry, RateLimitKey, RateLimitService, rate_limit_key,
};

use crate::syntax::{durations, limits};
use sesame_kinds::api::{BackendObjectRef, LimitService, RequestLimit};

/// Looks up the services of one policy.
pub(super) struct Services<'a> {
    /// `NAMESPACE/POLICY`.
    pub(super) policy: String,
    /// Returns the name of the Service's Backend.
    pub(super) resolve: &'a mut dyn FnMut(&BackendObjectRef) -> Result<String, String>,
    /// Why limits have no effect that never reject requests without their service.
    pub(super) ignored: Vec<String>,
}

impl Services<'_> {
    /// Replaces the rate of `limit`. Returns `None` if the limit has no effect. `field` is the
    /// limit's path.
    pub(super) fn decide(
        &mut self,
        field: &str,
        spec: &RequestLimit,
        limit: RateLimit,
    ) -> Result<Option<RateLimit>, String> {
        let RequestLimit {
            name,
            requests,
            per,
            burst,
            service,
            ..
        } = spec;
        let rates = [
            ("requests", requests.is_some()),
            ("per", per.is_some()),
            ("burst", burst.is_some()),
        ];
        if let Some((rate, _)) = rates.into_iter().find(|(_, is_set)| *is_set) {
            return Err(format!(
                "{rate} must not be set with scope Service, because the service knows the rate"
            ));
        }
        let service = service.as_ref();
        let LimitService {
            backend_ref,
            domain,
            timeout,
            fail_open,
        } = service.ok_or("service is missing; it is required with scope Service")?;
        limits::max_bytes("service.domain", domain, RateLimit::MAX_KEY_NAME)?;
        if domain.is_empty() || domain.contains('%') {
            return Err(format!(
                "service.domain {domain:?}: expected a domain without %"
            ));
        }
        let timeout_ms = durations::read("service.timeout", timeout.as_deref())?;
        if !timeout_ms.is_none_or(|it| (1..=RateLimit::MAX_SERVICE_TIMEOUT_MS).contains(&it)) {
            let timeout = timeout.as_deref().unwrap_or_default();
            return Err(format!("service.timeout {timeout:?}: expected 1ms to 1h"));
        }
        let fail_open = fail_open.unwrap_or_default();
        let backend = match (self.resolve)(backend_ref) {
            Ok(backend) => backend,
            Err(why) if fail_open || limit.report_only => {
                self.ignored.push(format!(
                    "{field}.service.backendRef: {why}; the limit has no effect"
                ));
                return Ok(None);
            }
            Err(why) => return Err(format!("service.backendRef: {why}")),
        };
        let entry = RateLimitKey {
            kind: Some(rate_limit_key::Kind::Entry(RateLimitEntry {
                key: "limit".to_owned(),
                value: format!("{}/{name}", self.policy),
            })),
        };
        Ok(Some(RateLimit {
            keys: std::iter::once(entry).chain(limit.keys).collect(),
            service: Some(RateLimitService {
                backend,
                domain: domain.clone(),
                timeout_ms: timeout_ms.unwrap_or_default(),
                fail_open,
                resource_exhausted: false,
            }),
            ..limit
        }))
    }
}
