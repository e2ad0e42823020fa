//! Divides Envoy's connection limits among listeners and among backends, first by namespace.
//!
//! The ports of Gateways together get at least half of the client connections; ports that only
//! ListenerSets declare get the rest. Envoy reads the shares as runtime values from a separate
//! file. If the shares were listener and cluster fields, adding one listener or cluster would
//! change and drain all others.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use envoy_types::pb::google::protobuf::{Value, value};
use prost::Message;
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::{AppProtocol, Backend, Port, Transport};

use super::fallback;
use crate::context::RenderOptions;
use crate::http::sessions;
use crate::layout::PASSWORDS;
use crate::limits::{self, FEW};
use crate::rendered::Resource;

pub(crate) const LAYER: &str = "limits";
const GATEWAY: &str = "Gateway";

/// `envoy.service.runtime.v3.Runtime` with sorted keys, because prost writes `HashMap` entries in
/// random order.
#[derive(Clone, PartialEq, Message)]
struct Runtime {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    layer: Option<Layer>,
}

#[derive(Clone, PartialEq, Message)]
struct Layer {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

/// Returns true if the cluster has no endpoints, because it only chooses among other clusters.
pub fn only_chooses(cluster: &str) -> bool {
    sessions::only_chooses(cluster) || fallback::only_chooses(cluster)
}

const LISTENER_LIMIT: (&str, &str) = ("envoy.resource_limits.listener.", ".connection_limit");
const CLUSTER_LIMIT: (&str, &str) = ("circuit_breakers.", ".default.max_connections");

/// `ports` and `backends` must be from the snapshot that produced the resources.
pub(crate) fn render(
    options: &RenderOptions,
    ports: &[Port],
    listeners: &[Resource],
    clusters: &[Resource],
    backends: &[&Backend],
) -> Bytes {
    let limits = &options.limits;
    let datagrams: BTreeSet<&str> = backends
        .iter()
        .filter(|backend| backend.protocol() == AppProtocol::UdpDatagrams)
        .map(|backend| backend.name.as_str())
        .collect();
    let (udp, tcp): (Vec<&Resource>, Vec<&Resource>) = clusters
        .iter()
        .filter(|cluster| !only_chooses(&cluster.name) && cluster.name != PASSWORDS)
        .partition(|cluster| datagrams.contains(cluster.name.as_str()));
    // UDP listeners need no share, because their sessions count against the backends' shares.
    let listeners = listeners.iter().filter(|it| !it.name.starts_with("udp/"));
    let owners = owners(ports, options);
    let owners_of = |listener: &Resource| {
        let (_, port) = listener.name.rsplit_once('/')?;
        owners.get(&port.parse().ok()?).cloned()
    };
    let listeners = listeners.map(|it| (it, owners_of(it).unwrap_or_else(Owners::unknown)));
    let (own, added): (Vec<_>, Vec<_>) = listeners.partition(|(_, owners)| owners.gateways);
    let size = |group: &[(&Resource, Owners<'_>)]| {
        let namespaces = group.iter().map(|(_, owners)| owners.namespaces.len());
        u32::try_from(namespaces.sum::<usize>()).unwrap_or(u32::MAX)
    };
    let gateway_connections = limits.gateway_connections(size(&own), size(&added));
    let added_connections = limits.from_clients.saturating_sub(gateway_connections);
    let listeners = |all, group: Vec<(&Resource, Owners<'_>)>| {
        let (group, owners): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let namespaces: Vec<_> = owners.into_iter().map(|it| it.namespaces).collect();
        keyed(LISTENER_LIMIT, &group, &limits::shares(all, &namespaces))
    };
    let own_limits = own_limits(backends);
    let clusters = |all, group: &[&Resource]| {
        let namespaces: Vec<_> = group.iter().map(|it| vec![namespace(&it.name)]).collect();
        let shares = limits::shares(all, &namespaces);
        let kept = group
            .iter()
            .copied()
            .zip(shares)
            .filter(|(cluster, share)| {
                let own = own_limits.get(sessions::backend_of(&cluster.name));
                own.is_none_or(|own| own > share)
            });
        let (group, shares): (Vec<&Resource>, Vec<u32>) = kept.unzip();
        keyed(CLUSTER_LIMIT, &group, &shares)
    };
    let mut fields = listeners(gateway_connections, own);
    fields.extend(listeners(added_connections, added));
    fields.extend(clusters(limits.to_backends, &tcp));
    fields.extend(clusters(limits.udp_sessions, &udp));
    runtime(fields)
}

/// Returns the connection limits that backends set themselves. Clusters already contain these
/// limits, so a share is needed only if it is lower.
fn own_limits<'b>(backends: &[&'b Backend]) -> BTreeMap<&'b str, u32> {
    let limits = backends.iter().filter_map(|backend| {
        let most = backend.breaker.as_ref()?.max_connections;
        (most > 0).then_some((backend.name.as_str(), most))
    });
    limits.collect()
}

/// Namespaces of the port's Gateways, or of its ListenerSets if it has no Gateway.
#[derive(Clone)]
struct Owners<'s> {
    gateways: bool,
    /// Sorted, unique, never empty.
    namespaces: Vec<&'s str>,
}

impl Owners<'_> {
    /// Used for ports whose listener names do not identify an owner.
    fn unknown() -> Self {
        Self {
            gateways: false,
            namespaces: vec![""],
        }
    }
}

/// Returns owners by the port number that the host binds.
fn owners<'s>(ports: &'s [Port], options: &RenderOptions) -> BTreeMap<u32, Owners<'s>> {
    let tcp = ports.iter().filter(|it| it.transport() == Transport::Tcp);
    let owners = tcp.map(|port| {
        let names = port.listeners.iter().map(|it| it.name.as_str());
        let parsed: Vec<_> = names.filter_map(|it| Provenance::parse(it).ok()).collect();
        // A port that Gateways and ListenerSets share belongs to the Gateways, which tenants cannot
        // create.
        let gateways = parsed.iter().any(|it| it.kind == GATEWAY);
        let owners = parsed.iter().filter(|it| !gateways || it.kind == GATEWAY);
        let mut namespaces: Vec<&str> = owners.map(|it| it.namespace).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        let known = !namespaces.is_empty();
        let owners = known.then_some(Owners {
            gateways,
            namespaces,
        });
        let owners = owners.unwrap_or_else(Owners::unknown);
        (options.bound(port), owners)
    });
    owners.collect()
}

fn namespace(cluster: &str) -> &str {
    cluster.split('/').nth(1).unwrap_or_default()
}

fn keyed(
    (before, after): (&str, &str),
    resources: &[&Resource],
    shares: &[u32],
) -> BTreeMap<String, Value> {
    let values = resources.iter().zip(shares).map(|(resource, share)| {
        let kind = Some(value::Kind::NumberValue((*share).into()));
        (format!("{before}{}{after}", resource.name), Value { kind })
    });
    values.collect()
}

/// Returns a warning for each share that is too small for ordinary traffic.
pub fn scarcity(shares: &[u8]) -> Vec<String> {
    let fields = Runtime::decode(shares).map(|it| it.layer.unwrap_or_default().fields);
    let fields = fields.unwrap_or_default();
    let warning = |(before, after): (&str, &str), what: &str, effect: &str, remedy: &str| {
        let shares = fields.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(before)?.strip_suffix(after)?;
            match value.kind {
                Some(value::Kind::NumberValue(share)) => Some((share, name)),
                _ => None,
            }
        });
        let all = shares.clone().count();
        let few = shares.filter(|(share, _)| *share < f64::from(FEW));
        let (least, name) = few.clone().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let count = few.count();
        Some(format!(
            "{count} of {all} {what} may have fewer than {FEW} connections, {name} only {least}; {effect}: raise the hard limit on open files (`LimitNOFILE=` of the unit, `ulimit -Hn`){remedy}"
        ))
    };
    let listeners = warning(
        LISTENER_LIMIT,
        "listening sockets",
        "Envoy closes further connections",
        " or the host's memory, or open fewer ports",
    );
    let backends = warning(
        CLUSTER_LIMIT,
        "backends",
        "excess requests wait for a connection",
        ", or use fewer backends",
    );
    listeners.into_iter().chain(backends).collect()
}

/// Returns the encoded `Runtime` for an empty configuration.
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
    use sesame_proto::schema::Listener;

    use super::*;
    use crate::limits::Limits;
    use crate::tests::parts::options;

    fn resources(names: &[&str]) -> Vec<Resource> {
        let resource = |name: &&str| Resource {
            name: (*name).to_owned(),
            bytes: Bytes::new(),
        };
        names.iter().map(resource).collect()
    }

    fn port(number: u32, listeners: &[&str]) -> Port {
        let listener = |name: &&str| Listener {
            name: (*name).to_owned(),
            ..Default::default()
        };
        Port {
            port: number,
            listeners: listeners.iter().map(listener).collect(),
            ..Default::default()
        }
    }

    fn limited() -> RenderOptions {
        RenderOptions {
            limits: Limits {
                from_clients: 100,
                to_backends: 90,
                udp_sessions: 40,
                ..Limits::default()
            },
            ..options()
        }
    }

    fn listener(name: &str) -> String {
        format!("envoy.resource_limits.listener.{name}.connection_limit")
    }

    fn cluster(name: &str) -> String {
        format!("circuit_breakers.{name}.default.max_connections")
    }

    fn shares(bytes: &[u8]) -> Vec<(String, f64)> {
        let layer = Runtime::decode(bytes).unwrap().layer.unwrap();
        let share = |(key, value): (String, Value)| match value.kind {
            Some(value::Kind::NumberValue(share)) => (key, share),
            other => panic!("{other:?}"),
        };
        layer.fields.into_iter().map(share).collect()
    }

    #[test]
    fn namespaces_share_backends_and_udp_its_own() {
        let backend = |name: &str, protocol: AppProtocol| Backend {
            name: name.to_owned(),
            protocol: protocol.into(),
            ..Default::default()
        };
        let (dns, web) = (
            backend("Service/a/dns/53/UDP", AppProtocol::UdpDatagrams),
            backend("Service/a/web/80", AppProtocol::Http1),
        );
        let names = [
            "Service/a/api/80",
            "Service/a/dns/53/UDP",
            "Service/a/web/80",
            "XBackend/b/other/80/0a",
        ];
        let bytes = render(&limited(), &[], &[], &resources(&names), &[&dns, &web]);
        assert_eq!(
            shares(&bytes),
            [
                (cluster("Service/a/api/80"), 22.0),
                (cluster("Service/a/dns/53/UDP"), 40.0),
                (cluster("Service/a/web/80"), 22.0),
                (cluster("XBackend/b/other/80/0a"), 45.0),
            ]
        );
    }

    #[test]
    fn foreign_ports_leave_half_to_the_gateway() {
        let own = "Gateway/infra/edge/listeners/http";
        let ports = [
            port(80, &["ListenerSet/a/s/listeners/x", own]),
            port(8_001, &["ListenerSet/a/s/listeners/y"]),
            port(8_002, &["ListenerSet/a/s/listeners/z"]),
            port(8_003, &["ListenerSet/b/s/listeners/z"]),
            port(
                8_004,
                &["ListenerSet/a/s/listeners/w", "ListenerSet/b/s/listeners/w"],
            ),
        ];
        let names = [
            "tcp/::/10080",
            "tcp/::/8001",
            "tcp/::/8002",
            "tcp/::/8003",
            "tcp/::/8004",
            "udp/::/53",
        ];
        let mut options = limited();
        options.port_map.insert(80, 10_080);
        let bytes = render(&options, &ports, &resources(&names), &[], &[]);
        assert_eq!(
            shares(&bytes),
            [
                (listener("tcp/::/10080"), 50.0),
                (listener("tcp/::/8001"), 8.0),
                (listener("tcp/::/8002"), 8.0),
                (listener("tcp/::/8003"), 12.0),
                (listener("tcp/::/8004"), 20.0),
            ]
        );
        let warnings = scarcity(&bytes);
        assert_eq!(warnings.len(), 1);
        let expected =
            "3 of 5 listening sockets may have fewer than 16 connections, tcp/::/8001 only 8;";
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
    }

    #[test]
    fn scarce_connections_are_reported() {
        let clusters: Vec<String> = (0..1_000).map(|i| format!("Service/a/{i:03}/80")).collect();
        let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
        let mut options = limited();
        options.limits = Limits::new(20_000, 1 << 30).unwrap();
        let of = |count: usize| {
            let clusters = resources(&clusters[..count]);
            scarcity(&render(&options, &[], &[], &clusters, &[]))
        };
        assert_eq!(of(10), Vec::<String>::new());
        let warnings = of(1_000);
        let expected =
            "1000 of 1000 backends may have fewer than 16 connections, Service/a/000/80 only 6;";
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
        assert!(warnings[0].contains("LimitNOFILE="));
        assert_eq!(scarcity(&none()), Vec::<String>::new());
    }
}
