//! Checks whether an address can be bound.

use std::net::SocketAddr;

use sesame_proto::schema::Transport;
use socket2::{Domain, Socket, Type};

/// Returns true if the address can be bound, or if no socket can be created. Never listens, because
/// a test socket would receive connections.
pub fn can_bind(transport: Transport, address: SocketAddr) -> bool {
    let kind = match transport {
        Transport::Tcp => Type::STREAM,
        Transport::Udp => Type::DGRAM,
    };
    let Ok(socket) = Socket::new(Domain::for_address(address), kind, None) else {
        return true;
    };
    // Ignore errors here, because `bind` fails if a missing option matters.
    let _ = socket.set_reuse_address(true);
    let _ = socket.set_reuse_port(true);
    if address.is_ipv6() {
        let _ = socket.set_only_v6(true);
    }
    socket.bind(&address.into()).is_ok()
}
