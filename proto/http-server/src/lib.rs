//! A small HTTP/1.1 server for endpoints that untrusted clients can reach: the controller's status
//! page, and the agent's health endpoint and local socket.
//!
//! A slow or hostile client must never affect the process or other clients. The number and duration
//! of connections are limited, and each connection serves one request. At the connection limit,
//! the oldest connection without a complete request is closed to make room for a new connection.
//! `page` builds pages for browsers, and `guard` admits only clients with a certificate or a token.
//!
//! ```
//! use http_body_util::Full;
//! use hyper::{Request, body::Incoming};
//! use sesame_http_server::{page::Page, serve};
//! use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! let server = tokio::spawn(serve(listener, |_: Request<Incoming>| async {
//!     let mut page = Page::new("Gateways");
//!     page.paragraph("1 < 2 Gateways are served.");
//!     page.response().map(Full::new)
//! }));
//!
//! let mut client = TcpStream::connect(address).await?;
//! client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer).await?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
//! assert!(answer.contains("1 &lt; 2 Gateways are served."));
//! server.abort();
//! # Ok(())
//! # }
//! ```

pub mod guard;
mod guarded;
pub mod page;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::Instant;

pub use self::guarded::{GuardedCallers, GuardedStream};

const MAX_CONNECTIONS: usize = 128;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Minimum time that each client gets to send its request, even at the connection limit.
const REQUEST_GRACE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(100);

/// Response extension that marks an endless stream, which has no timeout.
#[derive(Clone, Copy, Debug)]
pub struct Lasting;

/// Source of connections.
pub trait Callers: Send {
    /// Stream of a client connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Waits for the next client connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Callers for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

impl Callers for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

/// Serves clients until the future is dropped. Dropping the future closes all connections.
pub async fn serve<B>(callers: impl Callers, answer: impl AsyncAnswer<B>)
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let answer = Arc::new(answer);
    let mut connections = Connections::default();
    loop {
        connections.make_room().await;
        match callers.next().await {
            Ok(stream) => connections.add(stream, &answer),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Handles requests.
pub trait AsyncAnswer<B>: Send + Sync + 'static {
    /// Returns the response to a request.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<B>> + Send;
}

impl<B, F, A> AsyncAnswer<B> for F
where
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<B>> + Send,
{
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<B>> + Send {
        self(request)
    }
}

#[derive(Debug, Default)]
struct Stage(AtomicU8);

impl Stage {
    const ASKED: u8 = 1;
    const LASTING: u8 = 2;

    fn is_silent(&self) -> bool {
        self.0.load(Ordering::Relaxed) < Self::ASKED
    }

    fn is_lasting(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::LASTING
    }

    fn set(&self, stage: u8) {
        self.0.store(stage, Ordering::Relaxed);
    }
}

struct Connection {
    task: AbortHandle,
    stage: Arc<Stage>,
    since: Instant,
}

/// Client connections, oldest first.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    all: Vec<Connection>,
}

impl Connections {
    /// At the connection limit, closes the oldest connection without a complete request.
    async fn make_room(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.forget(ended);
        }
        while self.all.len() >= MAX_CONNECTIONS {
            let silent = self
                .all
                .iter()
                .find(|connection| connection.stage.is_silent());
            let (task, until) = match silent {
                Some(silent) => (Some(silent.task.clone()), silent.since + REQUEST_GRACE),
                // All connections have sent their requests, so wait until one of them ends.
                None => (None, Instant::now() + EXCHANGE_TIMEOUT),
            };
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next_with_id() => self.forget(ended),
                () = tokio::time::sleep_until(until) => {
                    if let Some(task) = task {
                        task.abort();
                        if let Some(ended) = self.tasks.join_next_with_id().await {
                            self.forget(ended);
                        }
                    }
                }
            }
        }
    }

    fn forget(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        self.all.retain(|connection| connection.task.id() != id);
    }

    fn add<B>(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        answer: &Arc<impl AsyncAnswer<B>>,
    ) where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let stage = Arc::new(Stage::default());
        let task = self
            .tasks
            .spawn(converse(stream, Arc::clone(answer), Arc::clone(&stage)));
        self.all.push(Connection {
            task,
            stage,
            since: Instant::now(),
        });
    }
}

async fn converse<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    answer: Arc<impl AsyncAnswer<B>>,
    stage: Arc<Stage>,
) where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        // A request with a body is not complete yet, and its body might never arrive.
        if request.body().is_end_stream() {
            stage.set(Stage::ASKED);
        }
        let (answer, stage) = (&answer, &stage);
        async move {
            let response = answer.answer(request).await;
            let lasting = response.extensions().get::<Lasting>().is_some();
            stage.set(if lasting {
                Stage::LASTING
            } else {
                Stage::ASKED
            });
            Ok::<_, Infallible>(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let overdue = async {
        tokio::time::sleep(REQUEST_TIMEOUT).await;
        if stage.is_silent() {
            return;
        }
        tokio::time::sleep(EXCHANGE_TIMEOUT.saturating_sub(REQUEST_TIMEOUT)).await;
        if stage.is_lasting() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a client disconnected or sent an invalid request");
            }
        }
        () = overdue => tracing::debug!("closing a connection: the client was too slow"),
    }
}
