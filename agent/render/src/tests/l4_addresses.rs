//! Address filters of layer 4 routes: which filter chain or route each client gets.

use serde_json::{Value, json};
use sesame_proto::schema::{
    AddressFilter, AddressRange, L4Route, Listener, Port, Protocol, Snapshot, Transport,
};

use super::everything::everything;
use super::parts::{options, to};
use crate::{dump, render};

const TCP: &str = "Service/ns/tcp/9000";

fn filter(name: &str, allow: &[&str], deny: &[&str]) -> AddressFilter {
    let ranges = |list: &[&str]| {
        let ranges = list.iter().map(|&network| AddressRange {
            network: network.to_owned(),
            peer: false,
        });
        ranges.collect()
    };
    AddressFilter {
        name: format!("AccessPolicy/ns/{name}"),
        allow: ranges(allow),
        deny: ranges(deny),
    }
}

fn route(name: &str, hostnames: &[&str], filters: &[AddressFilter]) -> L4Route {
    L4Route {
        name: format!("{name}/rules/0"),
        hostnames: hostnames.iter().map(|&it| it.to_owned()).collect(),
        backends: vec![to(TCP, 1)],
        address_filters: filters.to_vec(),
        ..L4Route::default()
    }
}

/// Returns the printed listener, and the number of problems.
fn printed(transport: Transport, protocol: Protocol, routes: Vec<L4Route>) -> (Value, usize) {
    let (everything, keys) = everything();
    let snapshot = Snapshot {
        ports: vec![Port {
            transport: transport.into(),
            port: 7000,
            listeners: vec![Listener {
                name: "Gateway/ns/gw/listeners/l".to_owned(),
                protocol: protocol.into(),
                l4_routes: routes,
                ..Listener::default()
            }],
            inside: 0,
            proxy_protocol: 0,
            http3: false,
            edge: None,
            client_address: None,
        }],
        ..everything
    };
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    (printed["listeners"][0].clone(), rendered.problems.len())
}

/// Returns each chain's name, match, and cluster.
fn chains(listener: &Value) -> Vec<(String, Value, String)> {
    let chains = listener["filter_chains"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let chains = chains.map(|chain| {
        let cluster = &chain["filters"][0]["typed_config"]["cluster"];
        let name = text(&chain["name"]).replace("Gateway/ns/gw/listeners/", "");
        (name, chain["filter_chain_match"].clone(), text(cluster))
    });
    chains.collect()
}

fn networks(networks: &[(&str, u32)]) -> Value {
    let networks = networks.iter();
    let networks =
        networks.map(|(address, bits)| json!({"address_prefix": address, "prefix_len": bits}));
    networks.collect()
}

#[test]
fn tcp_clients_are_divided_by_filter_chains() {
    let filters = [filter("office", &["192.0.2.0/24"], &["192.0.2.7/32"])];
    let routes = vec![route("TCPRoute/ns/db", &[], &filters)];
    let (listener, problems) = printed(Transport::Tcp, Protocol::RawTcp, routes);
    assert_eq!(problems, 0);
    let found = chains(&listener);
    let [
        (_, allowed, served),
        (denied, default, _),
        (within, inside, refused),
    ] = &*found
    else {
        panic!("{found:?}");
    };
    let ranges = |it: &Value| it["source_prefix_ranges"].clone();
    assert_eq!(
        (ranges(allowed), &**served),
        (networks(&[("192.0.2.0", 24)]), TCP)
    );
    assert_eq!((&**denied, default), ("l/denied", &Value::Null));
    assert_eq!(&**within, "l/denied-within");
    assert_eq!(ranges(inside), networks(&[("192.0.2.7", 32)]));
    assert_ne!(refused, TCP);
}

#[test]
fn filter_of_tls_route_applies_to_its_names_only() {
    let routes = vec![
        route(
            "TLSRoute/ns/a",
            &["a.test", "b.test"],
            &[filter("p", &[], &["10.0.0.0/8"])],
        ),
        route("TLSRoute/ns/b", &["*.test"], &[]),
    ];
    let (listener, problems) = printed(Transport::Tcp, Protocol::Tls, routes);
    assert_eq!(problems, 0);
    let found = chains(&listener);
    let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
    let a = "l/TLSRoute/ns/a/rules/0";
    let within = format!("{a}/denied-within");
    assert_eq!(names, [a, &within, "l/TLSRoute/ns/b/rules/0", "l"]);
    let both = json!(["a.test", "b.test"]);
    assert_eq!(found[0].1, json!({"server_names": both}));
    let denied = networks(&[("10.0.0.0", 8)]);
    assert_eq!(
        found[1].1,
        json!({"server_names": both, "source_prefix_ranges": denied})
    );
    assert_eq!(found[2].1, json!({"server_names": ["*.test"]}));
}

#[test]
fn unusable_filter_closes_connections_of_its_route() {
    let broken = filter("p", &["10.0.0.0"], &[]);
    let routes = vec![
        route("TLSRoute/ns/a", &["a.test"], std::slice::from_ref(&broken)),
        route("TLSRoute/ns/b", &["*.test"], &[]),
    ];
    let (listener, problems) = printed(Transport::Tcp, Protocol::Tls, routes);
    assert_eq!(problems, 1);
    let found = chains(&listener);
    let (name, matched, cluster) = &found[0];
    assert_eq!(&**name, "l/TLSRoute/ns/a/rules/0/denied");
    assert_eq!(matched, &json!({"server_names": ["a.test"]}));
    assert_ne!(cluster, TCP);
    let routes = vec![route("UDPRoute/ns/a", &[], &[broken])];
    let (listener, problems) = printed(Transport::Udp, Protocol::RawUdp, routes);
    assert_eq!(problems, 1);
    assert!(!listener.to_string().contains(TCP));
}

#[test]
fn udp_datagrams_match_only_from_allowed_addresses() {
    let filters = [
        filter("a", &["192.0.2.0/24"], &["192.0.2.7/32"]),
        filter("b", &[], &["198.51.100.0/24"]),
    ];
    let routes = vec![route("UDPRoute/ns/dns", &[], &filters)];
    let (listener, problems) = printed(Transport::Udp, Protocol::RawUdp, routes);
    assert_eq!(problems, 0);
    let filter = &listener["listener_filters"][0]["typed_config"];
    let matcher = &filter["matcher"];
    assert_eq!(matcher["on_no_match"], Value::Null);
    let matchers = matcher["matcher_list"]["matchers"].as_array().unwrap();
    assert_eq!(matchers.len(), 1);
    let all = &matchers[0]["predicate"]["and_matcher"]["predicate"];
    let negated: Vec<bool> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|it| !it["not_matcher"].is_null())
        .collect();
    assert_eq!(negated, [false, true, true]);
    assert!(matchers[0]["on_match"].to_string().contains(TCP));
}
