//! Detects unhealthy endpoints through health checks and failed requests.
//!
//! If too few endpoints are healthy, all get requests, because a misconfigured check must not cause
//! an outage. The default limit is Envoy's panic threshold, 50%.

use envoy_types::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
use envoy_types::pb::envoy::config::cluster::v3::cluster::common_lb_config::{
    LocalityConfigSpecifier, LocalityWeightedLbConfig,
};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, OutlierDetection as Ejection};
use envoy_types::pb::envoy::config::core::v3::HealthCheck as EnvoyCheck;
use envoy_types::pb::envoy::config::core::v3::health_check::{
    GrpcHealthCheck, HealthChecker, HttpHealthCheck, TcpHealthCheck,
};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, endpoint, lb_endpoint};
use envoy_types::pb::envoy::r#type::v3::{CodecClientType, Int64Range};
use sesame_proto::schema::health_check::Kind;
use sesame_proto::schema::{
    AppProtocol, HealthCheck, HttpCheck, MAX_BACKEND_MS, OutlierDetection, StatusRange,
};

use super::balance::percent;
use crate::http::headers::check_value;
use crate::wrappers;

/// By default, Envoy sends the cluster name, which is not a valid host, so strict HTTP/2 servers
/// reset the stream.
const HOST: &str = "health-check";

pub(super) fn into(
    cluster: &mut Cluster,
    check: &HealthCheck,
    protocol: AppProtocol,
) -> Result<(), String> {
    let HealthCheck {
        kind,
        interval_ms,
        timeout_ms,
        healthy_threshold,
        unhealthy_threshold,
        port,
    } = check;
    if u16::try_from(*port).is_err() {
        return Err(format!("health check port {port}: expected 1 to 65535"));
    }
    let checker = match kind {
        Some(Kind::Http(http)) => HealthChecker::HttpHealthCheck(http_check(http, protocol)?),
        Some(Kind::GrpcService(_)) if protocol != AppProtocol::Http2 => {
            return Err("gRPC health checks need HTTP/2".to_owned());
        }
        Some(Kind::GrpcService(service)) => {
            check_value(service).map_err(|why| format!("health check service: {why}"))?;
            HealthChecker::GrpcHealthCheck(GrpcHealthCheck {
                service_name: service.clone(),
                authority: HOST.to_owned(),
                ..Default::default()
            })
        }
        Some(Kind::Tcp(_)) | None => HealthChecker::TcpHealthCheck(TcpHealthCheck::default()),
    };
    let interval = wrappers::milliseconds((*interval_ms).clamp(1, MAX_BACKEND_MS));
    let threshold = |count: u32| wrappers::uint32(count.clamp(1, HealthCheck::MAX_THRESHOLD));
    cluster.health_checks = vec![EnvoyCheck {
        timeout: wrappers::milliseconds((*timeout_ms).clamp(1, HealthCheck::MAX_TIMEOUT_MS)),
        interval,
        // With Envoy's default of 60 s, the first requests after an idle period could go to failed
        // endpoints.
        no_traffic_interval: interval,
        healthy_threshold: threshold(*healthy_threshold),
        unhealthy_threshold: threshold(*unhealthy_threshold),
        health_checker: Some(checker),
        ..Default::default()
    }];
    // By default, Envoy keeps a removed endpoint until it fails a health check.
    cluster.ignore_health_on_host_removal = true;
    Ok(())
}

/// 0 keeps the port that gets requests.
pub(super) fn check_port(assignment: &mut ClusterLoadAssignment, port: u32) {
    let localities = assignment.endpoints.iter_mut();
    let endpoints = localities.flat_map(|it| &mut it.lb_endpoints);
    for endpoint in endpoints.filter(|_| port > 0) {
        if let Some(lb_endpoint::HostIdentifier::Endpoint(it)) = &mut endpoint.host_identifier {
            it.health_check_config = Some(endpoint::HealthCheckConfig {
                port_value: port,
                ..Default::default()
            });
        }
    }
}

/// Returns `None` if Envoy's defaults apply.
pub(super) fn balancing(panic_percent: Option<u32>, weighted: bool) -> Option<CommonLbConfig> {
    let by_weight = LocalityConfigSpecifier::LocalityWeightedLbConfig;
    (panic_percent.is_some() || weighted).then(|| CommonLbConfig {
        healthy_panic_threshold: panic_percent.and_then(|threshold| percent(threshold.min(100))),
        locality_config_specifier: weighted.then(|| by_weight(LocalityWeightedLbConfig::default())),
        ..Default::default()
    })
}

fn http_check(check: &HttpCheck, protocol: AppProtocol) -> Result<HttpHealthCheck, String> {
    let HttpCheck {
        path,
        host,
        statuses,
    } = check;
    if !path.starts_with('/') {
        return Err(format!(
            "health check path `{path}` does not begin with `/`"
        ));
    }
    check_value(path).map_err(|why| format!("health check path: {why}"))?;
    check_value(host).map_err(|why| format!("health check host: {why}"))?;
    let statuses = statuses.iter().take(HealthCheck::MAX_STATUSES);
    let codec = match protocol {
        AppProtocol::Http2 => CodecClientType::Http2,
        _ => CodecClientType::Http1,
    };
    Ok(HttpHealthCheck {
        host: match host.as_str() {
            "" => HOST.to_owned(),
            host => host.to_owned(),
        },
        path: path.clone(),
        expected_statuses: statuses.copied().map(range).collect::<Result<_, _>>()?,
        codec_client_type: codec.into(),
        ..Default::default()
    })
}

fn range(range: StatusRange) -> Result<Int64Range, String> {
    let StatusRange { first, last } = range;
    if first < 100 || last < first || last > 599 {
        return Err(format!(
            "health check statuses {first} to {last}: expected 100 to 599"
        ));
    }
    Ok(Int64Range {
        start: i64::from(first),
        end: i64::from(last) + 1,
    })
}

/// Only the configured kinds of failures eject an endpoint.
pub(super) fn ejection(outlier: &OutlierDetection) -> Ejection {
    let OutlierDetection {
        consecutive_5xx,
        consecutive_gateway_errors,
        interval_ms,
        base_ejection_ms,
        max_ejection_percent,
    } = outlier;
    let time = |value: u64| match value {
        0 => None,
        value => wrappers::milliseconds(value.min(MAX_BACKEND_MS)),
    };
    let count = |value: u32| Some(value).filter(|it| *it > 0).and_then(wrappers::uint32);
    let enforced = |value: u32| wrappers::uint32(if value > 0 { 100 } else { 0 });
    Ejection {
        consecutive_5xx: count(*consecutive_5xx),
        enforcing_consecutive_5xx: enforced(*consecutive_5xx),
        consecutive_gateway_failure: count(*consecutive_gateway_errors),
        enforcing_consecutive_gateway_failure: enforced(*consecutive_gateway_errors),
        enforcing_success_rate: wrappers::uint32(0),
        interval: time(*interval_ms),
        base_ejection_time: time(*base_ejection_ms),
        max_ejection_percent: count((*max_ejection_percent).min(100)),
        ..Default::default()
    }
}
