//! Endpoints whose behavior makes a gateway slow.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Behavior of an endpoint.
#[derive(Clone, Copy, Debug)]
pub enum Conduct {
    /// Responds immediately.
    Prompt,
    /// Starts each response after the given delay.
    Late(Duration),
    /// Responds with status 503 to two out of three requests.
    Overworked,
    /// Responds with a body of this many bytes.
    Lengthy(usize),
    /// Neither accepts nor refuses connections, as if packets were dropped.
    Unreachable,
}

/// A running endpoint, which stops on drop.
pub struct Endpoint {
    address: SocketAddr,
    task: Option<JoinHandle<()>>,
    _held: Vec<Socket>,
}

impl Endpoint {
    /// Starts an endpoint on a free port on 127.0.0.1.
    pub async fn start(conduct: Conduct) -> Self {
        if let Conduct::Unreachable = conduct {
            return Self::unreachable();
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("127.0.0.1 has a free port");
        let address = listener.local_addr().expect("the socket is bound");
        Self {
            address,
            task: Some(tokio::spawn(accept(listener, conduct))),
            _held: Vec::new(),
        }
    }

    /// Fills the listener's backlog, so that the kernel drops all further connection attempts.
    fn unreachable() -> Self {
        let tcp = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let listening = tcp();
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        listening.bind(&anywhere.into()).expect("a free port");
        listening.listen(0).expect("the socket is bound");
        let bound = listening.local_addr().expect("the socket is bound");
        let mut held = vec![listening];
        for _ in 0..4 {
            let waiting = tcp();
            waiting.set_nonblocking(true).expect("a socket");
            // Ignore the error `EINPROGRESS`, which is expected.
            let _ = waiting.connect(&bound);
            held.push(waiting);
        }
        Self {
            address: bound.as_socket().expect("an IP address"),
            task: None,
            _held: held,
        }
    }

    /// Returns the address on which the endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn accept(listener: TcpListener, conduct: Conduct) {
    let count = Arc::new(AtomicU64::new(0));
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, conduct, Arc::clone(&count)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, conduct: Conduct, count: Arc<AtomicU64>) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |request| answer(request, conduct, Arc::clone(&count)));
    // Clients may disconnect at any time.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    conduct: Conduct,
    count: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    let number = count.fetch_add(1, Ordering::Relaxed);
    let mut response = Response::new(Full::new(Bytes::from_static(b"ok")));
    match conduct {
        // The delay is the endpoint's behavior, not a wait for a condition.
        Conduct::Late(time) => tokio::time::sleep(time).await,
        Conduct::Overworked if !number.is_multiple_of(3) => {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        Conduct::Prompt | Conduct::Overworked | Conduct::Unreachable => {}
        Conduct::Lengthy(bytes) => *response.body_mut() = Full::new(vec![b'x'; bytes].into()),
    }
    Ok(response)
}
