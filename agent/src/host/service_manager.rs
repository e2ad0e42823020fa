//! Notifies the service manager about readiness, status, reloads and liveness (`sd_notify`).
//!
//! If no service manager has started this process, all functions do nothing. Errors from the
//! service manager never stop the process.

use std::time::Duration;

use sd_notify::NotifyState;

/// Returns true if a service manager expects notifications.
pub(crate) fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Returns the watchdog timeout, or `None` if the watchdog is disabled. The service manager
/// considers the process dead after this time without a keep-alive.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the process has started to reload its settings. Always call [`reloaded`]
/// afterwards, even if the reload fails.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        // Send nothing, because systemd treats a reload without a timestamp as failed.
        Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
    }
}

/// Reports that the reload has ended, whether or not any setting has changed.
pub(crate) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Sends a keep-alive to the watchdog.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

pub(crate) fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}
