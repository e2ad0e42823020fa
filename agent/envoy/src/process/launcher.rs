//! Launcher service: starts Envoy for an agent in another container or unit.
//!
//! Stopping the agent's container or unit also kills its processes, so Envoy runs elsewhere. Agent
//! and launcher must share a PID namespace and run as the same user. Only users with access to the
//! runtime directory can connect, and a request contains only arguments: the launcher chooses the
//! program.

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sesame_files::open::{self, Rule};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::identity::Executable;
use super::{Process, launch};
use crate::log::{ENVOY_LOG, EnvoyLog};
use sesame_host::{limits, remove_if_exists};

/// Name of the launcher's socket in the runtime directory.
pub const LAUNCHER_SOCKET: &str = "launcher.sock";
/// Maximum message size in bytes. Envoy's command line takes several hundred bytes.
const MAX_MESSAGE: u64 = 64 << 10;
const ANSWER: Duration = Duration::from_secs(10);
/// If no start signal arrives, Envoy starts after this time.
const HELD: Duration = Duration::from_secs(30);
const MAX_CALLERS: u32 = 64;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "ask")]
enum LauncherRequest {
    Launch {
        /// Directory of the Envoy's log, relative to the runtime directory.
        directory: PathBuf,
        arguments: Vec<String>,
    },
    State,
    /// Older launchers do not support this request.
    HotRestartVersion,
    /// Older launchers do not support this request.
    Append {
        file: PathBuf,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LauncherAnswer {
    pid: Option<u32>,
    /// Inode number of the PID namespace in which `pid` is valid.
    process_namespace: u64,
    stopping: bool,
    /// Open file limit per Envoy. `None` in responses from older launchers.
    open_files: Option<u64>,
    /// Total memory for all Envoy processes, in bytes. `None` in responses from older launchers.
    memory: Option<u64>,
    /// `None` in responses from older launchers, or if the file cannot be read.
    executable: Option<Executable>,
    hot_restart_version: Option<String>,
    error: Option<String>,
}

#[derive(Debug)]
pub(super) struct StartSignal(UnixStream);

impl StartSignal {
    /// Returns after the launcher has confirmed the start.
    pub(super) fn send(self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)?;
        let answer: LauncherAnswer = receive(&self.0)?;
        answer
            .error
            .map_or(Ok(()), |error| Err(io::Error::other(error)))
    }
}

/// Asks the launcher to start an Envoy. The launcher delays the start until the signal is sent or
/// dropped.
pub(super) fn ask(
    socket: &Path,
    arguments: &[OsString],
    log: &EnvoyLog,
) -> io::Result<(Process, StartSignal)> {
    let runtime = socket.parent().unwrap_or(Path::new("/"));
    let directory = log
        .path()
        .parent()
        .and_then(|path| path.strip_prefix(runtime).ok());
    let Some(directory) = directory else {
        return Err(io::Error::other(
            "the launcher serves a different runtime directory",
        ));
    };
    let lossless = |argument: &OsString| argument.clone().into_string();
    let arguments = arguments.iter().map(lossless).collect::<Result<_, _>>();
    let request = LauncherRequest::Launch {
        directory: directory.to_owned(),
        arguments: arguments.map_err(|_| io::Error::other("an argument is not UTF-8"))?,
    };
    // Check this first, because the agent cannot see a process in another PID namespace.
    let (_, state) = exchange(socket, &LauncherRequest::State)?;
    if state.process_namespace != process_namespace()? {
        return Err(io::Error::other(
            "the launcher is in another process namespace, so the agent could not supervise its Envoys; make agent and launcher share one (hostPID: true, or shareProcessNamespace: true)",
        ));
    }
    let (stream, answer) = exchange(socket, &request)?;
    let Some(pid) = answer.pid else {
        let why = answer.error.unwrap_or_else(|| "no process".to_owned());
        return Err(io::Error::other(format!("the launcher: {why}")));
    };
    Ok((Process::hold(pid)?, StartSignal(stream)))
}

/// Returns true if the launcher is stopping Envoy. Fails if no launcher responds.
pub fn is_stopping(socket: &Path) -> io::Result<bool> {
    exchange(socket, &LauncherRequest::State).map(|(_, answer)| answer.stopping)
}

pub(crate) fn executable(socket: &Path) -> Option<Executable> {
    exchange(socket, &LauncherRequest::State).ok()?.1.executable
}

pub(crate) fn hot_restart_version(socket: &Path) -> Option<String> {
    let asked = exchange(socket, &LauncherRequest::HotRestartVersion);
    asked.ok()?.1.hot_restart_version
}

/// Returns the limits on a launcher's Envoy processes: open files per process, and memory in bytes.
pub fn limits(socket: &Path) -> io::Result<(u64, u64)> {
    let (_, answer) = exchange(socket, &LauncherRequest::State)?;
    let known = answer.open_files.zip(answer.memory);
    known.ok_or_else(|| io::Error::other("the launcher is too old to support this request"))
}

/// Asks the launcher to open a file for appending, because agent and launcher may see different
/// file systems.
pub(crate) fn try_append(socket: &Path, file: &Path) -> io::Result<()> {
    let file = file.to_owned();
    let (_, answer) = exchange(socket, &LauncherRequest::Append { file })?;
    answer
        .error
        .map_or(Ok(()), |error| Err(io::Error::other(error)))
}

fn exchange(socket: &Path, request: &LauncherRequest) -> io::Result<(UnixStream, LauncherAnswer)> {
    let stream = UnixStream::connect(socket).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!(
                "no launcher at {}: {error}; start one with `sesame-agent launcher`",
                socket.display()
            ),
        )
    })?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    send(&stream, request)?;
    let answer = receive(&stream)?;
    Ok((stream, answer))
}

fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn receive<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_MESSAGE)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn process_namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Server side of the launcher.
#[derive(Debug)]
pub struct Server {
    binary: PathBuf,
    runtime: PathBuf,
    stopping: AtomicBool,
    callers: Arc<Semaphore>,
}

impl Server {
    /// Starts a launcher that runs `binary`. With `take_over`, replaces another launcher's socket;
    /// that launcher keeps managing its Envoy processes.
    pub fn start(binary: &Path, runtime: &Path, take_over: bool) -> io::Result<Arc<Self>> {
        let socket = runtime.join(LAUNCHER_SOCKET);
        if !take_over && is_stopping(&socket).is_ok() {
            return Err(io::Error::other(format!(
                "another launcher is listening on {}: stop it, or replace it with --take-over",
                socket.display()
            )));
        }
        let server = Arc::new(Self {
            binary: binary.to_owned(),
            runtime: runtime.to_owned(),
            stopping: AtomicBool::new(false),
            callers: Arc::new(Semaphore::new(MAX_CALLERS as usize)),
        });
        server.listen()?;
        Ok(server)
    }

    /// Reclaims the socket if no launcher responds on it. Returns true if reclaimed.
    pub fn reclaim(self: &Arc<Self>) -> io::Result<bool> {
        if is_stopping(&self.runtime.join(LAUNCHER_SOCKET)).is_ok() {
            return Ok(false);
        }
        self.listen()?;
        Ok(true)
    }

    fn listen(self: &Arc<Self>) -> io::Result<()> {
        let socket = self.runtime.join(LAUNCHER_SOCKET);
        // Rename over the old socket, so that the path always has a listener.
        let staged = socket.with_extension(format!("{}.new", std::process::id()));
        remove_if_exists(&staged)?;
        let listener = UnixListener::bind(&staged)?;
        std::fs::set_permissions(&staged, Permissions::from_mode(0o600))?;
        std::fs::rename(&staged, &socket)?;
        let serving = Arc::clone(self);
        thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || serving.serve(&listener))?;
        Ok(())
    }

    /// Rejects new launch requests, and waits for earlier ones.
    pub async fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.answered().await;
    }

    /// Waits for requests in progress, for at most `HELD`.
    pub async fn answered(&self) {
        // All permits are available only if no request is in progress.
        let _ = timeout(HELD, self.callers.acquire_many(MAX_CALLERS)).await;
    }

    fn serve(self: &Arc<Self>, listener: &UnixListener) {
        for caller in listener.incoming() {
            let caller = match caller {
                Ok(caller) => caller,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    // The process may have run out of file descriptors temporarily.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&self.callers).try_acquire_owned() else {
                continue;
            };
            let serving = Arc::clone(self);
            // If no thread can be spawned, the connection closes without a response, and the caller
            // retries.
            let _ = thread::Builder::new().spawn(move || {
                let _permit = permit;
                if let Err(error) = serving.answer(&caller) {
                    let why = LauncherAnswer {
                        error: Some(error.to_string()),
                        ..LauncherAnswer::default()
                    };
                    let _ = send(&caller, &why);
                    tracing::warn!(%error, "cannot start an Envoy");
                }
            });
        }
    }

    fn answer(&self, caller: &UnixStream) -> io::Result<()> {
        caller.set_read_timeout(Some(ANSWER))?;
        caller.set_write_timeout(Some(ANSWER))?;
        let request = receive(caller)?;
        let state = LauncherAnswer {
            process_namespace: process_namespace()?,
            stopping: self.stopping.load(Ordering::SeqCst),
            open_files: Some(limits::open_files()),
            memory: Some(limits::memory()),
            executable: Executable::at(&self.binary).ok(),
            ..LauncherAnswer::default()
        };
        let (directory, arguments) = match request {
            LauncherRequest::State => return send(caller, &state),
            LauncherRequest::HotRestartVersion => {
                return send(caller, &self.with_hot_restart_version(state)?);
            }
            LauncherRequest::Append { file } => {
                let tried = open::open_with(OpenOptions::new().append(true), &file, Rule::Own);
                return send(
                    caller,
                    &LauncherAnswer {
                        error: tried.err().map(|error| error.to_string()),
                        ..state
                    },
                );
            }
            LauncherRequest::Launch {
                directory,
                arguments,
            } => (directory, arguments),
        };
        if state.stopping {
            return Err(io::Error::other("it and its Envoys are about to stop"));
        }
        let is_below = directory
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_below {
            return Err(io::Error::other("not an Envoy's runtime directory"));
        }
        let log = EnvoyLog::new(self.runtime.join(directory).join(ENVOY_LOG));
        let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
        let (program, stdout) = (launch::own_binary(), launch::stdout(true));
        let held = launch::own(&program, &self.binary, &arguments, &log, stdout)?;
        let pid = held.process().pid();
        send(
            caller,
            &LauncherAnswer {
                pid: Some(pid),
                ..state
            },
        )?;
        caller.set_read_timeout(Some(HELD))?;
        // Wait for the start signal, but start Envoy even if the agent is gone or stuck.
        let _ = (&*caller).read(&mut [0]);
        held.release()?;
        tracing::info!(pid, "started an Envoy");
        send(caller, &LauncherAnswer::default())
    }

    fn with_hot_restart_version(&self, state: LauncherAnswer) -> io::Result<LauncherAnswer> {
        let output = Command::new(&self.binary)
            .arg("--hot-restart-version")
            .stdin(Stdio::null())
            .output()?;
        // Envoy prints the protocol version to standard error.
        let printed = [output.stdout.as_slice(), &output.stderr].concat();
        Ok(LauncherAnswer {
            hot_restart_version: Some(String::from_utf8_lossy(&printed).trim().to_owned()),
            ..state
        })
    }
}
