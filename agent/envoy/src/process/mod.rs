//! Envoy processes, started by this agent or adopted from an earlier one.
//!
//! Dropping a [`Process`] does not affect the Envoy. An Envoy that can be hot-restarted is never a
//! child of the agent (see `launch`).

pub(crate) mod connection_ids;
pub mod identity;
pub mod launch;
pub mod launcher;
mod lineage;
pub mod shared_memory;
pub mod succession;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitId, WaitIdOptions, pidfd_getfd, pidfd_open,
    pidfd_send_signal, waitid,
};
use sesame_render::connection_ids::IdMark;
use tokio::sync::watch;
use tokio::time::timeout;

use super::log::{self, EnvoyLog};
use sesame_host::processes;

pub(crate) use self::lineage::LONGEST_SOCKET_NAME;
pub use self::lineage::Lineage;

/// Time between SIGTERM and SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(5);
/// Drain time for removed listeners and, after a hot restart, for the previous Envoy.
const DRAIN_TIME: &str = "--drain-time-s";

const SHORTEST_GRADUAL_DRAIN: Duration = Duration::from_secs(5);

/// A gradual drain keeps clients from reconnecting all at once. Envoy counts whole seconds and asks
/// no client to disconnect during the first one, so a short gradual drain would close connections
/// without warning.
fn drain_strategy(drain_time: Duration) -> &'static str {
    if drain_time < SHORTEST_GRADUAL_DRAIN {
        "immediate"
    } else {
        "gradual"
    }
}

/// Command line for an Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Path of the program.
    pub binary: PathBuf,
    /// Bootstrap file. Its suffix determines the format.
    pub bootstrap: PathBuf,
    /// Worker threads, or `None` for one per core.
    pub concurrency: Option<u32>,
    /// How long a removed listener drains.
    pub drain_time: Duration,
    /// Log level: `info`, `warning`, …
    pub log_level: String,
    /// Place in a lineage, or `None` to disable hot restart.
    pub lineage: Option<Lineage>,
    /// True if Envoy shares its launcher's standard output.
    pub has_stdout: bool,
    /// Mark of HTTP/3 connection IDs. Another Envoy at the same ports must have another one.
    pub id_mark: IdMark,
}

impl CommandLine {
    /// Returns the arguments after the program name.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = self.settings();
        match self.lineage {
            Some(lineage) => {
                let directory = self.bootstrap.parent().unwrap_or(Path::new(""));
                arguments.extend(lineage.arguments(directory, self.drain_time));
            }
            None => arguments.push("--disable-hot-restart".into()),
        }
        arguments.extend(connection_ids::arguments(
            self.id_mark,
            &connection_ids::key_file(&self.bootstrap),
        ));
        arguments
    }

    /// Returns arguments that do not depend on the lineage or the mark. If any changes, Envoy must be replaced.
    pub fn settings(&self) -> Vec<OsString> {
        let Self {
            binary: _,
            bootstrap,
            concurrency,
            drain_time,
            log_level,
            lineage: _,
            has_stdout: _,
            id_mark: _,
        } = self;
        let mut arguments: Vec<OsString> = vec![
            "--config-path".into(),
            bootstrap.into(),
            DRAIN_TIME.into(),
            drain_time.as_secs().to_string().into(),
            "--drain-strategy".into(),
            drain_strategy(*drain_time).into(),
            "--log-level".into(),
            log_level.into(),
            "--log-format".into(),
            log::FORMAT.into(),
            // Users expect to see access log lines soon after a request.
            "--file-flush-interval-msec".into(),
            "1000".into(),
            // Any client can cause these messages, which contain queries and encrypted tokens.
            "--component-log-level".into(),
            "oauth2:off".into(),
        ];
        if let Some(concurrency) = concurrency {
            arguments.push("--concurrency".into());
            arguments.push(concurrency.to_string().into());
        }
        arguments
    }
}

/// How a process exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The process exited with a code.
    Code(i32),
    /// The process was killed by a signal.
    Signal(i32),
    /// Unknown, because only a parent learns how a process exited.
    Unknown,
}

impl Exit {
    fn of(code: Option<i32>, signal: Option<i32>) -> Self {
        match (code, signal) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("ended, exit code unknown"),
        }
    }
}

/// An Envoy process, running or exited.
#[derive(Clone, Debug)]
pub struct Process {
    pid: u32,
    start_time: u64,
    handle: Arc<OwnedFd>,
    exit: watch::Receiver<Option<Exit>>,
}

impl Process {
    /// Starts an Envoy in a new process group, and appends its standard error to the log.
    pub fn spawn(command: &CommandLine, log: &EnvoyLog) -> io::Result<Self> {
        let mut program = Command::new(&command.binary);
        program
            .args(command.arguments())
            .stdin(Stdio::null())
            .stdout(launch::stdout(command.has_stdout))
            .stderr(log.open_for_envoy()?)
            .process_group(0);
        let (started, start) = std::sync::mpsc::sync_channel(1);
        let (ended, exit) = watch::channel(None);
        thread::Builder::new()
            .name("envoy".to_owned())
            .spawn(move || {
                let result = program.spawn();
                let (answer, child) = match result {
                    // Open the handle before the child is reaped, because another process may reuse
                    // the PID afterwards.
                    Ok(child) => (open(child.id()).map(|fd| (child.id(), fd)), Some(child)),
                    Err(error) => (Err(error), None),
                };
                if started.send(answer).is_ok()
                    && let Some(child) = child
                {
                    ended.send_replace(Some(reap(child)));
                }
            })?;
        let (pid, handle) = start
            .recv()
            .map_err(|_| io::Error::other("the thread that starts Envoy ended"))??;
        Ok(Self {
            pid,
            start_time: processes::start_time(pid).unwrap_or_default(),
            handle: Arc::new(handle),
            exit,
        })
    }

    /// Adopts a running process. Returns `None` if it is gone, even if its PID was reused.
    pub fn adopt(pid: u32, start_time: u64) -> io::Result<Option<Self>> {
        let handle = match open(pid) {
            Ok(handle) => Arc::new(handle),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // Check the start time after opening the handle, which stays valid if the PID is reused.
        if processes::start_time(pid) != Some(start_time) {
            return Ok(None);
        }
        Self::watch(pid, start_time, handle).map(Some)
    }

    /// The process must not have been reaped yet.
    pub(crate) fn hold(pid: u32) -> io::Result<Self> {
        let handle = Arc::new(open(pid)?);
        Self::watch(pid, processes::start_time(pid).unwrap_or_default(), handle)
    }

    fn watch(pid: u32, start_time: u64, handle: Arc<OwnedFd>) -> io::Result<Self> {
        let (ended, exit) = watch::channel(None);
        let waited = Arc::clone(&handle);
        thread::Builder::new()
            .name("envoy-adopted".to_owned())
            .spawn(move || {
                while let Err(rustix::io::Errno::INTR) =
                    poll(&mut [PollFd::new(&*waited, PollFlags::IN)], None)
                {}
                ended.send_replace(Some(reap_orphan(&waited)));
            })?;
        Ok(Self {
            pid,
            start_time,
            handle,
            exit,
        })
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the start time in clock ticks since boot.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Returns how the process exited, or `None` if it is still running.
    pub fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits until the process has exited.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or(Exit::Unknown),
            // The waiting thread has ended, so the process is gone.
            Err(_) => Exit::Unknown,
        }
    }

    /// Requires ptrace access to the process.
    pub(crate) fn duplicate(&self, descriptor: i32) -> io::Result<OwnedFd> {
        Ok(pidfd_getfd(
            &self.handle,
            descriptor,
            PidfdGetfdFlags::empty(),
        )?)
    }

    /// Sends SIGTERM. Envoy exits without waiting for requests in progress.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGKILL.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    pub(crate) async fn end(&self) -> Exit {
        self.terminate();
        if let Ok(exit) = timeout(KILL_AFTER, self.wait()).await {
            return exit;
        }
        self.kill();
        self.wait().await
    }

    fn signal(&self, signal: Signal) {
        // Ignore errors: the process is already gone.
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other(format!("{pid} is not a process ID")))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Only PID 1, such as an agent in a container, adopts orphans and learns their exit status.
fn reap_orphan(handle: &OwnedFd) -> Exit {
    if std::process::id() != 1 {
        return Exit::Unknown;
    }
    match waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED) {
        Ok(Some(status)) => Exit::of(status.exit_status(), status.terminating_signal()),
        _ => Exit::Unknown,
    }
}

fn reap(mut child: Child) -> Exit {
    match child.wait() {
        Ok(status) => Exit::of(status.code(), status.signal()),
        Err(_) => Exit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_drain_asks_all_clients_immediately() {
        let strategy = |seconds| drain_strategy(Duration::from_secs(seconds));
        assert_eq!([0, 1, 4].map(strategy), ["immediate"; 3]);
        assert_eq!([5, 30].map(strategy), ["gradual"; 2]);
    }
}
