//! Sockets of another process on a port of Envoy, as a second proxy on the same host would have them.

use std::net::SocketAddr;

use nix::sys::socket::sockopt::ReusePort;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::certs::Leaf;

/// So many sockets of another process take nearly every connection to a port.
const SOCKETS: usize = 200;

/// Sockets beside those of Envoy, on the same port, that show another certificate.
pub fn stand_beside(address: SocketAddr, leaf: &Leaf) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for _ in 0..SOCKETS {
        let kind = (
            AddressFamily::Inet,
            SockType::Stream,
            // A process that another test starts meanwhile would keep it, and nobody would accept.
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        );
        let socket = socket(kind.0, kind.1, kind.2, None).expect("a socket");
        setsockopt(&socket, ReusePort, &true).expect("an option");
        let at = SockaddrStorage::from(address);
        bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &at).expect("Envoy shares its port");
        listen(&socket, Backlog::new(64).expect("a backlog")).expect("listening");
        let listener = std::net::TcpListener::from(socket);
        let listener = TcpListener::from_std(listener).expect("a listener");
        let acceptor = leaf.acceptor();
        all.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Whoever comes is shown the certificate, and may leave.
                let _ = acceptor.accept(stream).await;
            }
        });
    }
    all
}
