//! What to do about the Lease. Pure.
//!
//! Whether a holder is gone is told by how long the record has not changed while we looked, never by the times that
//! it holds: those are of another clock.

use std::time::{Duration, Instant};

/// What the Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Empty when it was given up.
    pub(super) holder: String,
    /// How long the holder may be silent.
    pub(super) duration: Duration,
    /// Changes with every write.
    pub(super) version: String,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is no Lease: make one.
    Create,
    /// It is free, or its holder is gone: take it.
    Take,
    /// It is ours: renew it.
    Renew,
    /// Another holds it.
    Wait,
}

/// Decides. `since` is when the record was first seen as it is.
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
