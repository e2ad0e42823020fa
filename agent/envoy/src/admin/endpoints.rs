//! Parses Envoy's endpoint statistics (`/clusters`).
//!
//! Never fails on unknown or missing fields, because they differ between Envoy versions.

use serde::{Deserialize, Serialize};
use sesame_render::layout::PASSWORDS;
use sesame_render::{FLEET_CLUSTER, only_chooses};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClustersAnswer {
    cluster_statuses: Vec<ClusterAnswer>,
}

/// One cluster and its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterEndpoints {
    /// Name of the cluster.
    pub name: String,
    /// Connection limit across all endpoints, if reported.
    pub max_connections: Option<u64>,
    /// The cluster's endpoints.
    pub endpoints: Vec<EndpointCounts>,
}

/// Statistics of one endpoint since it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointCounts {
    /// Address and port.
    pub address: String,
    /// True if Envoy sends requests to the endpoint.
    #[serde(rename = "getsRequests")]
    pub healthy: bool,
    /// Open connections.
    pub connections: u64,
    /// Failed connection attempts.
    pub failed_connections: u64,
    /// Requests in progress.
    pub active: u64,
    /// Requests waiting for a connection.
    pub waiting: u64,
    /// Total requests.
    pub requests: u64,
    /// Requests that failed or got a 5xx status.
    pub failed: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterAnswer {
    name: String,
    circuit_breakers: Breakers,
    host_statuses: Vec<HostAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Breakers {
    thresholds: Vec<Threshold>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Threshold {
    /// `None` means the default priority, which Sesame uses for all requests.
    priority: Option<String>,
    max_connections: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HostAnswer {
    address: AddressAnswer,
    stats: Vec<Statistic>,
    health_status: HealthAnswer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AddressAnswer {
    socket_address: SocketAnswer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SocketAnswer {
    address: String,
    port_value: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Statistic {
    name: String,
    /// Number as a string. `None` means zero.
    value: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HealthAnswer {
    eds_health_status: Option<String>,
    failed_active_health_check: bool,
    failed_outlier_check: bool,
}

impl ClustersAnswer {
    pub(super) fn clusters(self) -> Vec<ClusterEndpoints> {
        // The fleet's members are placeholders.
        let clusters = self.cluster_statuses.into_iter();
        // The agent is not a backend.
        let clusters = clusters.filter(|it| it.name != PASSWORDS && it.name != FLEET_CLUSTER);
        let clusters = clusters.filter(|it| !only_chooses(&it.name));
        let mut clusters: Vec<ClusterEndpoints> = clusters.map(ClusterAnswer::endpoints).collect();
        clusters.sort_by(|one, other| one.name.cmp(&other.name));
        clusters
    }
}

impl ClusterAnswer {
    fn endpoints(self) -> ClusterEndpoints {
        let Self {
            name,
            circuit_breakers,
            host_statuses,
        } = self;
        let mut thresholds = circuit_breakers.thresholds.into_iter();
        let usual = thresholds.find(|threshold| threshold.priority.is_none());
        let mut endpoints: Vec<EndpointCounts> =
            host_statuses.iter().map(HostAnswer::counts).collect();
        endpoints.sort_by(|one, other| one.address.cmp(&other.address));
        ClusterEndpoints {
            name,
            max_connections: usual.and_then(|threshold| threshold.max_connections),
            endpoints,
        }
    }
}

impl HostAnswer {
    fn counts(&self) -> EndpointCounts {
        let Self {
            address,
            stats,
            health_status,
        } = self;
        let HealthAnswer {
            eds_health_status,
            failed_active_health_check,
            failed_outlier_check,
        } = health_status;
        let of = |name: &str| -> u64 {
            let found = stats.iter().find(|statistic| statistic.name == name);
            let value = found.and_then(|statistic| statistic.value.as_deref());
            value.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        let is_told_healthy = matches!(
            eds_health_status.as_deref(),
            None | Some("HEALTHY" | "UNKNOWN" | "DEGRADED")
        );
        let SocketAnswer {
            address,
            port_value,
        } = &address.socket_address;
        EndpointCounts {
            address: if address.contains(':') {
                format!("[{address}]:{port_value}")
            } else {
                format!("{address}:{port_value}")
            },
            healthy: is_told_healthy && !failed_active_health_check && !failed_outlier_check,
            connections: of("cx_active"),
            failed_connections: of("cx_connect_fail"),
            active: of("rq_active"),
            waiting: of("rq_pending_active"),
            requests: of("rq_total"),
            failed: of("rq_error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_endpoint_counts_are_zero() {
        let answer = r#"{"cluster_statuses": [{"name": "Service/shop/cart/80", "added_via_api": true,
            "host_statuses": [{"address": {"socket_address": {"address": "fd00::1", "port_value": 8080}},
                "stats": [{"name": "cx_connect_fail"}, {"name": "rq_total", "value": "12"},
                    {"name": "rq_pending_active", "type": "GAUGE", "value": "3"}],
                "health_status": {"eds_health_status": "HEALTHY"}, "weight": 1}],
            "circuit_breakers": {"thresholds": [{"max_connections": 33}, {"priority": "HIGH", "max_connections": 1024}]}}]}"#;
        let answer: ClustersAnswer = serde_json::from_str(answer).unwrap();
        let clusters = answer.clusters();
        let [cluster] = clusters.as_slice() else {
            panic!("{clusters:?}");
        };
        assert_eq!(cluster.max_connections, Some(33));
        let expected = EndpointCounts {
            address: "[fd00::1]:8080".to_owned(),
            healthy: true,
            waiting: 3,
            requests: 12,
            ..EndpointCounts::default()
        };
        assert_eq!(cluster.endpoints, [expected]);
    }
}
