//! The service manager that started this process, if one did: it is told when the process is ready, what it does, and
//! that it is alive.
//!
//! Where there is none, nothing happens. A manager that cannot be told never stops the process.

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
