//! Protocols of listeners, and the kinds of routes that each supports: the one table that everything else asks.

use sesame_proto::schema;

use crate::api::{GATEWAY_GROUP, Protocol, RouteGroupKind};
use crate::world::Kind;

/// Returns the supported kinds of routes, in the order of `supportedKinds`. Listeners of a protocol without any are not
/// accepted.
fn table(protocol: schema::Protocol) -> &'static [Kind] {
    match protocol {
        schema::Protocol::Http | schema::Protocol::Https => &[Kind::HttpRoute, Kind::GrpcRoute],
        schema::Protocol::Tls => &[Kind::TlsRoute],
        schema::Protocol::RawTcp => &[Kind::TcpRoute],
        schema::Protocol::RawUdp => &[Kind::UdpRoute],
    }
}

/// Returns the protocol and its kinds; none if no kind is supported on it.
pub(crate) fn of_protocol(protocol: &Protocol) -> Option<(schema::Protocol, &'static [Kind])> {
    let protocol = match protocol {
        Protocol::Http => schema::Protocol::Http,
        Protocol::Https => schema::Protocol::Https,
        Protocol::Tls => schema::Protocol::Tls,
        Protocol::Tcp => schema::Protocol::RawTcp,
        Protocol::Udp => schema::Protocol::RawUdp,
        Protocol::Other(_) => return None,
    };
    let kinds = table(protocol);
    (!kinds.is_empty()).then_some((protocol, kinds))
}

/// Returns the names of the protocols with supported kinds, as messages list them.
pub(crate) fn protocols() -> String {
    let all = [
        Protocol::Http,
        Protocol::Https,
        Protocol::Tls,
        Protocol::Tcp,
        Protocol::Udp,
    ];
    let served: Vec<&str> = all
        .iter()
        .filter(|p| of_protocol(p).is_some())
        .map(Protocol::as_str)
        .collect();
    served.join(", ")
}

/// Returns the supported kinds among those that a listener asks for, and the names of the others. A listener that asks for
/// none gets all of its protocol.
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

/// Returns a kind as `supportedKinds` lists it.
pub(crate) fn group_kind(kind: Kind) -> RouteGroupKind {
    RouteGroupKind {
        group: Some(GATEWAY_GROUP.to_owned()),
        kind: kind.as_str().to_owned(),
    }
}
