//! Delays restarts of Envoy.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::sleep;

use super::actor::{Actor, SupervisorCommand};
use crate::restart::RestartError;
use crate::settings::State;
use sesame_host::reserve::LackingInstances;
use sesame_host::until;

/// How often to check whether enough inotify instances are free.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Actor {
    pub(super) fn record_death(&mut self, reason: String, lived: Duration) -> Duration {
        self.deaths = if lived >= self.config.backoff.reset_after {
            1
        } else {
            self.deaths.saturating_add(1)
        };
        let pause = self.config.backoff.pause(self.deaths);
        tracing::error!(deaths = self.deaths, ?pause, %reason, "Envoy died");
        self.state.send_replace(State::Backoff {
            deaths: self.deaths,
            reason,
        });
        pause
    }

    /// Waits before the next check for free instances. In the meantime, the agent may render fewer
    /// files, so that Envoy needs fewer instances.
    pub(super) async fn wait_for_instances(
        &mut self,
        lacking: LackingInstances,
    ) -> ControlFlow<()> {
        let state = State::Backoff {
            deaths: 0,
            reason: lacking.to_string(),
        };
        self.state.send_if_modified(|now| {
            let changed = *now != state;
            if changed {
                tracing::error!("Envoy is not started: {lacking}");
                *now = state;
            }
            changed
        });
        self.back_off(POLL_INTERVAL).await
    }

    /// Returns `Break` if a stop command arrives or the `Supervisor` is dropped.
    pub(super) async fn back_off(&mut self, pause: Duration) -> ControlFlow<()> {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return ControlFlow::Continue(()),
                () = until(self.parked_until) => self.let_go(),
                request = self.inbox.recv() => match request {
                    Some(SupervisorCommand::Restart(_, done)) => {
                        let _ = done.send(Err(RestartError::NotLive));
                    }
                    Some(SupervisorCommand::Stop(stop)) => {
                        self.end_retiring().await;
                        self.state.send_replace(State::Stopped);
                        let _ = stop.done.send(());
                        return ControlFlow::Break(());
                    }
                    None => return ControlFlow::Break(()),
                }
            }
        }
    }
}
