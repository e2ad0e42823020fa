//! Compares the hosts that have a revision with the hosts that do not.

use std::collections::BTreeSet;

use super::{HostReport, MAX_ERROR_INCREASE, MIN_REQUESTS};
use crate::schema::{Rollout, RolloutRecord};

const ERRORS: &str = "5xx";

pub(super) struct Failure {
    /// Identifies the failure, so that an operator can accept it.
    pub(super) key: String,
    pub(super) message: String,
}

/// Ignores failures that hosts with the base have too, because these are older than the revision.
pub(super) fn failure(
    record: &RolloutRecord,
    rollout: &Rollout,
    hosts: &[HostReport],
) -> Option<Failure> {
    let heard = || hosts.iter().filter(|host| !host.is_lost);
    // Until a host has the revision, its failures may be about the one that it still serves.
    let is_about = |host: &HostReport| {
        host.has_applied || host.has_refused || record.reached.binary_search(&host.name).is_err()
    };
    let released = heard().filter(|host| record.has(&host.name) && is_about(host));
    let baseline: Vec<&HostReport> = heard().filter(|host| !record.may_differ(host)).collect();
    let known: BTreeSet<&String> = baseline.iter().flat_map(|host| &host.failures).collect();
    let is_new = |key: &str| {
        let accepted = &record.accepted;
        accepted
            .binary_search_by(|it| it.as_str().cmp(key))
            .is_err()
    };
    for host in released {
        let mut failures = host.failures.iter();
        if let Some(key) = failures.find(|key| !known.contains(key) && is_new(key)) {
            return Some(Failure {
                key: key.clone(),
                message: format!("host {}: {key}", host.name),
            });
        }
    }
    if baseline.is_empty() {
        return None;
    }
    // Until a host has applied the revision, its requests say nothing about it.
    let with: Vec<&HostReport> = heard().filter(|host| host.has_applied).collect();
    let (with, without) = (share(&with), share(&baseline).unwrap_or_default());
    let most = rollout.max_error_increase.unwrap_or(MAX_ERROR_INCREASE);
    let with = with.filter(|with| is_new(ERRORS) && *with > without + f64::from(most))?;
    Some(Failure {
        key: ERRORS.to_owned(),
        message: format!(
            "{with:.1} % of requests get 5xx on hosts with the revision, {without:.1} % on the others"
        ),
    })
}

/// Returns the share of 5xx in percent, or `None` if there are too few requests.
fn share(hosts: &[&HostReport]) -> Option<f64> {
    let requests: u64 = hosts.iter().map(|host| host.requests).sum();
    let errors: u64 = hosts.iter().map(|host| host.errors).sum();
    #[expect(clippy::cast_precision_loss, reason = "a share needs no precision")]
    let share = errors as f64 * 100.0 / requests as f64;
    (requests >= MIN_REQUESTS).then_some(share)
}
