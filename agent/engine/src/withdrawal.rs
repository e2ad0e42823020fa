//! Decides whether to withdraw Gateways that were not deleted individually.
//!
//! If the manifests suddenly lack all Gateways, or a GatewayClass that Gateways use, that may
//! be a mistake. The withdrawal is held until an operator accepts it, or until the manifests have
//! stayed the same for a while.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use sesame_host::until;

pub(super) struct Withdrawal {
    /// How long to hold a withdrawal; `None` if withdrawals are not held.
    pause: Box<dyn Fn() -> Option<Duration> + Send>,
    /// Number of withdrawals that operators have accepted.
    accepted: watch::Receiver<u64>,
    waits: Option<Waits>,
}

/// If `until` is `None`, only an operator can release the withdrawal.
#[derive(Debug)]
struct Waits {
    until: Option<Instant>,
}

impl Withdrawal {
    pub(super) fn new(
        pause: impl Fn() -> Option<Duration> + Send + 'static,
        accepted: watch::Receiver<u64>,
    ) -> Self {
        Self {
            pause: Box::new(pause),
            accepted,
            waits: None,
        }
    }

    /// If a withdrawal is already held, `None` removes its time limit, and other values are
    /// ignored. Returns true if the withdrawal has been released.
    pub(super) fn begin(&mut self, until: Option<Instant>) -> bool {
        match &mut self.waits {
            None => {
                // Ignore acceptances of earlier withdrawals.
                self.accepted.mark_unchanged();
                self.waits = Some(Waits { until });
            }
            Some(waits) if until.is_none() => waits.until = None,
            Some(_) => {}
        }
        let over = self
            .waits
            .as_ref()
            .and_then(|waits| waits.until)
            .is_some_and(|until| until <= Instant::now());
        over || self.accepted.has_changed().unwrap_or(false)
    }

    /// Returns why the withdrawal is held. `lost` describes the loss.
    pub(super) fn holds(&mut self, lost: Option<&str>) -> Option<String> {
        let (Some(pause), Some(lost)) = ((self.pause)(), lost) else {
            self.waits = None;
            return None;
        };
        // The manifests contain objects again, so a hold without a time limit gets one now.
        self.waits.take_if(|waits| {
            waits.until.is_none() && !self.accepted.has_changed().unwrap_or(false)
        });
        if self.begin(Some(Instant::now() + pause)) {
            self.waits = None;
            return None;
        }
        Some(format!(
            "{lost}; the withdrawal is held, and the last accepted configuration is served for {} s or until `sesame-agent accept`",
            pause.as_secs()
        ))
    }

    pub(super) async fn decided(&mut self) {
        let Some(waits) = &self.waits else {
            return std::future::pending().await;
        };
        tokio::select! {
            () = until(waits.until) => {}
            changed = async { self.accepted.clone().changed().await } => {
                if changed.is_err() {
                    // The sender is gone, so an operator can no longer accept the withdrawal.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_world_is_held_until_accepted_or_persistent() {
        let (sender, receiver) = watch::channel(0u64);
        // An acceptance has no effect if nothing is held.
        sender.send_modify(|count| *count += 1);
        let mut long = Withdrawal::new(|| Some(Duration::from_secs(300)), receiver.clone());
        assert!(long.holds(Some("lost")).is_some());
        assert!(long.holds(Some("lost")).is_some());
        sender.send_modify(|count| *count += 1);
        assert!(long.holds(Some("lost")).is_none());
        assert!(
            long.holds(Some("lost")).is_some(),
            "an acceptance covers only one withdrawal"
        );
        assert!(long.holds(None).is_none());

        let mut short = Withdrawal::new(|| Some(Duration::ZERO), receiver.clone());
        assert!(short.holds(Some("lost")).is_none());
        let mut never = Withdrawal::new(|| None, receiver);
        assert!(never.holds(Some("lost")).is_none());
        assert!(!never.begin(None), "an empty directory must be held");
    }
}
