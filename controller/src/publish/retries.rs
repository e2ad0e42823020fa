//! Tracks Gateways that could not be published, and when to retry them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sesame_backoff::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use super::plan::GatewayPlan;
use crate::retry::NextAttempt;
use crate::statuses::GatewayProblems;
use sesame_kinds::api::NamespacedName;

const PAUSES: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));

/// `None` stands for objects of deleted Gateways.
pub(super) type Retries = BTreeMap<Option<NamespacedName>, NextAttempt>;

/// Drops retries that another change or replica made unnecessary.
pub(super) fn forget_settled(
    retries: &mut Retries,
    failures: &watch::Sender<GatewayProblems>,
    plans: &[GatewayPlan],
) {
    let planned: BTreeSet<Option<&NamespacedName>> = plans
        .iter()
        .map(|plan| plan.owner.as_ref().map(|owner| &owner.gateway))
        .collect();
    let settled: Vec<Option<NamespacedName>> = retries
        .keys()
        .filter(|gateway| !planned.contains(&gateway.as_ref()))
        .cloned()
        .collect();
    for gateway in settled {
        record_failure(retries, failures, gateway, None);
    }
}

pub(super) fn record_failure(
    retries: &mut Retries,
    failures: &watch::Sender<GatewayProblems>,
    gateway: Option<NamespacedName>,
    failure: Option<String>,
) {
    let Some(why) = failure else {
        retries.remove(&gateway);
        if let Some(gateway) = gateway {
            failures.send_if_modified(|failures| failures.remove(&gateway).is_some());
        }
        return;
    };
    let retry = NextAttempt::after(retries.get(&gateway), PAUSES, Instant::now());
    retries.insert(gateway.clone(), retry);
    let Some(gateway) = gateway else {
        tracing::warn!(%why, "cannot remove the publication of a deleted Gateway; retrying");
        return;
    };
    tracing::warn!(%gateway, %why, "cannot publish the Gateway; keeping the previous publication, and retrying");
    failures
        .send_if_modified(|failures| failures.insert(gateway, why.clone()).as_ref() != Some(&why));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::objects::PublicationOwner;

    #[test]
    fn obsolete_failed_write_is_forgotten() {
        let gateway = |name| NamespacedName::new("web", name);
        let (failures, failed) = watch::channel(GatewayProblems::new());
        let mut retries = Retries::new();
        for of in [Some(gateway("a")), Some(gateway("b")), None] {
            record_failure(&mut retries, &failures, of, Some("no answer".to_owned()));
        }
        let owner = PublicationOwner {
            gateway: gateway("b"),
            fleet: "default".to_owned(),
        };
        let plans = [GatewayPlan {
            owner: Some(owner),
            steps: Vec::new(),
        }];
        forget_settled(&mut retries, &failures, &plans);
        assert_eq!(retries.keys().collect::<Vec<_>>(), [&Some(gateway("b"))]);
        assert_eq!(failed.borrow().keys().collect::<Vec<_>>(), [&gateway("b")]);
    }
}
