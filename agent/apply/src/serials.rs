//! Verifies that Envoy serves new keys, by the serial numbers of the certificates in use.

use std::collections::BTreeMap;

use super::plan::Phase;
use super::report::{ApplyReport, Outcome, Refusal};
use super::request::Desired;
use super::wait::{Expectation, Watcher};
use sesame_envoy::admin::serial;
use sesame_render::xds::{Subscription, XdsKind};

/// Envoy reports a bad key pair as accepted if the pair is delivered twice, so the reported version
/// proves nothing. A certificate in a new file may not be in use yet.
pub(super) async fn check_serials(
    phase: Phase,
    expected: &[Expectation],
    desired: Desired<'_>,
    watcher: &Watcher<'_>,
    report: &mut ApplyReport,
) -> Result<(), Outcome> {
    let serials: BTreeMap<Subscription, String> = expected
        .iter()
        .filter(|e| e.subscription.kind == XdsKind::Secret)
        .filter_map(|e| {
            // Session ticket keys have no serial number.
            let wanted = desired.serials.get(&e.subscription.name)?;
            (!wanted.is_empty()).then(|| (e.subscription.clone(), serial(wanted)))
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
            "Envoy read the file, but no certificate in use has the expected serial number"
                .to_owned(),
        ],
    }))
}
