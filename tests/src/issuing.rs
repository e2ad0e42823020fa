//! An in-process HTTPS server that publishes a token issuer's key set.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::certs::{Authority, Leaf};

type Published = Arc<Mutex<(u16, String)>>;

/// A running server, which stops on drop.
pub struct Issuing {
    /// The host name in the server's certificate and in the key set's URI.
    host: String,
    address: SocketAddr,
    published: Published,
    task: JoinHandle<()>,
}

impl Issuing {
    /// Starts a server on `localhost` with a certificate from `authority`.
    pub async fn start(authority: &Authority, keys: &str) -> Self {
        Self::start_at(("localhost", Ipv4Addr::LOCALHOST), authority, keys).await
    }

    /// Starts a server with this host and address.
    pub async fn start_at(
        (host, address): (&str, Ipv4Addr),
        authority: &Authority,
        keys: &str,
    ) -> Self {
        let address = (address, 0).into();
        let published = Published::new(Mutex::new((200, keys.to_owned())));
        let leaf = authority.issue(&[host]);
        let (address, task) = serve(address, &leaf, &published).await;
        Self {
            host: host.to_owned(),
            address,
            published,
            task,
        }
    }

    /// Returns the URI of the key set.
    pub fn uri(&self) -> String {
        format!("https://{}:{}/keys", self.host, self.address.port())
    }

    /// Replaces the response.
    pub fn publish(&self, status: u16, body: &str) {
        *self.published.lock().expect("not poisoned") = (status, body.to_owned());
    }

    /// Stops accepting connections.
    pub fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Issuing {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve(
    address: SocketAddr,
    leaf: &Leaf,
    published: &Published,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(address).await.expect("a free port");
    let address = listener.local_addr().expect("the socket is bound");
    let (acceptor, published) = (leaf.acceptor(), Arc::clone(published));
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, published) = (acceptor.clone(), Arc::clone(&published));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let reply = service_fn(move |_: Request<Incoming>| {
                    let (status, body) = published.lock().expect("not poisoned").clone();
                    let reply = Response::builder().status(status);
                    let reply = reply.body(Full::new(Bytes::from(body)));
                    async { Ok::<_, Infallible>(reply.expect("a response")) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                // The client may disconnect at any time.
                let _ = connection
                    .serve_connection(TokioIo::new(stream), reply)
                    .await;
            });
        }
    });
    (address, task)
}
