//! Replaces a Gateway's Envoy. Nothing may be published during a replacement, because both Envoy
//! processes read the same files.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::commands::ReplySink;
use crate::observed::Observed;
use crate::target::Target;
use sesame_envoy::restart::{Request, Restarted, Strategy};
use sesame_envoy::{State, Supervisor};
use sesame_render::xds::quic_addresses;

/// Minimum time between automatic attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct Replacement {
    /// The running Envoy's bootstrap.
    bootstrap: Bytes,
    not_before: Option<Instant>,
    /// True if the running Envoy may have open HTTP/3 connections. Stays true after HTTP/3 is
    /// disabled, because its listener drains for some time.
    http3: bool,
}

impl Replacement {
    pub(super) fn new(started_with: Bytes) -> Self {
        Self {
            bootstrap: started_with,
            not_before: None,
            http3: false,
        }
    }

    /// Call before publishing a target.
    pub(super) fn publishes(&mut self, target: &Target) {
        self.http3 |= !quic_addresses(&target.rendered).is_empty();
    }

    pub(super) fn due(&self, state: &State, newest: &Target) -> Option<&'static str> {
        let why = self.why(state, newest)?;
        self.not_before
            .is_none_or(|instant| instant <= Instant::now())
            .then_some(why)
    }

    /// Returns the earliest time at which an outdated Envoy may be replaced, if the attempt must
    /// wait.
    pub(super) fn next(&self, state: &State, newest: &Target) -> Option<Instant> {
        self.why(state, newest).and(self.not_before)
    }

    fn why(&self, state: &State, newest: &Target) -> Option<&'static str> {
        match state {
            State::Live { outdated, .. } => outdated
                .or((newest.bootstrap != self.bootstrap).then_some("its bootstrap has changed")),
            _ => None,
        }
    }

    pub(super) async fn by_itself(
        &mut self,
        why: &str,
        supervisor: &Supervisor,
        newest: &Target,
        observed: &Observed,
    ) -> Result<Restarted, String> {
        self.not_before = Some(Instant::now() + RETRY_INTERVAL);
        let request = self.request(Strategy::Auto, newest, observed);
        match supervisor.restart(request).await {
            Ok(restarted) => {
                self.replaced(newest);
                Ok(restarted)
            }
            Err(error) => Err(format!(
                "cannot replace Envoy ({why}), so it keeps serving: {error}"
            )),
        }
    }

    /// Returns `None` after a failure.
    pub(super) async fn on_command(
        &mut self,
        strategy: Strategy,
        replies: &ReplySink,
        supervisor: &Supervisor,
        newest: &Target,
        observed: &Observed,
    ) -> Option<Restarted> {
        let (progress, mut steps) = mpsc::unbounded_channel();
        let request = Request {
            progress: Some(progress),
            ..self.request(strategy, newest, observed)
        };
        let forwarding = async {
            // The loop ends when the restart drops the sender.
            while let Some(step) = steps.recv().await {
                replies.send_progress(step);
            }
        };
        let (result, ()) = tokio::join!(supervisor.restart(request), forwarding);
        let restarted = result.as_ref().ok().copied();
        if restarted.is_some() {
            self.replaced(newest);
        }
        replies.end(match result {
            Ok(done) => Ok(format!(
                "replaced by {}: process {} replaced {} after {} ms",
                done.way,
                done.now,
                done.before,
                done.took.as_millis()
            )),
            Err(error) => Err(format!("not replaced: {error}")),
        });
        restarted
    }

    /// The new Envoy has the same listeners.
    fn replaced(&mut self, newest: &Target) {
        self.bootstrap.clone_from(&newest.bootstrap);
        self.http3 = false;
    }

    fn request(&self, strategy: Strategy, newest: &Target, observed: &Observed) -> Request {
        let served = observed.applied.as_ref().and_then(|applied| {
            // Rendering cannot fail, because this configuration has already been applied.
            sesame_render::static_bootstrap(&applied.rendered).ok()
        });
        let quic = quic_addresses(&observed.applied.as_deref().unwrap_or(newest).rendered);
        Request {
            strategy,
            bootstrap: (newest.bootstrap != self.bootstrap).then(|| newest.bootstrap.clone()),
            served,
            // The listeners of an adopted Envoy are unknown until its first revision is accepted.
            serves_http3: self.http3 || observed.applied.is_none() || !quic.is_empty(),
            quic,
            progress: None,
        }
    }
}
