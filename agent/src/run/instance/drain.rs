//! Emptying an Envoy of its connections without ending it, so that a host can be taken out of service and put back.
//!
//! First the agent is no longer ready, so that nobody sends new clients; then, after the time that takes to get around,
//! Envoy asks every client to go. It takes new connections all the while: a late client is served, not refused. All
//! of it can be taken back; only the end of Envoy cannot.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::envoy::Admin;
use crate::run::commands::ReplySink;
use crate::run::observed::Observed;

const POLL: Duration = Duration::from_millis(250);

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    /// From the loss of readiness until clients are asked to go.
    pub(super) lame_duck: Duration,
    /// From the beginning to the end.
    pub(super) timeout: Duration,
    /// Done when no more than these are left.
    pub(super) connections: u64,
}

/// A drain, under way or done; ends with this value.
#[derive(Debug)]
pub(super) struct Drain {
    task: JoinHandle<()>,
    admin: Admin,
    observed: watch::Sender<Observed>,
}

impl Drain {
    /// Begins.
    pub(super) fn start(
        admin: Admin,
        observed: watch::Sender<Observed>,
        until: Until,
        listener: ReplySink,
    ) -> Self {
        let task = tokio::spawn(run(admin.clone(), observed.clone(), until, listener));
        Self {
            task,
            admin,
            observed,
        }
    }

    /// Takes it back.
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

async fn run(admin: Admin, observed: watch::Sender<Observed>, until: Until, listener: ReplySink) {
    let start = Instant::now();
    let note = |text: String| {
        observed.send_modify(|observed| observed.draining = Some(text.clone()));
        text
    };
    listener.say(note("not ready any more".to_owned()));
    sleep(until.lame_duck.min(until.timeout)).await;
    let mut listener = Some(listener);
    let mut last = None;
    loop {
        // Again each time: Envoy may be a new one.
        let asked = admin.post("/healthcheck/fail").await;
        let left = match asked {
            Ok(_) => admin.active_connections().await.map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Some(to) = &listener {
            let end = match &left {
                Ok(left) if *left <= until.connections => {
                    Some(Ok(note(format!("drained: {left} connections are left"))))
                }
                _ if start.elapsed() >= until.timeout => {
                    let left = left
                        .as_ref()
                        .map_or_else(Clone::clone, |left| format!("{left} connections are left"));
                    Some(Err(note(format!(
                        "not drained within {:?}: {left}",
                        until.timeout
                    ))))
                }
                Ok(left) if last != Some(*left) => {
                    last = Some(*left);
                    to.say(note(format!(
                        "clients are asked to go: {left} connections are left"
                    )));
                    None
                }
                _ => None,
            };
            if let Some(end) = end {
                to.end(end);
                listener = None;
            }
        }
        sleep(POLL).await;
    }
}
