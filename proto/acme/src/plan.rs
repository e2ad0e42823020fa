//! Decides which certificates to order now, and when to look again.
//!
//! The same input gives the same plan, so every replica computes the same times.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sesame_backoff::Backoff;
use sesame_kinds::api::NamespacedName;
use sesame_proto::digest::sha256;

use crate::{CertificateRequest, CertificateRequests, IssuedFacts};

/// Limits for orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Delays between attempts for one certificate.
    pub backoff: Backoff,
    /// Maximum number of orders per hour, over all certificates.
    pub orders_per_hour: usize,
    /// Maximum number of orders per hour for the Secrets of one namespace.
    pub orders_per_namespace: usize,
}

impl Default for Pace {
    /// Well below the limits of public CAs: 300 orders in three hours, and five failures per
    /// hostname and hour.
    fn default() -> Self {
        let (first, longest) = (Duration::from_secs(60), Duration::from_secs(6 * 60 * 60));
        Self {
            backoff: Backoff::new(first, longest),
            orders_per_hour: 50,
            orders_per_namespace: 20,
        }
    }
}

/// State of a requested Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldCertificate {
    /// The Secret does not exist, or its certificate is unreadable.
    Missing,
    /// Another program created the Secret, so it is never replaced.
    Foreign,
    /// A certificate from an earlier order.
    Issued {
        /// Facts about the certificate.
        facts: IssuedFacts,
        /// Directory of the CA that issued it.
        directory: String,
    },
}

/// Earlier attempts. Stored, so that a restart does not exceed the CA's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Attempts {
    /// Times of the orders of the last hour.
    pub orders: Vec<Timestamp>,
    /// Times of the orders of the last hour, by namespace.
    pub by_namespace: BTreeMap<String, Vec<Timestamp>>,
    /// Failures by Secret, as `namespace/name`.
    pub failures: BTreeMap<String, Failure>,
    /// Times before which directories accept no orders.
    pub paused: BTreeMap<String, Timestamp>,
    /// Times of the last successes by Secret, as `namespace/name`.
    pub issued: BTreeMap<String, Timestamp>,
}

/// Failures since the last success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Number of consecutive failures.
    pub count: u32,
    /// Earliest time of the next attempt.
    pub retry_at: Timestamp,
    /// Reason for the last failure.
    pub message: String,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Certificates to order now, in this order.
    pub due: Vec<NamespacedName>,
    /// When to compute the next plan, if nothing changes.
    pub next: Option<Timestamp>,
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const MAX_MESSAGE: usize = 1024;
/// Stored entries of each kind, and the length of their messages. Records must fit into a Secret.
const MAX_STORED: usize = 200;
const MAX_STORED_MESSAGE: usize = 100;
/// Longest wait. Later times come from a clock that was wrong.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);
/// Longest pause of a whole directory, because most limits of CAs are per hostname.
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);
/// Wait after a success for a Secret that is missing again. Another tool may delete it each time.
const MISSING_WAIT: SignedDuration = SignedDuration::from_mins(10);
/// Wait after a success for a certificate that no longer fits its request.
const CHANGED_WAIT: SignedDuration = SignedDuration::from_mins(1);

/// Namespaces with few recent orders come first, so that one namespace does not delay the others.
/// Within a namespace, certificates without earlier failures come first, then renewals, because the
/// number of new certificates has no limit.
pub fn plan(
    now: Timestamp,
    requests: &CertificateRequests,
    held: &BTreeMap<NamespacedName, HeldCertificate>,
    attempts: &Attempts,
    pace: &Pace,
) -> Plan {
    let mut due = Vec::new();
    let mut next: Option<Timestamp> = None;
    let mut later = |time: Timestamp| next = Some(next.map_or(time, |next| next.min(time)));
    for (secret, request) in requests {
        let Some(wanted) = wanted_at(secret, request, held.get(secret)) else {
            continue;
        };
        let failure = attempts.failures.get(&secret.to_string());
        let paused = attempts.paused.get(&request.issuer.directory);
        let rested = rested_at(secret, wanted, held.get(secret), attempts);
        let retry_at = failure.map(|failure| failure.retry_at);
        let earliest = [retry_at, paused.copied(), rested].into_iter().flatten();
        let plausible = earliest.filter(|at| at.duration_since(now) <= LONGEST_WAIT);
        let at = plausible.fold(wanted, Timestamp::max);
        if at > now {
            later(at);
        } else {
            let failures = failure.map_or(0, |failure| failure.count);
            let is_renewal = wanted != Timestamp::MIN;
            let recent = attempts.recent_of(secret, now).len();
            due.push((recent, failures, !is_renewal, wanted, secret));
        }
    }
    due.sort();
    let mut rooms: BTreeMap<&str, usize> = BTreeMap::new();
    due.retain(|(recent, .., secret)| {
        let room = pace.orders_per_namespace.saturating_sub(*recent);
        let room = rooms.entry(&secret.namespace).or_insert(room);
        let has_room = *room > 0;
        *room = room.saturating_sub(1);
        if !has_room && let Some(oldest) = attempts.recent_of(secret, now).first() {
            later(*oldest + HOUR);
        }
        has_room
    });
    let recent = recent(&attempts.orders, now);
    let room = pace.orders_per_hour.saturating_sub(recent.len());
    if due.len() > room
        && let Some(oldest) = recent.first()
    {
        later(*oldest + HOUR);
    }
    let due = due.into_iter().take(room);
    Plan {
        due: due.map(|(.., name)| name.clone()).collect(),
        next,
    }
}

/// Returns the minimum for certificates to order at once, and `None` for Secrets that are left
/// alone.
fn wanted_at(
    secret: &NamespacedName,
    request: &CertificateRequest,
    held: Option<&HeldCertificate>,
) -> Option<Timestamp> {
    match held {
        // Without knowing the Secret, an order might be for nothing.
        None | Some(HeldCertificate::Foreign) => None,
        Some(HeldCertificate::Issued { facts, directory })
            if *directory == request.issuer.directory
                && facts.lacks(&request.hostnames).is_none() =>
        {
            Some(renewal_time(secret, facts))
        }
        Some(HeldCertificate::Issued { .. } | HeldCertificate::Missing) => Some(Timestamp::MIN),
    }
}

/// Returns when the Secret has waited long enough after its last success. Otherwise a certificate
/// that is due as soon as it is issued, such as by a wrong clock, would be ordered all the time.
fn rested_at(
    secret: &NamespacedName,
    wanted: Timestamp,
    held: Option<&HeldCertificate>,
    attempts: &Attempts,
) -> Option<Timestamp> {
    let issued = attempts.issued.get(&secret.to_string())?;
    let wait = match held {
        Some(HeldCertificate::Issued { .. }) if wanted == Timestamp::MIN => CHANGED_WAIT,
        Some(HeldCertificate::Issued { facts, .. }) => {
            let lifetime = facts.not_after.duration_since(facts.not_before);
            (lifetime / 3).clamp(SignedDuration::ZERO, LONGEST_WAIT)
        }
        _ => MISSING_WAIT,
    };
    issued.checked_add(wait).ok()
}

/// Returns when a third of the lifetime is left, or up to a thirtieth of the lifetime earlier. The
/// name determines how much earlier, so that certificates of the same age renew one by one.
pub fn renewal_time(secret: &NamespacedName, facts: &IssuedFacts) -> Timestamp {
    let lifetime = facts.not_after.duration_since(facts.not_before);
    let digest = sha256(secret.to_string().as_bytes());
    let share = digest
        .get(..4)
        .and_then(|digits| i32::from_str_radix(digits, 16).ok());
    let jitter = (lifetime / 30 / 0x1_0000) * share.unwrap_or_default();
    let before = lifetime / 3 + jitter;
    facts
        .not_after
        .checked_sub(before)
        .unwrap_or(facts.not_before)
}

/// A clock that was set back must not stop orders forever.
fn recent(orders: &[Timestamp], now: Timestamp) -> Vec<Timestamp> {
    let orders = orders.iter().copied();
    let mut recent: Vec<Timestamp> = orders
        .filter(|order| *order <= now && now.duration_since(*order) < HOUR)
        .collect();
    recent.sort();
    recent
}

impl Attempts {
    /// Records an order that is about to start.
    pub fn begin(&mut self, secret: &NamespacedName, now: Timestamp) {
        self.orders = recent(&self.orders, now);
        self.orders.push(now);
        self.by_namespace.retain(|_, orders| {
            *orders = recent(orders, now);
            !orders.is_empty()
        });
        let namespace = secret.namespace.clone();
        self.by_namespace.entry(namespace).or_default().push(now);
        self.paused.retain(|_, until| *until > now);
    }

    fn recent_of(&self, secret: &NamespacedName, now: Timestamp) -> Vec<Timestamp> {
        let orders = self.by_namespace.get(&secret.namespace);
        orders.map_or_else(Vec::new, |orders| recent(orders, now))
    }

    /// Records a success.
    pub fn succeed(&mut self, secret: &NamespacedName, now: Timestamp) {
        let secret = secret.to_string();
        self.failures.remove(&secret);
        self.issued.insert(secret, now);
    }

    /// Permits another attempt now. Keeps the number of failures, so that frequent changes of a
    /// request do not delay others.
    pub fn hasten(&mut self, secret: &NamespacedName, now: Timestamp) {
        if let Some(failure) = self.failures.get_mut(&secret.to_string()) {
            failure.retry_at = failure.retry_at.min(now);
        }
    }

    /// Records a failure. `retry_after` is the delay that the CA asks for. If the CA reports a
    /// limit, the Secret waits as long as the CA asks, and all orders at this CA wait for some
    /// minutes.
    pub fn fail(
        &mut self,
        secret: &NamespacedName,
        directory: &str,
        message: &str,
        (retry_after, is_limited): (Option<Duration>, bool),
        pace: &Pace,
        now: Timestamp,
    ) {
        let earlier = self.failures.get(&secret.to_string());
        let count = earlier.map_or(0, |failure| failure.count);
        let limited = if is_limited {
            Duration::from_secs(60 * 60)
        } else {
            Duration::ZERO
        };
        let asked = retry_after.unwrap_or(limited);
        let pause = pace.backoff.doubled(count).max(asked);
        if is_limited {
            let until = later(now, asked.min(LONGEST_PAUSE));
            self.paused.insert(directory.to_owned(), until);
        }
        let failure = Failure {
            count: count.saturating_add(1),
            retry_at: later(now, pause),
            message: message.chars().take(MAX_MESSAGE).collect(),
        };
        self.failures.insert(secret.to_string(), failure);
    }

    /// Returns the entries that are worth storing: the failures that wait longest, and the newest
    /// successes.
    #[must_use]
    pub fn stored(&self) -> Self {
        let mut failures: Vec<_> = self.failures.iter().collect();
        failures.sort_by_key(|(_, failure)| Reverse(failure.retry_at));
        let failures = failures.into_iter().take(MAX_STORED);
        let shortened = |failure: &Failure| Failure {
            message: failure.message.chars().take(MAX_STORED_MESSAGE).collect(),
            ..failure.clone()
        };
        let mut issued: Vec<_> = self.issued.iter().collect();
        issued.sort_by_key(|(_, at)| Reverse(**at));
        let issued = issued.into_iter().take(MAX_STORED);
        Self {
            failures: failures
                .map(|(secret, failure)| (secret.clone(), shortened(failure)))
                .collect(),
            issued: issued.map(|(secret, at)| (secret.clone(), *at)).collect(),
            ..self.clone()
        }
    }

    /// Forgets Secrets that are no longer requested.
    pub fn retain(&mut self, requests: &CertificateRequests) {
        let names: Vec<String> = requests.keys().map(ToString::to_string).collect();
        self.failures.retain(|name, _| names.contains(name));
        self.issued.retain(|name, _| names.contains(name));
    }
}

/// Waits at most a day, whatever the CA asks for.
fn later(now: Timestamp, pause: Duration) -> Timestamp {
    let pause = pause.min(LONGEST_WAIT.unsigned_abs());
    now.checked_add(pause).unwrap_or(now)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use sesame_kinds::world::Kind;

    use super::*;
    use crate::{AcmeIssuer, ChallengeMethod, ChallengeParent, LETS_ENCRYPT};

    pub(crate) fn request(hostnames: &[&str]) -> CertificateRequest {
        let edge = Kind::Gateway.named(NamespacedName::new("shop", "edge"));
        let parent = ChallengeParent {
            object: edge.clone(),
            gateway: edge.name.clone(),
            listener: "http".to_owned(),
            port: 80,
            opened: 80,
        };
        CertificateRequest {
            requesters: [edge].into(),
            hostnames: hostnames.iter().map(|&name| name.to_owned()).collect(),
            parents: [parent].into(),
            issuer: AcmeIssuer {
                directory: LETS_ENCRYPT.to_owned(),
                email: None,
                method: ChallengeMethod::Http01,
                ca_bundle: None,
                external: None,
            },
            is_operators: false,
            exists: false,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000_000 + seconds).unwrap()
    }

    fn named(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name)
    }

    fn issued(hostnames: &[&str], from: i64, to: i64) -> HeldCertificate {
        HeldCertificate::Issued {
            facts: IssuedFacts {
                not_before: at(from),
                not_after: at(to),
                hostnames: hostnames.iter().map(|&name| name.to_owned()).collect(),
            },
            directory: LETS_ENCRYPT.to_owned(),
        }
    }

    fn requests(names: &[&str]) -> CertificateRequests {
        let requests = names.iter().map(|name| (named(name), request(&["a.test"])));
        requests.collect()
    }

    fn missing(requests: &CertificateRequests) -> BTreeMap<NamespacedName, HeldCertificate> {
        let names = requests.keys().cloned();
        names.map(|name| (name, HeldCertificate::Missing)).collect()
    }

    const DAY: i64 = 86_400;

    #[test]
    fn missing_certificates_are_due_and_foreign_never() {
        let requests = requests(&["a", "b", "unknown"]);
        let held = BTreeMap::from([
            (named("a"), HeldCertificate::Foreign),
            (named("b"), HeldCertificate::Missing),
        ]);
        let plan = plan(
            at(0),
            &requests,
            &held,
            &Attempts::default(),
            &Pace::default(),
        );
        assert_eq!(plan.due, [named("b")]);
        assert_eq!(plan.next, None);
    }

    #[test]
    fn other_hostname_or_directory_is_due() {
        let mut requests = requests(&["a"]);
        let held = |hosts: &[&str]| BTreeMap::from([(named("a"), issued(hosts, 0, 90 * DAY))]);
        let due = |requests: &CertificateRequests, hosts: &[&str]| {
            let attempts = Attempts::default();
            !plan(at(0), requests, &held(hosts), &attempts, &Pace::default())
                .due
                .is_empty()
        };
        assert!(!due(&requests, &["a.test", "b.test"]));
        assert!(due(&requests, &["b.test"]));
        requests.get_mut(&named("a")).unwrap().issuer.directory = "https://ca.test".to_owned();
        assert!(due(&requests, &["a.test"]));
    }

    #[test]
    fn stored_attempts_are_bounded() {
        let mut attempts = Attempts::default();
        for number in 0..5_000 {
            let name = named(&format!("a{number}"));
            let told = (None, false);
            let (message, now) = ("x".repeat(2_000), at(number));
            attempts.fail(&name, LETS_ENCRYPT, &message, told, &Pace::default(), now);
            attempts.issued.insert(name.to_string(), now);
        }
        let stored = attempts.stored();
        assert!(stored.failures.contains_key(&named("a4999").to_string()));
        assert!(serde_json::to_string(&stored).unwrap().len() < 100 << 10);
    }

    #[test]
    fn failures_back_off_and_respect_retry_after() {
        let (requests, pace) = (requests(&["a", "b"]), Pace::default());
        let mut attempts = Attempts::default();
        let fail = |attempts: &mut Attempts, after: Option<u64>, limited, now| {
            let told = (after.map(Duration::from_secs), limited);
            attempts.fail(&named("a"), LETS_ENCRYPT, "no", told, &pace, at(now));
        };
        let planned = |attempts: &Attempts, now| {
            plan(at(now), &requests, &missing(&requests), attempts, &pace)
        };
        fail(&mut attempts, None, false, 0);
        assert_eq!(planned(&attempts, 59).due, [named("b")]);
        assert_eq!(planned(&attempts, 59).next, Some(at(60)));
        assert_eq!(planned(&attempts, 60).due, [named("b"), named("a")]);
        fail(&mut attempts, None, false, 60);
        assert_eq!(planned(&attempts, 60).next, Some(at(180)));
        fail(&mut attempts, Some(7200), true, 180);
        // The other Secret waits for the directory only.
        assert_eq!(planned(&attempts, 779).due, []);
        assert_eq!(planned(&attempts, 779).next, Some(at(780)));
        assert_eq!(planned(&attempts, 780).due, [named("b")]);
        assert_eq!(planned(&attempts, 7379).next, Some(at(7380)));
        attempts.hasten(&named("a"), at(800));
        assert_eq!(planned(&attempts, 800).due, [named("b"), named("a")]);
        attempts.hasten(&named("a"), at(900));
        assert_eq!(planned(&attempts, 800).due.len(), 2);
    }

    #[test]
    fn limits_without_delay_pause_an_hour() {
        let (requests, pace) = (requests(&["a", "b"]), Pace::default());
        let mut attempts = Attempts::default();
        let told = (None, true);
        attempts.fail(&named("a"), LETS_ENCRYPT, "no", told, &pace, at(0));
        let planned = |now| plan(at(now), &requests, &missing(&requests), &attempts, &pace);
        assert_eq!(planned(599).due, []);
        assert_eq!(planned(600).due, [named("b")]);
        assert_eq!(planned(3600).due, [named("b"), named("a")]);
    }

    #[test]
    fn renewals_precede_missing_certificates() {
        let requests = requests(&["a", "b"]);
        let mut held = missing(&requests);
        held.insert(named("b"), issued(&["a.test"], 0, 90 * DAY));
        let attempts = Attempts::default();
        let pace = Pace {
            orders_per_hour: 1,
            ..Pace::default()
        };
        let plan = plan(at(80 * DAY), &requests, &held, &attempts, &pace);
        assert_eq!(plan.due, [named("b")]);
    }

    #[test]
    fn times_from_wrong_clock_are_ignored() {
        let requests = requests(&["a"]);
        let mut attempts = Attempts::default();
        let pace = Pace::default();
        let told = (Some(Duration::from_secs(60)), true);
        attempts.fail(&named("a"), LETS_ENCRYPT, "no", told, &pace, at(400 * DAY));
        attempts.succeed(&named("b"), at(400 * DAY));
        let plan = plan(at(0), &requests, &missing(&requests), &attempts, &pace);
        assert_eq!(plan.due, [named("a")]);
    }

    #[test]
    fn issued_certificates_rest_before_next_order() {
        let requests = requests(&["a"]);
        let mut attempts = Attempts::default();
        attempts.succeed(&named("a"), at(0));
        let next = |held: HeldCertificate| {
            let held = BTreeMap::from([(named("a"), held)]);
            let plan = plan(at(1), &requests, &held, &attempts, &Pace::default());
            assert_eq!(plan.due, []);
            plan.next
        };
        assert_eq!(next(HeldCertificate::Missing), Some(at(600)));
        assert_eq!(next(issued(&["b.test"], 0, 90 * DAY)), Some(at(60)));
        // Both are due at once, because the CA backdates or the clock is ahead.
        assert_eq!(next(issued(&["a.test"], -59, 1)), Some(at(20)));
        let long = issued(&["a.test"], -89 * DAY, DAY);
        assert_eq!(next(long), Some(at(DAY)));
        attempts.retain(&CertificateRequests::new());
        assert_eq!(attempts.issued, BTreeMap::new());
    }

    #[test]
    fn orders_per_hour_are_limited() {
        let requests = requests(&["a", "b", "c"]);
        let pace = Pace {
            orders_per_hour: 2,
            ..Pace::default()
        };
        let mut attempts = Attempts::default();
        attempts.begin(&named("a"), at(0));
        let planned = |attempts: &Attempts, now| {
            plan(at(now), &requests, &missing(&requests), attempts, &pace)
        };
        assert_eq!(planned(&attempts, 10).due, [named("a")]);
        attempts.begin(&named("a"), at(10));
        assert_eq!(planned(&attempts, 20).due, []);
        assert_eq!(planned(&attempts, 20).next, Some(at(3600)));
        // The clock was set back.
        assert_eq!(planned(&attempts, -100).due.len(), 2);
    }

    #[test]
    fn one_namespace_leaves_room_for_others() {
        let mut requests = requests(&["a", "b", "c"]);
        let other = NamespacedName::new("zoo", "z");
        requests.insert(other.clone(), request(&["z.test"]));
        let pace = Pace {
            orders_per_namespace: 2,
            ..Pace::default()
        };
        let mut attempts = Attempts::default();
        let planned = |attempts: &Attempts, now| {
            plan(at(now), &requests, &missing(&requests), attempts, &pace)
        };
        let due = planned(&attempts, 0).due;
        assert_eq!(due, [named("a"), named("b"), other.clone()]);
        attempts.begin(&named("a"), at(0));
        assert_eq!(planned(&attempts, 1).due, [other.clone(), named("a")]);
        attempts.begin(&named("b"), at(1));
        let full = planned(&attempts, 2);
        assert_eq!(full.due, std::slice::from_ref(&other));
        assert_eq!(full.next, Some(at(3600)));
        attempts.begin(&other, at(3600));
        assert_eq!(attempts.by_namespace["shop"], [at(1)]);
        let stored = serde_json::to_string(&attempts.stored()).unwrap();
        assert!(stored.contains("\"zoo\""), "{stored}");
        let before: Attempts = serde_json::from_str(r#"{"orders": []}"#).unwrap();
        assert_eq!(before, Attempts::default());
    }

    proptest! {
        #[test]
        fn renewal_is_in_last_third(name in "[a-z]{1,20}", days in 1..400_i64) {
            let HeldCertificate::Issued { facts, .. } = issued(&["a"], 0, days * DAY) else {
                unreachable!("issued");
            };
            let left = facts.not_after.duration_since(renewal_time(&named(&name), &facts));
            let lifetime = SignedDuration::from_hours(24 * days);
            prop_assert!(left >= lifetime / 3);
            prop_assert!(left <= lifetime / 3 + lifetime / 30);
        }
    }
}
