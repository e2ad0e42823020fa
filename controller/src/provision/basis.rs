//! The fields of a Gateway from which its Service is made. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use crate::watch::Received;
use sesame_gateway_api::api::NamespacedName;

/// Fields of a Gateway from which its objects are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) gateway: NamespacedName,
    pub(super) uid: String,
    /// Time of creation as the API writes it: the earlier is the smaller text.
    pub(super) created: String,
    pub(super) class: String,
    /// Labels of `spec.infrastructure`.
    pub(super) labels: BTreeMap<String, String>,
    /// Annotations of `spec.infrastructure`.
    pub(super) annotations: BTreeMap<String, String>,
    /// Ports of the listeners: `TCP` or `UDP`, and the number.
    pub(super) ports: BTreeSet<(&'static str, u16)>,
    /// Addresses of the status that an EndpointSlice may hold.
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl Basis {
    /// Reads a Gateway; none if it is being deleted, or is no Gateway at all.
    pub(super) fn of(received: &Received) -> Option<Self> {
        if received.is_deleted() {
            return None;
        }
        let value = received.value();
        let listeners = value.pointer("/spec/listeners").and_then(Value::as_array);
        let addresses = value.pointer("/status/addresses").and_then(Value::as_array);
        Some(Self {
            gateway: received.name(),
            uid: received.text("/metadata/uid")?,
            created: received
                .text("/metadata/creationTimestamp")
                .unwrap_or_default(),
            class: received.text("/spec/gatewayClassName")?,
            labels: received.texts("/spec/infrastructure/labels"),
            annotations: received.texts("/spec/infrastructure/annotations"),
            ports: listeners.into_iter().flatten().filter_map(port).collect(),
            addresses: addresses
                .into_iter()
                .flatten()
                .filter_map(|address| address["value"].as_str()?.parse().ok())
                .filter(|ip| is_reachable(*ip))
                .collect(),
        })
    }
}

fn port(listener: &Value) -> Option<(&'static str, u16)> {
    let port = u16::try_from(listener["port"].as_u64()?).ok()?;
    let transport = if listener["protocol"] == "UDP" {
        "UDP"
    } else {
        "TCP"
    };
    (port != 0).then_some((transport, port))
}

/// Returns true if the API takes the address as an endpoint's.
fn is_reachable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local)
}
