//! The signals that tell the process to stop. Nothing is ended here.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receivers of these signals.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Begins to listen.
    pub(super) fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("wait for SIGINT")?,
        })
    }

    /// Waits until the process is told to stop.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
