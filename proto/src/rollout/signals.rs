//! Compares the hosts that have a revision with the hosts that do not.

use std::collections::BTreeSet;

use super::{HostReport, HostTraffic, MAX_ERROR_INCREASE, MIN_REQUESTS};
use crate::digest::sha256;
use crate::schema::{Rollout, RolloutRecord};

const DEATHS: &str = "its Envoy died";
/// Maximum length of [`Failure::key`] in bytes.
const MAX_KEY: usize = 32;

pub(super) struct Failure {
    /// Identifies the failure, so that an operator can accept it.
    pub(super) key: String,
    pub(super) message: String,
}

/// Events whose share a bad revision increases.
struct Rate {
    key: &'static str,
    /// The counted events.
    events: &'static str,
    /// Without a known share of the waiting hosts, the events say nothing about the revision.
    needs_baseline: bool,
    /// Returns the number of bad events and of all events, or `None` if the host does not report
    /// them.
    count: fn(&HostTraffic) -> Option<(u64, u64)>,
}

const RATES: [Rate; 3] = [
    Rate {
        key: "5xx",
        events: "requests get 5xx",
        needs_baseline: false,
        count: |traffic| Some((traffic.errors, traffic.requests)),
    },
    Rate {
        key: "resets",
        events: "requests are aborted by backends or time out",
        needs_baseline: true,
        count: |traffic| Some((traffic.resets?, traffic.requests)),
    },
    Rate {
        key: "handshakes",
        events: "TLS handshakes fail",
        needs_baseline: true,
        count: |traffic| Some((traffic.failed_handshakes, traffic.handshakes)),
    },
];

/// Returns one failure per key. Ignores failures that hosts with the base have too, because these
/// are older than the revision.
pub(super) fn failures(
    record: &RolloutRecord,
    rollout: &Rollout,
    hosts: &[HostReport],
) -> Vec<Failure> {
    let heard = || hosts.iter().filter(|host| !host.is_lost);
    // Until a host has the revision, its failures may be about the one that it still serves.
    let is_about = |host: &HostReport| {
        host.has_applied || host.has_refused || record.reached.binary_search(&host.name).is_err()
    };
    let released = heard().filter(|host| record.has(&host.name) && is_about(host));
    let baseline: Vec<&HostReport> = heard().filter(|host| !record.may_differ(host)).collect();
    let mut known: BTreeSet<String> = baseline.iter().flat_map(|host| keys(host)).collect();
    known.extend(record.accepted.iter().cloned());
    let mut failures = Vec::new();
    for host in released {
        for failure in &host.failures {
            if known.insert(key(failure)) {
                failures.push(Failure {
                    key: key(failure),
                    message: format!("host {}: {failure}", host.name),
                });
            }
        }
    }
    // Until a host has applied the revision, its requests and deaths say nothing about it.
    let with: Vec<&HostReport> = heard().filter(|host| host.has_applied).collect();
    if !known.contains(DEATHS) {
        failures.extend(death(record, &with, &baseline));
    }
    let most = f64::from(rollout.max_error_increase.unwrap_or(MAX_ERROR_INCREASE));
    let rates = RATES.iter().filter(|rate| !known.contains(rate.key));
    failures.extend(rates.filter_map(|rate| rate.failure(&with, &baseline, most)));
    failures
}

/// Returns a key of bounded length, so that a record can contain all keys.
pub(super) fn key(failure: &str) -> String {
    if failure.len() <= MAX_KEY {
        return failure.to_owned();
    }
    let digest = sha256(failure.as_bytes());
    digest.get(..MAX_KEY).unwrap_or(&digest).to_owned()
}

fn keys(host: &HostReport) -> impl Iterator<Item = String> {
    host.failures.iter().map(|failure| key(failure))
}

/// Compares the shares of hosts with deaths, because an Envoy can die for other reasons too.
fn death(record: &RolloutRecord, with: &[&HostReport], without: &[&HostReport]) -> Option<Failure> {
    let released = with.iter().filter(|host| record.has(&host.name));
    let released: Vec<&&HostReport> = released.collect();
    let first = released.iter().find(|host| host.deaths > 0)?;
    let dead = released.iter().filter(|host| host.deaths > 0).count();
    let dead_without = without.iter().filter(|host| host.deaths > 0).count();
    let is_more = dead.saturating_mul(without.len()) > dead_without.saturating_mul(released.len());
    (without.is_empty() || is_more).then(|| Failure {
        key: DEATHS.to_owned(),
        message: format!("host {}: {DEATHS}", first.name),
    })
}

impl Rate {
    fn failure(&self, with: &[&HostReport], without: &[&HostReport], most: f64) -> Option<Failure> {
        let Self { key, events, .. } = self;
        if without.is_empty() {
            return None;
        }
        let (with, without) = (self.share(with)?, self.share(without));
        let without = match without {
            None if self.needs_baseline => return None,
            known => known.unwrap_or_default(),
        };
        (with > without + most).then(|| Failure {
            key: (*key).to_owned(),
            message: format!(
                "{with:.1} % of {events} on hosts with the revision, {without:.1} % on the others"
            ),
        })
    }

    /// Returns the share in percent, or `None` if there are too few events.
    fn share(&self, hosts: &[&HostReport]) -> Option<f64> {
        let (mut bad, mut all) = (0_u64, 0_u64);
        for host in hosts {
            let Some((host_bad, host_all)) = (self.count)(&host.traffic) else {
                continue;
            };
            // Retries can cause more resets than requests.
            bad = bad.saturating_add(host_bad.min(host_all));
            all = all.saturating_add(host_all);
        }
        #[expect(clippy::cast_precision_loss, reason = "a share needs no precision")]
        let share = bad as f64 * 100.0 / all as f64;
        (all >= MIN_REQUESTS).then_some(share)
    }
}
