//! An in-process echo backend for HTTP/1.1, HTTP/2 with prior knowledge, and gRPC, with or without
//! TLS. It echoes every byte after an upgrade to `websocket` or `SPDY/3.1`. Path elements such as
//! `status/503`, `delay/500ms`, `vary/Accept`, `location/there` and `secure/location/there` control
//! the response.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::certs::{Authority, Leaf};
use crate::echo::{Echo, EchoTls};
use crate::grpc;

const LONGEST_DELAY: Duration = Duration::from_secs(30);

const UPGRADES: [&str; 2] = ["websocket", "SPDY/3.1"];

/// Maximum number of requests that a backend keeps; further requests are only counted.
const REMEMBERED: usize = 10_000;

/// A running echo backend, which stops on drop.
pub struct Backend {
    name: String,
    address: SocketAddr,
    seen: Arc<Seen>,
    closing: watch::Sender<bool>,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Echo>>,
    count: std::sync::atomic::AtomicU64,
}

impl Backend {
    /// Starts a backend on a free port on 127.0.0.1.
    pub async fn start(name: &str) -> Self {
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        Self::start_at(name, anywhere)
            .await
            .expect("127.0.0.1 has a free port")
    }

    /// Starts a backend on the given address.
    pub async fn start_at(name: &str, address: SocketAddr) -> io::Result<Self> {
        Self::listen(name, address, None, true).await
    }

    /// Starts a TLS backend that presents the given certificate.
    pub async fn start_tls(name: &str, leaf: &Leaf) -> Self {
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        Self::listen(name, anywhere, Some(leaf.acceptor()), false)
            .await
            .expect("127.0.0.1 has a free port")
    }

    /// Starts a backend that accepts both TLS and plaintext.
    pub async fn start_either(name: &str, leaf: &Leaf) -> Self {
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        Self::listen(name, anywhere, Some(leaf.acceptor()), true)
            .await
            .expect("127.0.0.1 has a free port")
    }

    /// Starts a TLS backend that requires a client certificate issued by `clients`.
    pub async fn start_mutual_tls(name: &str, leaf: &Leaf, clients: &Authority) -> Self {
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        Self::start_mutual_tls_at(name, anywhere, leaf, clients)
            .await
            .expect("127.0.0.1 has a free port")
    }

    /// Like [`Self::start_mutual_tls`], but on the given address.
    pub async fn start_mutual_tls_at(
        name: &str,
        address: SocketAddr,
        leaf: &Leaf,
        clients: &Authority,
    ) -> io::Result<Self> {
        let acceptor = leaf.acceptor_for(Some(clients.trust()));
        Self::listen(name, address, Some(acceptor), false).await
    }

    /// Starts a TLS backend with the given acceptor.
    pub async fn start_accepting(name: &str, acceptor: TlsAcceptor) -> Self {
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        Self::listen(name, anywhere, Some(acceptor), false)
            .await
            .expect("127.0.0.1 has a free port")
    }

    async fn listen(
        name: &str,
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        plain: bool,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (closing, closed) = watch::channel(false);
        let seen = Arc::new(Seen::default());
        let echo = Echoing {
            name: name.to_owned(),
            seen: Arc::clone(&seen),
            tls,
            plain,
        };
        tokio::spawn(accept(listener, echo, closed));
        Ok(Self {
            name: name.to_owned(),
            address,
            seen,
            closing,
        })
    }

    /// Returns the name in the backend's responses.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address on which the backend listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests received so far.
    pub fn count(&self) -> u64 {
        self.seen.count.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Returns the first 10,000 requests received.
    pub fn requests(&self) -> Vec<Echo> {
        self.seen
            .requests
            .lock()
            .expect("no panic under this lock")
            .clone()
    }

    /// Stops listening, lets in-flight requests finish, and closes all connections.
    pub async fn close(self) {
        self.closing.send_replace(true);
        self.closing.closed().await;
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.closing.send_replace(true);
    }
}

#[derive(Clone)]
struct Echoing {
    name: String,
    seen: Arc<Seen>,
    tls: Option<TlsAcceptor>,
    /// Accepts plaintext in addition to TLS.
    plain: bool,
}

async fn accept(listener: TcpListener, echo: Echoing, mut closed: watch::Receiver<bool>) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The process is out of file descriptors, or the peer has disconnected.
                Err(_) => continue,
            },
            _ = closed.wait_for(|closed| *closed) => return,
        };
        let _ = stream.set_nodelay(true);
        tokio::spawn(start(stream, echo.clone(), closed.clone()));
    }
}

async fn start(stream: TcpStream, echo: Echoing, closed: watch::Receiver<bool>) {
    // A TLS connection starts with a handshake record, whose type is 0x16.
    let mut first = [0];
    let begins_tls = !echo.plain || stream.peek(&mut first).await.is_ok() && first == [0x16];
    if let (Some(tls), true) = (&echo.tls, begins_tls) {
        // A client that rejects the certificate closes the connection.
        if let Ok(stream) = tls.accept(stream).await {
            let session = stream.get_ref().1;
            let http2 = session.alpn_protocol() == Some(b"h2");
            let seen = EchoTls {
                server_name: session.server_name().unwrap_or_default().to_owned(),
                client_certificate: session
                    .peer_certificates()
                    .and_then(<[_]>::first)
                    .map(|leaf| STANDARD.encode(leaf))
                    .unwrap_or_default(),
            };
            serve(stream, http2, Some(seen), echo, closed).await;
        }
        return;
    }
    // Every HTTP/2 connection starts with "PRI * HTTP/2.0".
    let mut start = [0; 3];
    let http2 = loop {
        match stream.peek(&mut start).await {
            Ok(3) => break &start == b"PRI",
            Ok(1 | 2) => tokio::task::yield_now().await,
            Ok(_) | Err(_) => return,
        }
    };
    serve(stream, http2, None, echo, closed).await;
}

async fn serve<S>(
    stream: S,
    http2: bool,
    tls: Option<EchoTls>,
    echo: Echoing,
    closed: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let Echoing { name, seen, .. } = echo.clone();
        let tls = tls.clone();
        async move {
            let grpc = grpc::is_request(request.headers());
            if let Some(times) = grpc::returned_times(request.headers()).filter(|_| grpc) {
                return Ok(grpc::returned(request, times).await);
            }
            let response = answer(request, name, tls, seen).await?;
            Ok::<_, Infallible>(if grpc {
                grpc::answer(response).await
            } else {
                response.map(BodyExt::boxed)
            })
        }
    });
    let io = TokioIo::new(stream);
    if http2 {
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        if until_closed(connection.as_mut(), closed).await {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    } else {
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(io, service)
            .with_upgrades();
        let mut connection = pin!(connection);
        if until_closed(connection.as_mut(), closed).await {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Returns true if the backend closed the connection.
async fn until_closed<F: Future>(connection: F, mut closed: watch::Receiver<bool>) -> bool {
    tokio::select! {
        _ = connection => false,
        _ = closed.wait_for(|closed| *closed) => true,
    }
}

async fn answer(
    mut request: Request<Incoming>,
    name: String,
    tls: Option<EchoTls>,
    seen: Arc<Seen>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let echo = echo(&request, name, tls);
    seen.count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    {
        let mut requests = seen.requests.lock().expect("no panic under this lock");
        if requests.len() < REMEMBERED {
            requests.push(echo.clone());
        }
    }
    let asked_for = request.headers().get(header::UPGRADE).cloned();
    let upgrade = asked_for.filter(|value| UPGRADES.iter().any(|it| value == it));
    if let Some(protocol) = upgrade {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(send_everything_back(upgrade));
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
        return Ok(response);
    }
    // Read the whole body, because closing with unread data would reset the connection.
    let _ = request.body_mut().collect().await;
    let path = request.uri().path();
    if let Some(delay) = asked(path, "delay").and_then(|text| text.strip_suffix("ms")?.parse().ok())
    {
        tokio::time::sleep(Duration::from_millis(delay).min(LONGEST_DELAY)).await;
    }
    let status = asked(path, "status")
        .and_then(|text| StatusCode::from_bytes(text.as_bytes()).ok())
        .unwrap_or(StatusCode::OK);
    let mut body = serde_json::to_vec(&echo).expect("an echo is JSON");
    body.push(b'\n');
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(
        "x-backend",
        HeaderValue::from_str(&echo.backend).expect("names are plain"),
    );
    if let Some(vary) = asked(path, "vary").and_then(|names| HeaderValue::from_str(names).ok()) {
        headers.insert(header::VARY, vary);
    }
    let scheme = if asked(path, "secure").is_some() {
        "https"
    } else {
        "http"
    };
    let location = asked(path, "location").map(|to| format!("{scheme}://{}/{to}", echo.host));
    if let Some(location) = location.and_then(|it| HeaderValue::from_str(&it).ok()) {
        headers.insert(header::LOCATION, location);
    }
    Ok(response)
}

fn echo(request: &Request<Incoming>, backend: String, tls: Option<EchoTls>) -> Echo {
    let host = match request.uri().authority() {
        Some(authority) => authority.to_string(),
        None => text(request.headers().get(header::HOST)),
    };
    Echo {
        backend,
        protocol: format!("{:?}", request.version()),
        method: request.method().to_string(),
        host,
        path: request
            .uri()
            .path_and_query()
            .map(ToString::to_string)
            .unwrap_or_default(),
        headers: request
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), text(Some(value))))
            .collect(),
        tls,
    }
}

fn text(value: Option<&HeaderValue>) -> String {
    value
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default()
}

fn asked<'a>(path: &'a str, word: &str) -> Option<&'a str> {
    let mut elements = path.split('/');
    elements.find(|element| *element == word)?;
    elements.next()
}

async fn send_everything_back(upgrade: hyper::upgrade::OnUpgrade) {
    if let Ok(upgraded) = upgrade.await {
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Request;

    #[tokio::test]
    async fn backend_echoes_requests_over_both_protocols() {
        let backend = Backend::start("a").await;
        for (http2, protocol) in [(false, "HTTP/1.1"), (true, "HTTP/2.0")] {
            let mut request = Request::get(backend.address(), "host.example.com", "/p?q=1")
                .header("x-one", "1")
                .header("x-one", "2");
            if http2 {
                request = request.http2();
            }
            let echo = request.send().await.expect("an answer").echo();
            assert_eq!(echo.backend, "a");
            assert_eq!(echo.protocol, protocol);
            assert_eq!(echo.method, "GET");
            assert_eq!(echo.host, "host.example.com");
            assert_eq!(echo.path, "/p?q=1");
            assert_eq!(echo.values("x-one"), ["1", "2"]);
        }
        assert_eq!(backend.count(), 2);
        assert_eq!(backend.requests().len(), 2);
    }

    #[tokio::test]
    async fn path_selects_status_and_delay() {
        let backend = Backend::start("a").await;
        let reply = Request::get(backend.address(), "h", "/x/status/503")
            .send()
            .await
            .expect("an answer");
        assert_eq!(reply.status, 503);
        let late = Request::get(backend.address(), "h", "/delay/20000ms")
            .timeout(Duration::from_millis(50))
            .send()
            .await;
        assert!(late.expect_err("too late").to_string().contains("50ms"));
    }

    #[tokio::test]
    async fn websocket_echoes_messages() {
        let backend = Backend::start("a").await;
        let request = Request::get(backend.address(), "h", "/ws");
        assert_eq!(
            request.websocket(b"hello").await.expect("an upgrade"),
            b"hello"
        );
    }

    #[tokio::test]
    async fn backend_close_finishes_active_request_and_frees_port() {
        // Only this test uses this address, so no other test can take the freed port.
        let own = (Ipv4Addr::new(127, 83, 69, 85), 0).into();
        let backend = Backend::start_at("a", own).await.expect("a port");
        let address = backend.address();
        let slow = Request::get(address, "h", "/delay/300ms");
        let under_way = tokio::spawn(async move { slow.send().await });
        crate::wait::eventually("the request arrives", Duration::from_secs(60), async || {
            crate::wait::holds(backend.count() == 1, || "not yet".into())
        })
        .await;
        backend.close().await;
        assert_eq!(
            under_way
                .await
                .expect("no panic")
                .expect("an answer")
                .status,
            200
        );
        assert!(Request::get(address, "h", "/").send().await.is_err());
    }
}
