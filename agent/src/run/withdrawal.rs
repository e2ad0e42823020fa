//! Whether it is meant that Gateways go which nobody has deleted one by one. A Gateway that a source deletes is withdrawn.
//! Manifests that suddenly hold no Gateway at all, when they held some, may just as well have lost them, and a
//! GatewayClass that is gone would take all of its Gateways with it: both wait until somebody says that it is meant, or
//! until the manifests have stuck to it for a while.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// See the module.
#[derive(Debug)]
pub(super) struct Withdrawal {
    /// How long a source must stick to it; `None` if nothing is ever held.
    pause: Option<Duration>,
    /// Counts how often somebody has said so.
    accepted: watch::Receiver<u64>,
    waits: Option<Waits>,
}

/// What is held, and from which time on it no longer is; `None` for never.
#[derive(Debug)]
struct Waits {
    until: Option<Instant>,
}

impl Withdrawal {
    pub(super) fn new(pause: Option<Duration>, accepted: watch::Receiver<u64>) -> Self {
        Self {
            pause,
            accepted,
            waits: None,
        }
    }

    /// Holds it, until then if it is not held yet; whether it is let through by now.
    pub(super) fn begin(&mut self, until: Option<Instant>) -> bool {
        match &mut self.waits {
            None => {
                // What was said before was about something else.
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

    /// Returns why nothing is withdrawn, unless `lost`, what has happened to the manifests, is let through by now.
    pub(super) fn holds(&mut self, lost: Option<&str>) -> Option<String> {
        let (Some(pause), Some(lost)) = (self.pause, lost) else {
            self.waits = None;
            return None;
        };
        // Some object is there: what waited because there was none has now a time.
        self.waits.take_if(|waits| {
            waits.until.is_none() && !self.accepted.has_changed().unwrap_or(false)
        });
        if self.begin(Some(Instant::now() + pause)) {
            self.waits = None;
            return None;
        }
        Some(format!(
            "{lost}, which is held; what was accepted last is served until `sesame-agent accept` lets it go, or this has been so for {} s",
            pause.as_secs()
        ))
    }

    /// Waits until what is held may be looked at again.
    pub(super) async fn decided(&mut self) {
        let Some(Waits { until }) = &self.waits else {
            return std::future::pending().await;
        };
        let over = async {
            match until {
                Some(until) => tokio::time::sleep_until((*until).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => {}
            said = async { self.accepted.clone().changed().await } => {
                if said.is_err() {
                    // Nobody is left who could.
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
    fn nothing_left_is_held_until_it_is_accepted_or_stuck_to() {
        let (sender, receiver) = watch::channel(0u64);
        // Before anything is held it means nothing.
        sender.send_modify(|count| *count += 1);
        let mut long = Withdrawal::new(Some(Duration::from_secs(300)), receiver.clone());
        assert!(long.holds(Some("lost")).is_some());
        assert!(long.holds(Some("lost")).is_some());
        sender.send_modify(|count| *count += 1);
        assert!(long.holds(Some("lost")).is_none());
        assert!(
            long.holds(Some("lost")).is_some(),
            "the next is another one"
        );
        assert!(long.holds(None).is_none());

        let mut short = Withdrawal::new(Some(Duration::ZERO), receiver.clone());
        assert!(short.holds(Some("lost")).is_none());
        let mut never = Withdrawal::new(None, receiver);
        assert!(never.holds(Some("lost")).is_none());
        assert!(!never.begin(None), "an empty directory is always held");
    }
}
