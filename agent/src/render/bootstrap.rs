//! What Envoy starts with: where its files are, its admin socket, its limits.
//!
//! Nothing here can change without a restart, so nothing of a snapshot is here.

use std::collections::HashMap;

use bytes::Bytes;
use envoy_types::pb::envoy::config::bootstrap::v3::{
    Admin, Bootstrap, LayeredRuntime, RuntimeLayer, bootstrap::DynamicResources,
    runtime_layer::LayerSpecifier,
};
use envoy_types::pb::envoy::config::core::v3::{Address, Node, Pipe, address};
use envoy_types::pb::envoy::config::metrics::v3::{StatsConfig, StatsMatcher, stats_matcher};
use envoy_types::pb::envoy::config::overload::v3::{
    OverloadManager, ResourceMonitor, resource_monitor,
};
use envoy_types::pb::envoy::extensions::resource_monitors::downstream_connections::v3::DownstreamConnectionsConfig;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListStringMatcher, StringMatcher, string_matcher::MatchPattern,
};
use envoy_types::pb::google::protobuf::{Struct, Value, value};
use envoy_types::util::pack_any;
use prost::Message as _;

use super::{Options, config_sources, wrappers};

/// Connections of all clients at once; more are closed as they arrive. At 32 KiB of buffers each way this
/// is what a host of 4 GiB survives.
const MOST_CONNECTIONS: i64 = 50_000;

/// The bootstrap of an Envoy that reads everything else from files. Write it as `.pb`.
pub fn bootstrap(options: &Options) -> Bytes {
    let Options {
        addresses: _,
        port_map: _,
        subscription_budget: _,
        endpoints: _,
        layout,
        admin_socket,
        trusted_hops: _,
        system_ca: _,
    } = options;
    Bootstrap {
        node: Some(node()),
        admin: Some(Admin {
            address: Some(Address {
                address: Some(address::Address::Pipe(Pipe {
                    path: admin_socket.to_string_lossy().into_owned(),
                    mode: 0o660,
                })),
            }),
            // The agent must get through when clients no longer do.
            ignore_global_conn_limit: true,
            ..Default::default()
        }),
        dynamic_resources: Some(DynamicResources {
            lds_config: Some(config_sources::file(&layout.lds())),
            cds_config: Some(config_sources::file(&layout.cds())),
            ..Default::default()
        }),
        layered_runtime: Some(runtime()),
        stats_config: Some(statistics()),
        overload_manager: Some(OverloadManager {
            resource_monitors: vec![ResourceMonitor {
                name: "envoy.resource_monitors.global_downstream_max_connections".to_owned(),
                config_type: Some(resource_monitor::ConfigType::TypedConfig(pack_any(
                    DownstreamConnectionsConfig {
                        max_active_downstream_connections: MOST_CONNECTIONS,
                    },
                ))),
            }],
            ..Default::default()
        }),
        ..Default::default()
    }
    .encode_to_vec()
    .into()
}

/// Envoy wants one; nobody reads it.
pub(super) fn node() -> Node {
    Node {
        id: "sesame".to_owned(),
        cluster: "sesame".to_owned(),
        ..Default::default()
    }
}

/// One layer with one key: prost writes more than one in random order.
pub(super) fn runtime() -> LayeredRuntime {
    // RE2 is linear in the input, so a long expression is no danger; Envoy's limit of 100 instructions
    // refuses ordinary ones, and with them the whole route table.
    let fields = HashMap::from([(
        "re2.max_program_size.error_level".to_owned(),
        Value {
            kind: Some(value::Kind::NumberValue(1_048_576.0)),
        },
    )]);
    LayeredRuntime {
        layers: vec![RuntimeLayer {
            name: "sesame".to_owned(),
            layer_specifier: Some(LayerSpecifier::StaticLayer(Struct { fields })),
        }],
    }
}

/// Few statistics, whatever the number of clusters: what the agent needs to verify an update, and what
/// says how the host is. Everything of a single cluster but its version is left out, because five thousand
/// clusters of a hundred series each are more than Envoy's own memory.
fn statistics() -> StatsConfig {
    let patterns = [
        // Proof of an update.
        MatchPattern::Suffix(".version_text".to_owned()),
        MatchPattern::Suffix(".update_rejected".to_owned()),
        // Not of clusters: Envoy has it even for those that are not updated, one series each.
        MatchPattern::SafeRegex(wrappers::regex(r"(http|sds)\..*\.update_(attempt|failure)")),
        MatchPattern::Prefix("listener_manager.".to_owned()),
        MatchPattern::Prefix("cluster_manager.".to_owned()),
        // The host.
        MatchPattern::Prefix("server.".to_owned()),
        MatchPattern::Prefix("overload.".to_owned()),
        MatchPattern::Prefix("runtime.".to_owned()),
        // Traffic, by port; of all workers together.
        MatchPattern::SafeRegex(wrappers::regex(
            r"listener\.(\[[^]]*\]|[0-9.]+)_[0-9]+\.(downstream_cx_(total|active|overflow)|downstream_global_cx_overflow|no_filter_chain_match|ssl\.(handshake|connection_error|no_certificate|fail_verify_.*))",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"(http|tcp)\.[^.]+\.downstream_(rq_([1-5]xx|total|active|time|timeout)|cx_(total|active|[rt]x_bytes_total))",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"udp\.[^.]+\.downstream_(sess_(total|active)|sess_[rt]x_(datagrams|bytes))",
        )),
    ];
    StatsConfig {
        stats_matcher: Some(StatsMatcher {
            stats_matcher: Some(stats_matcher::StatsMatcher::InclusionList(
                ListStringMatcher {
                    patterns: patterns
                        .into_iter()
                        .map(|pattern| StringMatcher {
                            ignore_case: false,
                            match_pattern: Some(pattern),
                        })
                        .collect(),
                },
            )),
        }),
        ..Default::default()
    }
}
