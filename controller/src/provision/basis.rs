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
        let value = received.value();
        let text = |pointer: &str| Some(value.pointer(pointer)?.as_str()?.to_owned());
        if value.pointer("/metadata/deletionTimestamp").is_some() {
            return None;
        }
        let listeners = value.pointer("/spec/listeners").and_then(Value::as_array);
        let addresses = value.pointer("/status/addresses").and_then(Value::as_array);
        Some(Self {
            gateway: received.name(),
            uid: text("/metadata/uid")?,
            created: text("/metadata/creationTimestamp").unwrap_or_default(),
            class: text("/spec/gatewayClassName")?,
            labels: map(value, "/spec/infrastructure/labels"),
            annotations: map(value, "/spec/infrastructure/annotations"),
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

/// Returns the strings of an object by name.
pub(super) fn map(value: &Value, pointer: &str) -> BTreeMap<String, String> {
    let object = value.pointer(pointer).and_then(Value::as_object);
    let entries = object.into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
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
