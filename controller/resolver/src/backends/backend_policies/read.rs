//! Converts BackendPolicies to settings.

use sesame_proto::schema::backend_connections::ProxyProtocol;
use sesame_proto::schema::health_check::Kind as CheckKind;
use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::{
    BackendConnections, CircuitBreaker, HashPolicy, HealthCheck, HttpCheck, Keepalive,
    LoadBalancer, MAX_BACKEND_MS, OutlierDetection, RetryBudget, SlowStart, StatusRange,
    ZonePreference, hash_policy,
};

use crate::backends::settings::{self, BackendSettings};
use crate::syntax::{durations, limits, names};
use sesame_kinds::api::{
    ActiveCheck, BackendPolicySpec, BalancerSettings, BalancerType, BreakerSettings,
    ConnectionSettings, GrpcActiveCheck, HealthSettings, HttpActiveCheck, KeepaliveSettings,
    PassiveCheck, ProxyProtocolVersion, RequestKey, RequestKeyType, RetryBudgetSettings,
    SlowStartSettings, StatusSpan, TcpActiveCheck, ZoneSettings,
};

/// Default initial weight for a slow start, as a percentage of the full weight.
const MIN_WEIGHT_PERCENT: i32 = 10;

/// Defaults for active health checks. Times are in milliseconds.
const CHECK_INTERVAL: u64 = 5_000;
const CHECK_TIMEOUT: u64 = 1_000;
const HEALTHY: i32 = 2;
const UNHEALTHY: i32 = 3;

/// Defaults for passive health checks. Times are in milliseconds.
const SERVER_ERRORS: i32 = 5;
const EJECTION_INTERVAL: u64 = 10_000;
const EJECTION_TIME: u64 = 30_000;
const EJECTION_PERCENT: i32 = 10;

const MIN_RETRIES: i32 = 3;

pub(super) fn settings(spec: &BackendPolicySpec) -> Result<BackendSettings, String> {
    let BackendPolicySpec {
        target_refs: _,
        load_balancer,
        health_check,
        circuit_breaker,
        connection,
    } = spec;
    let mut settings = BackendSettings::default();
    if let Some(spec) = load_balancer {
        let read = balancer(spec).map_err(|why| format!("loadBalancer.{why}"))?;
        settings.load_balancer = Some(read);
        settings.zone_preference = spec.zone_preference.map(zones).transpose()?;
    }
    if let Some(spec) = health_check {
        let HealthSettings {
            active,
            passive,
            panic_threshold,
        } = spec;
        let active = active.as_ref().map(active_check).transpose();
        let passive = passive.as_ref().map(ejection).transpose();
        settings.health_check = active.map_err(|why| format!("healthCheck.active.{why}"))?;
        settings.outlier = passive.map_err(|why| format!("healthCheck.passive.{why}"))?;
        let panic = panic_threshold.map(|it| bounded("healthCheck.panicThreshold", it, 0..=100));
        settings.panic_percent = panic.transpose()?;
    }
    if let Some(spec) = circuit_breaker {
        let read = breaker(spec).map_err(|why| format!("circuitBreaker.{why}"))?;
        settings.breaker = Some(read);
    }
    if let Some(spec) = connection {
        let (connections, idle) = connections(spec).map_err(|why| format!("connection.{why}"))?;
        settings.connections = Some(connections);
        settings.idle_timeout_ms = idle;
    }
    Ok(settings)
}

fn bounded(field: &str, value: i32, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let read = u32::try_from(value).ok().filter(|it| range.contains(it));
    read.ok_or_else(|| {
        let (least, most) = range.into_inner();
        format!("{field} {value}: expected {least} to {most}")
    })
}

/// Returns the duration in milliseconds.
fn time(
    field: &str,
    text: Option<&String>,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, String> {
    let Some(text) = text else {
        return Ok(default);
    };
    let read = durations::milliseconds(text).map_err(|why| format!("{field} {why}"))?;
    if range.contains(&read) {
        return Ok(read);
    }
    let most = match *range.end() {
        MAX_BACKEND_MS => "24h".to_owned(),
        most => format!("{}s", most / 1_000),
    };
    let least = range.start();
    Err(format!("{field} {text:?}: expected {least}ms to {most}"))
}

fn balancer(spec: &BalancerSettings) -> Result<LoadBalancer, String> {
    let BalancerSettings {
        type_,
        hash,
        slow_start,
        zone_preference: _,
    } = spec;
    let strategy = match type_ {
        BalancerType::RoundRobin => Strategy::RoundRobin,
        BalancerType::LeastRequest => Strategy::LeastRequest,
        BalancerType::Random => Strategy::Random,
        BalancerType::RingHash => Strategy::RingHash,
        BalancerType::Maglev => Strategy::Maglev,
        BalancerType::Other(other) => {
            let known = BalancerType::WORDS.join(", ");
            return Err(format!("type {other:?} is unknown; expected {known}"));
        }
    };
    match (strategy, hash.is_empty()) {
        (Strategy::RingHash | Strategy::Maglev, true) => {
            return Err(format!("hash is required with type {type_}"));
        }
        (Strategy::RoundRobin | Strategy::LeastRequest | Strategy::Random, false) => {
            return Err(format!(
                "hash has no effect with type {type_}; expected RingHash or Maglev"
            ));
        }
        _ => {}
    }
    let grows = matches!(strategy, Strategy::RoundRobin | Strategy::LeastRequest);
    if slow_start.is_some() && !grows {
        return Err(format!(
            "slowStart has no effect with type {type_}; expected RoundRobin or LeastRequest"
        ));
    }
    limits::entries("hash", hash.len(), 0..=HashPolicy::MAX)?;
    let mut hash_policies: Vec<HashPolicy> = Vec::new();
    for (i, key) in hash.iter().enumerate() {
        let kind = Some(hash_key(key).map_err(|why| format!("hash[{i}].{why}"))?);
        if hash_policies.iter().any(|it| it.kind == kind) {
            return Err(format!("hash[{i}]: an earlier entry has the same value"));
        }
        hash_policies.push(HashPolicy {
            kind,
            terminal: false,
        });
    }
    Ok(LoadBalancer {
        strategy: strategy.into(),
        slow_start: slow_start.as_ref().map(self::slow_start).transpose()?,
        hash_policies,
    })
}

fn zones(spec: ZoneSettings) -> Result<ZonePreference, String> {
    let ZoneSettings { min_endpoints } = spec;
    let field = "loadBalancer.zonePreference.minEndpoints";
    let least = min_endpoints.map(|it| bounded(field, it, 1..=ZonePreference::MAX));
    Ok(ZonePreference {
        min_endpoints: least.transpose()?.unwrap_or_default(),
    })
}

fn hash_key(key: &RequestKey) -> Result<hash_policy::Kind, String> {
    let RequestKey { type_, name } = key;
    let named = || {
        let name = name.as_deref().unwrap_or_default();
        names::check_token(format_args!("name"), name).map(|()| name.to_owned())
    };
    Ok(match type_ {
        RequestKeyType::ClientAddress if name.is_some() => {
            return Err("name must not be set with type ClientAddress".to_owned());
        }
        RequestKeyType::ClientAddress => hash_policy::Kind::SourceAddress(true),
        RequestKeyType::Header => hash_policy::Kind::Header(named()?.to_ascii_lowercase()),
        RequestKeyType::Cookie => hash_policy::Kind::Cookie(named()?),
        RequestKeyType::QueryParameter => hash_policy::Kind::QueryParameter(named()?),
        RequestKeyType::Other(other) => {
            let known = RequestKeyType::WORDS.join(", ");
            return Err(format!("type {other:?} is unknown; expected {known}"));
        }
    })
}

fn slow_start(spec: &SlowStartSettings) -> Result<SlowStart, String> {
    let SlowStartSettings {
        window,
        min_weight_percent,
    } = spec;
    let percent = min_weight_percent.unwrap_or(MIN_WEIGHT_PERCENT);
    Ok(SlowStart {
        window_ms: time("slowStart.window", Some(window), 0, 1..=MAX_BACKEND_MS)?,
        aggression_per_mille: 0,
        min_weight_percent: bounded("slowStart.minWeightPercent", percent, 0..=100)?,
    })
}

fn active_check(spec: &ActiveCheck) -> Result<HealthCheck, String> {
    let ActiveCheck {
        http,
        grpc,
        tcp,
        port,
        interval,
        timeout,
        healthy_threshold,
        unhealthy_threshold,
    } = spec;
    let kind = match (http, grpc, tcp) {
        (Some(http), None, None) => {
            CheckKind::Http(http_check(http).map_err(|why| format!("http.{why}"))?)
        }
        (None, Some(GrpcActiveCheck { service }), None) => {
            let service = service.clone().unwrap_or_default();
            if service.len() > limits::MAX_PATH || !names::is_field_value(&service) {
                return Err(format!("grpc.service {service:?}: expected a name"));
            }
            CheckKind::GrpcService(service)
        }
        (None, None, Some(TcpActiveCheck {}) | None) => CheckKind::Tcp(true),
        _ => return Err("http, grpc or tcp: expected at most one".to_owned()),
    };
    let most = HealthCheck::MAX_TIMEOUT_MS;
    let threshold = |field, value: Option<i32>, default| {
        let value = value.unwrap_or(default);
        bounded(field, value, 1..=HealthCheck::MAX_THRESHOLD)
    };
    Ok(HealthCheck {
        kind: Some(kind),
        interval_ms: time(
            "interval",
            interval.as_ref(),
            CHECK_INTERVAL,
            1..=MAX_BACKEND_MS,
        )?,
        timeout_ms: time("timeout", timeout.as_ref(), CHECK_TIMEOUT, 1..=most)?,
        healthy_threshold: threshold("healthyThreshold", *healthy_threshold, HEALTHY)?,
        unhealthy_threshold: threshold("unhealthyThreshold", *unhealthy_threshold, UNHEALTHY)?,
        port: port.map_or(Ok(0), |port| bounded("port", port, 1..=65_535))?,
    })
}

fn http_check(spec: &HttpActiveCheck) -> Result<HttpCheck, String> {
    let HttpActiveCheck {
        path,
        hostname,
        statuses,
    } = spec;
    limits::entries("statuses", statuses.len(), 0..=HealthCheck::MAX_STATUSES)?;
    let statuses = statuses.iter().enumerate().map(|(i, span)| {
        let StatusSpan { first, last } = *span;
        let first = bounded(&format!("statuses[{i}].first"), first, 100..=599)?;
        let last = last.map(|it| bounded(&format!("statuses[{i}].last"), it, first..=599));
        Ok::<_, String>(StatusRange {
            first,
            last: last.transpose()?.unwrap_or(first),
        })
    });
    let statuses = statuses.collect::<Result<_, _>>()?;
    settings::http_check(path, hostname.as_deref().unwrap_or_default(), statuses)
}

fn ejection(spec: &PassiveCheck) -> Result<OutlierDetection, String> {
    let PassiveCheck {
        consecutive_server_errors,
        consecutive_gateway_errors,
        interval,
        base_ejection_time,
        max_ejection_percent,
    } = spec;
    let most = HealthCheck::MAX_THRESHOLD;
    let errors = consecutive_server_errors.unwrap_or(SERVER_ERRORS);
    let gateway = consecutive_gateway_errors.unwrap_or_default();
    let percent = max_ejection_percent.unwrap_or(EJECTION_PERCENT);
    let interval = interval.as_ref();
    let lasts = base_ejection_time.as_ref();
    let range = 1..=MAX_BACKEND_MS;
    Ok(OutlierDetection {
        consecutive_5xx: bounded("consecutiveServerErrors", errors, 0..=most)?,
        consecutive_gateway_errors: bounded("consecutiveGatewayErrors", gateway, 0..=most)?,
        interval_ms: time("interval", interval, EJECTION_INTERVAL, range.clone())?,
        base_ejection_ms: time("baseEjectionTime", lasts, EJECTION_TIME, range)?,
        max_ejection_percent: bounded("maxEjectionPercent", percent, 1..=100)?,
    })
}

fn breaker(spec: &BreakerSettings) -> Result<CircuitBreaker, String> {
    let BreakerSettings {
        max_connections,
        max_connections_per_endpoint,
        max_pending_requests,
        max_requests,
        max_retries,
        retry_budget,
    } = spec;
    if max_retries.is_some() && retry_budget.is_some() {
        return Err("maxRetries or retryBudget: expected at most one".to_owned());
    }
    let most = |field, value: &Option<i32>| {
        let value = value.map(|it| bounded(field, it, 1..=i32::MAX.unsigned_abs()));
        Ok::<_, String>(value.transpose()?.unwrap_or_default())
    };
    let budget = retry_budget.map(
        |RetryBudgetSettings {
             percent,
             min_retries,
         }| {
            let least = min_retries.unwrap_or(MIN_RETRIES);
            Ok::<_, String>(RetryBudget {
                percent: bounded("retryBudget.percent", percent, 1..=100)?,
                min_retries: bounded("retryBudget.minRetries", least, 0..=RetryBudget::MAX)?,
            })
        },
    );
    Ok(CircuitBreaker {
        max_connections: most("maxConnections", max_connections)?,
        max_pending_requests: most("maxPendingRequests", max_pending_requests)?,
        max_requests: most("maxRequests", max_requests)?,
        max_retries: most("maxRetries", max_retries)?,
        max_connections_per_endpoint: most(
            "maxConnectionsPerEndpoint",
            max_connections_per_endpoint,
        )?,
        retry_budget: budget.transpose()?,
    })
}

/// Also returns the idle timeout in milliseconds: 0 disables the timeout, and `None` means the
/// default.
fn connections(spec: &ConnectionSettings) -> Result<(BackendConnections, Option<u64>), String> {
    let ConnectionSettings {
        timeout,
        idle_timeout,
        max_duration,
        max_requests,
        keepalive,
        proxy_protocol,
    } = spec;
    let proxy_protocol = match proxy_protocol {
        None => ProxyProtocol::None,
        Some(ProxyProtocolVersion::V1) => ProxyProtocol::V1,
        Some(ProxyProtocolVersion::V2) => ProxyProtocol::V2,
        Some(ProxyProtocolVersion::Other(other)) => {
            return Err(format!(
                "proxyProtocol {other:?} is unknown; expected V1 or V2"
            ));
        }
    };
    let range = 1..=MAX_BACKEND_MS;
    let requests = max_requests.map(|it| bounded("maxRequests", it, 1..=i32::MAX.unsigned_abs()));
    let idle = idle_timeout.as_ref();
    let idle = idle.map(|it| time("idleTimeout", Some(it), 0, 0..=MAX_BACKEND_MS));
    let read = BackendConnections {
        connect_timeout_ms: time("timeout", timeout.as_ref(), 0, range.clone())?,
        max_duration_ms: time("maxDuration", max_duration.as_ref(), 0, range)?,
        max_requests: requests.transpose()?.unwrap_or_default(),
        keepalive: keepalive.as_ref().map(probes).transpose()?,
        proxy_protocol: proxy_protocol.into(),
    };
    Ok((read, idle.transpose()?))
}

fn probes(spec: &KeepaliveSettings) -> Result<Keepalive, String> {
    let KeepaliveSettings {
        idle,
        interval,
        probes,
    } = spec;
    let seconds = |field: &str, text: Option<&String>, default: u64| {
        let most = u64::from(Keepalive::MAX) * 1_000;
        let read = time(field, text, default * 1_000, 1_000..=most)?;
        let whole = u32::try_from(read / 1_000)
            .ok()
            .filter(|_| read % 1_000 == 0);
        whole.ok_or_else(|| format!("{field}: expected whole seconds"))
    };
    Ok(Keepalive {
        idle_seconds: seconds("keepalive.idle", idle.as_ref(), 60)?,
        interval_seconds: seconds("keepalive.interval", interval.as_ref(), 10)?,
        probes: bounded("keepalive.probes", probes.unwrap_or(3), 1..=127)?,
    })
}
