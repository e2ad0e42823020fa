//! HTTP/3 listeners beside HTTPS listeners.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::transport_socket;
use envoy_types::pb::envoy::config::listener::v3::{
    FilterChain, FilterChainMatch, Listener, filter,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::CodecType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use prost::Message as _;
use sesame_proto::schema::{Port, Snapshot, Transport};

use super::envoy::{envoy, validate};
use super::everything::everything;
use super::parts::options;
use crate::{Rendered, render, static_bootstrap};

fn rendered(change: impl FnOnce(&mut Snapshot)) -> Rendered {
    let (mut snapshot, keys) = everything();
    snapshot.ports.push(Port {
        transport: Transport::Udp.into(),
        port: 443,
        http3: true,
        ..Port::default()
    });
    change(&mut snapshot);
    render(&snapshot, &keys, &options())
}

fn listeners(rendered: &Rendered) -> BTreeMap<String, Listener> {
    let all = rendered.listeners.iter();
    all.map(|it| (it.name.clone(), Listener::decode(&*it.bytes).unwrap()))
        .collect()
}

fn manager(chain: &FilterChain) -> Option<HttpConnectionManager> {
    let filter = chain.filters.last().unwrap();
    match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(config))
            if config.type_url.ends_with(".HttpConnectionManager") =>
        {
            Some(HttpConnectionManager::decode(&*config.value).unwrap())
        }
        _ => None,
    }
}

fn announces(chain: &FilterChain) -> bool {
    let filters = manager(chain).map(|it| it.http_filters);
    let filters = filters.unwrap_or_default();
    filters.iter().any(|filter| filter.name == "announce_http3")
}

#[test]
fn only_listener_without_client_checks_gets_http3() {
    let rendered = rendered(|_| {});
    let listeners = listeners(&rendered);
    for address in ["127.0.0.1", "::1"] {
        let quic = &listeners[&format!("udp/{address}/443")];
        let udp = quic.udp_listener_config.as_ref().unwrap();
        let socket = udp.downstream_socket_config.unwrap();
        assert_eq!(socket.prefer_gro.map(|it| it.value), Some(true));
        // `b` and `c` ask for certificates, `d` sets ALPN, and the others are not HTTPS.
        let [chain] = quic.filter_chains.as_slice() else {
            panic!("{:?}", quic.filter_chains);
        };
        assert_eq!(chain.name, "Gateway/ns/gw/listeners/a");
        let matched = FilterChainMatch {
            server_names: vec!["a.example.com".to_owned()],
            ..FilterChainMatch::default()
        };
        assert_eq!(chain.filter_chain_match, Some(matched));
        let manager = manager(chain).unwrap();
        assert_eq!(manager.codec_type(), CodecType::Http3);
        assert!(announces(chain));
        let Some(transport_socket::ConfigType::TypedConfig(socket)) =
            &chain.transport_socket.as_ref().unwrap().config_type
        else {
            panic!("{chain:?}");
        };
        let socket = QuicDownstreamTransport::decode(&*socket.value).unwrap();
        assert_eq!(socket.enable_early_data.map(|it| it.value), Some(false));
        let tls = socket.downstream_tls_context.unwrap().common_tls_context;
        assert_eq!(tls.unwrap().alpn_protocols, ["h3"]);
        let tcp = &listeners[&format!("tcp/{address}/443")];
        let announced = tcp.filter_chains.iter().filter(|it| announces(it));
        let announced: Vec<&str> = announced.map(|it| it.name.as_str()).collect();
        assert_eq!(announced, ["Gateway/ns/gw/listeners/a"]);
    }
}

#[test]
fn without_http3_listeners_are_unchanged() {
    let (snapshot, keys) = everything();
    let before = render(&snapshot, &keys, &options());
    let without = rendered(|snapshot| {
        snapshot.ports.pop();
    });
    assert_eq!(before.listeners, without.listeners);
    let changed = listeners(&rendered(|_| {}));
    for (name, listener) in listeners(&before) {
        assert_eq!(
            changed[&name] != listener,
            name.starts_with("tcp/") && name.ends_with("/443")
        );
    }
}

#[test]
fn datagram_listener_has_precedence_over_http3() {
    let rendered = rendered(|snapshot| {
        let mut datagrams = snapshot.ports.clone();
        datagrams.retain(|port| port.transport() == Transport::Udp && !port.http3);
        for port in &mut datagrams {
            port.port = 443;
        }
        snapshot.ports.extend(datagrams);
    });
    for (name, listener) in listeners(&rendered) {
        let is_quic = listener
            .udp_listener_config
            .is_some_and(|it| it.quic_options.is_some());
        assert!(!is_quic, "{name}");
        assert!(!listener.filter_chains.iter().any(announces), "{name}");
    }
}

#[test]
fn http3_without_usable_listener_opens_nothing() {
    let rendered = rendered(|snapshot| {
        let https = snapshot.ports.iter_mut().find(|it| it.port == 443).unwrap();
        https.listeners.remove(0);
    });
    let listeners = listeners(&rendered);
    assert!(!listeners.contains_key("udp/127.0.0.1/443"));
}

#[test]
fn envoy_accepts_http3() {
    let Some(envoy) = envoy() else {
        return;
    };
    let bootstrap = static_bootstrap(&rendered(|_| {})).unwrap();
    validate(&envoy, "pb", &bootstrap).unwrap();
}
