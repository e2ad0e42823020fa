//! Builds the endpoints for a Gateway's Service from the hosts that serve the Gateway.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::statuses::HostEndpoint;

/// Maximum number of endpoints per EndpointSlice, set by the API.
const MAX_ENDPOINTS: usize = 1000;

pub(super) struct SliceEndpoints {
    pub(super) suffix: String,
    pub(super) family: &'static str,
    pub(super) endpoints: Vec<Value>,
}

/// The order is stable. An address family without hosts has no slice.
pub(super) fn slices(hosts: &BTreeMap<IpAddr, HostEndpoint>) -> Vec<SliceEndpoints> {
    let mut all = Vec::new();
    for (family, suffix) in [("IPv4", "ipv4"), ("IPv6", "ipv6")] {
        let is_in_family = |(ip, _): &(&IpAddr, &HostEndpoint)| {
            ip.is_ipv4() == (family == "IPv4") && is_reachable(**ip)
        };
        let endpoints = hosts.iter().filter(is_in_family);
        let endpoints: Vec<Value> = endpoints.map(|(ip, host)| endpoint(*ip, host)).collect();
        let chunks = endpoints.chunks(MAX_ENDPOINTS).enumerate();
        all.extend(chunks.map(|(index, endpoints)| SliceEndpoints {
            suffix: match index {
                0 => suffix.to_owned(),
                more => format!("{suffix}-{more}"),
            },
            family,
            endpoints: endpoints.to_vec(),
        }));
    }
    all
}

/// kube-proxy needs `nodeName` to find local endpoints for `externalTrafficPolicy: Local`.
fn endpoint(ip: IpAddr, host: &HostEndpoint) -> Value {
    let HostEndpoint { node, draining } = host;
    let mut endpoint = json!({
        "addresses": [ip.to_string()],
        "conditions": {"ready": !draining, "serving": true, "terminating": draining},
    });
    if let Some(node) = node {
        endpoint["nodeName"] = json!(node);
    }
    endpoint
}

fn is_reachable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_names_its_node_and_drains_as_unready() {
        let host = |node: Option<&str>, draining| HostEndpoint {
            node: node.map(str::to_owned),
            draining,
        };
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let hosts = BTreeMap::from([
            (ip("192.0.2.1"), host(Some("a"), false)),
            (ip("192.0.2.2"), host(None, true)),
            (ip("127.0.0.1"), host(None, false)),
        ]);
        let all = slices(&hosts);
        let [slice] = all.as_slice() else {
            panic!("{} slices", all.len());
        };
        assert_eq!((slice.suffix.as_str(), slice.family), ("ipv4", "IPv4"));
        let expected = json!([
            {"addresses": ["192.0.2.1"], "nodeName": "a", "conditions": {"ready": true, "serving": true, "terminating": false}},
            {"addresses": ["192.0.2.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
        ]);
        assert_eq!(json!(slice.endpoints), expected);
    }

    #[test]
    fn hosts_beyond_slice_limit_use_several_slices() {
        let hosts = (0..1001_u32).map(|i| {
            let ip = IpAddr::from((0x0a00_0000 + i).to_be_bytes());
            (ip, HostEndpoint::default())
        });
        let all = slices(&hosts.collect());
        let sizes: Vec<_> = all
            .iter()
            .map(|slice| (slice.suffix.as_str(), slice.endpoints.len()))
            .collect();
        assert_eq!(sizes, [("ipv4", 1000), ("ipv4-1", 1)]);
    }
}
