//! Talking to a running agent over its socket.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::runtime::Runtime;

use super::{EXIT_WRONG, output};
use crate::run::ending::StopRequest;
use crate::run::orders::{Event, OrderRequest, What};
use crate::run::{AGENT_SOCKET, DEFAULT_RUNTIME_DIR};

/// The most that is read of an error.
const MAX_ERROR: usize = 64 << 10;

/// Which agent, and which of its Gateways.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// The runtime directory of the agent to tell.
    #[arg(long, env = "SESAME_RUNTIME_DIR", default_value = DEFAULT_RUNTIME_DIR, value_name = "DIR")]
    runtime_dir: PathBuf,
    /// Only this Gateway; all by default.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    gateway: Option<String>,
}

impl TargetArgs {
    /// The agent's runtime directory.
    pub(crate) fn runtime_dir(&self) -> &Path {
        &self.runtime_dir
    }

    fn socket(&self) -> PathBuf {
        self.runtime_dir.join(AGENT_SOCKET)
    }
}

/// Where such a command works.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Whether an agent listens.
pub(crate) async fn is_there(target: &TargetArgs) -> bool {
    tokio::net::UnixStream::connect(target.socket())
        .await
        .is_ok()
}

/// Tells the agent to end, with its Envoys; returns when it has heard.
pub(crate) async fn stop(target: &TargetArgs, request: &StopRequest) -> anyhow::Result<()> {
    let request = Request::post("/stop")
        .header(hyper::header::HOST, "agent")
        .body(Full::from(serde_json::to_vec(request)?))?;
    send(&target.socket(), request).await.map(|_| ())
}

/// Sends a request, and gives back the body of the answer once its head is there and says that all is well.
pub(crate) async fn send(socket: &Path, request: Request<Full<Bytes>>) -> anyhow::Result<Incoming> {
    let stream = match tokio::net::UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            bail!(
                "no agent is running at {}; start one with `sesame-agent run`, or name its --runtime-dir",
                socket.display()
            )
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot reach {}", socket.display()));
        }
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let body = Limited::new(response.into_body(), MAX_ERROR)
        .collect()
        .await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let why = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
    match why["error"].as_str() {
        Some(why) => bail!("{why}"),
        None => bail!("the agent answered {status}"),
    }
}

/// Gives an order, prints how it goes, and says with which code to end.
pub(crate) fn order(target: &TargetArgs, order: What) -> anyhow::Result<u8> {
    runtime()?.block_on(give(target, order))
}

/// The same, within a runtime.
pub(crate) async fn give(target: &TargetArgs, order: What) -> anyhow::Result<u8> {
    let order = OrderRequest {
        gateway: target.gateway.clone(),
        order,
    };
    let request = Request::post("/orders")
        .header(hyper::header::HOST, "agent")
        .body(Full::from(serde_json::to_vec(&order)?))?;
    let mut body = send(&target.socket(), request).await?;
    let mut pending = Vec::new();
    let (mut ended, mut wrong) = (false, false);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.context("the answer is cut off")?.into_data() else {
            continue;
        };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let Event {
                gateway,
                message,
                done,
            } = serde_json::from_slice(&line).context("the answer is not understood")?;
            output::text(&format!("{gateway}: {message}\n"))?;
            ended |= done.is_some();
            wrong |= done == Some(false);
        }
    }
    if !ended {
        bail!("the agent has ended before the order was carried out");
    }
    Ok(if wrong { EXIT_WRONG } else { 0 })
}
