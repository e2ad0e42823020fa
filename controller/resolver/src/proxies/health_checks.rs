//! Health checks in HTTPProxies. If a health check is invalid, the endpoints receive requests
//! without being checked.

use sesame_proto::schema::health_check::Kind;
use sesame_proto::schema::{HealthCheck, HttpCheck, MAX_BACKEND_MS, StatusRange};

use crate::backends;
use crate::syntax::limits;
use sesame_kinds::api::{ProxyHealthCheck, ProxyStatusRange, ProxyTcpHealthCheck};

pub(super) const INVALID: (&str, &str) = ("RouteError", "HealthCheckPolicyInvalid");

/// Contour's default for the Host header.
const HOST: &str = "contour-envoy-healthcheck";

/// Contour's defaults. The interval and timeout are in seconds.
const INTERVAL: u64 = 10;
const TIMEOUT: u64 = 2;
const UNHEALTHY: u64 = 3;
const HEALTHY: u64 = 2;

/// Health check and warning.
pub(super) type ReadCheck = (Option<HealthCheck>, Option<String>);

pub(super) fn of_requests(policy: Option<&ProxyHealthCheck>) -> ReadCheck {
    read(policy.map(|policy| {
        let ProxyHealthCheck {
            path,
            host,
            interval_seconds,
            timeout_seconds,
            unhealthy_threshold_count,
            healthy_threshold_count,
            expected_statuses,
        } = policy;
        let check = http_check(path, host, expected_statuses)?;
        timed(
            Kind::Http(check),
            (*interval_seconds, *timeout_seconds),
            (*healthy_threshold_count, *unhealthy_threshold_count),
        )
    }))
}

pub(super) fn of_connections(policy: Option<&ProxyTcpHealthCheck>) -> ReadCheck {
    read(policy.map(|policy| {
        let ProxyTcpHealthCheck {
            interval_seconds,
            timeout_seconds,
            unhealthy_threshold_count,
            healthy_threshold_count,
        } = policy;
        timed(
            Kind::Tcp(true),
            (*interval_seconds, *timeout_seconds),
            (*healthy_threshold_count, *unhealthy_threshold_count),
        )
    }))
}

fn read(check: Option<Result<HealthCheck, String>>) -> ReadCheck {
    match check {
        None => (None, None),
        Some(Err(why)) => (
            None,
            Some(format!("healthCheckPolicy has no effect: {why}")),
        ),
        Some(Ok(mut check)) => {
            let most = HealthCheck::MAX_TIMEOUT_MS;
            let asked = check.timeout_ms;
            check.timeout_ms = asked.min(most);
            let why = format!(
                "healthCheckPolicy.timeoutSeconds {} is too long; {} is used",
                asked / 1_000,
                most / 1_000
            );
            (Some(check), (asked > most).then_some(why))
        }
    }
}

fn timed(
    kind: Kind,
    (interval, timeout): (i64, i64),
    (healthy, unhealthy): (i64, i64),
) -> Result<HealthCheck, String> {
    let seconds = |field: &str, value: i64, default: u64| {
        let seconds = number(field, value, default, MAX_BACKEND_MS / 1_000)?;
        Ok::<_, String>(seconds.saturating_mul(1_000))
    };
    let threshold = |field: &str, value: i64, default: u64| {
        let most = u64::from(HealthCheck::MAX_THRESHOLD);
        let count = number(field, value, default, most)?;
        u32::try_from(count).map_err(|_| field.to_owned())
    };
    Ok(HealthCheck {
        kind: Some(kind),
        interval_ms: seconds("intervalSeconds", interval, INTERVAL)?,
        timeout_ms: seconds("timeoutSeconds", timeout, TIMEOUT)?,
        healthy_threshold: threshold("healthyThresholdCount", healthy, HEALTHY)?,
        unhealthy_threshold: threshold("unhealthyThresholdCount", unhealthy, UNHEALTHY)?,
        port: 0,
    })
}

/// Returns `default` for 0.
fn number(field: &str, value: i64, default: u64, most: u64) -> Result<u64, String> {
    match u64::try_from(value) {
        Ok(0) => Ok(default),
        Ok(value) if value <= most => Ok(value),
        _ => Err(format!("{field} {value}: expected 0 to {most}")),
    }
}

fn http_check(path: &str, host: &str, statuses: &[ProxyStatusRange]) -> Result<HttpCheck, String> {
    limits::entries(
        "expectedStatuses",
        statuses.len(),
        0..=HealthCheck::MAX_STATUSES,
    )?;
    let statuses = statuses.iter().map(range).collect::<Result<_, _>>()?;
    let host = Some(host).filter(|host| !host.is_empty());
    backends::http_check(path, host.unwrap_or(HOST), statuses)
}

fn range(range: &ProxyStatusRange) -> Result<StatusRange, String> {
    let ProxyStatusRange { start, end } = range;
    let status = |value: i64| {
        u32::try_from(value)
            .ok()
            .filter(|it| (100..=600).contains(it))
    };
    match (status(*start), status(*end)) {
        (Some(first), Some(end)) if first < end => Ok(StatusRange {
            first,
            last: end - 1,
        }),
        _ => Err(format!(
            "expectedStatuses from {start} to {end}: expected a start from 100 to 599, and an end \
             after it up to 600"
        )),
    }
}
