//! Reads one Envoy's traffic from its statistics.
//!
//! Envoy names its counters by listener and connection manager. The names are converted to the
//! protocol and port that clients see, which stay the same if an Envoy or an address is replaced.

use std::collections::BTreeMap;

use super::counts::Durations;
use super::policies::DeniedRequests;
use super::routes::RouteTraffic;
use sesame_envoy::admin::Sample;

pub(super) const STATISTICS: &str = r"^(http|tcp|udp)\.[^.]+\.downstream_|^listener\..*\.(no_filter_chain_match|downstream_(global_)?cx_overflow|ssl\.[a-z_]+)$|^server\.memory_allocated$|^(reported_)?rate_limits\.http_local_rate_limit\.|^cluster\..*\.ratelimit\.over_limit$|^vhost\..*\.route\.|^http\.[^.]*\.rbac\.(reported_\.)?policy\.";

/// Highest bucket boundary in milliseconds. Longer durations share the `+Inf` bucket.
const LONGEST: f64 = 60_000.0;

/// Counted since the Envoy started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EnvoyTraffic {
    /// Keyed by port and protocol.
    pub(super) ports: BTreeMap<(u16, String), PortTraffic>,
    /// Keyed by `HTTPRoute/namespace/name`.
    pub(super) routes: BTreeMap<String, RouteTraffic>,
    /// Number of connections that listeners closed, by reason.
    pub(super) refused: BTreeMap<&'static str, f64>,
    pub(super) tls_handshakes: f64,
    /// Number of requests that exceeded a rate limit, by the limit's mode.
    pub(super) rate_limited: BTreeMap<&'static str, f64>,
    /// Number of requests that policies rejected.
    pub(super) denied: DeniedRequests,
    /// Memory in bytes that Envoy has allocated.
    pub(super) memory: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PortTraffic {
    /// Keyed by status class, such as `2xx`.
    pub(super) requests: BTreeMap<String, f64>,
    pub(super) requests_active: Option<f64>,
    pub(super) durations: Durations,
    /// Number of connections, or of UDP sessions.
    pub(super) connections: f64,
    pub(super) connections_active: f64,
    pub(super) received: f64,
    pub(super) sent: f64,
}

impl EnvoyTraffic {
    /// Parses Envoy's response to `/stats/prometheus`, and skips unrelated lines.
    pub(super) fn read(text: &str) -> Self {
        let mut traffic = Self::default();
        for sample in text.lines().filter_map(Sample::read) {
            traffic.record(&sample);
        }
        for port in traffic.ports.values_mut() {
            port.durations.differences();
        }
        for route in traffic.routes.values_mut() {
            route.finish();
        }
        traffic
    }

    fn record(&mut self, sample: &Sample<'_>) {
        let Sample { name, value, .. } = sample;
        if let Some(name) = name.strip_prefix("envoy_listener_") {
            let reason = match name {
                "no_filter_chain_match" => "no_filter_chain_match",
                "downstream_cx_overflow" | "downstream_global_cx_overflow" => "overflow",
                "ssl_connection_error" => "tls_error",
                "ssl_handshake" => {
                    self.tls_handshakes += value;
                    return;
                }
                _ if name.starts_with("ssl_fail_verify_") => "client_certificate",
                _ => return,
            };
            *self.refused.entry(reason).or_default() += value;
            return;
        }
        if *name == "envoy_cluster_ratelimit_over_limit" {
            *self.rate_limited.entry("Enforce").or_default() += value;
            return;
        }
        if *name == "envoy_http_local_rate_limit_rate_limited" {
            let mode = match sample.label("envoy_local_http_ratelimit_prefix") {
                Some("rate_limits") => "Enforce",
                Some("reported_rate_limits") => "Report",
                _ => return,
            };
            *self.rate_limited.entry(mode).or_default() += value;
            return;
        }
        if let Some(name) = name.strip_prefix("envoy_http_rbac_") {
            self.denied.record(name, sample);
            return;
        }
        if *name == "envoy_server_memory_allocated" {
            self.memory = Some(*value);
            return;
        }
        if let Some(name) = name.strip_prefix("envoy_vhost_upstream_rq_")
            && let Some(route) = sample.label("sesame_route")
        {
            let route = self.routes.entry(route.to_owned()).or_default();
            route.record(name, sample);
            return;
        }
        let by_kind = [
            ("envoy_http_downstream_", "envoy_http_conn_manager_prefix"),
            ("envoy_tcp_downstream_", "envoy_tcp_prefix"),
            ("envoy_udp_downstream_", "envoy_udp_prefix"),
        ];
        for (prefix, label) in by_kind {
            if let Some(name) = name.strip_prefix(prefix)
                && let Some(key) = sample.label(label).and_then(port_and_protocol)
            {
                self.ports.entry(key).or_default().record(name, sample);
                return;
            }
        }
    }
}

impl PortTraffic {
    fn record(&mut self, name: &str, sample: &Sample<'_>) {
        let value = sample.value;
        match name {
            "rq_xx" => {
                if let Some(class) = sample.label("envoy_response_code_class") {
                    self.requests.insert(format!("{class}xx"), value);
                }
            }
            "rq_active" => self.requests_active = Some(value),
            "rq_time_sum" => self.durations.sum = value / 1000.0,
            "rq_time_bucket" => {
                if let Some(bound) = bound(sample) {
                    self.durations.buckets.push((bound, sample.count()));
                }
            }
            "cx_total" | "sess_total" => self.connections = value,
            "cx_active" | "sess_active" => self.connections_active = value,
            "cx_rx_bytes_total" | "sess_rx_bytes" => self.received = value,
            "cx_tx_bytes_total" | "sess_tx_bytes" => self.sent = value,
            _ => {}
        }
    }
}

impl Durations {
    /// Converts Envoy's cumulative buckets to per-bucket counts.
    pub(super) fn differences(&mut self) {
        self.buckets
            .sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut before = 0;
        for (_, count) in &mut self.buckets {
            let up_to_here = *count;
            *count = up_to_here.saturating_sub(before);
            before = up_to_here.max(before);
        }
    }
}

/// Parses a stat prefix such as `https-443`.
pub(super) fn port_and_protocol(prefix: &str) -> Option<(u16, String)> {
    let (protocol, port) = prefix.rsplit_once('-')?;
    Some((port.parse().ok()?, protocol.to_owned()))
}

/// Returns the bucket's upper bound in seconds, or `None` if a finite bound exceeds `LONGEST`.
pub(super) fn bound(sample: &Sample<'_>) -> Option<f64> {
    match sample.label("le")? {
        "+Inf" => Some(f64::INFINITY),
        bound => {
            let bound = bound.parse::<f64>().ok()?;
            (bound <= LONGEST).then_some(bound / 1000.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from a real Envoy.
    const TEXT: &str = r#"# TYPE envoy_http_downstream_cx_total counter
envoy_http_downstream_cx_total{envoy_http_conn_manager_prefix="admin"} 3
envoy_http_downstream_cx_total{envoy_http_conn_manager_prefix="https-443"} 500
envoy_http_downstream_cx_tx_bytes_total{envoy_http_conn_manager_prefix="https-443"} 447180
envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="https-443"} 1126
envoy_http_downstream_rq_xx{envoy_response_code_class="4",envoy_http_conn_manager_prefix="https-443"} 2
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="https-443",le="0.5"} 10
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="https-443",le="250"} 1120
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="https-443",le="3600000"} 1127
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="https-443",le="+Inf"} 1128
envoy_http_downstream_rq_time_sum{envoy_http_conn_manager_prefix="https-443"} 2500
envoy_listener_ssl_connection_error{envoy_listener_address="192.0.2.1_8443"} 4
envoy_listener_ssl_connection_error{envoy_listener_address="[2001_db8__1]_8443"} 1
envoy_http_local_rate_limit_rate_limited{envoy_local_http_ratelimit_prefix="rate_limits"} 7
envoy_http_local_rate_limit_rate_limited{envoy_local_http_ratelimit_prefix="reported_rate_limits"} 8
envoy_http_local_rate_limit_rate_limited{envoy_local_http_ratelimit_prefix="other"} 9
envoy_cluster_ratelimit_over_limit{envoy_cluster_name="Service/shop/a/80"} 4
envoy_http_rbac_policy_denied{envoy_http_conn_manager_prefix="",sesame_policy="AccessPolicy/shop/a.b"} 3
envoy_http_rbac_reported__policy_shadow_denied{envoy_http_conn_manager_prefix="",sesame_policy="AccessPolicy/shop/a.b/jwt"} 4
envoy_http_rbac_reported__policy_shadow_denied{envoy_http_conn_manager_prefix="",sesame_policy="AccessPolicy/shop/a.b"} 5
envoy_http_rbac_denied{envoy_http_conn_manager_prefix=""} 9
envoy_server_memory_allocated{} 6075792
"#;

    #[test]
    fn envoy_statistics_are_assigned_to_ports() {
        let traffic = EnvoyTraffic::read(TEXT);
        let key = (443, "https".to_owned());
        assert_eq!(traffic.ports.keys().collect::<Vec<_>>(), [&key]);
        let port = &traffic.ports[&key];
        assert_eq!(port.requests["2xx"].to_string(), "1126");
        assert_eq!(port.requests["4xx"].to_string(), "2");
        let buckets = [(0.0005, 10), (0.25, 1110), (f64::INFINITY, 8)];
        assert_eq!(port.durations.buckets, buckets);
        assert_eq!(port.durations.sum.to_string(), "2.5");
        assert_eq!(traffic.refused["tls_error"].to_string(), "5");
        let limited = traffic.rate_limited.iter();
        let limited: Vec<String> = limited.map(|(mode, it)| format!("{mode} {it}")).collect();
        assert_eq!(limited, ["Enforce 11", "Report 8"]);
        let denied = traffic.denied.series();
        let denied: Vec<String> = denied
            .map(|(policy, mode, it)| format!("{policy} {mode} {it}"))
            .collect();
        assert_eq!(
            denied,
            [
                "AccessPolicy/shop/a.b Enforce 3",
                "AccessPolicy/shop/a.b Report 9"
            ]
        );
        assert_eq!(traffic.memory.unwrap().to_string(), "6075792");
    }

    #[test]
    fn lines_of_another_form_are_skipped() {
        let junk = "envoy_http_downstream_rq_xx\n{} {} \nx{y=z} 1\nenvoy_server_memory_allocated{ 1\nenvoy_server_memory_allocated{} NaNa";
        assert_eq!(EnvoyTraffic::read(junk), EnvoyTraffic::default());
    }
}
