//! Serves health, readiness and metrics over HTTP.
//!
//! Health says that the process answers, and nothing about the API server: restarting the controller would not mend that.
//! Ready means that the whole world was resolved at least once.

mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;

pub(crate) use self::metrics::Metrics;

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens on `address`.
pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers until the task is dropped. `ready` is an error with the reason until the world was resolved.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
) {
    let answer = move |request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), &metrics, ready());
        std::future::ready(response)
    };
    sesame_http_server::serve(listener, answer).await;
}

fn answer(
    method: &Method,
    path: &str,
    metrics: &Metrics,
    ready: Result<(), String>,
) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (method, path) {
        (&Method::GET, "/healthz") => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        (&Method::GET, "/readyz") => match ready {
            Ok(()) => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
        },
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
