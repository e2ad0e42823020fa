//! The requests of the load, one kind of traffic each, over new and kept connections.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustls::RootCertStore;
use sesame_tests::client::{self, Reply, Request};
use sesame_tests::http3;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A failure takes at most this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// In its last second, a replaced Envoy asks clients to reconnect. A connection that was not used
/// for this long may be closed at any moment.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
const MESSAGE: [u8; 4] = *b"ping";

/// A request that is repeated.
#[derive(Clone)]
pub(crate) enum Probe {
    /// HTTP/1.1 or HTTP/2, and the only accepted status.
    Http(Box<Request>, u16),
    /// HTTP/3, which gets status 200.
    Http3 {
        server: SocketAddr,
        host: String,
        trust: Arc<RootCertStore>,
    },
    /// A message that a TCP server echoes.
    Tcp(SocketAddr),
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    /// A request that a running Envoy must serve.
    Request,
    /// A request over a kept HTTP/3 connection, which may end if an agent stops during a handover.
    Http3Connection,
    /// A kept TCP connection, which ends after its Envoy has drained.
    TcpConnection,
    /// A request that was served, but must be denied.
    Leak,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) loss: Loss,
    pub(crate) cause: String,
}

/// A connection that was used successfully.
pub(crate) struct Kept {
    connection: Connection,
    pub(crate) used: Instant,
}

enum Connection {
    Http(client::Connection),
    Http3(http3::Connection),
    Tcp(TcpStream),
}

impl Probe {
    /// Sends the request over the kept connection, if there is a usable one. Then keeps the
    /// connection.
    pub(crate) async fn send(&self, kept: &mut Option<Kept>) -> Result<(), Failed> {
        let mut loss = Loss::Request;
        let mut sent = None;
        if let Some(mut kept) = kept.take()
            && kept.is_usable().await
        {
            loss = kept.loss();
            sent = Some(self.exchange(Some(kept.connection)).await);
        }
        let sent = match sent {
            Some(Err(error)) if !is_unsent(&error) => Err(error),
            Some(Ok(sent)) => Ok(sent),
            None | Some(Err(_)) => {
                loss = Loss::Request;
                self.exchange(None).await
            }
        };
        let (connection, reply) = sent.map_err(|error| Failed {
            loss,
            cause: format!("{error:#}"),
        })?;
        if let Some(reply) = reply {
            self.check(&reply)?;
        }
        *kept = Some(Kept {
            connection,
            used: Instant::now(),
        });
        Ok(())
    }

    fn check(&self, reply: &Reply) -> Result<(), Failed> {
        let expected = match self {
            Self::Http(_, expected) => *expected,
            Self::Http3 { .. } | Self::Tcp(_) => 200,
        };
        if reply.status == expected {
            return Ok(());
        }
        let is_leak = expected >= 400 && reply.status < 400;
        Err(Failed {
            loss: if is_leak { Loss::Leak } else { Loss::Request },
            cause: describe(reply),
        })
    }

    /// Returns the used connection, and the reply to an HTTP request.
    async fn exchange(&self, kept: Option<Connection>) -> Result<(Connection, Option<Reply>)> {
        let (connection, reply) = match self {
            Self::Http(request, _) => {
                let kept = match kept {
                    Some(Connection::Http(kept)) => Some(kept),
                    _ => None,
                };
                let (connection, reply) = over_http(request, kept).await?;
                (Connection::Http(connection), Some(reply))
            }
            Self::Http3 {
                server,
                host,
                trust,
            } => {
                let kept = match kept {
                    Some(Connection::Http3(kept)) => Some(kept),
                    _ => None,
                };
                let (connection, reply) = over_http3(*server, host, trust, kept).await?;
                (Connection::Http3(connection), Some(reply))
            }
            Self::Tcp(server) => {
                let kept = match kept {
                    Some(Connection::Tcp(kept)) => Some(kept),
                    _ => None,
                };
                let echoed = timeout(PATIENCE, over_tcp(*server, kept)).await;
                let connection = echoed.context("no echo in time")??;
                (Connection::Tcp(connection), None)
            }
        };
        Ok((connection, reply))
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(request, _) => request.fmt(f),
            Self::Http3 { host, .. } => write!(f, "GET {host}/ over HTTP/3"),
            Self::Tcp(server) => write!(f, "echo of TCP port {}", server.port()),
        }
    }
}

impl Kept {
    async fn is_usable(&mut self) -> bool {
        let is_recent = self.used.elapsed() < LONGEST_PAUSE;
        match &mut self.connection {
            Connection::Http(connection) => is_recent && connection.is_open().await,
            Connection::Http3(connection) => is_recent && connection.is_open(),
            // Only a cut closes it.
            Connection::Tcp(_) => true,
        }
    }

    fn loss(&self) -> Loss {
        match self.connection {
            Connection::Http(_) => Loss::Request,
            Connection::Http3(_) => Loss::Http3Connection,
            Connection::Tcp(_) => Loss::TcpConnection,
        }
    }
}

async fn over_http(
    request: &Request,
    kept: Option<client::Connection>,
) -> Result<(client::Connection, Reply)> {
    let mut connection = match kept {
        Some(connection) => connection,
        None => client::Connection::open(request).await?,
    };
    let reply = connection.send(request).await?;
    Ok((connection, reply))
}

async fn over_http3(
    server: SocketAddr,
    host: &str,
    trust: &Arc<RootCertStore>,
    kept: Option<http3::Connection>,
) -> Result<(http3::Connection, Reply)> {
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut connection = if let Some(connection) = kept {
        connection
    } else {
        let opened = http3::Connection::open(client, server, host, trust);
        timeout(PATIENCE, opened)
            .await
            .context("no handshake in time")??
    };
    let reply = timeout(PATIENCE, connection.get(host, "/")).await;
    let reply = reply.context("no response in time")??;
    Ok((connection, reply))
}

async fn over_tcp(server: SocketAddr, kept: Option<TcpStream>) -> Result<TcpStream> {
    let mut stream = match kept {
        Some(stream) => stream,
        None => TcpStream::connect(server).await.context("connect")?,
    };
    stream.set_nodelay(true)?;
    stream.write_all(&MESSAGE).await.context("write")?;
    let mut echo = [0; MESSAGE.len()];
    stream.read_exact(&mut echo).await.context("read")?;
    ensure!(echo == MESSAGE, "the echo is {echo:?}");
    Ok(stream)
}

/// Returns true if the server closed the connection before the request was sent.
fn is_unsent(error: &anyhow::Error) -> bool {
    let over_http = error.downcast_ref::<hyper::Error>();
    http3::is_unsent(error) || over_http.is_some_and(hyper::Error::is_canceled)
}

fn describe(reply: &Reply) -> String {
    let body = String::from_utf8_lossy(&reply.body);
    let start: String = body.trim().chars().take(80).collect();
    format!("status {}: {start}", reply.status)
}
