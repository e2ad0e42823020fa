//! Helpers that build parts of snapshots, and a host's rendering options.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    Forward, Header, PathMatch, Route, WeightedBackend, path_match, route::Action,
};

use crate::layout::XdsLayout;
use crate::limits::Limits;
use crate::{EndpointRules, RenderOptions};

pub(crate) fn options() -> RenderOptions {
    RenderOptions {
        addresses: vec![IpAddr::from([127, 0, 0, 1]), "::1".parse().unwrap()],
        port_map: BTreeMap::from([(80, 8080)]),
        subscription_budget: 100,
        first_in_files: std::sync::Arc::default(),
        limits: Limits::default(),
        layout: XdsLayout::new("/run/sesame/xds"),
        admin_socket: "/run/sesame/admin.sock".into(),
        trusted_hops: 0,
        fleet_hosts: 1,
        system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
        endpoints: EndpointRules {
            local: true,
            zone: "a".to_owned(),
            ..EndpointRules::default()
        },
        session_tickets: false,
        stand_in_tickets: None,
        access_log: None,
        retained: BTreeMap::new(),
    }
}

pub(crate) fn prefix(prefix: &str) -> PathMatch {
    PathMatch {
        kind: Some(path_match::Kind::Prefix(prefix.into())),
    }
}

pub(crate) fn to(backend: &str, weight: u32) -> WeightedBackend {
    WeightedBackend {
        backend: backend.into(),
        weight,
        ..Default::default()
    }
}

pub(crate) fn forward(backends: &[WeightedBackend]) -> Forward {
    Forward {
        backends: backends.to_vec(),
        ..Default::default()
    }
}

pub(crate) fn header(name: &str, value: &str) -> Header {
    Header {
        name: name.into(),
        value: value.into(),
        parts: Vec::new(),
    }
}

pub(crate) fn route(name: &str, path: &str, action: Action) -> Route {
    Route {
        name: format!("HTTPRoute/ns/{name}/rules/0/matches/0"),
        path: Some(prefix(path)),
        action: Some(action),
        ..Default::default()
    }
}

pub(crate) fn key_pair(name: &str, hostname: &str) -> KeyPair {
    let key = rcgen::generate_simple_self_signed([hostname.to_owned()]).unwrap();
    KeyPair {
        name: name.into(),
        certificate_chain: key.cert.pem().into_bytes(),
        private_key: key.signing_key.serialize_pem().into_bytes(),
        ..KeyPair::default()
    }
}

pub(crate) fn pem(pair: &KeyPair) -> String {
    String::from_utf8(pair.certificate_chain.clone()).unwrap()
}

pub(crate) const WEB: &str = "Service/ns/web/80";
pub(crate) const API: &str = "Service/ns/api/80/7f";
pub(crate) const WS: &str = "Service/ns/ws/80";
