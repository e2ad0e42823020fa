//! Notifies the service manager (`sd_notify`).
//!
//! Without a service manager, all functions do nothing. Failed notifications never stop the
//! process.

use std::time::Duration;

use sd_notify::NotifyState;

/// Returns true if a service manager expects notifications (`$NOTIFY_SOCKET` is set).
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Returns the watchdog's timeout, or `None` if the watchdog is off.
/// Call [`alive`] more often than that.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Reports that the process is ready, with a status line.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Always call [`reloaded`] afterwards, even if the reload fails.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        // Send nothing, because systemd treats a reload without a timestamp as failed.
        Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
    }
}

/// Reports that a reload is complete.
pub fn reloaded() {
    notify(&[NotifyState::Ready]);
}

/// Replaces the status line that `systemctl status` shows.
pub fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Resets the watchdog's timer.
pub fn alive() {
    notify(&[NotifyState::Watchdog]);
}

/// Reports that the process is shutting down, with a status line.
pub fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}
