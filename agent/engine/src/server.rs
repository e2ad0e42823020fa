//! Serves the agent's own socket. A slow or hostile client blocks only its own connection.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use sesame_http_server::Lasting;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::certificates::{CERTIFICATES_PATH, CertificatesSource};
use super::commands::{CommandRequest, QueuedCommand, ReplySink};
use super::events::{self, EVENTS_PATH};
use super::explaining::{self, ExplainOrder, explain_accepted};
use super::history;
use super::metrics::{METRICS_PATH, MetricsSource};
use super::reload::{LiveSettings, ReloadRequest};
use super::report::{ReportSource, health};
use super::shutdown::StopRequest;
use sesame_host::remove_if_exists;

const MAX_COMMAND: usize = 64 << 10;

/// Replaces the socket of an agent that has died.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    remove_if_exists(path)?;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Runs until the task is dropped. `GET /gateways` is `GET /status` without the objects, which may
/// be numerous. The response to `POST /orders` is one JSON object per line.
pub(super) async fn serve(
    listener: UnixListener,
    report: ReportSource,
    state_dir: PathBuf,
    inputs: ServerInputs,
) {
    let answer = move |request: Request<Incoming>| {
        let (report, state_dir) = (Arc::clone(&report), state_dir.clone());
        let ServerInputs {
            queues,
            stops,
            reloads,
            live,
            metrics,
            certificates,
        } = inputs.clone();
        async move {
            match (request.method(), request.uri().path()) {
                (&Method::POST, "/orders") => return commands(request, &queues).await,
                (&Method::POST, "/stop") => return stop(request, &stops).await,
                (&Method::POST, "/reload") => return reload(&reloads).await,
                (&Method::POST, "/explain") => return explain(request, state_dir).await,
                (&Method::GET, "/settings") => return settings(&live),
                (&Method::GET, CERTIFICATES_PATH) => return listed(&certificates).await,
                (&Method::GET, METRICS_PATH) => {
                    return metrics
                        .answer(request.headers())
                        .await
                        .map(http_body_util::BodyExt::boxed_unsync);
                }
                _ => {}
            }
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let answer = move || answer(&method, &path, &report, &state_dir);
            match tokio::task::spawn_blocking(answer).await {
                Ok(response) => response,
                Err(error) => failed(&error),
            }
        }
    };
    sesame_http_server::serve(listener, answer).await;
}

#[derive(Clone)]
pub(super) struct ServerInputs {
    pub(super) queues: watch::Receiver<CommandQueues>,
    pub(super) stops: mpsc::Sender<Duration>,
    pub(super) reloads: mpsc::Sender<ReloadRequest>,
    pub(super) live: watch::Receiver<LiveSettings>,
    pub(super) metrics: MetricsSource,
    pub(super) certificates: CertificatesSource,
}

/// Keyed by `namespace/name`.
pub(super) type CommandQueues = BTreeMap<String, mpsc::Sender<QueuedCommand>>;

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn read<T: serde::de::DeserializeOwned>(request: Request<Incoming>) -> Result<T, String> {
    let body = Limited::new(request.into_body(), MAX_COMMAND)
        .collect()
        .await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

fn refuse(status: StatusCode, why: &str) -> Response<Body> {
    let body = serde_json::json!({ "error": why }).to_string();
    json(status, body.into_bytes())
}

async fn stop(request: Request<Incoming>, stops: &mpsc::Sender<Duration>) -> Response<Body> {
    match read(request).await {
        Ok(StopRequest { grace_seconds }) => {
            // If the channel is full, a stop is already pending.
            let _ = stops.try_send(Duration::from_secs(grace_seconds));
            json(StatusCode::ACCEPTED, b"{}".to_vec())
        }
        Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
    }
}

async fn reload(reloads: &mpsc::Sender<ReloadRequest>) -> Response<Body> {
    let (sender, outcome) = oneshot::channel();
    let outcome = match reloads.send(sender).await {
        Ok(()) => outcome.await.ok(),
        Err(_) => None,
    };
    match outcome {
        Some(Ok(reloaded)) => encoded(&reloaded),
        Some(Err(why)) => refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            &format!("the settings are unchanged: {why}"),
        ),
        None => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the agent is stopping"),
    }
}

async fn explain(request: Request<Incoming>, state_dir: PathBuf) -> Response<Body> {
    let order: ExplainOrder = match read(request).await {
        Ok(order) => order,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    let explained = tokio::task::spawn_blocking(move || {
        let explanation = explain_accepted(&state_dir, &order)?;
        Ok::<_, anyhow::Error>(serde_json::to_vec(&explanation)?)
    });
    match explained.await {
        Ok(Ok(body)) => json(StatusCode::OK, body),
        Ok(Err(error)) => refuse(StatusCode::UNPROCESSABLE_ENTITY, &format!("{error:#}")),
        Err(error) => failed(&error),
    }
}

fn settings(live: &watch::Receiver<LiveSettings>) -> Response<Body> {
    let settings = Arc::clone(&live.borrow().settings);
    encoded(&*settings)
}

async fn listed(certificates: &CertificatesSource) -> Response<Body> {
    encoded(&certificates.report().await)
}

async fn commands(
    request: Request<Incoming>,
    queues: &watch::Receiver<CommandQueues>,
) -> Response<Body> {
    let CommandRequest { gateway, command } = match read(request).await {
        Ok(request) => request,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    let addressed: Vec<(String, mpsc::Sender<QueuedCommand>)> = queues
        .borrow()
        .iter()
        .filter(|(name, _)| gateway.as_ref().is_none_or(|gateway| gateway == *name))
        .map(|(name, queue)| (name.clone(), queue.clone()))
        .collect();
    if addressed.is_empty() {
        let why = match gateway {
            Some(gateway) => format!("no Gateway {gateway} is served here"),
            None => "no Gateway is served here".to_owned(),
        };
        return refuse(StatusCode::NOT_FOUND, &why);
    }
    let (sender, answers) = mpsc::unbounded_channel();
    for (gateway, queue) in addressed {
        let replies = ReplySink {
            gateway,
            replies: sender.clone(),
        };
        tokio::spawn(async move {
            let sent = QueuedCommand {
                command,
                replies: replies.clone(),
            };
            if queue.send(sent).await.is_err() {
                replies.end(Err("the Gateway is no longer served".to_owned()));
            }
        });
    }
    drop(sender);
    let lines = futures::stream::unfold(answers, |mut answers| async move {
        let reply = answers.recv().await?;
        // Serializing plain data cannot fail.
        let mut line = serde_json::to_vec(&reply).unwrap_or_default();
        line.push(b'\n');
        Some((Ok(Frame::data(Bytes::from(line))), answers))
    });
    let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
    response.extensions_mut().insert(Lasting);
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-ndjson"),
    );
    response
}

fn answer(method: &Method, path: &str, report: &ReportSource, state_dir: &Path) -> Response<Body> {
    if let Some((status, text)) = health::answer(method, path, || report(false)) {
        let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
        *response.status_mut() = status;
        return response;
    }
    if method == Method::GET
        && let Some(answer) = history::answer(state_dir, path)
            .or_else(|| explaining::answer(state_dir, path))
            .or_else(|| (path == EVENTS_PATH).then(|| events::answer(state_dir)))
    {
        return match answer {
            Ok(body) => json(StatusCode::OK, body),
            Err(error) => refuse(StatusCode::NOT_FOUND, &format!("{error:#}")),
        };
    }
    match (method, path) {
        (&Method::GET, "/status" | "/gateways") => encoded(&report(path == "/status")),
        _ => refuse(
            StatusCode::NOT_FOUND,
            "not found; try GET /status, GET /certificates, GET /settings, POST /explain, POST /orders, POST /reload, POST /stop",
        ),
    }
}

fn encoded(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(body) => json(StatusCode::OK, body),
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::error::Error) -> Response<Body> {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
