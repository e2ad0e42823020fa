//! Decides the next step of leader election. Times in the Lease come from the holder's clock, so
//! they are never compared with this replica's clock.

use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Empty if the Lease was released.
    pub(super) holder: String,
    pub(super) duration: Duration,
    pub(super) version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    Create,
    Take,
    Renew,
    Wait,
}

/// `since` is when this replica first saw the current record. `has_ended` is true if the holder
/// certainly does not run.
pub(super) fn decide(
    record: Option<&Record>,
    me: &str,
    has_ended: bool,
    since: Instant,
    now: Instant,
) -> LeaseStep {
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
    } else if holder.is_empty() || has_ended || now >= since + *duration {
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
        assert_eq!(decide(None, "me", false, since, since), LeaseStep::Create);
        assert_eq!(
            decide(Some(&record("")), "me", false, since, since),
            LeaseStep::Take
        );
        assert_eq!(
            decide(Some(&record("me")), "me", false, since, after(99)),
            LeaseStep::Renew
        );
        assert_eq!(
            decide(Some(&record("you")), "me", false, since, after(14)),
            LeaseStep::Wait
        );
        assert_eq!(
            decide(Some(&record("you")), "me", false, since, after(15)),
            LeaseStep::Take
        );
        assert_eq!(
            decide(Some(&record("you")), "me", true, since, since),
            LeaseStep::Take
        );
    }
}
