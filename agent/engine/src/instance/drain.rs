//! Drains connections without stopping Envoy.
//!
//! The agent becomes unready first, because load balancers need time to notice. Envoy still accepts
//! new connections, so late clients are served.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::Instrument as _;

use crate::commands::{DrainLimits, ReplySink};
use crate::observed::Observed;
use sesame_envoy::Admin;

const POLL: Duration = Duration::from_millis(250);

/// Dropping the value aborts the drain's task.
#[derive(Debug)]
pub(super) struct Drain {
    task: JoinHandle<()>,
    admin: Admin,
    observed: watch::Sender<Observed>,
}

impl Drain {
    pub(super) fn start(
        admin: Admin,
        observed: watch::Sender<Observed>,
        limits: DrainLimits,
        replies: ReplySink,
    ) -> Self {
        let drain = run(admin.clone(), observed.clone(), limits, replies);
        let task = tokio::spawn(drain.in_current_span());
        Self {
            task,
            admin,
            observed,
        }
    }

    pub(super) async fn undo(self) -> Result<(), String> {
        self.task.abort();
        let answer = self.admin.post("/healthcheck/ok").await;
        self.observed
            .send_modify(|observed| observed.draining = None);
        answer.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    admin: Admin,
    observed: watch::Sender<Observed>,
    limits: DrainLimits,
    replies: ReplySink,
) {
    let timeout = Duration::from_secs(limits.timeout_seconds);
    let lame_duck = Duration::from_secs(limits.lame_duck_seconds);
    let start = Instant::now();
    let record = |text: String| {
        observed.send_modify(|observed| observed.draining = Some(text.clone()));
        text
    };
    replies.send_progress(record("no longer ready".to_owned()));
    sleep(lame_duck.min(timeout)).await;
    let mut replies = Some(replies);
    let mut last = None;
    loop {
        // Repeat the request, because Envoy may have restarted.
        let asked = admin.post("/healthcheck/fail").await;
        let left = match asked {
            Ok(_) => admin.active_connections().await.map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Some(to) = &replies {
            let end = match &left {
                Ok(left) if *left <= limits.until_connections => {
                    Some(Ok(record(format!("drained: {left} connections remain"))))
                }
                _ if start.elapsed() >= timeout => {
                    let left = left
                        .as_ref()
                        .map_or_else(Clone::clone, |left| format!("{left} connections remain"));
                    Some(Err(record(format!(
                        "not drained within {timeout:?}: {left}"
                    ))))
                }
                Ok(left) if last != Some(*left) => {
                    last = Some(*left);
                    to.send_progress(record(format!(
                        "asking clients to disconnect: {left} connections remain"
                    )));
                    None
                }
                _ => None,
            };
            if let Some(end) = end {
                to.end(end);
                replies = None;
            }
        }
        sleep(POLL).await;
    }
}
