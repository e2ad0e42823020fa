//! An HTTP client without defaults or retries. Callers choose address, host, SNI and trusted
//! authorities independently.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certs::Leaf;
use crate::echo::Echo;

/// A request, its destination and its TLS settings.
#[derive(Clone, Debug)]
pub struct Request {
    address: SocketAddr,
    method: Method,
    host: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
    http2: bool,
    tls: Option<Tls>,
    timeout: Duration,
}

#[derive(Clone, Debug)]
struct Tls {
    sni: String,
    trust: Arc<RootCertStore>,
    shown: Option<Leaf>,
}

impl Request {
    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates a GET request; `path` may include a query.
    pub fn get(address: SocketAddr, host: &str, path: &str) -> Self {
        Self {
            address,
            method: Method::GET,
            host: host.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
            http2: false,
            tls: None,
            timeout: Duration::from_secs(20),
        }
    }

    /// Sets the method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = Method::from_bytes(method.as_bytes()).expect("a method");
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Uses HTTP/2: by ALPN after [`Request::tls`], and otherwise with prior knowledge.
    #[must_use]
    pub fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// Uses TLS with this SNI, and trusts only these authorities.
    #[must_use]
    pub fn tls(mut self, sni: &str, trust: &Arc<RootCertStore>) -> Self {
        self.tls = Some(Tls {
            sni: sni.to_owned(),
            trust: Arc::clone(trust),
            shown: None,
        });
        self
    }

    /// Presents a client certificate. Call [`Self::tls`] first.
    #[must_use]
    pub fn showing(mut self, leaf: &Leaf) -> Self {
        self.tls.as_mut().expect("TLS").shown = Some(leaf.clone());
        self
    }

    /// Sets the timeout for connecting and receiving the response, by default 20 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends the request over a new connection.
    pub async fn send(&self) -> Result<Reply> {
        let mut connection = Connection::open(self).await?;
        connection.send(self).await
    }

    /// Upgrades to `websocket`, sends `message`, and reads the same number of bytes back.
    pub async fn websocket(&self, message: &[u8]) -> Result<Vec<u8>> {
        self.upgraded("websocket", message).await
    }

    /// Upgrades to `protocol`, sends `message`, and reads the same number of bytes back.
    pub async fn upgraded(&self, protocol: &'static str, message: &[u8]) -> Result<Vec<u8>> {
        let exchange = async {
            let mut connection = Connection::open(self).await?;
            let Sender::Http1(sender) = &mut connection.sender else {
                bail!("an upgrade needs HTTP/1.1");
            };
            let mut request = self.message()?.map(Full::new);
            for (name, value) in [
                ("connection", "upgrade"),
                ("upgrade", protocol),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
            ] {
                request
                    .headers_mut()
                    .insert(name, HeaderValue::from_static(value));
            }
            let response = sender.send_request(request).await.context("upgrade")?;
            if response.status() != hyper::StatusCode::SWITCHING_PROTOCOLS {
                bail!("the upgrade got status {}", response.status());
            }
            let upgraded = hyper::upgrade::on(response).await.context("upgrade")?;
            let mut stream = TokioIo::new(upgraded);
            stream.write_all(message).await.context("write")?;
            let mut answer = vec![0; message.len()];
            stream.read_exact(&mut answer).await.context("read")?;
            Ok(answer)
        };
        self.in_time(exchange).await
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(self.timeout, work)
            .await
            .unwrap_or_else(|_| bail!("no answer within {:?}", self.timeout))
    }

    /// Returns the message, for other clients.
    pub fn message(&self) -> Result<hyper::Request<Bytes>> {
        let mut request = hyper::Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let headers = request.headers_mut();
        if !self.http2 {
            headers.insert(hyper::header::HOST, HeaderValue::from_str(&self.host)?);
        }
        for (name, value) in &self.headers {
            headers.append(
                HeaderName::from_bytes(name.as_bytes())?,
                HeaderValue::from_str(value)?,
            );
        }
        *request.uri_mut() = if self.http2 {
            Uri::builder()
                .scheme(scheme)
                .authority(self.host.as_str())
                .path_and_query(self.path.as_str())
                .build()?
        } else {
            self.path.parse()?
        };
        Ok(request)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address: _,
            method,
            host,
            path,
            headers,
            body: _,
            http2,
            tls,
            timeout: _,
        } = self;
        write!(f, "{method} {host}{path}")?;
        for (name, value) in headers {
            write!(f, " [{name}: {value}]")?;
        }
        if *http2 {
            write!(f, " over HTTP/2")?;
        }
        if let Some(Tls {
            sni,
            trust: _,
            shown,
        }) = tls
        {
            write!(f, " with SNI {sni}")?;
            if shown.is_some() {
                write!(f, " and a certificate")?;
            }
        }
        Ok(())
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The trailers.
    pub trailers: HeaderMap,
    /// The leaf certificate that the server presented.
    pub certificate: Option<CertificateDer<'static>>,
}

impl Reply {
    /// Returns a header's value if it occurs exactly once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }

    /// Returns all values of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect()
    }

    /// Returns the request as received by an echo backend. Panics for other servers.
    pub fn echo(&self) -> Echo {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            let body = String::from_utf8_lossy(&self.body);
            panic!(
                "status {}: not an echo backend's response ({error}): {body}",
                self.status
            )
        })
    }

    /// Returns the name of the echo backend that responded, if any.
    pub fn backend(&self) -> Option<String> {
        serde_json::from_slice::<Echo>(&self.body)
            .ok()
            .map(|echo| echo.backend)
    }
}

/// A connection that can carry several requests in sequence.
pub struct Connection {
    sender: Sender,
    certificate: Option<CertificateDer<'static>>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// Connects as `request` specifies.
    pub async fn open(request: &Request) -> Result<Self> {
        request.in_time(Box::pin(Self::open_slowly(request))).await
    }

    async fn open_slowly(request: &Request) -> Result<Self> {
        let stream = TcpStream::connect(request.address)
            .await
            .with_context(|| format!("connect to {}", request.address))?;
        stream.set_nodelay(true)?;
        let Some(tls) = &request.tls else {
            return Ok(Self {
                sender: Sender::start(stream, request.http2).await?,
                certificate: None,
            });
        };
        let connector = TlsConnector::from(Arc::new(tls.config(request.http2)?));
        let name = ServerName::try_from(tls.sni.clone()).context("server name")?;
        let stream = connector
            .connect(name, stream)
            .await
            .context("TLS handshake")?;
        let (_, session) = stream.get_ref();
        if request.http2 && session.alpn_protocol() != Some(b"h2") {
            bail!("the server did not choose h2");
        }
        let certificate = session
            .peer_certificates()
            .and_then(<[CertificateDer]>::first)
            .map(|certificate| certificate.clone().into_owned());
        Ok(Self {
            sender: Sender::start(stream, request.http2).await?,
            certificate,
        })
    }

    /// Sends a request and reads the entire response.
    pub async fn send(&mut self, request: &Request) -> Result<Reply> {
        let certificate = self.certificate.clone();
        let message = request.message()?.map(Full::new);
        let sender = &mut self.sender;
        let exchange = async {
            let response = match sender {
                Sender::Http1(sender) => sender.send_request(message).await,
                Sender::Http2(sender) => sender.send_request(message).await,
            };
            let (parts, body) = response.context("send")?.into_parts();
            let body = body.collect().await.context("read the body")?;
            Ok(Reply {
                status: parts.status.as_u16(),
                headers: parts.headers,
                trailers: body.trailers().cloned().unwrap_or_default(),
                body: body.to_bytes(),
                certificate,
            })
        };
        request.in_time(exchange).await
    }

    /// Returns false if the server has closed the connection or is about to close it.
    pub async fn is_open(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }
}

impl Sender {
    async fn start<S>(stream: S, http2: bool) -> Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io)
                .await
                .context("HTTP/2 handshake")?;
            tokio::spawn(connection);
            Ok(Self::Http2(sender))
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(connection.with_upgrades());
            Ok(Self::Http1(sender))
        }
    }
}

impl Tls {
    fn config(&self, http2: bool) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.trust));
        let mut config = match &self.shown {
            None => config.with_no_client_auth(),
            Some(leaf) => config.with_client_auth_cert(vec![leaf.der.clone()], leaf.key()?)?,
        };
        config.alpn_protocols = vec![if http2 {
            b"h2".to_vec()
        } else {
            b"http/1.1".to_vec()
        }];
        Ok(config)
    }
}
