//! The listener filter for PROXY protocol headers.

use envoy_types::pb::envoy::config::listener::v3::{Listener, listener_filter::ConfigType};
use envoy_types::pb::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol as Filter;
use prost::Message as _;

use super::everything::everything;
use super::parts::options;
use crate::render;

const FILTER: &str = "envoy.filters.listener.proxy_protocol";

/// Returns each listener's transport, filter names, and `allow_requests_without_proxy_protocol`.
fn filters(mode: i32) -> Vec<(String, Vec<String>, Option<bool>)> {
    let (mut snapshot, keys) = everything();
    for port in &mut snapshot.ports {
        port.proxy_protocol = mode;
    }
    let rendered = render(&snapshot, &keys, &options());
    let listeners = rendered.listeners.iter().map(|resource| {
        let listener = Listener::decode(&*resource.bytes).unwrap();
        let transport = resource.name.split('/').next().unwrap_or_default();
        let filters = listener.listener_filters;
        let first = filters.first().filter(|filter| filter.name == FILTER);
        let is_optional = first.map(|filter| match &filter.config_type {
            Some(ConfigType::TypedConfig(config)) => {
                let filter = Filter::decode(&*config.value).unwrap();
                filter.allow_requests_without_proxy_protocol
            }
            other => panic!("{other:?}"),
        });
        let names = filters.into_iter().map(|filter| filter.name).collect();
        (transport.to_owned(), names, is_optional)
    });
    listeners.collect()
}

#[test]
fn header_is_read_before_tls_on_tcp_only() {
    // An unknown mode requires a header.
    for (mode, expected) in [
        (0, None),
        (1, Some(false)),
        (2, Some(true)),
        (77, Some(false)),
    ] {
        let found = filters(mode);
        for transport in ["tcp", "udp"] {
            assert!(found.iter().any(|(it, ..)| it == transport));
        }
        for (transport, names, is_optional) in found {
            let is_tcp = transport == "tcp";
            assert_eq!(is_optional, expected.filter(|_| is_tcp), "{names:?}");
            let count = names.iter().filter(|name| *name == FILTER).count();
            assert_eq!(count, usize::from(is_optional.is_some()), "{names:?}");
        }
    }
    let tls = filters(1)
        .into_iter()
        .filter(|(_, names, _)| names.len() == 2);
    let tls: Vec<_> = tls.collect();
    assert!(!tls.is_empty());
    for (_, names, _) in tls {
        assert_eq!(names, [FILTER, "envoy.filters.listener.tls_inspector"]);
    }
}
