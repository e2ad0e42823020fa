//! HTTP/3 with a client that is not part of this project: curl's library, as a package ships it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde_json::json;
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::curl;
use sesame_tests::manifests::{class_with_parameters, gateway, https_listener, plain_route, yaml};
use sesame_tests::wait::eventually;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// A port that clients use, like a load balancer's: forwards connections and datagrams to
/// another port.
struct OutsidePort {
    tcp: TcpListener,
    udp: Arc<UdpSocket>,
}

impl OutsidePort {
    async fn open() -> Self {
        for _ in 0..100 {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let tcp = tcp.expect("a port");
            // Another process may use the number over UDP.
            let address = tcp.local_addr().expect("the socket is bound");
            if let Ok(udp) = UdpSocket::bind(address).await {
                let udp = Arc::new(udp);
                return Self { tcp, udp };
            }
        }
        panic!("no port is free over TCP and UDP");
    }

    fn address(&self) -> SocketAddr {
        self.tcp.local_addr().expect("the socket is bound")
    }

    fn forward(self, to: SocketAddr) {
        let Self { tcp, udp } = self;
        tokio::spawn(async move {
            while let Ok((mut client, _)) = tcp.accept().await {
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(to).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        tokio::spawn(async move {
            let mut sessions: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
            let mut datagram = vec![0; 65_536];
            while let Ok((length, client)) = udp.recv_from(&mut datagram).await {
                let server = match sessions.entry(client) {
                    Entry::Occupied(known) => Arc::clone(known.get()),
                    Entry::Vacant(new) => {
                        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await;
                        let server = Arc::new(server.expect("a port"));
                        tokio::spawn(answer(Arc::clone(&server), Arc::clone(&udp), client));
                        Arc::clone(new.insert(server))
                    }
                };
                let _ = server.send_to(&datagram[..length], to).await;
            }
        });
    }
}

async fn answer(server: Arc<UdpSocket>, udp: Arc<UdpSocket>, client: SocketAddr) {
    let mut datagram = vec![0; 65_536];
    while let Ok((length, _)) = server.recv_from(&mut datagram).await {
        let _ = udp.send_to(&datagram[..length], client).await;
    }
}

/// The port that hosts open differs from the one that clients use and that `alt-svc` announces.
#[tokio::test(flavor = "multi_thread")]
async fn curl_of_a_package_follows_alt_svc_to_http3() {
    let servers = Authority::new("gateway");
    let outside = OutsidePort::open().await;
    let address = outside.address();
    let settings = json!({"edge": {"http3": {}}});
    let [parameters, class] = class_with_parameters("edge", "parameters", &settings);
    let listeners = [https_listener("https", address.port(), "a.test", "cert")];
    let mut all = vec![parameters, class, gateway("edge", &listeners)];
    let _backends = start_served(&["a"], &mut all).await;
    all.push(servers.issue(&["a.test"]).secret("cert"));
    all.push(plain_route("web", "a.test", "a"));
    let agent = Setup::with_ports(&[address.port()]).start(&[("all.yaml", &yaml(&all))]);
    let inside = agent.address(address.port());
    assert_ne!(inside.port(), address.port());
    outside.forward(inside);
    // Envoy may not listen yet.
    eventually("HTTP/2 and HTTP/3", TEST_TIMEOUT, async || {
        curl::fetches_over_http3("a.test", address, servers.pem())
    })
    .await;
}
