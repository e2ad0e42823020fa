//! Additional sockets on Envoy's port, as if a second proxy ran on the host.

use std::net::SocketAddr;

use nix::sys::socket::sockopt::ReusePort;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::certs::Leaf;

/// Number of sockets, enough to receive nearly all connections instead of Envoy.
const SOCKETS: usize = 200;

/// Opens additional sockets on Envoy's port with a different certificate.
pub fn open_rival_sockets(address: SocketAddr, leaf: &Leaf) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for _ in 0..SOCKETS {
        let kind = (
            AddressFamily::Inet,
            SockType::Stream,
            // Without CLOEXEC, child processes would inherit the socket but never accept from it.
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
                // The client may reject the certificate.
                let _ = acceptor.accept(stream).await;
            }
        });
    }
    all
}
