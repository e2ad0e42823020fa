//! Notifies the service manager (`sd_notify`), if one started this process, of readiness, status,
//! reloads and liveness.
//!
//! Without a service manager, all functions do nothing. A failed notification never stops the
//! process.

use std::time::Duration;

use sd_notify::NotifyState;

/// Returns true if a service manager expects notifications.
pub(crate) fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Returns the watchdog timeout. The manager considers a process dead if it sends no sign of life
/// for that long.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Reports that the process is ready.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that a reload of the settings has started. Always call [`reloaded`] afterwards, even if
/// the reload fails.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        // Send nothing: systemd treats a reload without a timestamp as failed.
        Err(error) => tracing::debug!(%error, "no monotonic time"),
    }
}

/// Reports that a reload has finished, whether or not it changed anything.
pub(crate) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

/// Reports the status of the process in one line.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Sends a sign of life to the watchdog.
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
