//! How an agent ends, and what becomes of its Envoys then.
//!
//! To stop the agent is not to stop the gateway: an agent that is restarted or replaced leaves its Envoys serving, and the
//! next one adopts them. Only who says so (`drain --stop`, or `--on-stop drain`) has them drained and ended as well.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::RunOptions;
use crate::apply::lock::{Lock, LockError};
use crate::envoy::launch::{self, Launcher};
use crate::envoy::launcher::{self, LAUNCHER_SOCKET};
use crate::envoy::{Supervisor, SupervisorConfig};

/// How long an agent may take to end once its Envoys have.
const LAST_WORDS: Duration = Duration::from_secs(15);
/// From one signal to the other at the end of a Pod.
const TOLD_AS_WELL: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// What a signal to stop does to the Envoys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnStop {
    /// They serve on, and the next agent adopts them.
    #[default]
    Leave,
    /// They drain, then end.
    Drain,
}

/// What becomes of an Envoy at the end of the agent, or of its Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It serves on.
    Leave,
    /// It drains for at most this long, then ends.
    Drain(Duration),
}

/// Who starts the Envoys of an agent.
pub(super) fn launcher(options: &RunOptions, runtime: &Path) -> Launcher {
    if options.launcher {
        Launcher::Socket(runtime.join(LAUNCHER_SOCKET))
    } else {
        Launcher::Program(launch::own_binary())
    }
}

/// What a signal to stop means; where Envoys are to be ended, after the time that the loss of readiness takes to get around.
pub(super) async fn signalled(
    options: &RunOptions,
    launcher: &Launcher,
    stopping: &AtomicBool,
) -> Ending {
    // The kernel ends whatever shares a namespace with its first process: better with a drain than without.
    let is_end_of_all = std::process::id() == 1 && !matches!(launcher, Launcher::Socket(_));
    match options.on_stop {
        OnStop::Leave if is_end_of_all => Ending::Drain(options.drain),
        OnStop::Leave if !ends_them(launcher).await => Ending::Leave,
        OnStop::Leave => Ending::Drain(options.drain),
        OnStop::Drain => {
            stopping.store(true, Ordering::Relaxed);
            if !options.lame_duck.is_zero() {
                tracing::info!("not ready any more; stopping in {:?}", options.lame_duck);
                tokio::time::sleep(options.lame_duck).await;
            }
            Ending::Drain(options.drain)
        }
    }
}

/// Whether a launcher that stays does not, but ends its Envoys: at the end of a Pod both are told so, one after the other.
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

/// How an agent is told to end with its Envoys; the body of `POST /stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRequest {
    /// How long connections may go on.
    pub grace_seconds: u64,
}

/// Why Envoys could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The agent that was told to stop has not.
    #[error("{0}; it was told to stop, and has not within {1:?}")]
    Lives(LockError, Duration),
    /// It cannot be told whether there is one.
    #[error(transparent)]
    Lock(LockError),
    /// An Envoy cannot be found or ended.
    #[error("{directory}: {source}")]
    Envoy {
        /// The Envoy's directory.
        directory: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Waits until no agent uses the runtime directory, then drains and ends every Envoy that is left in it: of an agent that is
/// gone, or could not end it. Gives back how many there were.
///
/// `told` is how long an agent may need that was told to stop; without one there is to be none.
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

/// Drains and ends every Envoy of the runtime directory; gives back how many there were.
pub async fn end_all(runtime: &Path, grace: Duration) -> Result<usize, EndError> {
    let directories = match std::fs::read_dir(runtime.join("gateways")) {
        Ok(directories) => directories,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(source) => {
            let directory = runtime.display().to_string();
            return Err(EndError::Envoy { directory, source });
        }
    };
    let ends = directories.flatten().map(|entry| async move {
        let directory = entry.path();
        let socket = directory.join("admin.sock");
        // Only where it runs counts.
        let config = SupervisorConfig::new("envoy", &directory, socket, Bytes::new());
        let ended = Supervisor::end_running(&config, grace).await;
        ended.map_err(|source| EndError::Envoy {
            directory: directory.display().to_string(),
            source,
        })
    });
    let mut count = 0;
    for ended in futures::future::join_all(ends).await {
        count += ended?;
    }
    Ok(count)
}
