//! The agent's own socket: answers what people and scripts ask a running agent.
//!
//! A Unix socket of mode 0660 in the runtime directory. It only reads; a slow or hostile caller costs one
//! connection, never the agent.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use super::report::Report;

const MAX_CONNECTIONS: usize = 16;
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Listens on `path`, replacing a socket that a dead agent left.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Answers `GET /status` with what `report` gives, and `GET /gateways` with the same without the objects
/// (which are many), until the task is dropped.
pub(super) async fn serve<F>(listener: UnixListener, report: F)
where
    F: Fn(bool) -> Report + Send + Sync + 'static,
{
    let report = Arc::new(report);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the agent's socket cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let report = Arc::clone(&report);
        tokio::spawn(async move {
            let _slot = slot;
            let service = service_fn(move |request: Request<Incoming>| {
                let report = Arc::clone(&report);
                async move {
                    let (method, path) =
                        (request.method().clone(), request.uri().path().to_owned());
                    let answer = move || answer(&method, &path, &*report);
                    Ok::<_, Infallible>(match tokio::task::spawn_blocking(answer).await {
                        Ok(response) => response,
                        Err(error) => failed(&error.to_string()),
                    })
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a caller of the agent's socket went away");
            }
        });
    }
}

fn answer<F: Fn(bool) -> Report>(method: &Method, path: &str, report: &F) -> Response<Full<Bytes>> {
    let (status, body) = match (method, path) {
        (&Method::GET, path @ ("/status" | "/gateways")) => {
            match serde_json::to_vec(&report(path == "/status")) {
                Ok(body) => (StatusCode::OK, body),
                Err(error) => return failed(&error.to_string()),
            }
        }
        _ => (
            StatusCode::NOT_FOUND,
            br#"{"error":"not found; try GET /status"}"#.to_vec(),
        ),
    };
    json(status, body)
}

fn failed(error: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({ "error": error })
        .to_string()
        .into_bytes();
    json(StatusCode::INTERNAL_SERVER_ERROR, body)
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
