//! The question whether an address can be bound.

use std::net::SocketAddr;

use sesame_proto::schema::Transport;
use socket2::{Domain, Socket, Type};

/// Binds as Envoy does, without listening, so that no connection is lost to it. An address of which the kernel cannot be
/// asked is worth a try.
pub(crate) fn can_bind(transport: Transport, address: SocketAddr) -> bool {
    let kind = match transport {
        Transport::Tcp => Type::STREAM,
        Transport::Udp => Type::DGRAM,
    };
    let Ok(socket) = Socket::new(Domain::for_address(address), kind, None) else {
        return true;
    };
    // Failures show when binding.
    let _ = socket.set_reuse_address(true);
    let _ = socket.set_reuse_port(true);
    if address.is_ipv6() {
        let _ = socket.set_only_v6(true);
    }
    socket.bind(&address.into()).is_ok()
}
