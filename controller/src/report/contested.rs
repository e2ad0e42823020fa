//! Leaves the status of an HTTPProxy to another program that has just written it.
//!
//! Two controllers that serve the same HTTPProxy, such as Sesame and Contour, must never overwrite
//! each other's statuses in a loop.

use std::time::Duration;

use jiff::Timestamp;

use super::transitions::Transition;
use crate::watch::OtherWriter;

pub(super) const QUIET: Duration = Duration::from_secs(60);

/// Returns how long to wait before the next attempt, or `None` if the status may be written now.
pub(super) fn pause(other: Option<&OtherWriter>, now: Timestamp) -> Option<Duration> {
    // The API server's clock may be ahead.
    let distance = now.duration_since(other?.at).unsigned_abs();
    QUIET.checked_sub(distance).filter(|it| !it.is_zero())
}

pub(super) fn transition(manager: &str) -> Transition {
    Transition {
        is_bad: true,
        reason: "StatusContested".to_owned(),
        about: String::new(),
        message: format!(
            "field manager {manager:?} wrote condition Valid less than {} seconds ago, so the \
             status is not overwritten now; set spec.ingress.watch of the configuration to Report, \
             or give the HTTPProxy a class that only one controller serves",
            QUIET.as_secs()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_waits_a_minute_after_other_writer() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let other = OtherWriter {
            manager: "contour".into(),
            at: at(1000),
        };
        for (now, expected) in [
            (1000, Some(60)),
            (1059, Some(1)),
            (1060, None),
            (5000, None),
            // The clocks differ.
            (990, Some(50)),
            (900, None),
        ] {
            let found = pause(Some(&other), at(now));
            assert_eq!(found, expected.map(Duration::from_secs), "{now}");
        }
        assert_eq!(pause(None, at(1000)), None);
        let Transition { message, .. } = transition("contour");
        assert!(message.contains("\"contour\""), "{message}");
        assert!(message.contains("Report"), "{message}");
    }
}
