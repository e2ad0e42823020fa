//! Serves health, readiness, metrics and the status page. Liveness does not depend on the API
//! server, because a restart would not fix an outage. Probes are unguarded, because kubelets have
//! no credentials.

mod guarded;
mod http_proxies;
mod metrics;

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;

pub(crate) use self::guarded::{PageAsk, StatusPages, serve_guarded};
pub(crate) use self::metrics::Metrics;

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The error explains why the replica is not ready.
pub(crate) type UnreadyReason = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Also serves the metrics, unless they have a separate address.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Option<Arc<Metrics>>,
    readiness: UnreadyReason,
) {
    let answer = move |request: Request<Incoming>| {
        let metrics = metrics.as_deref();
        let response = answer(request.method(), request.uri().path(), metrics, &readiness);
        std::future::ready(response)
    };
    sesame_http_server::serve(listener, answer).await;
}

fn answer(
    method: &Method,
    path: &str,
    metrics: Option<&Metrics>,
    readiness: &UnreadyReason,
) -> Response<Full<Bytes>> {
    match (method, path, metrics) {
        (&Method::GET, "/healthz", _) => text(StatusCode::OK, TEXT, "ok\n".to_owned()),
        (&Method::GET, "/readyz", _) => match readiness() {
            Ok(()) => text(StatusCode::OK, TEXT, "ok\n".to_owned()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
        },
        (&Method::GET, "/metrics", Some(metrics)) => text(StatusCode::OK, METRICS, metrics.text()),
        (_, _, Some(_)) => not_found("/healthz, /readyz or /metrics"),
        (_, _, None) => not_found("/healthz or /readyz; metrics are at --metrics-address"),
    }
}

fn not_found(paths: &str) -> Response<Full<Bytes>> {
    let body = format!("not found; try {paths}\n");
    text(StatusCode::NOT_FOUND, TEXT, body)
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
