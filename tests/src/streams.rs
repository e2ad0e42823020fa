//! Long-lived streams over TCP, TLS passthrough, WebSocket and gRPC. A stream records when its
//! connection is cut, and reconnects.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::SinkExt as _;
use futures::channel::mpsc;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A stream counts as cut if an echo takes longer than this.
const SILENT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// A kind of stream and its parameters.
#[derive(Clone)]
pub enum Kind {
    /// Plain bytes over TCP.
    Tcp,
    /// TLS that the backend terminates, with the server name and the trusted authorities.
    PassThrough(String, Arc<RootCertStore>),
    /// HTTP/1.1, upgraded to WebSocket.
    WebSocket(String),
    /// A bidirectional gRPC call.
    Grpc(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::PassThrough(..) => "TLS",
            Self::WebSocket(_) => "WebSocket",
            Self::Grpc(_) => "gRPC",
        })
    }
}

/// Starts a server that echoes every byte, over TLS if `tls` is set.
pub async fn echo(tls: Option<TlsAcceptor>) -> SocketAddr {
    echo_at((Ipv4Addr::LOCALHOST, 0).into(), tls).await
}

/// Like [`echo`], but on the given address.
pub async fn echo_at(address: SocketAddr, tls: Option<TlsAcceptor>) -> SocketAddr {
    let listener = TcpListener::bind(address).await.expect("a port");
    let address = listener.local_addr().expect("the socket is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let mut stream: Box<dyn Bytestream> = match tls {
                    None => Box::new(stream),
                    Some(tls) => Box::new(tls.accept(stream).await?),
                };
                let mut buffer = [0; 1024];
                loop {
                    let length = stream.read(&mut buffer).await?;
                    if length == 0 {
                        return Ok::<_, std::io::Error>(());
                    }
                    stream.write_all(&buffer[..length]).await?;
                }
            });
        }
    });
    address
}

/// Starts a server that echoes gRPC messages as they arrive.
pub async fn grpc_echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("the socket is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: Request<Incoming>| async {
                let mut response = Response::new(request.into_body());
                let value = hyper::header::HeaderValue::from_static("application/grpc");
                response
                    .headers_mut()
                    .insert(hyper::header::CONTENT_TYPE, value);
                Ok::<_, std::convert::Infallible>(response)
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    address
}

trait Bytestream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytestream for T {}

enum Open {
    Bytes(Box<dyn Bytestream>),
    Call {
        questions: mpsc::Sender<Result<Frame<Bytes>, std::convert::Infallible>>,
        answers: Incoming,
    },
}

impl Open {
    async fn new(kind: &Kind, address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("connect")?;
        stream.set_nodelay(true)?;
        Ok(match kind {
            Kind::Tcp => Self::Bytes(Box::new(stream)),
            Kind::PassThrough(name, trust) => {
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let config = ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()?
                    .with_root_certificates(Arc::clone(trust))
                    .with_no_client_auth();
                let name = ServerName::try_from(name.clone())?;
                let connector = TlsConnector::from(Arc::new(config));
                Self::Bytes(Box::new(connector.connect(name, stream).await?))
            }
            Kind::WebSocket(host) => Self::Bytes(Box::new(upgrade(host, stream).await?)),
            Kind::Grpc(host) => {
                let (mut sender, connection) = hyper::client::conn::http2::handshake(
                    TokioExecutor::new(),
                    TokioIo::new(stream),
                )
                .await?;
                tokio::spawn(connection);
                let (questions, body) = mpsc::channel(1);
                let request = Request::post(format!("http://{host}/echo.Echo/Stream"))
                    .header("content-type", "application/grpc")
                    .header("te", "trailers")
                    .body(StreamBody::new(body))?;
                let response = sender.send_request(request).await?;
                if response.status() != hyper::StatusCode::OK
                    || response.headers().contains_key("grpc-status")
                {
                    bail!("unexpected response to the call: {:?}", response.headers());
                }
                Self::Call {
                    questions,
                    answers: response.into_body(),
                }
            }
        })
    }

    async fn ask(&mut self) -> Result<()> {
        // A gRPC frame: a flag byte, the length, and the message.
        const QUESTION: [u8; 9] = *b"\0\0\0\0\x04ping";
        match self {
            Self::Bytes(stream) => {
                stream.write_all(&QUESTION).await?;
                let mut answer = [0; QUESTION.len()];
                stream.read_exact(&mut answer).await?;
            }
            Self::Call { questions, answers } => {
                let frame = Frame::data(Bytes::from_static(&QUESTION));
                questions.send(Ok(frame)).await?;
                let mut left = QUESTION.len();
                while left > 0 {
                    let frame = answers.frame().await.context("the call was closed")??;
                    let data = frame.into_data().ok().context("the call was closed")?;
                    left = left.saturating_sub(data.len());
                }
            }
        }
        Ok(())
    }
}

async fn upgrade(host: &str, mut stream: TcpStream) -> Result<TcpStream> {
    let request = format!(
        "GET /stream HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(
            stream
                .read_u8()
                .await
                .context("no response to the upgrade")?,
        );
    }
    if !head.starts_with(b"HTTP/1.1 101") {
        bail!(
            "unexpected response to the upgrade: {}",
            String::from_utf8_lossy(&head)
        );
    }
    Ok(stream)
}

/// A running stream, which is reopened whenever it is cut.
pub struct LongStream {
    stop: Arc<AtomicBool>,
    task: JoinHandle<StreamReport>,
}

/// The history of a stream.
#[derive(Debug)]
pub struct StreamReport {
    /// The kind of stream.
    pub kind: String,
    /// Times at which each connection was opened and closed.
    pub lives: Vec<(Instant, Instant)>,
    /// Reasons for failed attempts to open the stream.
    pub failures: Vec<(Instant, String)>,
}

impl LongStream {
    /// Opens the stream, and reopens it when cut until [`Self::stop`].
    pub fn start(kind: Kind, address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut report = StreamReport {
                kind: kind.to_string(),
                lives: Vec::new(),
                failures: Vec::new(),
            };
            while !stopped.load(Ordering::Relaxed) {
                let since = Instant::now();
                let opened = tokio::time::timeout(SILENT, async {
                    let mut open = Open::new(&kind, address).await?;
                    open.ask().await?;
                    anyhow::Ok(open)
                });
                let mut open = match opened.await {
                    Ok(Ok(open)) => open,
                    Ok(Err(error)) => {
                        report.failures.push((since, format!("{error:#}")));
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    Err(_) => {
                        report.failures.push((since, "timed out".to_owned()));
                        continue;
                    }
                };
                loop {
                    if stopped.load(Ordering::Relaxed) {
                        return report;
                    }
                    if !matches!(tokio::time::timeout(SILENT, open.ask()).await, Ok(Ok(()))) {
                        report.lives.push((since, Instant::now()));
                        break;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
            report
        });
        Self { stop, task }
    }

    /// Stops the stream and returns its history.
    pub async fn stop(self) -> StreamReport {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the task does not panic")
    }
}

impl StreamReport {
    /// Panics if the stream was cut less than `drain` after its Envoy started draining.
    pub fn assert_announced(&self, restarts: &[(Instant, Instant)], drain: Duration) {
        assert!(
            self.failures.is_empty(),
            "{}: {:?}",
            self.kind,
            self.failures
        );
        for (opened, cut) in &self.lives {
            // The stream's Envoy was replaced by the first restart that ended after the stream
            // opened.
            let concerns = restarts.iter().find(|(_, end)| end > opened);
            let since = concerns.map(|(begin, _)| cut.saturating_duration_since(*begin));
            assert!(
                since.is_some_and(|since| since >= drain),
                "{}: cut {:?} after opening, {since:?} after the restart began",
                self.kind,
                *cut - *opened
            );
        }
    }
}
