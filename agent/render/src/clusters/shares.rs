//! The share of each listener and backend in what Envoy may open, as runtime values that it reads from a file of their own.
//!
//! A share depends on how many others there are. In the listener or cluster itself it would have all of them drain
//! whenever one comes or goes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use envoy_types::pb::google::protobuf::{Value, value};
use prost::Message;
use sesame_proto::schema::{AppProtocol, Backend};

use crate::http::sessions;
use crate::limits::Limits;
use crate::rendered::Resource;

/// The name of the layer, and of the only resource in its file.
pub(crate) const LAYER: &str = "limits";

/// `envoy.service.runtime.v3.Runtime`, with its layer in the order of the keys: prost writes others in random order.
#[derive(Clone, PartialEq, Message)]
struct Runtime {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    layer: Option<Layer>,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
struct Layer {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

/// Returns the encoded `Runtime` for these listeners and clusters.
pub(crate) fn render(
    limits: &Limits,
    listeners: &[Resource],
    clusters: &[Resource],
    backends: &[&Backend],
) -> Bytes {
    let datagrams: BTreeSet<&str> = backends
        .iter()
        .filter(|backend| backend.protocol() == AppProtocol::UdpDatagrams)
        .map(|backend| backend.name.as_str())
        .collect();
    let (udp, tcp): (Vec<&Resource>, Vec<&Resource>) = clusters
        .iter()
        // The connections of a session are those of the cluster that it is sent to.
        .filter(|cluster| !sessions::opens_nothing(&cluster.name))
        .partition(|cluster| datagrams.contains(cluster.name.as_str()));
    // Sessions of UDP clients are no connections; they are counted at their backend.
    let listeners = listeners.iter().filter(|it| !it.name.starts_with("udp/"));
    let of_listener = limits.of_listener(listeners.clone().count());
    let of_backend = limits.of_backend(tcp.len());
    let of_udp_backend = limits.of_udp_backend(udp.len());
    let connections =
        |cluster: &Resource| format!("circuit_breakers.{}.default.max_connections", cluster.name);
    let of_listeners = listeners.map(|listener| {
        let name = &listener.name;
        let key = format!("envoy.resource_limits.listener.{name}.connection_limit");
        (key, of_listener)
    });
    let of_tcp = tcp.iter().map(|it| (connections(it), of_backend));
    let of_udp = udp.iter().map(|it| (connections(it), of_udp_backend));
    let fields = of_listeners
        .chain(of_tcp)
        .chain(of_udp)
        .map(|(key, share)| {
            let kind = Some(value::Kind::NumberValue(share.into()));
            (key, Value { kind })
        })
        .collect();
    runtime(fields)
}

/// Returns the same while nothing is served.
pub fn none() -> Bytes {
    runtime(BTreeMap::new())
}

fn runtime(fields: BTreeMap<String, Value>) -> Bytes {
    let runtime = Runtime {
        name: LAYER.to_owned(),
        layer: Some(Layer { fields }),
    };
    runtime.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(names: &[&str]) -> Vec<Resource> {
        let resource = |name: &&str| Resource {
            name: (*name).to_owned(),
            bytes: Bytes::new(),
        };
        names.iter().map(resource).collect()
    }

    #[test]
    fn each_has_its_share_and_udp_its_own() {
        let limits = Limits {
            from_clients: 100,
            to_backends: 90,
            udp_sessions: 40,
            ..Limits::default()
        };
        let backend = |name: &str, protocol: AppProtocol| Backend {
            name: name.to_owned(),
            protocol: protocol.into(),
            ..Default::default()
        };
        let (dns, web) = (
            backend("dns", AppProtocol::UdpDatagrams),
            backend("web", AppProtocol::Http1),
        );
        let bytes = render(
            &limits,
            &resources(&["tcp/::/443", "tcp/::/80", "udp/::/53"]),
            &resources(&["api", "dns", "web"]),
            &[&dns, &web],
        );
        let runtime = Runtime::decode(bytes).unwrap();
        let said: Vec<(String, f64)> = runtime
            .layer
            .unwrap()
            .fields
            .into_iter()
            .map(|(key, value)| match value.kind {
                Some(value::Kind::NumberValue(share)) => (key, share),
                other => panic!("{other:?}"),
            })
            .collect();
        let listener = |name| format!("envoy.resource_limits.listener.{name}.connection_limit");
        let cluster = |name| format!("circuit_breakers.{name}.default.max_connections");
        assert_eq!(
            said,
            [
                (cluster("api"), 45.0),
                (cluster("dns"), 40.0),
                (cluster("web"), 45.0),
                (listener("tcp/::/443"), 50.0),
                (listener("tcp/::/80"), 50.0),
            ]
        );
    }
}
