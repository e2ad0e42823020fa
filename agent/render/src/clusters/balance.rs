//! How a cluster chooses an endpoint.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    LbConfig, LbPolicy, LeastRequestLbConfig, RoundRobinLbConfig, SlowStartConfig,
};
use envoy_types::pb::envoy::config::core::v3::RuntimeDouble;
use envoy_types::pb::envoy::r#type::v3::Percent;
use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::{LoadBalancer, MOST_BACKEND_MS, SlowStart};

use crate::wrappers;

/// Envoy requires a key at runtime, which nothing sets.
const AGGRESSION_KEY: &str = "backends.slow_start_aggression";

/// Sets the strategy of a cluster. Envoy's default is round robin.
pub(super) fn into(cluster: &mut Cluster, balancer: &LoadBalancer) {
    let LoadBalancer {
        strategy: _,
        slow_start,
    } = balancer;
    let slow_start_config = slow_start.as_ref().map(slow_start_config);
    let (policy, config) = match balancer.strategy() {
        Strategy::RoundRobin => (
            LbPolicy::RoundRobin,
            slow_start_config.map(|config| {
                LbConfig::RoundRobinLbConfig(RoundRobinLbConfig {
                    slow_start_config: Some(config),
                })
            }),
        ),
        Strategy::LeastRequest => (
            LbPolicy::LeastRequest,
            slow_start_config.map(|config| {
                LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
                    slow_start_config: Some(config),
                    ..Default::default()
                })
            }),
        ),
        Strategy::Random => (LbPolicy::Random, None),
        Strategy::RingHash => (LbPolicy::RingHash, None),
        Strategy::Maglev => (LbPolicy::Maglev, None),
    };
    cluster.lb_policy = policy.into();
    cluster.lb_config = config;
}

fn slow_start_config(slow_start: &SlowStart) -> SlowStartConfig {
    let SlowStart {
        window_ms,
        aggression_per_mille,
        min_weight_percent,
    } = slow_start;
    let aggression = match aggression_per_mille {
        0 => 1_000,
        other => (*other).min(SlowStart::MOST_AGGRESSION),
    };
    SlowStartConfig {
        slow_start_window: wrappers::milliseconds((*window_ms).clamp(1, MOST_BACKEND_MS)),
        aggression: Some(RuntimeDouble {
            default_value: f64::from(aggression) / 1_000.0,
            runtime_key: AGGRESSION_KEY.to_owned(),
        }),
        min_weight_percent: percent((*min_weight_percent).min(100)),
    }
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "every field of a message type is optional"
)]
pub(super) fn percent(value: u32) -> Option<Percent> {
    Some(Percent {
        value: f64::from(value),
    })
}
