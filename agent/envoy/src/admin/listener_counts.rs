//! Counts accepted listeners, and listeners that workers serve.

use super::{Admin, AdminError, Sample};

/// Listener manager counters since Envoy started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Added and modified listeners, counted once for all workers.
    pub changed: u64,
    /// Listeners that workers started, counted once per worker.
    pub taken: u64,
    /// Listeners that a worker failed to start.
    pub failed: u64,
    /// Worker threads.
    pub workers: u64,
}

impl ListenerCounts {
    /// Returns true once every worker has processed every listener that changed since `before`. May
    /// never return true, because listeners replaced while warming never reach the workers.
    #[must_use]
    pub const fn all_taken_since(&self, before: &Self) -> bool {
        let Self {
            changed,
            taken,
            failed,
            workers,
        } = *self;
        let changed = changed.saturating_sub(before.changed);
        let done = (taken + failed).saturating_sub(before.taken + before.failed);
        done >= changed.saturating_mul(workers)
    }
}

impl Admin {
    /// Queries the listener counters.
    pub async fn listener_counts(&self) -> Result<ListenerCounts, AdminError> {
        let filter =
            r"^(listener_manager\.listener_(added|modified|create_.*)|server\.concurrency)$";
        let found = self.prometheus(filter).await?;
        let mut counts = ListenerCounts::default();
        for sample in found.lines().filter_map(Sample::read) {
            let count = match sample.name {
                "envoy_listener_manager_listener_added"
                | "envoy_listener_manager_listener_modified" => &mut counts.changed,
                "envoy_listener_manager_listener_create_success" => &mut counts.taken,
                "envoy_listener_manager_listener_create_failure" => &mut counts.failed,
                "envoy_server_concurrency" => &mut counts.workers,
                _ => continue,
            };
            *count += sample.count();
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_taken_once_every_worker_has_it() {
        let counts = |changed, taken, failed| ListenerCounts {
            changed,
            taken,
            failed,
            workers: 2,
        };
        let before = counts(3, 6, 0);
        assert!(before.all_taken_since(&before));
        for (after, expected) in [
            (counts(4, 6, 0), false),
            (counts(4, 7, 0), false),
            (counts(4, 8, 0), true),
            (counts(4, 7, 1), true),
            (counts(5, 8, 0), false),
            (counts(5, 10, 0), true),
        ] {
            assert_eq!(after.all_taken_since(&before), expected, "{after:?}");
        }
    }
}
