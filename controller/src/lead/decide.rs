//! Decides the next step of leader election. Times in the Lease come from the holder's clock, so
//! they are never compared with this replica's clock.

use std::time::{Duration, Instant};

use super::holder::Ended;

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

/// `since` is when this replica first saw the current record.
pub(super) fn decide(
    record: Option<&Record>,
    me: &str,
    ended: Ended,
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
    let patience = match ended {
        Ended::Certainly => Duration::ZERO,
        // A running holder would renew the Lease twice in this time.
        Ended::Probably => *duration / 3,
        Ended::Unknown => *duration,
    };
    if holder == me {
        LeaseStep::Renew
    } else if holder.is_empty() || now >= since + patience {
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
        assert_eq!(
            decide(None, "me", Ended::Unknown, since, since),
            LeaseStep::Create
        );
        assert_eq!(
            decide(Some(&record("")), "me", Ended::Unknown, since, since),
            LeaseStep::Take
        );
        assert_eq!(
            decide(Some(&record("me")), "me", Ended::Unknown, since, after(99)),
            LeaseStep::Renew
        );
        assert_eq!(
            decide(Some(&record("you")), "me", Ended::Unknown, since, after(14)),
            LeaseStep::Wait
        );
        assert_eq!(
            decide(Some(&record("you")), "me", Ended::Unknown, since, after(15)),
            LeaseStep::Take
        );
        let ended = |ended, now| decide(Some(&record("you")), "me", ended, since, now);
        assert_eq!(ended(Ended::Certainly, since), LeaseStep::Take);
        assert_eq!(ended(Ended::Probably, after(4)), LeaseStep::Wait);
        assert_eq!(ended(Ended::Probably, after(5)), LeaseStep::Take);
    }
}
