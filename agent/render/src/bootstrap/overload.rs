//! The overload manager, which sheds load before Envoy runs out of memory.
//!
//! As the heap fills, Envoy shortens idle timeouts, releases caches and disables keep-alive.
//! Finally, it refuses new connections and requests. Requests in progress continue.

use envoy_types::pb::envoy::config::overload::v3::{
    OverloadAction, OverloadManager, ResourceMonitor, ScaleTimersOverloadActionConfig,
    ScaledTrigger, ThresholdTrigger, Trigger, resource_monitor,
    scale_timers_overload_action_config::{ScaleTimer, TimerType, scale_timer::OverloadAdjust},
    trigger::TriggerOneof,
};
use envoy_types::pb::envoy::extensions::resource_monitors::downstream_connections::v3::DownstreamConnectionsConfig;
use envoy_types::pb::envoy::extensions::resource_monitors::fixed_heap::v3::FixedHeapConfig;
use envoy_types::pb::google::protobuf::{Any, Duration};
use envoy_types::util::pack_any;

use crate::limits::Limits;

const HEAP: &str = "envoy.resource_monitors.fixed_heap";
const CONNECTIONS: &str = "envoy.resource_monitors.global_downstream_max_connections";
/// Interval between resource checks, short because a few hundred clients can fill a gigabyte within
/// a second.
const EVERY: Duration = Duration {
    seconds: 0,
    nanos: 50_000_000,
};

pub(super) fn manager(limits: &Limits) -> OverloadManager {
    OverloadManager {
        refresh_interval: Some(EVERY),
        resource_monitors: vec![
            monitor(
                HEAP,
                pack_any(FixedHeapConfig {
                    max_heap_size_bytes: limits.heap,
                    ..Default::default()
                }),
            ),
            monitor(
                CONNECTIONS,
                pack_any(DownstreamConnectionsConfig {
                    max_active_downstream_connections: limits.from_clients.into(),
                }),
            ),
        ],
        actions: vec![
            OverloadAction {
                typed_config: Some(pack_any(timers())),
                ..action(
                    "reduce_timeouts",
                    TriggerOneof::Scaled(ScaledTrigger {
                        scaling_threshold: 0.75,
                        saturation_threshold: 0.9,
                    }),
                )
            },
            action("shrink_heap", from(0.85)),
            action("disable_http_keepalive", from(0.9)),
            action("stop_accepting_connections", from(0.95)),
            action("stop_accepting_requests", from(0.95)),
        ],
        ..Default::default()
    }
}

/// Returns the minimum idle timeouts, in seconds, when the heap is exhausted.
fn timers() -> ScaleTimersOverloadActionConfig {
    let timer = |timer: TimerType, seconds| ScaleTimer {
        timer: timer.into(),
        overload_adjust: Some(OverloadAdjust::MinTimeout(Duration { seconds, nanos: 0 })),
    };
    ScaleTimersOverloadActionConfig {
        timer_scale_factors: vec![
            timer(TimerType::HttpDownstreamConnectionIdle, 2),
            timer(TimerType::HttpDownstreamStreamIdle, 5),
            timer(TimerType::TransportSocketConnect, 2),
        ],
    }
}

fn monitor(name: &str, config: Any) -> ResourceMonitor {
    ResourceMonitor {
        name: name.to_owned(),
        config_type: Some(resource_monitor::ConfigType::TypedConfig(config)),
    }
}

fn action(name: &str, trigger: TriggerOneof) -> OverloadAction {
    OverloadAction {
        name: format!("envoy.overload_actions.{name}"),
        triggers: vec![Trigger {
            name: HEAP.to_owned(),
            trigger_oneof: Some(trigger),
        }],
        ..Default::default()
    }
}

fn from(value: f64) -> TriggerOneof {
    TriggerOneof::Threshold(ThresholdTrigger { value })
}
