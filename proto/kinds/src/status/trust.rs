//! Certificate trust over time. Certificates on a path can expire, so callers pass the time.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Condition, ConditionStatus, Reason, Statuses};
use crate::world::{Kind, ObjectKey};

/// Period in which all certificates on a path are valid, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathValidity {
    /// Start of the period.
    pub not_before: i64,
    /// End of the period.
    pub not_after: i64,
}

impl PathValidity {
    /// Used for paths whose certificates were not checked.
    pub const ALWAYS: Self = Self {
        not_before: i64::MIN,
        not_after: i64::MAX,
    };

    /// Returns the intersection of both periods. It contains no time if they do not overlap.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            not_before: self.not_before.max(other.not_before),
            not_after: self.not_after.min(other.not_after),
        }
    }

    fn includes(&self, now: i64) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

/// A peer's trust in a certificate, based on signatures only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureTrust {
    /// The certificate's owner, or the peer that trusts it.
    pub of: String,
    /// Validity of each path to a trusted authority. Never empty.
    pub paths: Vec<PathValidity>,
}

impl SignatureTrust {
    /// Returns `None` if any path is valid at `now`.
    fn lapse(&self, now: Timestamp) -> Option<String> {
        let Self { of, paths } = self;
        if paths.iter().any(|path| path.includes(now.as_second())) {
            return None;
        }
        let last = paths.iter().max_by_key(|path| path.not_after)?;
        let when = if last.not_after < now.as_second() {
            format!("since {}", time(last.not_after))
        } else {
            format!("before {}", time(last.not_before))
        };
        Some(format!("{of} ({when})"))
    }
}

/// Sets a condition to False if it depends on a certificate that has no valid path at `now`.
pub fn report_lapsed(conditions: &mut [Condition], now: Timestamp) {
    for condition in conditions {
        let lapsed = lapsed(condition, now);
        if lapsed.is_empty() {
            continue;
        }
        let message = format!(
            "signatures lead to an authority, but the client certificate, or one that signed it, \
            is not valid at this time, so it is rejected; renew expired certificates: {}",
            lapsed.join(", ")
        );
        let message = match condition.status {
            ConditionStatus::True => message,
            _ => format!("{}; {message}", condition.message),
        };
        *condition = Condition::new(
            condition.type_,
            ConditionStatus::False,
            Reason::CertificateNotTrusted,
            &message,
            condition.observed_generation,
        );
    }
}

fn lapsed(condition: &Condition, now: Timestamp) -> Vec<String> {
    let trust = condition.trust.as_deref().unwrap_or_default();
    trust.iter().filter_map(|it| it.lapse(now)).collect()
}

impl Statuses {
    /// Returns the objects that [`report_lapsed`] would change at `now`.
    pub fn with_lapsed_trust(&self, now: Timestamp) -> BTreeSet<ObjectKey> {
        let any = |conditions: &[Condition]| {
            let mut all = conditions.iter();
            all.any(|condition| !lapsed(condition, now).is_empty())
        };
        let gateways = self.gateways.iter();
        let gateways = gateways.filter(|(_, status)| any(&status.conditions));
        let gateways = gateways.map(|(name, _)| Kind::Gateway.named(name.clone()));
        let policies = self.policies.iter().filter(|(_, status)| {
            let mut ancestors = status.ancestors.iter();
            ancestors.any(|ancestor| any(&ancestor.conditions))
        });
        let policies = policies.map(|(key, _)| key.clone());
        gateways.chain(policies).collect()
    }
}

impl Condition {
    /// Sets the trust on which the condition depends. An empty list means none.
    #[must_use]
    pub fn resting_on(self, trust: Vec<SignatureTrust>) -> Self {
        let trust = (!trust.is_empty()).then(|| Arc::from(trust));
        Self { trust, ..self }
    }
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ConditionType;

    fn trust_condition(now: i64, paths: &[(i64, i64)]) -> (ConditionStatus, String) {
        let paths = paths.iter();
        let trust = SignatureTrust {
            of: "default/edge".to_owned(),
            paths: paths
                .map(|&(not_before, not_after)| PathValidity {
                    not_before,
                    not_after,
                })
                .collect(),
        };
        let type_ = ConditionType::ClientCertificateTrusted;
        let reason = Reason::CertificateTrusted;
        let condition = Condition::new(type_, ConditionStatus::True, reason, "signed", 3);
        let mut conditions = [condition.resting_on(vec![trust])];
        report_lapsed(
            &mut conditions,
            Timestamp::from_second(now).expect("a time"),
        );
        let [condition] = conditions;
        assert_eq!(condition.observed_generation, 3);
        (condition.status, condition.message)
    }

    #[test]
    fn one_path_that_is_valid_is_enough() {
        for now in [10, 15, 20] {
            assert_eq!(
                trust_condition(now, &[(10, 20)]).0,
                ConditionStatus::True,
                "{now}"
            );
        }
        assert_eq!(
            trust_condition(25, &[(10, 20), (20, 30)]).0,
            ConditionStatus::True
        );
        assert_eq!(trust_condition(25, &[(10, 20)]).0, ConditionStatus::False);
        let (status, message) = trust_condition(35, &[(10, 20), (20, 30)]);
        assert_eq!(status, ConditionStatus::False);
        let end = "default/edge (since 1970-01-01T00:00:30Z)";
        assert!(message.ends_with(end), "{message}");
        let (_, message) = trust_condition(5, &[(10, 20)]);
        let start = "default/edge (before 1970-01-01T00:00:10Z)";
        assert!(message.ends_with(start), "{message}");
    }

    #[test]
    fn combined_validity_is_intersection_of_both() {
        let of = |not_before, not_after| PathValidity {
            not_before,
            not_after,
        };
        assert_eq!(of(1, 9).and(of(3, 12)), of(3, 9));
        assert_eq!(of(1, 9).and(PathValidity::ALWAYS), of(1, 9));
    }
}
