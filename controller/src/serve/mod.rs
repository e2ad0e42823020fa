//! Health, readiness and metrics over HTTP.
//!
//! Health says that the process answers, and nothing of the API server: restarting the controller would not mend that.
//! Ready means that the whole world was resolved once.

mod metrics;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub(crate) use self::metrics::Metrics;

const MAX_CONNECTIONS: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens on `address`.
pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers until the task is dropped. `ready` says whether the world was resolved.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    ready: impl Fn() -> bool + Send + Sync + 'static,
) {
    let ready = Arc::new(ready);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (metrics, ready) = (Arc::clone(&metrics), Arc::clone(&ready));
        tokio::spawn(async move {
            let _slot = slot;
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answer(request.method(), request.uri().path(), &metrics, ready());
                std::future::ready(Ok::<_, Infallible>(response))
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a caller went away");
            }
        });
    }
}

fn answer(method: &Method, path: &str, metrics: &Metrics, ready: bool) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (method, path) {
        (&Method::GET, "/healthz") => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        (&Method::GET, "/readyz") if ready => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        (&Method::GET, "/readyz") => (
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            "the cluster's objects have not all been read yet\n".to_owned(),
        ),
        (&Method::GET, "/metrics") => (StatusCode::OK, METRICS, metrics.text()),
        _ => (
            StatusCode::NOT_FOUND,
            TEXT,
            "not found; try /healthz, /readyz or /metrics\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
