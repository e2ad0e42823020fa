//! Watches the first Envoy after a takeover, until it has exited.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument as _;

use super::{OLD_ADMIN, QuicSteering, RestartMethod, Steering};
use crate::admin::Admin;
use crate::process::identity::RunningEnvoy;
use crate::process::{Lineage, Process};

const LATE: Duration = Duration::from_secs(10);
const LAST_CONNECTIONS: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn latest_end(drain_time: Duration) -> Duration {
    Lineage::parent_ends_after(drain_time) + LATE
}

#[derive(Debug)]
pub(crate) struct Retiring {
    process: Process,
    task: JoinHandle<()>,
}

impl Retiring {
    /// Without `steering`, the kernel distributes new connections between both Envoy processes
    /// after a handover.
    pub(crate) fn start(
        parent: RunningEnvoy,
        successor: &Process,
        way: RestartMethod,
        directory: PathBuf,
        drain_time: Duration,
        (steering, quic): (Option<Steering>, QuicSteering),
    ) -> Self {
        let (process, successor) = (parent.process.clone(), successor.clone());
        let retires = async move {
            match way {
                RestartMethod::Hot => await_exit(&parent.process, &successor, drain_time).await,
                RestartMethod::Handover => {
                    drains(&parent.process, &directory, drain_time, steering).await;
                    quic.finish(&directory, &successor);
                }
            }
            let _ = std::fs::remove_file(directory.join(OLD_ADMIN));
            if let Some(line) = parent.identity.lineage {
                match way {
                    // The second Envoy is in the same lineage, so it still needs the shared memory.
                    RestartMethod::Hot => line.remove_sockets(&directory),
                    RestartMethod::Handover => line.remove(&directory),
                }
            }
            tracing::info!(pid = parent.process.pid(), "the previous Envoy has exited");
        };
        let task = tokio::spawn(retires.in_current_span());
        Self { process, task }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.task.is_finished()
    }

    /// Cancelling the wait does not affect the process.
    pub(crate) async fn gone(&mut self) {
        // Ignore a panic in the task, because the runtime has already logged it.
        let _ = (&mut self.task).await;
    }

    /// Must be called only after the successor has exited.
    pub(crate) async fn end(self) {
        self.process.end().await;
        let _ = self.task.await;
    }
}

/// Waits for the process to exit. Terminates it only if that takes too long, because earlier
/// termination would take down a live successor.
async fn await_exit(process: &Process, successor: &Process, drain_time: Duration) {
    let start = Instant::now();
    let lifetime = Lineage::parent_ends_after(drain_time);
    let successor_ends = async {
        successor.wait().await;
        sleep_until(start + lifetime).await;
    };
    tokio::select! {
        _ = process.wait() => return,
        () = successor_ends => {}
        () = sleep(latest_end(drain_time)) => {
            tracing::warn!(
                pid = process.pid(),
                "the previous Envoy did not exit in time; terminating it"
            );
        }
    }
    process.end().await;
}

async fn drains(
    process: &Process,
    directory: &std::path::Path,
    drain_time: Duration,
    steering: Option<Steering>,
) {
    let admin = Admin::new(directory.join(OLD_ADMIN)).with_timeout(ADMIN_TIMEOUT);
    let start = Instant::now();
    // With steering, the process receives no new connections, so it may keep its ports open.
    // Otherwise, it must close them to stop receiving connections.
    let how = match steering {
        Some(_) => "/drain_listeners?graceful&skip_exit",
        None => "/drain_listeners?graceful",
    };
    let drains = match admin.post(how).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(pid = process.pid(), %error, "the previous Envoy might not drain");
            // If Envoy is merely busy, it has received the request and will drain.
            !error.is_gone()
        }
    };
    // With steering, no new connections arrive, so wait even if Envoy does not drain.
    if drains || steering.is_some() {
        let drained = async {
            // Until the drain time is over, the process may still accept connections.
            sleep(drain_time).await;
            while start.elapsed() < drain_time + LAST_CONNECTIONS
                && !is_idle(&admin, steering.as_ref()).await
            {
                sleep(POLL).await;
            }
        };
        tokio::select! {
            () = drained => {}
            _ = process.wait() => {}
        }
    }
    let narrowed = steering.map(Steering::narrow);
    process.end().await;
    if let Some(narrowed) = narrowed {
        narrowed.release();
    }
}

async fn is_idle(admin: &Admin, steering: Option<&Steering>) -> bool {
    let is_without = async || matches!(admin.active_connections().await, Ok(0));
    // Count again, because waiting connections may have been accepted after the first count.
    is_without().await
        && steering.is_none_or(|steering| !steering.is_awaited())
        && is_without().await
}
