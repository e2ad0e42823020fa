//! Clients that keep their connections, with one request in flight on each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::future::try_join_all;
use rustls::RootCertStore;
use sesame_tests::client::{Connection, Request};
use sesame_tests::http3;

#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    Http1,
    Http2,
    Http3,
}

impl Protocol {
    pub(super) const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Http3];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

enum Client {
    Tcp(Box<(Connection, Request)>),
    Quic(Box<http3::Connection>, String),
}

pub(super) struct Clients {
    open: Vec<(Client, Vec<Duration>)>,
}

impl Clients {
    /// Opens all connections, and sends a request on each.
    pub(super) async fn open(
        protocol: Protocol,
        address: SocketAddr,
        host: &str,
        trust: &Arc<RootCertStore>,
        connections: usize,
    ) -> anyhow::Result<Self> {
        let request = Request::get(address, host, "/").tls(host, trust);
        let mut open = Vec::new();
        for _ in 0..connections {
            let client = match protocol {
                Protocol::Http1 | Protocol::Http2 => {
                    let request = match protocol {
                        Protocol::Http2 => request.clone().http2(),
                        _ => request.clone(),
                    };
                    Client::Tcp(Box::new((Connection::open(&request).await?, request)))
                }
                Protocol::Http3 => {
                    let opened = http3::Connection::open(address.ip(), address, host, trust);
                    Client::Quic(Box::new(opened.await?), host.to_owned())
                }
            };
            open.push((client, Vec::new()));
        }
        let mut clients = Self { open };
        clients.send(1).await?;
        for (_, latencies) in &mut clients.open {
            latencies.clear();
        }
        Ok(clients)
    }

    /// Returns the time until all responses have arrived.
    pub(super) async fn send(&mut self, each: usize) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let clients = self.open.drain(..).map(|client| {
            let sent = tokio::spawn(send(client, each));
            async { sent.await? }
        });
        self.open = try_join_all(clients).await?;
        Ok(start.elapsed())
    }

    pub(super) fn into_latencies(self) -> Vec<Duration> {
        self.open.into_iter().flat_map(|(_, it)| it).collect()
    }
}

async fn send(
    (mut client, mut latencies): (Client, Vec<Duration>),
    requests: usize,
) -> anyhow::Result<(Client, Vec<Duration>)> {
    for _ in 0..requests {
        let start = Instant::now();
        let reply = match &mut client {
            Client::Tcp(open) => {
                let (connection, request) = open.as_mut();
                connection.send(request).await?
            }
            Client::Quic(connection, host) => connection.get(host, "/").await?,
        };
        latencies.push(start.elapsed());
        ensure!(reply.status == 200, "status {}", reply.status);
    }
    Ok((client, latencies))
}
