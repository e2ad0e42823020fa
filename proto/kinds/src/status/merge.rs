//! Stored conditions, which may come from several controllers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Condition, ConditionType};

/// A `metav1.Condition` from this or another controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimedCondition {
    /// The condition's type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// The machine-readable reason.
    pub reason: String,
    /// The human-readable message.
    #[serde(default)]
    pub message: String,
    /// The object's generation for which the condition was determined.
    #[serde(default)]
    pub observed_generation: i64,
    /// Time at which the condition's status last changed.
    pub last_transition_time: Timestamp,
}

/// Returns the conditions to store: this controller's, then other controllers' conditions
/// unchanged.
///
/// A condition keeps its transition time while its status stays the same. A stored condition for a
/// later generation wins, because `new` was computed from an old object.
pub fn merge(old: &[TimedCondition], new: &[Condition], now: Timestamp) -> Vec<TimedCondition> {
    let ours = new.iter().map(|condition| {
        let stored = old
            .iter()
            .find(|stored| stored.type_ == condition.type_.as_str());
        match stored {
            Some(stored) if stored.observed_generation > condition.observed_generation => {
                stored.clone()
            }
            _ => TimedCondition {
                type_: condition.type_.as_str().to_owned(),
                status: condition.status.as_str().to_owned(),
                reason: condition.reason.as_str().to_owned(),
                message: condition.message.clone(),
                observed_generation: condition.observed_generation,
                last_transition_time: stored
                    .filter(|stored| stored.status == condition.status.as_str())
                    .map_or(now, |stored| stored.last_transition_time),
            },
        }
    });
    let foreign = old
        .iter()
        .filter(|stored| ConditionType::parse(&stored.type_).is_none())
        .cloned();
    ours.chain(foreign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{ConditionStatus, Reason};

    const EARLIER: Timestamp = Timestamp::UNIX_EPOCH;

    fn now() -> Timestamp {
        Timestamp::from_second(1_000).expect("in range")
    }

    fn stored(type_: &str, status: &str, generation: i64) -> TimedCondition {
        TimedCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: "Old".to_owned(),
            message: "old".to_owned(),
            observed_generation: generation,
            last_transition_time: EARLIER,
        }
    }

    fn accepted(status: ConditionStatus, generation: i64) -> Condition {
        Condition::new(
            ConditionType::Accepted,
            status,
            Reason::Accepted,
            "new",
            generation,
        )
    }

    #[test]
    fn transition_time_stays_while_status_is_unchanged() {
        let merged = merge(
            &[stored("Accepted", "True", 1)],
            &[accepted(ConditionStatus::True, 2)],
            now(),
        );
        assert_eq!(merged.len(), 1);
        assert_eq!(merged[0].last_transition_time, EARLIER);
        assert_eq!(
            (merged[0].message.as_str(), merged[0].observed_generation),
            ("new", 2)
        );
    }

    #[test]
    fn transition_time_is_new_when_status_changes() {
        for old in [vec![], vec![stored("Accepted", "False", 1)]] {
            let merged = merge(&old, &[accepted(ConditionStatus::True, 1)], now());
            assert_eq!(merged[0].last_transition_time, now());
        }
    }

    #[test]
    fn foreign_types_stay_and_own_obsolete_ones_go() {
        let foreign = stored("example.com/Checked", "True", 9);
        let merged = merge(
            &[foreign.clone(), stored("PartiallyInvalid", "True", 1)],
            &[accepted(ConditionStatus::True, 1)],
            now(),
        );
        assert_eq!(merged.len(), 2);
        assert_eq!(merged[1], foreign);
    }

    #[test]
    fn condition_of_later_generation_is_not_overwritten() {
        let later = stored("Accepted", "False", 5);
        let merged = merge(
            std::slice::from_ref(&later),
            &[accepted(ConditionStatus::True, 4)],
            now(),
        );
        assert_eq!(merged, [later]);
    }
}
