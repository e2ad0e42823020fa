//! The end of an agent, and the fate of its Envoys.
//!
//! Stopping the agent does not stop the gateway: an agent that is restarted or replaced leaves its
//! Envoys serving, and the next one adopts them. Only `drain --stop` and `--on-stop drain` drain
//! and end them as well.

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
use crate::envoy::process::identity::{Executable, Identity, PID_FILE};
use crate::envoy::process::launch::{self, Launcher};
use crate::envoy::process::launcher::{self, LAUNCHER_SOCKET};
use crate::envoy::{Supervisor, SupervisorConfig};
use crate::host::entries;
use crate::host::lock::{Lock, LockError};
use crate::host::processes;

/// Time limit for an agent to end after its Envoys.
const LAST_WORDS: Duration = Duration::from_secs(15);
/// Longest time between the starts of agent and launcher, and between their signals at the end of a
/// Pod.
const TOLD_AS_WELL: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// The effect that a signal to stop has on the Envoys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnStop {
    /// They keep serving, and the next agent adopts them.
    #[default]
    Leave,
    /// They drain, then end.
    Drain,
}

/// The fate of an Envoy at the end of the agent or of its Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It keeps serving.
    Leave,
    /// It drains for at most this long, then ends.
    Drain(Duration),
}

/// Returns the launcher that starts the Envoys of an agent.
pub(super) fn launcher(options: &RunOptions, runtime: &Path) -> Launcher {
    if options.launcher {
        Launcher::Socket(runtime.join(LAUNCHER_SOCKET))
    } else {
        Launcher::Program(launch::own_binary())
    }
}

/// Gives a launcher that starts at the same time, as in one Pod, a moment to answer, because the
/// limits of its Envoys are read only once.
pub(super) async fn await_launcher(launcher: &Launcher) {
    if let Launcher::Socket(socket) = launcher {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < TOLD_AS_WELL && launcher::is_stopping(socket).is_err() {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Waits until the agent is asked to end. Returns the time that connections get if a request ends
/// the Envoys as well, or `None` for a signal.
pub(super) async fn told(mut requests: mpsc::Receiver<Duration>) -> io::Result<Option<Duration>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        Some(grace) = requests.recv() => Ok(Some(grace)),
        _ = terminate.recv() => Ok(None),
        _ = interrupt.recv() => Ok(None),
    }
}

/// Returns the ending for a signal to stop. If it ends the Envoys, waits first until the loss of
/// readiness has spread.
pub(super) async fn signalled(
    drain: Duration,
    settings: &watch::Receiver<LiveSettings>,
    launcher: &Launcher,
    stopping: &AtomicBool,
) -> Ending {
    // When the first process of a PID namespace ends, the kernel kills all others, so a drain is
    // better.
    let is_end_of_all = std::process::id() == 1 && !matches!(launcher, Launcher::Socket(_));
    let (on_stop, lame_duck) = {
        let live = settings.borrow();
        (live.on_stop, live.lame_duck)
    };
    let ends = on_stop == OnStop::Drain || is_end_of_all || ends_them(launcher).await;
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

/// Returns whether the launcher is about to end its Envoys: at the end of a Pod it gets its signal
/// at about the same time as the agent.
async fn ends_them(launcher: &Launcher) -> bool {
    let Launcher::Socket(socket) = launcher else {
        return false;
    };
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < TOLD_AS_WELL {
        if matches!(launcher::is_stopping(socket), Ok(true)) {
            return true;
        }
        tokio::time::sleep(POLL).await;
    }
    false
}

/// Body of `POST /stop`, which ends an agent together with its Envoys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRequest {
    /// Time that connections get.
    pub grace_seconds: u64,
}

/// Error of an attempt to end Envoys.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The agent was asked to stop, and has not.
    #[error("{0}; it was asked to stop, but did not within {1:?}")]
    Lives(LockError, Duration),
    /// It is unknown whether there is an agent.
    #[error(transparent)]
    Lock(LockError),
    /// An Envoy cannot be found or ended.
    #[error("{directory}: {source}")]
    Envoy {
        /// The Envoy's directory.
        directory: String,
        /// Error of the system.
        source: io::Error,
    },
}

/// Waits until no agent uses the runtime directory, then drains and ends every Envoy that is left
/// in it because its agent is gone or could not end it. Returns their number.
///
/// `told` is the time that a stopping agent needs; `None` if there must not be an agent.
pub async fn end_left(
    runtime: &Path,
    grace: Duration,
    told: Option<Duration>,
) -> Result<usize, EndError> {
    let deadline = told.map(|told| tokio::time::Instant::now() + told + LAST_WORDS);
    let _lock = loop {
        match (Lock::acquire(runtime), deadline) {
            (Ok(lock), _) => break lock,
            (Err(LockError::Held { .. }), Some(deadline))
                if tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(POLL).await;
            }
            (Err(held @ LockError::Held { .. }), Some(_)) => {
                return Err(EndError::Lives(held, told.unwrap_or_default() + LAST_WORDS));
            }
            (Err(error), _) => return Err(EndError::Lock(error)),
        }
    };
    end_all(runtime, grace).await
}

/// Returns true if an Envoy of the runtime directory may be running.
pub fn any_left(runtime: &Path) -> bool {
    let directories = entries(&runtime.join("gateways")).unwrap_or_default();
    let noted = |directory: PathBuf| Identity::read(&directory.join(PID_FILE));
    let mut noted = directories.into_iter().filter_map(noted);
    noted.any(|envoy| processes::start_time(envoy.pid) == Some(envoy.start_time))
}

/// Drains and ends every Envoy of the runtime directory. Returns their number.
pub async fn end_all(runtime: &Path, grace: Duration) -> Result<usize, EndError> {
    end_each(runtime, async |config| {
        Supervisor::end_running(&config, grace).await
    })
    .await
}

/// Ends the Envoys of the runtime directory that run this program, because their launcher ends.
/// Returns their number.
pub async fn end_own(runtime: &Path, own: &Executable, grace: Duration) -> Result<usize, EndError> {
    end_each(runtime, async |config| {
        Supervisor::end_own(&config, own, grace).await
    })
    .await
}

/// Ends the Envoys of all directories concurrently, and adds up their numbers.
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
        // Only the location matters.
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
