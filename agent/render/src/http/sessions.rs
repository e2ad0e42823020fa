//! Session persistence: a client stays on the endpoint that responded to it first.
//!
//! Clients must never learn an endpoint's address, so the session is a keyed digest of it, which
//! all hosts compute identically. A subset load balancer finds the endpoint with that digest.
//!
//! A backend with sessions has three clusters:
//!
//! | cluster | purpose |
//! |---|---|
//! | `NAME` | all endpoints: requests without a session, and other routes |
//! | `NAME/endpoint-of-session` | only the session's endpoint: the first attempt |
//! | `NAME/sessions` | tries the second cluster first, then `NAME` |
//!
//! A forged or outdated session matches no endpoint and has no effect.

use std::collections::HashMap;
use std::net::IpAddr;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, CustomClusterType, LbPolicy, LbSubsetConfig,
    lb_subset_config::LbSubsetSelector,
};
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValueOption, Metadata, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::clusters::composite::v3::{
    ClusterConfig, cluster_config::ClusterEntry,
};
use envoy_types::pb::envoy::extensions::filters::http::header_to_metadata::v3::{
    Config,
    config::{KeyValuePair, Rule},
};
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::{Any, Struct, Value, value};
use envoy_types::util::pack_any;
use sesame_proto::digest;
use sesame_proto::field_names::is_cookie_path;
use sesame_proto::schema::{Retry, SessionPersistence, session_persistence::Kind};

use super::headers;
use crate::wrappers;

pub(crate) const FILTER: &str = "envoy.filters.http.header_to_metadata";

const NAMESPACE: &str = "envoy.lb";
const KEY: &str = "session";

const SESSIONS: &str = "/sessions";
const ENDPOINT: &str = "/endpoint-of-session";

/// Matches no endpoint, because no digest is one byte long.
const NO_SESSION: &str = "-";

/// CEL expressions for the session in the request, and for the endpoint that responded.
const ASKED: &str = "metadata.filter_metadata['envoy.lb'].session";
const ANSWERED: &str = "xds.upstream_host_metadata.filter_metadata['envoy.lb'].session";

pub(crate) struct SessionParts {
    pub(crate) config: Any,
    /// Sent only if the session is new or has changed. Always sending it would prevent caching, and
    /// would extend the lifetime of permanent cookies.
    pub(crate) response: HeaderValueOption,
}

/// `https` makes the cookie `Secure`.
pub(crate) fn render(session: &SessionPersistence, https: bool) -> Result<SessionParts, String> {
    let SessionPersistence {
        kind,
        cookie_max_age_seconds,
        cookie_path,
    } = session;
    let refused = |name: &str, reason: &str| format!("session `{name}`: {reason}");
    let same_session = format!("{ASKED} == {ANSWERED}");
    let unless_same_session =
        |expression: &str| format!("%CEL({same_session} ? '' : {expression})%");
    let (read, response) = match kind {
        Some(Kind::Cookie(name)) => {
            // A valid name contains neither `"` nor `)`, so it cannot end the string or expression.
            headers::check_name(name).map_err(|reason| refused(name, reason))?;
            let lifetime = match cookie_max_age_seconds {
                0 => String::new(),
                seconds => format!("; Max-Age={seconds}"),
            };
            let path = match cookie_path.as_str() {
                "" => "/",
                path if is_cookie_path(path) => path,
                path => {
                    return Err(refused(
                        name,
                        &format!("`{path}` is not a valid cookie path"),
                    ));
                }
            };
            // Envoy's CEL cannot concatenate strings, so use three expressions. Envoy omits the
            // header if all are empty.
            let secure = if https { "; Secure" } else { "" };
            let parts = [
                format!("\"{name}=\""),
                ANSWERED.to_owned(),
                format!("\"{lifetime}; Path={path}; HttpOnly; SameSite=Lax{secure}\""),
            ];
            let value = parts.iter().map(|part| unless_same_session(part)).collect();
            let action = HeaderAppendAction::AppendIfExistsOrAdd;
            let response = wrappers::header("set-cookie", value, action);
            (rule("", name, ""), response)
        }
        Some(Kind::Header(name)) => {
            headers::check_writable(name).map_err(|reason| refused(name, &reason))?;
            let action = HeaderAppendAction::OverwriteIfExistsOrAdd;
            let response = wrappers::header(name, unless_same_session(ANSWERED), action);
            (rule(name, "", ""), response)
        }
        None => return Err("session persistence names neither a cookie nor a header".to_owned()),
    };
    // Without a value to compare with, the expressions would fail for new clients.
    Ok(SessionParts {
        config: reading(vec![no_session(), read]),
        response,
    })
}

/// Contains a rule, because Envoy rejects a configuration without rules.
pub(crate) fn idle() -> Any {
    reading(vec![no_session()])
}

fn reading(request_rules: Vec<Rule>) -> Any {
    pack_any(Config {
        request_rules,
        ..Default::default()
    })
}

fn no_session() -> Rule {
    rule(":method", "", NO_SESSION)
}

/// An empty `value` stores the value of the header or cookie.
fn rule(header: &str, cookie: &str, value: &str) -> Rule {
    Rule {
        header: header.to_owned(),
        cookie: cookie.to_owned(),
        on_header_present: Some(KeyValuePair {
            metadata_namespace: NAMESPACE.to_owned(),
            key: KEY.to_owned(),
            value: value.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The session value is 128 bits in hex.
pub(crate) fn metadata(key: &[u8], address: IpAddr, port: u32) -> Metadata {
    let endpoint = format!("{address} {port}");
    let mut session = digest::sha256_of_all(&[key, endpoint.as_bytes()]);
    session.truncate(32);
    let session = Value {
        kind: Some(value::Kind::StringValue(session)),
    };
    // Use one entry, because prost writes several in random order.
    let fields = Struct {
        fields: HashMap::from([(KEY.to_owned(), session)]),
    };
    Metadata {
        filter_metadata: HashMap::from([(NAMESPACE.to_owned(), fields)]),
        ..Default::default()
    }
}

pub(crate) fn cluster(backend: &str) -> String {
    format!("{backend}{SESSIONS}")
}

pub(crate) fn backend_of(cluster: &str) -> &str {
    cluster.strip_suffix(ENDPOINT).unwrap_or(cluster)
}

pub(crate) fn only_chooses(cluster: &str) -> bool {
    cluster.ends_with(SESSIONS)
}

pub(crate) fn clusters(all: &Cluster) -> [Cluster; 2] {
    let can_fail = !all.health_checks.is_empty() || all.outlier_detection.is_some();
    let endpoint_cluster = Cluster {
        name: format!("{}{ENDPOINT}", all.name),
        lb_subset_config: Some(LbSubsetConfig {
            // Without a fallback, a request without a matching endpoint goes to the next cluster.
            subset_selectors: vec![LbSubsetSelector {
                keys: vec![KEY.to_owned()],
                // A single-host lookup is cheaper, but ignores the endpoint's health.
                single_host_per_subset: !can_fail,
                ..Default::default()
            }],
            ..Default::default()
        }),
        // With Envoy's default threshold, a subset's only endpoint would get requests even after it
        // failed.
        common_lb_config: can_fail.then(|| CommonLbConfig {
            healthy_panic_threshold: Some(Percent { value: 0.0 }),
            ..Default::default()
        }),
        load_balancing_policy: None,
        ..all.clone()
    };
    let entry = |name: &str| ClusterEntry {
        name: name.to_owned(),
    };
    // Envoy fails all attempts beyond the end of this list.
    let tries = (0..Retry::MAX_ATTEMPTS).map(|_| entry(&all.name));
    let config = ClusterConfig {
        clusters: [entry(&endpoint_cluster.name)]
            .into_iter()
            .chain(tries)
            .collect(),
    };
    let sessions = Cluster {
        name: cluster(&all.name),
        connect_timeout: all.connect_timeout,
        circuit_breakers: all.circuit_breakers.clone(),
        per_connection_buffer_limit_bytes: all.per_connection_buffer_limit_bytes,
        typed_extension_protocol_options: all.typed_extension_protocol_options.clone(),
        lb_policy: LbPolicy::ClusterProvided.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
            name: "envoy.clusters.composite".to_owned(),
            typed_config: Some(pack_any(config)),
        })),
        ..Default::default()
    };
    [endpoint_cluster, sessions]
}
