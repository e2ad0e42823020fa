//! Listener protocols, and the route kinds that each supports.

use sesame_proto::schema;

use sesame_kinds::api::{GATEWAY_GROUP, Protocol, RouteGroupKind};
use sesame_kinds::world::Kind;

pub(crate) const PROTOCOLS: &str = "HTTP, HTTPS, TLS, TCP, UDP";

/// The kinds are in the order of `supportedKinds`.
pub(crate) fn of_protocol(protocol: &Protocol) -> Option<(schema::Protocol, &'static [Kind])> {
    const REQUESTS: &[Kind] = &[Kind::HttpRoute, Kind::GrpcRoute];
    Some(match protocol {
        Protocol::Http => (schema::Protocol::Http, REQUESTS),
        Protocol::Https => (schema::Protocol::Https, REQUESTS),
        Protocol::Tls => (schema::Protocol::Tls, &[Kind::TlsRoute]),
        Protocol::Tcp => (schema::Protocol::RawTcp, &[Kind::TcpRoute]),
        Protocol::Udp => (schema::Protocol::RawUdp, &[Kind::UdpRoute]),
        Protocol::Other(_) => return None,
    })
}

/// Returns the allowed kinds, and the names of requested kinds that are unsupported. If `asked` is
/// empty, all supported kinds are allowed.
pub(crate) fn allowed(supported: &[Kind], asked: &[RouteGroupKind]) -> (Vec<Kind>, Vec<String>) {
    if asked.is_empty() {
        return (supported.to_vec(), Vec::new());
    }
    let mut kinds = Vec::new();
    let mut unknown = Vec::new();
    for RouteGroupKind { group, kind } in asked {
        let group = group.as_deref().unwrap_or(GATEWAY_GROUP);
        let found = supported
            .iter()
            .find(|known| group == GATEWAY_GROUP && known.as_str() == kind);
        match found {
            Some(known) if kinds.contains(known) => {}
            Some(known) => kinds.push(*known),
            None => unknown.push(format!("{group}/{kind}")),
        }
    }
    (kinds, unknown)
}

pub(crate) fn group_kind(kind: Kind) -> RouteGroupKind {
    RouteGroupKind {
        group: Some(GATEWAY_GROUP.to_owned()),
        kind: kind.as_str().to_owned(),
    }
}
