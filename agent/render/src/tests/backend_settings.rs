//! Load balancing, health checks, circuit breakers and connection settings of backends.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, LbConfig, LbPolicy,
};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use prost::Message as _;
use sesame_proto::schema::backend_connections::ProxyProtocol;
use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::{
    BackendConnections, CircuitBreaker, HashPolicy, HealthCheck, HttpCheck, Keepalive,
    LoadBalancer, OutlierDetection, RetryBudget, SlowStart, StatusRange, hash_policy, health_check,
};

use super::everything::everything;
use super::parts::{API, WEB, WS, options};
use crate::{Rendered, render};

pub(crate) fn balancer() -> LoadBalancer {
    LoadBalancer {
        strategy: Strategy::LeastRequest.into(),
        slow_start: Some(SlowStart {
            window_ms: 30_000,
            aggression_per_mille: 1_500,
            min_weight_percent: 10,
        }),
        hash_policies: Vec::new(),
    }
}

pub(crate) fn connections() -> BackendConnections {
    BackendConnections {
        connect_timeout_ms: 1_000,
        max_duration_ms: 600_000,
        max_requests: 1_000,
        keepalive: Some(Keepalive {
            idle_seconds: 30,
            interval_seconds: 5,
            probes: 4,
        }),
        proxy_protocol: ProxyProtocol::V2.into(),
    }
}

pub(crate) fn health_check() -> HealthCheck {
    HealthCheck {
        kind: Some(health_check::Kind::Http(HttpCheck {
            path: "/healthz?all".into(),
            host: "shop.test".into(),
            statuses: vec![StatusRange {
                first: 200,
                last: 204,
            }],
        })),
        interval_ms: 10_000,
        timeout_ms: 2_000,
        healthy_threshold: 2,
        unhealthy_threshold: 3,
        port: 0,
    }
}

pub(crate) fn outlier() -> OutlierDetection {
    OutlierDetection {
        consecutive_5xx: 0,
        consecutive_gateway_errors: 5,
        interval_ms: 10_000,
        base_ejection_ms: 30_000,
        max_ejection_percent: 50,
    }
}

pub(crate) fn breaker() -> CircuitBreaker {
    CircuitBreaker {
        max_connections: 7,
        max_pending_requests: 8,
        max_requests: 9,
        max_retries: 10,
        max_connections_per_endpoint: 11,
        retry_budget: Some(RetryBudget {
            percent: 20,
            min_retries: 3,
        }),
    }
}

fn hash_policies() -> Vec<HashPolicy> {
    let kinds = [
        hash_policy::Kind::Header("x-user".into()),
        hash_policy::Kind::QueryParameter("Shard".into()),
        hash_policy::Kind::Cookie("shop".into()),
        hash_policy::Kind::SourceAddress(true),
    ];
    let policy = |kind| HashPolicy {
        kind: Some(kind),
        terminal: true,
    };
    kinds.into_iter().map(policy).collect()
}

fn cluster(rendered: &Rendered, name: &str) -> Option<Cluster> {
    let found = rendered.clusters.iter().find(|it| it.name == name)?;
    Some(Cluster::decode(&found.bytes[..]).unwrap())
}

#[test]
fn balance_and_checks_reach_the_cluster() {
    let (snapshot, keys) = everything();
    let rendered = render(&snapshot, &keys, &options());
    let web = cluster(&rendered, WEB).unwrap();
    assert_eq!(web.lb_policy(), LbPolicy::LeastRequest);
    let Some(LbConfig::LeastRequestLbConfig(config)) = web.lb_config else {
        panic!("no slow start: {:?}", web.lb_config);
    };
    let slow = config.slow_start_config.unwrap();
    assert_eq!(slow.aggression.map(|it| it.default_value), Some(1.5));
    let check = &web.health_checks[0];
    assert_eq!(check.interval, check.no_traffic_interval);
    assert!(web.ignore_health_on_host_removal && web.common_lb_config.is_none());
    // A session must not stay on an endpoint that has failed.
    let session = cluster(&rendered, &format!("{WEB}/endpoint-of-session")).unwrap();
    let panic = session.common_lb_config.unwrap().healthy_panic_threshold;
    assert_eq!(panic.map(|it| it.value), Some(0.0));
}

#[test]
fn fallback_follows_its_backend_in_another_cluster() {
    let (snapshot, keys) = everything();
    let rendered = render(&snapshot, &keys, &options());
    let own = cluster(&rendered, WS).unwrap();
    let both = cluster(&rendered, &format!("{WS}/with-fallback")).unwrap();
    let Some(ClusterDiscoveryType::ClusterType(type_)) = both.cluster_discovery_type else {
        panic!("{both:?}");
    };
    let config = type_.typed_config.unwrap();
    let config = ClusterConfig::decode(&config.value[..]).unwrap();
    assert_eq!(config.clusters, [WS, API]);
    assert_eq!(both.circuit_breakers, own.circuit_breakers);
    let sets = rendered.endpoints.iter();
    let sets = sets.map(|it| ClusterLoadAssignment::decode(&it.bytes[..]).unwrap());
    let factors = sets.filter_map(|it| it.policy?.overprovisioning_factor);
    let factors: Vec<u32> = factors.map(|it| it.value).collect();
    // One healthy endpoint of many is enough. No other set has a factor.
    assert_eq!(factors, [1_000_000]);
    let shares = String::from_utf8_lossy(&rendered.shares).into_owned();
    assert!(shares.contains(WS) && !shares.contains("with-fallback"));
}

#[test]
fn own_limit_below_the_share_replaces_it() {
    let (snapshot, keys) = everything();
    let rendered = render(&snapshot, &keys, &options());
    let api = cluster(&rendered, API).unwrap();
    let breakers = api.circuit_breakers.unwrap();
    let limit = |thresholds: &[_], of: fn(&_) -> Option<_>| thresholds.first().and_then(of);
    let own = limit(&breakers.thresholds, |it| it.max_connections);
    assert_eq!(own.map(|it| it.value), Some(7));
    let each = limit(&breakers.per_host_thresholds, |it| it.max_connections);
    assert_eq!(each.map(|it| it.value), Some(11));
    assert!(api.outlier_detection.is_some());
    let shares = String::from_utf8_lossy(&rendered.shares);
    let key = |name| shares.contains(&format!("circuit_breakers.{name}.default"));
    assert!(!key(API) && key(WEB));
}

#[test]
fn larger_own_limit_leaves_the_share() {
    let (mut snapshot, keys) = everything();
    for backend in &mut snapshot.backends {
        if let Some(breaker) = &mut backend.breaker {
            breaker.max_connections = u32::MAX;
        }
    }
    let rendered = render(&snapshot, &keys, &options());
    let shares = String::from_utf8_lossy(&rendered.shares);
    assert!(shares.contains(&format!("circuit_breakers.{API}.default")));
}

#[test]
fn malformed_check_refuses_the_share() {
    for (path, first) in [("healthz", 200), ("/a\nb", 200), ("/", 600)] {
        let (mut snapshot, keys) = everything();
        for backend in &mut snapshot.backends {
            if let Some(check) = &mut backend.health_check {
                check.kind = Some(health_check::Kind::Http(HttpCheck {
                    path: path.into(),
                    host: String::new(),
                    statuses: vec![StatusRange { first, last: 600 }],
                }));
            }
        }
        let rendered = render(&snapshot, &keys, &options());
        assert!(cluster(&rendered, WEB).is_none(), "{path:?}");
    }
}

#[test]
fn hashes_are_of_the_cluster_alone() {
    for (strategy, name) in [
        (
            Strategy::RingHash,
            "envoy.load_balancing_policies.ring_hash",
        ),
        (Strategy::Maglev, "envoy.load_balancing_policies.maglev"),
    ] {
        let (mut snapshot, keys) = everything();
        for backend in &mut snapshot.backends {
            backend.load_balancer = Some(Box::new(LoadBalancer {
                strategy: strategy.into(),
                slow_start: None,
                hash_policies: hash_policies(),
            }));
        }
        let rendered = render(&snapshot, &keys, &options());
        let web = cluster(&rendered, WEB).unwrap();
        let policy = web.load_balancing_policy.unwrap().policies.remove(0);
        assert_eq!(policy.typed_extension_config.unwrap().name, name);
        // Envoy cannot combine the load balancing policy with subsets.
        let session = cluster(&rendered, &format!("{WEB}/endpoint-of-session")).unwrap();
        assert!(session.load_balancing_policy.is_none() && session.lb_subset_config.is_some());
    }
}

#[test]
fn connections_reach_the_cluster() {
    let (snapshot, keys) = everything();
    let rendered = render(&snapshot, &keys, &options());
    let api = cluster(&rendered, API).unwrap();
    assert_eq!(api.connect_timeout.map(|it| it.seconds), Some(1));
    let keepalive = api
        .upstream_connection_options
        .unwrap()
        .tcp_keepalive
        .unwrap();
    assert_eq!(keepalive.keepalive_probes.map(|it| it.value), Some(4));
    let transport = api.transport_socket.unwrap().name;
    assert_eq!(transport, "envoy.transport_sockets.upstream_proxy_protocol");
    let panic = api.common_lb_config.unwrap().healthy_panic_threshold;
    assert_eq!(panic.map(|it| it.value), Some(30.0));
}
