//! The load balancing policy of a cluster.

use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    LbConfig, LbPolicy, LeastRequestLbConfig, RoundRobinLbConfig, SlowStartConfig,
};
use envoy_types::pb::envoy::config::cluster::v3::load_balancing_policy::Policy;
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, LoadBalancingPolicy};
use envoy_types::pb::envoy::config::core::v3::RuntimeDouble;
use envoy_types::pb::envoy::extensions::load_balancing_policies::common::v3::ConsistentHashingLbConfig;
use envoy_types::pb::envoy::extensions::load_balancing_policies::maglev::v3::Maglev;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::RingHash;
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::{HashPolicy, LoadBalancer, MAX_BACKEND_MS, SlowStart};

use super::hashing;
use crate::wrappers;

/// Envoy requires a runtime key, but nothing sets it.
const AGGRESSION_KEY: &str = "backends.slow_start_aggression";

pub(super) fn into(cluster: &mut Cluster, balancer: &LoadBalancer) -> Result<(), String> {
    let LoadBalancer {
        strategy: _,
        slow_start,
        hash_policies,
    } = balancer;
    let slow_start_config = slow_start.as_ref().map(slow_start_config);
    match balancer.strategy() {
        Strategy::RoundRobin => {
            cluster.lb_config = slow_start_config.map(|config| {
                LbConfig::RoundRobinLbConfig(RoundRobinLbConfig {
                    slow_start_config: Some(config),
                })
            });
        }
        Strategy::LeastRequest => {
            cluster.lb_policy = LbPolicy::LeastRequest.into();
            cluster.lb_config = slow_start_config.map(|config| {
                LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
                    slow_start_config: Some(config),
                    ..Default::default()
                })
            });
        }
        Strategy::Random => cluster.lb_policy = LbPolicy::Random.into(),
        Strategy::RingHash => {
            cluster.load_balancing_policy = Some(extension(
                "envoy.load_balancing_policies.ring_hash",
                pack_any(RingHash {
                    consistent_hashing_lb_config: Some(consistent(hash_policies)?),
                    ..Default::default()
                }),
            ));
        }
        Strategy::Maglev => {
            cluster.load_balancing_policy = Some(extension(
                "envoy.load_balancing_policies.maglev",
                pack_any(Maglev {
                    consistent_hashing_lb_config: Some(consistent(hash_policies)?),
                    ..Default::default()
                }),
            ));
        }
    }
    Ok(())
}

fn consistent(policies: &[HashPolicy]) -> Result<ConsistentHashingLbConfig, String> {
    Ok(ConsistentHashingLbConfig {
        hash_policy: hashing::render(policies)?,
        ..Default::default()
    })
}

fn extension(name: &str, config: Any) -> LoadBalancingPolicy {
    LoadBalancingPolicy {
        policies: vec![Policy {
            typed_extension_config: Some(wrappers::extension(name, config)),
        }],
    }
}

fn slow_start_config(slow_start: &SlowStart) -> SlowStartConfig {
    let SlowStart {
        window_ms,
        aggression_per_mille,
        min_weight_percent,
    } = slow_start;
    let aggression = match aggression_per_mille {
        0 => 1_000,
        other => (*other).min(SlowStart::MAX_AGGRESSION),
    };
    SlowStartConfig {
        slow_start_window: wrappers::milliseconds((*window_ms).clamp(1, MAX_BACKEND_MS)),
        aggression: Some(RuntimeDouble {
            default_value: f64::from(aggression) / 1_000.0,
            runtime_key: AGGRESSION_KEY.to_owned(),
        }),
        min_weight_percent: percent((*min_weight_percent).min(100)),
    }
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "protobuf message fields are optional"
)]
pub(super) fn percent(value: u32) -> Option<Percent> {
    Some(Percent {
        value: f64::from(value),
    })
}
