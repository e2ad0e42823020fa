//! The service manager that started this process, if one did: it is told when the process is ready, what it does, when it
//! reads its settings again, and that it is alive.
//!
//! A process without a service manager tells nobody. A manager that cannot be told never stops the process.

use std::time::Duration;

use sd_notify::NotifyState;

/// Returns true if a service manager wants to be told.
pub(crate) fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Returns the longest time between two signs of life after which the manager still takes the process for alive.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Tells that the process is ready.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells that the process reads its settings again. It is [`reloaded`] afterwards, whatever came of it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        // A reload without its time would count as failed.
        Err(error) => tracing::debug!(%error, "there is no monotonic time"),
    }
}

/// Tells that the process has read its settings again, or has kept those that it had.
pub(crate) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

/// Tells what the process does, in one line.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Gives a sign of life.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Tells that the process is about to end.
pub(crate) fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}
