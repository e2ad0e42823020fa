//! Notifies the service manager (`sd_notify`).
//!
//! Without a service manager, all functions do nothing. Failed notifications never stop the
//! process.

use std::time::Duration;

use sd_notify::NotifyState;

pub(crate) fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Always call [`reloaded`] afterwards, even if the reload fails.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        // Send nothing, because systemd treats a reload without a timestamp as failed.
        Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
    }
}

pub(crate) fn reloaded() {
    notify(&[NotifyState::Ready]);
}

pub(crate) fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

pub(crate) fn alive() {
    notify(&[NotifyState::Watchdog]);
}

pub(crate) fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}
