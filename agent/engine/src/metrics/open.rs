//! Counts the open connections of an Envoy.

use std::collections::BTreeMap;

use super::traffic::port_and_protocol;
use sesame_envoy::Admin;
use sesame_envoy::admin::{AdminError, Sample};

const PREFIXES: [&str; 3] = [
    "envoy_http_conn_manager_prefix",
    "envoy_tcp_prefix",
    "envoy_udp_prefix",
];

/// Number of connections, or of UDP sessions, by the port that clients use and protocol.
pub(crate) type OpenConnections = BTreeMap<(u32, String), u64>;

pub(crate) async fn open_connections(admin: &Admin) -> Result<OpenConnections, AdminError> {
    let filter = r"^(http|tcp|udp)\.[^.]+\.downstream_(cx|sess)_active$";
    let text = admin.prometheus(filter).await?;
    let mut open = OpenConnections::new();
    for sample in text.lines().filter_map(Sample::read) {
        let prefix = PREFIXES.iter().find_map(|label| sample.label(label));
        if let Some((port, protocol)) = prefix.and_then(port_and_protocol) {
            *open.entry((port.into(), protocol)).or_default() += sample.count();
        }
    }
    Ok(open)
}
