//! The bootstrap configuration that Envoy starts with.
//!
//! A changed bootstrap requires an Envoy restart, so it contains nothing from a snapshot.

mod overload;
pub(crate) mod static_bootstrap;

use std::collections::HashMap;

use bytes::Bytes;
use envoy_types::pb::envoy::config::bootstrap::v3::{
    Admin, Bootstrap, LayeredRuntime, RuntimeLayer,
    bootstrap::{DeferredStatOptions, DynamicResources, StaticResources},
    runtime_layer::{LayerSpecifier, RtdsLayer},
};
use envoy_types::pb::envoy::config::core::v3::{Address, Node, Pipe, address};
use envoy_types::pb::envoy::config::metrics::v3::tag_specifier::TagValue;
use envoy_types::pb::envoy::config::metrics::v3::{
    StatsConfig, StatsMatcher, TagSpecifier, stats_matcher,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListStringMatcher, string_matcher::MatchPattern,
};
use envoy_types::pb::google::protobuf::{Struct, Value, value};
use prost::Message as _;

use crate::clusters::fleet;
use crate::clusters::shares::LAYER;
use crate::context::RenderOptions;
use crate::layout::XdsLayout;
use crate::{config_sources, wrappers};

/// Maximum RE2 program size. All rendered expressions are smaller.
const MAX_OF_RE2: f64 = 20_000.0;

/// Returns the bootstrap for an Envoy that reads all other configuration from files. The file name
/// must end in `.pb`.
pub fn bootstrap(options: &RenderOptions) -> Bytes {
    let RenderOptions {
        addresses: _,
        port_map: _,
        subscription_budget: _,
        first_in_files: _,
        endpoints: _,
        limits,
        layout,
        admin_socket,
        trusted_hops: _,
        fleet_hosts: _,
        system_ca: _,
        session_tickets: _,
        stand_in_tickets: _,
        access_log: _,
        retained: _,
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
            // Keep the admin socket reachable when clients use up all connections.
            ignore_global_conn_limit: true,
            ..Default::default()
        }),
        cluster_manager: Some(fleet::manager()),
        static_resources: Some(StaticResources {
            clusters: vec![fleet::in_file(&layout.fleet())],
            ..Default::default()
        }),
        dynamic_resources: Some(DynamicResources {
            lds_config: Some(config_sources::file(&layout.lds())),
            cds_config: Some(config_sources::file(&layout.cds())),
            ..Default::default()
        }),
        layered_runtime: Some(LayeredRuntime {
            layers: vec![settings(), shares(layout)],
        }),
        stats_config: Some(statistics()),
        deferred_stat_options: Some(DeferredStatOptions {
            enable_deferred_creation_stats: true,
        }),
        overload_manager: Some(overload::manager(limits)),
        ..Default::default()
    }
    .encode_to_vec()
    .into()
}

/// Envoy requires a node, although nothing uses its values.
fn node() -> Node {
    Node {
        id: "sesame".to_owned(),
        cluster: "sesame".to_owned(),
        ..Default::default()
    }
}

fn runtime() -> LayeredRuntime {
    LayeredRuntime {
        layers: vec![settings()],
    }
}

fn shares(layout: &XdsLayout) -> RuntimeLayer {
    RuntimeLayer {
        name: LAYER.to_owned(),
        layer_specifier: Some(LayerSpecifier::RtdsLayer(RtdsLayer {
            name: LAYER.to_owned(),
            rtds_config: Some(config_sources::file(&layout.rtds())),
        })),
    }
}

/// Contains only one key, because prost writes map entries in random order.
fn settings() -> RuntimeLayer {
    // Envoy rejects a whole route table if one of its expressions exceeds this limit. Rendering
    // keeps estimated sizes below it. Envoy's default of 100 is too low.
    let fields = HashMap::from([(
        "re2.max_program_size.error_level".to_owned(),
        Value {
            kind: Some(value::Kind::NumberValue(MAX_OF_RE2)),
        },
    )]);
    RuntimeLayer {
        name: "sesame".to_owned(),
        layer_specifier: Some(LayerSpecifier::StaticLayer(Struct { fields })),
    }
}

/// Keeps only the statistics that show the host's state or verify an update. A hundred series for
/// each of 5,000 clusters would take more memory than Envoy itself.
fn statistics() -> StatsConfig {
    let patterns = [
        MatchPattern::Suffix(".version_text".to_owned()),
        MatchPattern::Suffix(".update_rejected".to_owned()),
        // Clusters are excluded, because Envoy keeps these counters even for clusters that are
        // never updated.
        MatchPattern::SafeRegex(wrappers::regex(r"(http|sds)\..*\.update_(attempt|failure)")),
        // Envoy divides fleet limits by this value.
        MatchPattern::Exact(fleet::MEMBERS.to_owned()),
        MatchPattern::Prefix("listener_manager.".to_owned()),
        MatchPattern::Prefix("cluster_manager.".to_owned()),
        MatchPattern::Prefix("server.".to_owned()),
        MatchPattern::Prefix("overload.".to_owned()),
        MatchPattern::Prefix("runtime.".to_owned()),
        // Matches only if the last part of the cluster name has no dot, which excludes counters
        // such as `80.external`.
        MatchPattern::SafeRegex(wrappers::regex(
            r"cluster\..*/[^./]+\.upstream_(rq_([1-5]xx|active|retry|timeout|per_try_timeout|rx_reset|pending_overflow)|cx_(active|connect_fail|none_healthy|destroy_remote_with_active_rq|[rt]x_bytes_total))",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"cluster\..*/[^./]+\.ratelimit\.over_limit",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"vhost\..*\.route\.[A-Za-z]+/[^/]+/[^/]+\.upstream_rq_([1-5]xx|time)",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"listener\.(\[[^]]*\]|[0-9.]+)_[0-9]+\.(downstream_cx_(total|active|overflow)|downstream_global_cx_overflow|no_filter_chain_match|ssl\.(handshake|connection_error|no_certificate|fail_verify_.*))",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"(http|tcp)\.[^.]+\.downstream_(rq_([1-5]xx|total|active|time|timeout)|cx_(total|active|[rt]x_bytes_total))",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"(reported_)?rate_limits\.http_local_rate_limit\.rate_limited",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"http\.[^.]*\.rbac\.(reported_\.)?policy\..*\.(shadow_)?denied",
        )),
        MatchPattern::SafeRegex(wrappers::regex(
            r"udp\.[^.]+\.downstream_(sess_(total|active)|sess_[rt]x_(datagrams|bytes))",
        )),
    ];
    let list = ListStringMatcher {
        patterns: patterns.map(wrappers::string).to_vec(),
    };
    StatsConfig {
        stats_matcher: Some(StatsMatcher {
            stats_matcher: Some(stats_matcher::StatsMatcher::InclusionList(list)),
        }),
        // Envoy's built-in tag rules cannot extract routes and policies, because the names of virtual
        // hosts, routes and policies contain dots.
        stats_tags: [
            (
                "sesame.route",
                r"^vhost\.(.*\.route\.([A-Za-z]+/[^/]+/[^/]+)\.)upstream_rq_",
            ),
            (
                "sesame.policy",
                r"^http\.[^.]*\.rbac\.(?:reported_\.)?policy\.((.+)\.)(?:shadow_)?denied$",
            ),
        ]
        .map(|(name, regex)| TagSpecifier {
            tag_name: name.to_owned(),
            tag_value: Some(TagValue::Regex(regex.to_owned())),
        })
        .to_vec(),
        ..Default::default()
    }
}
