//! Tests for the handshakes that prove a certificate change.

use std::net::IpAddr;
use std::path::PathBuf;

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::port::ProxyProtocol;
use sesame_proto::schema::{Listener, Port, Protocol, Snapshot, TlsTermination};
use sesame_render::layout::XdsLayout;
use sesame_render::limits::Limits;
use sesame_render::{EndpointRules, RenderOptions};

use super::{ChangedKeys, proofs};

fn options(address: &str) -> RenderOptions {
    RenderOptions {
        addresses: vec![address.parse::<IpAddr>().expect("an address")],
        port_map: [(443, 8443)].into(),
        subscription_budget: 100,
        first_in_files: std::sync::Arc::default(),
        limits: Limits::default(),
        layout: XdsLayout::new("/xds"),
        admin_socket: PathBuf::new(),
        trusted_hops: 0,
        fleet_hosts: 1,
        system_ca: PathBuf::new(),
        endpoints: EndpointRules::default(),
        retained: std::collections::BTreeMap::new(),
        session_tickets: false,
        stand_in_tickets: None,
        access_log: None,
    }
}

fn pair(name: &str, names: &[&str]) -> KeyPair {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    KeyPair {
        name: name.to_owned(),
        certificate_chain: made.cert.pem().into_bytes(),
        private_key: Vec::new(),
        ..KeyPair::default()
    }
}

fn listener(hostname: &str, protocol: Protocol, key: &str) -> Listener {
    Listener {
        name: format!("l {hostname}"),
        protocol: protocol.into(),
        hostname: hostname.to_owned(),
        tls: Some(TlsTermination {
            keys: vec![key.to_owned()],
            ..TlsTermination::default()
        }),
        ..Listener::default()
    }
}

fn snapshot(listeners: Vec<Listener>) -> Snapshot {
    Snapshot {
        ports: vec![Port {
            port: 443,
            listeners,
            ..Port::default()
        }],
        ..Snapshot::default()
    }
}

fn all(keys: &[KeyPair]) -> ChangedKeys {
    keys.iter().map(|pair| pair.name.clone()).collect()
}

#[test]
fn each_listener_is_probed_by_reachable_name() {
    let https = |hostname: &str| listener(hostname, Protocol::Https, "k");
    let keys = [pair("k", &["a.test", "*.b.test", "x.c.test", "d.test"])];
    let listeners = vec![
        https("a.test"),
        https("x.c.test"),
        https("*.b.test"),
        https("*.c.test"),
        https(""),
        listener("tls.test", Protocol::Tls, "k"),
    ];
    let found = proofs(
        &snapshot(listeners),
        &keys,
        &all(&keys),
        &options("0.0.0.0"),
    );
    let names: Vec<(&str, &str)> = found
        .iter()
        .map(|it| (it.listener.as_str(), it.server_name.as_str()))
        .collect();
    assert_eq!(
        names,
        [
            ("l a.test", "a.test"),
            ("l x.c.test", "x.c.test"),
            ("l *.b.test", "certificate-proof.b.test"),
            ("l *.c.test", "certificate-proof.c.test"),
            ("l ", "d.test"),
        ]
    );
    assert!(
        found
            .iter()
            .all(|it| it.address.to_string() == "127.0.0.1:8443")
    );
}

#[test]
fn unchanged_or_unreachable_listeners_are_not_probed() {
    let keys = [pair("k", &["a.test"]), pair("other", &["b.test"])];
    let mut old = listener("c.test", Protocol::Https, "k");
    let tls = old.tls.as_mut().expect("TLS");
    tls.max_version = sesame_proto::schema::tls_termination::Version::Tls12.into();
    tls.cipher_suites = vec!["ECDHE-RSA-AES128-SHA".to_owned()];
    let mut post_quantum = listener("d.test", Protocol::Https, "k");
    let tls = post_quantum.tls.as_mut().expect("TLS");
    tls.key_exchange_groups = vec!["X25519MLKEM768".to_owned()];
    let listeners = vec![
        listener("a.test", Protocol::Https, "k"),
        listener("b.test", Protocol::Https, "other"),
        old,
        post_quantum,
        // Other listeners match all names in this listener's certificate.
        listener("", Protocol::Https, "k"),
    ];
    let changed = ChangedKeys::from(["k".to_owned()]);
    let found = proofs(&snapshot(listeners), &keys, &changed, &options("192.0.2.7"));
    let [only] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!((&*only.listener, &*only.key), ("l a.test", "k"));
    assert_eq!(only.address.to_string(), "192.0.2.7:8443");
}

#[test]
fn port_with_proxy_protocol_gets_header() {
    let keys = [pair("k", &["a.test"])];
    for (mode, expected) in [
        (ProxyProtocol::None, false),
        (ProxyProtocol::Required, true),
        (ProxyProtocol::Optional, true),
    ] {
        let mut snapshot = snapshot(vec![listener("a.test", Protocol::Https, "k")]);
        snapshot.ports[0].set_proxy_protocol(mode);
        let found = proofs(&snapshot, &keys, &all(&keys), &options("192.0.2.7"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].proxy_header, expected, "{mode:?}");
    }
}

#[test]
fn a_change_of_everything_is_proven_in_part() {
    let keys = [pair("k", &["a.test"])];
    let listeners = (0..1000)
        .map(|n| listener(&format!("h{n}.test"), Protocol::Https, "k"))
        .collect();
    let found = proofs(&snapshot(listeners), &keys, &all(&keys), &options("::"));
    assert_eq!(found.len(), 256);
    assert_eq!(found[0].address.to_string(), "[::1]:8443");
}
