//! Conditions for listener certificates. They never affect traffic or the Gateway API's standard
//! conditions, because a certificate that expires soon still works.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Condition, ConditionStatus, ConditionType, ListenerStatus, Reason};
use crate::expiry::{Expiry, ExpiryPhase};

/// Maximum number of messages per condition, which keeps it readable and below the size limit.
const MAX_MESSAGES: usize = 20;

/// Adds CertificatesValid to listeners with certificates that have expired, expire soon or are not
/// valid yet. `expiries` is keyed by listener name.
pub fn report_expiry(
    listeners: &mut [ListenerStatus],
    expiries: &BTreeMap<String, Vec<Expiry>>,
    now: Timestamp,
) {
    for listener in listeners {
        let own = expiries.get(&listener.name).into_iter().flatten();
        let mut warnings: Vec<(ExpiryPhase, String)> = own
            .filter_map(|expiry| Some((expiry.phase(now), expiry.warning(now)?.message)))
            .collect();
        warnings.sort();
        warnings.dedup();
        let Some((worst, _)) = warnings.last() else {
            continue;
        };
        let (status, reason) = match worst {
            ExpiryPhase::Fresh => continue,
            ExpiryPhase::ExpiresSoon => (ConditionStatus::True, Reason::CertificateExpiresSoon),
            ExpiryPhase::NotYetValid => (ConditionStatus::False, Reason::CertificateNotYetValid),
            ExpiryPhase::Expired => (ConditionStatus::False, Reason::CertificateExpired),
        };
        let messages: Vec<&str> = warnings
            .iter()
            .rev()
            .take(MAX_MESSAGES)
            .map(|(_, message)| message.as_str())
            .collect();
        let message = messages.join("; ");
        add(
            listener,
            ConditionType::CertificatesValid,
            status,
            reason,
            &message,
        );
    }
}

pub(super) fn report_unshown(listeners: &mut [ListenerStatus], unshown: &BTreeMap<String, String>) {
    for listener in listeners {
        if let Some(why) = unshown.get(&listener.name) {
            add(
                listener,
                ConditionType::CertificatesShown,
                ConditionStatus::False,
                Reason::CertificateNotShown,
                why,
            );
        }
    }
}

fn add(
    listener: &mut ListenerStatus,
    type_: ConditionType,
    status: ConditionStatus,
    reason: Reason,
    message: &str,
) {
    let first = listener.conditions.first();
    let generation = first.map_or(0, |first| first.observed_generation);
    let condition = Condition::new(type_, status, reason, message, generation);
    listener.conditions.push(condition);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expiry::ExpiryOf;

    const DAY: i64 = 24 * 60 * 60;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn expiry_condition(ends: &[i64]) -> Option<(ConditionStatus, Reason, String)> {
        let expiry = |(place, end): (usize, &i64)| Expiry {
            name: format!("Secret/ns/{place}"),
            of: ExpiryOf::Leaf,
            not_before: -365 * DAY,
            not_after: *end,
        };
        let expiries = ends.iter().enumerate().map(expiry).collect();
        let mut listeners = ["https", "other"].map(|name| ListenerStatus {
            name: name.to_owned(),
            ..ListenerStatus::default()
        });
        let by_name = BTreeMap::from([("https".to_owned(), expiries)]);
        report_expiry(&mut listeners, &by_name, at(0));
        assert!(listeners[1].conditions.is_empty());
        let condition = listeners[0].conditions.pop()?;
        assert_eq!(condition.type_, ConditionType::CertificatesValid);
        Some((condition.status, condition.reason, condition.message))
    }

    #[test]
    fn the_worst_certificate_decides_and_comes_first() {
        assert_eq!(expiry_condition(&[15 * DAY]), None);
        let (status, reason, _) = expiry_condition(&[15 * DAY, 14 * DAY]).expect("a condition");
        let soon = (ConditionStatus::True, Reason::CertificateExpiresSoon);
        assert_eq!((status, reason), soon);
        let (status, reason, message) =
            expiry_condition(&[DAY, -1, 90 * DAY]).expect("a condition");
        let expired = (ConditionStatus::False, Reason::CertificateExpired);
        assert_eq!((status, reason), expired);
        let place = |words: &str| message.find(words);
        assert!(place("Secret/ns/1 expired").is_some(), "{message}");
        assert!(
            place("Secret/ns/1") < place("Secret/ns/0 expires"),
            "{message}"
        );
        assert!(place("Secret/ns/2").is_none(), "{message}");
    }
}
