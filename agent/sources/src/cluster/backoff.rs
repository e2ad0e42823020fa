//! Backs off between requests to an API server. Jitter keeps hosts from retrying together.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use sesame_backoff::Backoff;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// Maximum delay while the server is unreachable. Short, because attempts do not load a server that
/// is down, and hosts should reconnect soon after its recovery.
const LONGEST_UNREACHABLE: Duration = Duration::from_secs(10);
/// First delay after a rejected request. Matches the `Retry-After` header from an overloaded API
/// server.
const FIRST_REFUSED: Duration = Duration::from_secs(1);
/// Maximum delay while the server is overloaded. Short, because it still makes progress, and a few
/// failed attempts must not delay a host for long.
const LONGEST_BUSY: Duration = Duration::from_secs(5);

/// Callers add jitter.
pub const USUAL: Backoff = Backoff::new(FIRST, LONGEST);

/// Why a request to the API server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFault {
    /// The server asked for a later attempt.
    Busy,
    /// Rejected for a reason that may persist.
    Refused,
    /// No response.
    Unreachable,
}

/// Backs off separately for each kind of failure, so an outage does not lengthen the delays for an
/// overloaded server.
#[derive(Debug)]
pub(crate) struct ServerBackoff {
    unreachable: Backoff,
    busy: Backoff,
    refused: Backoff,
}

impl Default for ServerBackoff {
    fn default() -> Self {
        Self {
            unreachable: Backoff::new(FIRST, LONGEST_UNREACHABLE),
            busy: Backoff::new(FIRST_REFUSED, LONGEST_BUSY),
            refused: Backoff::new(FIRST_REFUSED, LONGEST),
        }
    }
}

impl ServerBackoff {
    pub(crate) fn reset(&mut self) {
        self.unreachable.reset();
        self.busy.reset();
        self.refused.reset();
    }

    pub(crate) fn after(&mut self, fault: ServerFault) -> Duration {
        jittered(match fault {
            ServerFault::Busy => self.busy.next_pause(),
            ServerFault::Refused => self.refused.next_pause(),
            ServerFault::Unreachable => self.unreachable.next_pause(),
        })
    }
}

/// Returns a random duration that differs from `duration` by at most a quarter.
pub fn jittered(duration: Duration) -> Duration {
    let random = u32::try_from(RandomState::new().hash_one(0) % 512).unwrap_or(256);
    duration * (768 + random) / 1024
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn jitter_stays_within_a_quarter_and_differs() {
        let pauses: BTreeSet<Duration> = (0..100).map(|_| jittered(LONGEST)).collect();
        let bounds = LONGEST * 3 / 4..LONGEST * 5 / 4;
        assert!(pauses.iter().all(|pause| bounds.contains(pause)));
        assert!(pauses.len() > 10, "{pauses:?}");
    }

    #[test]
    fn long_outage_does_not_delay_hosts_after_recovery() {
        let mut backoff = ServerBackoff::default();
        let longest = (0..1000)
            .map(|_| backoff.after(ServerFault::Unreachable))
            .max();
        assert!(longest.is_some_and(|pause| pause <= Duration::from_secs(13)));
        for fault in [ServerFault::Busy, ServerFault::Refused] {
            let first = backoff.after(fault);
            assert!(first < Duration::from_secs(2), "{first:?}");
        }
        let busy = (0..100).map(|_| backoff.after(ServerFault::Busy)).max();
        assert!(busy.is_some_and(|pause| pause < Duration::from_secs(7)));
        let last = (0..100).map(|_| backoff.after(ServerFault::Refused)).last();
        assert!(last.is_some_and(|pause| pause > Duration::from_secs(20)));
    }
}
