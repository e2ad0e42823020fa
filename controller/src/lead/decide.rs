//! Decides what to do about the Lease. Pure.
//!
//! A holder is gone when the record has not changed for long enough while we looked. The times that
//! the record holds are of another clock, and are never compared.

use std::time::{Duration, Instant};

/// Content of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Holder of the Lease; empty when it was given up.
    pub(super) holder: String,
    /// Time that the holder may be silent.
    pub(super) duration: Duration,
    /// Version of the object, which changes with every write.
    pub(super) version: String,
}

/// Next step of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create the Lease: there is none.
    Create,
    /// Take the Lease: it is free, or its holder is gone.
    Take,
    /// Renew the Lease: it is ours.
    Renew,
    /// Wait: another replica holds the Lease.
    Wait,
}

/// Decides the next step. `since` is the time at which the record was first seen as it is.
pub(super) fn decide(record: Option<&Record>, me: &str, since: Instant, now: Instant) -> Step {
    let Some(Record {
        holder,
        duration,
        version: _,
    }) = record
    else {
        return Step::Create;
    };
    if holder == me {
        Step::Renew
    } else if holder.is_empty() || now >= since + *duration {
        Step::Take
    } else {
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_when_free_or_when_its_record_has_stood_still_for_its_duration() {
        let since = Instant::now();
        let after = |seconds| since + Duration::from_secs(seconds);
        let record = |holder: &str| Record {
            holder: holder.to_owned(),
            duration: Duration::from_secs(15),
            version: "1".to_owned(),
        };
        assert_eq!(decide(None, "me", since, since), Step::Create);
        assert_eq!(decide(Some(&record("")), "me", since, since), Step::Take);
        assert_eq!(
            decide(Some(&record("me")), "me", since, after(99)),
            Step::Renew
        );
        assert_eq!(
            decide(Some(&record("you")), "me", since, after(14)),
            Step::Wait
        );
        assert_eq!(
            decide(Some(&record("you")), "me", since, after(15)),
            Step::Take
        );
    }
}
