//! Notifies the service manager (`sd_notify`) about readiness, status, reloads and liveness, if one
//! started this process.
//!
//! Without a service manager, all functions do nothing. A failed notification never stops the
//! process.

use std::time::Duration;

use sd_notify::NotifyState;

/// Returns true if a service manager expects notifications.
pub(crate) fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Returns the watchdog timeout, or `None` if it is disabled. The service manager considers
/// the process dead if it sends no keep-alive for that long.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Reports that the process is ready.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that reloading the settings has started. Always call [`reloaded`] afterwards, even if
/// the reload fails.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        // Send nothing: systemd treats a reload without a timestamp as failed.
        Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
    }
}

/// Reports that the reload has finished, whether or not it changed anything.
pub(crate) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

/// Reports a one-line status.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Sends a keep-alive to the watchdog.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Reports that the process is about to stop.
pub(crate) fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}
