//! Stops an agent, and either stops Envoy or leaves it running. A restarted or replaced agent
//! leaves Envoy to the next agent.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::RunOptions;
use super::reload::LiveSettings;
use sesame_envoy::process::identity::{Executable, Identity, PID_FILE};
use sesame_envoy::process::launch::{self, Launcher};
use sesame_envoy::process::launcher::{self, LAUNCHER_SOCKET};
use sesame_envoy::{Supervisor, SupervisorConfig};
use sesame_host::entries;
use sesame_host::lock::{Lock, LockError};
use sesame_host::processes;

/// Maximum time for an agent to exit after Envoy has exited.
const MAX_AGENT_EXIT: Duration = Duration::from_secs(15);
/// Maximum delay in a Pod between starting the agent and the launcher, or between their stop
/// signals.
const MAX_SIGNAL_SKEW: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// What happens to Envoy when a signal stops the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnStop {
    /// Envoy keeps serving, and the next agent adopts it.
    #[default]
    Leave,
    /// Envoy drains, then exits.
    Drain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Leave,
    /// The Envoy drains for at most this long, then exits.
    Drain(Duration),
}

pub(super) fn launcher(options: &RunOptions, runtime: &Path) -> Launcher {
    if options.launcher {
        Launcher::Socket(runtime.join(LAUNCHER_SOCKET))
    } else {
        Launcher::Program(launch::own_binary())
    }
}

/// Waits briefly for the launcher, which may still be starting in a Pod.
pub(super) async fn await_launcher(launcher: &Launcher) {
    if let Launcher::Socket(socket) = launcher {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < MAX_SIGNAL_SKEW && launcher::is_stopping(socket).is_err() {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Waits for a stop request or a signal. Returns the request's grace period, or `None` for a
/// signal.
pub(super) async fn stop_requested(
    mut requests: mpsc::Receiver<Duration>,
) -> io::Result<Option<Duration>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        Some(grace) = requests.recv() => Ok(Some(grace)),
        _ = terminate.recv() => Ok(None),
        _ = interrupt.recv() => Ok(None),
    }
}

/// Decides what happens to Envoy after a signal. Gives load balancers time to notice that the host
/// is not ready before Envoy drains.
pub(super) async fn signalled(
    drain: Duration,
    settings: &watch::Receiver<LiveSettings>,
    launcher: &Launcher,
    stopping: &AtomicBool,
) -> Ending {
    // If the first process in a PID namespace exits, the kernel kills all others, so Envoy must
    // drain.
    let is_end_of_all = std::process::id() == 1 && !matches!(launcher, Launcher::Socket(_));
    let (on_stop, lame_duck) = {
        let live = settings.borrow();
        (live.on_stop, live.lame_duck)
    };
    let ends = on_stop == OnStop::Drain || is_end_of_all || launcher_is_stopping(launcher).await;
    if !ends {
        return Ending::Leave;
    }
    stopping.store(true, Ordering::Relaxed);
    if !lame_duck.is_zero() {
        tracing::info!("no longer ready; stopping in {lame_duck:?}");
        tokio::time::sleep(lame_duck).await;
    }
    Ending::Drain(drain)
}

/// Returns true if the launcher is stopping Envoy. In a Pod, it may get its signal slightly later
/// than the agent.
async fn launcher_is_stopping(launcher: &Launcher) -> bool {
    let Launcher::Socket(socket) = launcher else {
        return false;
    };
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < MAX_SIGNAL_SKEW {
        if matches!(launcher::is_stopping(socket), Ok(true)) {
            return true;
        }
        tokio::time::sleep(POLL).await;
    }
    false
}

/// Body of `POST /stop`, which stops an agent and Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRequest {
    /// Maximum time for connections to finish, in seconds.
    pub grace_seconds: u64,
}

/// Error while stopping Envoy processes.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The agent was asked to stop, but is still running.
    #[error("{0}; it did not stop within {1:?} of the request")]
    Lives(LockError, Duration),
    /// It cannot be determined whether an agent is running.
    #[error(transparent)]
    Lock(LockError),
    /// An Envoy could not be found or stopped.
    #[error("{directory}: {source}")]
    Envoy {
        /// The runtime directory of the Envoy's Gateway.
        directory: String,
        /// The system error.
        source: io::Error,
    },
}

/// Waits until no agent uses the runtime directory, then stops the remaining Envoy processes and
/// returns their number.
///
/// `agent_grace` is the time that an agent was given to stop. If it is `None`, a running agent is
/// an error.
pub async fn end_left(
    runtime: &Path,
    grace: Duration,
    agent_grace: Option<Duration>,
) -> Result<usize, EndError> {
    let deadline =
        agent_grace.map(|agent_grace| tokio::time::Instant::now() + agent_grace + MAX_AGENT_EXIT);
    let _lock = loop {
        match (Lock::acquire(runtime), deadline) {
            (Ok(lock), _) => break lock,
            (Err(LockError::Held { .. }), Some(deadline))
                if tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(POLL).await;
            }
            (Err(held @ LockError::Held { .. }), Some(_)) => {
                return Err(EndError::Lives(
                    held,
                    agent_grace.unwrap_or_default() + MAX_AGENT_EXIT,
                ));
            }
            (Err(error), _) => return Err(EndError::Lock(error)),
        }
    };
    end_all(runtime, grace).await
}

/// Returns true if an Envoy with files in the runtime directory may be running.
pub fn any_left(runtime: &Path) -> bool {
    let directories = entries(&runtime.join("gateways")).unwrap_or_default();
    let noted = |directory: PathBuf| Identity::read(&directory.join(PID_FILE));
    let mut noted = directories.into_iter().filter_map(noted);
    noted.any(|envoy| processes::start_time(envoy.pid) == Some(envoy.start_time))
}

/// Drains and stops every Envoy with files in the runtime directory. Returns their number.
pub async fn end_all(runtime: &Path, grace: Duration) -> Result<usize, EndError> {
    end_each(runtime, async |config| {
        Supervisor::end_running(&config, grace).await
    })
    .await
}

/// Like [`end_all`], but only for Envoy processes that run the binary `own`, whose launcher is
/// stopping.
pub async fn end_own(runtime: &Path, own: &Executable, grace: Duration) -> Result<usize, EndError> {
    end_each(runtime, async |config| {
        Supervisor::end_own(&config, own, grace).await
    })
    .await
}

async fn end_each(
    runtime: &Path,
    end: impl AsyncFn(SupervisorConfig) -> io::Result<usize>,
) -> Result<usize, EndError> {
    let failed = |directory: &Path, source| EndError::Envoy {
        directory: directory.display().to_string(),
        source,
    };
    let directories = entries(&runtime.join("gateways")).map_err(|error| failed(runtime, error))?;
    let end = &end;
    let ends = directories.into_iter().map(|directory| async move {
        let socket = directory.join("admin.sock");
        let config = SupervisorConfig::new("envoy", &directory, socket, Bytes::new());
        let ended = end(config).await;
        ended.map_err(|error| failed(&directory, error))
    });
    let mut count = 0;
    for ended in futures::future::join_all(ends).await {
        count += ended?;
    }
    Ok(count)
}
