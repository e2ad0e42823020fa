//! Certificates that are served and expire: what is said of them, in the log and in `status`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::Warning;
use tokio::sync::watch;

use crate::run::observed::Observed;

/// How often the clock is looked at.
const TICK: Duration = Duration::from_secs(5);

/// What is to be said of the certificates that Envoy serves of each Gateway.
pub(in crate::run) fn warnings<'a>(
    observed: impl IntoIterator<Item = (&'a NamespacedName, &'a Observed)>,
    now: Timestamp,
) -> BTreeSet<(NamespacedName, Warning)> {
    let mut found = BTreeSet::new();
    for (gateway, observed) in observed {
        let expiries = observed.applied.iter().flat_map(|wanted| wanted.expiries());
        found.extend(
            expiries
                .filter_map(|expiry| expiry.warning(now))
                .map(|warning| (gateway.clone(), warning)),
        );
    }
    found
}

/// Logs each warning once, for as long as the task lives.
pub(in crate::run) async fn log(
    observed: watch::Receiver<BTreeMap<NamespacedName, watch::Receiver<Observed>>>,
) {
    let mut told = BTreeSet::new();
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        let newest: BTreeMap<NamespacedName, Observed> = observed
            .borrow()
            .iter()
            .map(|(name, observed)| (name.clone(), observed.borrow().clone()))
            .collect();
        let now = warnings(&newest, Timestamp::now());
        for (gateway, warning) in now.difference(&told) {
            tracing::warn!(%gateway, "{}", warning.message);
        }
        told = now;
    }
}
