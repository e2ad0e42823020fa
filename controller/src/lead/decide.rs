//! Decides the next step of leader election. Pure.
//!
//! A holder is considered dead if we have not observed a change to the record for long enough. The
//! times in the record come from another clock, so they are never compared.

use std::time::{Duration, Instant};

/// Content of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Holder of the Lease; empty after a release.
    pub(super) holder: String,
    /// Maximum time that the holder may go without renewing the Lease.
    pub(super) duration: Duration,
    /// Version of the object, which changes with every write.
    pub(super) version: String,
}

/// Next step of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// Create the Lease: it does not exist.
    Create,
    /// Take the Lease: it is free or its holder is dead.
    Take,
    /// Renew the Lease: it is ours.
    Renew,
    /// Wait: another replica holds the Lease.
    Wait,
}

/// Decides the next step. `since` is the time at which the current record was first seen.
pub(super) fn decide(record: Option<&Record>, me: &str, since: Instant, now: Instant) -> LeaseStep {
    let Some(Record {
        holder,
        duration,
        version: _,
    }) = record
    else {
        return LeaseStep::Create;
    };
    if holder == me {
        LeaseStep::Renew
    } else if holder.is_empty() || now >= since + *duration {
        LeaseStep::Take
    } else {
        LeaseStep::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_is_taken_when_free_or_stale() {
        let since = Instant::now();
        let after = |seconds| since + Duration::from_secs(seconds);
        let record = |holder: &str| Record {
            holder: holder.to_owned(),
            duration: Duration::from_secs(15),
            version: "1".to_owned(),
        };
        assert_eq!(decide(None, "me", since, since), LeaseStep::Create);
        assert_eq!(
            decide(Some(&record("")), "me", since, since),
            LeaseStep::Take
        );
        assert_eq!(
            decide(Some(&record("me")), "me", since, after(99)),
            LeaseStep::Renew
        );
        assert_eq!(
            decide(Some(&record("you")), "me", since, after(14)),
            LeaseStep::Wait
        );
        assert_eq!(
            decide(Some(&record("you")), "me", since, after(15)),
            LeaseStep::Take
        );
    }
}
