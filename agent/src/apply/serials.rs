//! Proof that Envoy uses the key pairs that were written.

use std::collections::BTreeMap;

use super::plan::Phase;
use super::report::{Outcome, Refusal, Report};
use super::subscription::{Kind, Subscription};
use super::transaction::Wanted;
use super::wait::{Expectation, Watcher};
use crate::envoy::admin::serial;

/// The version of a secret proves little: Envoy reports a bad pair as accepted when it comes a second time.
/// The serial numbers of the certificates in use do. A changed secret must show; a new one may have no user yet.
pub(super) async fn check(
    phase: Phase,
    expected: &[Expectation],
    wanted: Wanted<'_>,
    watcher: &Watcher<'_>,
    report: &mut Report,
) -> Result<(), Outcome> {
    let serials: BTreeMap<Subscription, String> = expected
        .iter()
        .filter(|e| e.subscription.kind == Kind::Secret)
        .filter_map(|e| {
            let wanted = wanted.serials.get(&e.subscription.name)?;
            Some((e.subscription.clone(), serial(wanted)))
        })
        .collect();
    if serials.is_empty() {
        return Ok(());
    }
    let Ok(versions) = watcher.envoy.version_texts().await else {
        report.unverified.extend(serials.into_keys());
        return Ok(());
    };
    let in_use = serials
        .into_iter()
        .filter(|(subscription, _)| versions.of(subscription, "").is_some())
        .collect();
    let missing = watcher.missing_serials(in_use).await;
    let is_new = |s: &Subscription| expected.iter().any(|e| e.subscription == *s && e.advisory);
    let (new, changed): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_new);
    for subscription in new {
        if !report.unverified.contains(&subscription) {
            report.unverified.push(subscription);
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(Outcome::Refused(Refusal {
        phase,
        subscriptions: changed,
        envoy_words: vec![
            "Envoy took the file, but no certificate in use has the expected serial number"
                .to_owned(),
        ],
    }))
}
