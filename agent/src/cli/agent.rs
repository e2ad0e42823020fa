//! Options and client for commands that talk to a running agent.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sesame_kinds::api::NamespacedName;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use super::EXIT_FAULT;
use super::output::Format;
use super::render::gateway_name;
use sesame_engine::commands::{CommandRequest, InstanceCommand, Reply};
use sesame_engine::report::Report;
use sesame_engine::shutdown::StopRequest;
use sesame_engine::{AGENT_SOCKET, DEFAULT_RUNTIME_DIR, DEFAULT_STATE_DIR};

const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 256 << 20;
const MAX_ERROR: usize = 64 << 10;

/// Options for commands that talk to an agent. They may precede or follow the command's name.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Talking to a running agent")]
pub(crate) struct AgentArgs {
    /// Runtime directory of the agent to talk to.
    #[arg(long, global = true, env = "SESAME_RUNTIME_DIR", default_value = DEFAULT_RUNTIME_DIR, value_name = "DIR")]
    pub(super) runtime_dir: PathBuf,
    /// Gateway to serve, show or act on; by default, all of the agent's Gateways.
    #[arg(long, global = true, value_name = "NAMESPACE/NAME", value_parser = gateway_name)]
    pub(super) gateway: Option<NamespacedName>,
    /// Output format.
    #[arg(long, short, global = true, default_value = "table")]
    pub(super) output: Format,
    /// True if the runtime directory is set on the command line, not in an environment variable.
    #[arg(skip)]
    pub(super) runtime_dir_named: bool,
    /// State directory that the settings file sets.
    #[arg(skip)]
    pub(super) state_dir_in_file: Option<PathBuf>,
}

impl AgentArgs {
    pub(super) fn socket(&self) -> PathBuf {
        self.runtime_dir.join(AGENT_SOCKET)
    }

    /// A state directory in the settings file applies unless `--runtime-dir` is on the command
    /// line. Otherwise, only the default runtime directory has a known state directory.
    pub(super) fn state_of_host(&self) -> Option<&Path> {
        let default = self.runtime_dir == Path::new(DEFAULT_RUNTIME_DIR);
        match &self.state_dir_in_file {
            Some(state_dir) if !self.runtime_dir_named => Some(state_dir),
            _ => default.then_some(Path::new(DEFAULT_STATE_DIR)),
        }
    }
}

/// Returns `None` if no agent is running.
pub(crate) fn ask(socket: &Path, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
    answer_to(socket, Request::get(path).body(Full::default())?)
}

/// Returns `None` if no agent is running. `/status` is slower than `/gateways`, because the agent
/// resolves all objects again.
pub(crate) fn find_report(agent: &AgentArgs, path: &str) -> anyhow::Result<Option<Report>> {
    let socket = agent.socket();
    let answer = ask(&socket, path)?;
    answer.map(|answer| parse(&socket, &answer)).transpose()
}

pub(crate) fn report(agent: &AgentArgs, path: &str) -> anyhow::Result<Report> {
    find_report(agent, path)?.ok_or_else(|| not_running(&agent.socket()))
}

pub(crate) fn parse<T: DeserializeOwned>(socket: &Path, answer: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(answer)
        .with_context(|| format!("cannot parse the response from {}", socket.display()))
}

pub(crate) fn ask_about(
    socket: &Path,
    path: &str,
    value: &impl Serialize,
) -> anyhow::Result<Option<Vec<u8>>> {
    let body = Full::from(serde_json::to_vec(value)?);
    answer_to(socket, Request::post(path).body(body)?)
}

fn answer_to(socket: &Path, request: Request<Full<Bytes>>) -> anyhow::Result<Option<Vec<u8>>> {
    let answer = async {
        let Some(body) = send(socket, request).await? else {
            return Ok(None);
        };
        let body = Limited::new(body, MAX_BYTES)
            .collect()
            .await
            .map_err(|error| anyhow::anyhow!("the response is truncated: {error}"))?;
        Ok(Some(body.to_bytes().to_vec()))
    };
    let answer = runtime()?.block_on(async { tokio::time::timeout(TIMEOUT, answer).await });
    answer.unwrap_or_else(|_| {
        bail!(
            "the agent at {} did not respond within {TIMEOUT:?}",
            socket.display()
        )
    })
}

pub(crate) fn not_running(socket: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "no agent is running at {}; start one with `sesame-agent run`, or pass a running agent's --runtime-dir",
        socket.display()
    )
}

pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

async fn connect(socket: &Path) -> anyhow::Result<Option<UnixStream>> {
    match UnixStream::connect(socket).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot reach {}", socket.display())),
    }
}

pub(crate) async fn is_there(agent: &AgentArgs) -> bool {
    UnixStream::connect(agent.socket()).await.is_ok()
}

/// Returns once the agent has responded, before the agent stops.
pub(crate) async fn stop(agent: &AgentArgs, request: &StopRequest) -> anyhow::Result<()> {
    post(agent, "/stop", request).await.map(|_| ())
}

async fn post(agent: &AgentArgs, path: &str, value: &impl Serialize) -> anyhow::Result<Incoming> {
    let socket = agent.socket();
    let request = Request::post(path).body(Full::from(serde_json::to_vec(value)?))?;
    let answer = send(&socket, request).await?;
    answer.ok_or_else(|| not_running(&socket))
}

/// Returns the body once the headers have arrived, or `None` if no agent is running.
async fn send(
    socket: &Path,
    mut request: Request<Full<Bytes>>,
) -> anyhow::Result<Option<Incoming>> {
    let Some(stream) = connect(socket).await? else {
        return Ok(None);
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let host = HeaderValue::from_static("agent");
    request.headers_mut().insert(HOST, host);
    let response = sender.send_request(request).await?;
    let status = response.status();
    if status.is_success() {
        return Ok(Some(response.into_body()));
    }
    let body = Limited::new(response.into_body(), MAX_ERROR)
        .collect()
        .await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let why = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
    if let Some(why) = why["error"].as_str() {
        bail!("{why}");
    }
    let words = String::from_utf8_lossy(&body);
    bail!("the agent returned {status}: {}", words.trim());
}

pub(crate) fn call<T: DeserializeOwned>(agent: &AgentArgs, path: &str) -> anyhow::Result<T> {
    let answer = async {
        let body = post(agent, path, &()).await?;
        let body = Limited::new(body, MAX_ERROR)
            .collect()
            .await
            .map_err(|error| anyhow::anyhow!("the response is truncated: {error}"))?;
        Ok(serde_json::from_slice(&body.to_bytes())?)
    };
    let answer = runtime()?.block_on(async { tokio::time::timeout(TIMEOUT, answer).await });
    answer.unwrap_or_else(|_| {
        bail!(
            "the agent at {} did not respond within {TIMEOUT:?}",
            agent.socket().display()
        )
    })
}

pub(crate) fn command(agent: &AgentArgs, command: InstanceCommand) -> anyhow::Result<u8> {
    runtime()?.block_on(send_command(agent, command))
}

pub(crate) async fn send_command(
    agent: &AgentArgs,
    command: InstanceCommand,
) -> anyhow::Result<u8> {
    let request = CommandRequest {
        gateway: agent.gateway.as_ref().map(ToString::to_string),
        command,
    };
    let mut body = post(agent, "/orders", &request).await?;
    let mut pending = Vec::new();
    let (mut ended, mut wrong) = (false, false);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.context("the response is truncated")?.into_data() else {
            continue;
        };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let reply: Reply =
                serde_json::from_slice(&line).context("cannot parse the agent's response")?;
            let text = || format!("{}: {}\n", reply.gateway, reply.message);
            agent.output.write_next(&reply, text)?;
            ended |= reply.done.is_some();
            wrong |= reply.done == Some(false);
        }
    }
    if !ended {
        bail!("the agent stopped before it completed the command");
    }
    Ok(if wrong { EXIT_FAULT } else { 0 })
}
