//! Warns about served certificates that will expire soon, in the log and in `status`.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::expiry::Warning;
use sesame_kinds::status;
use sesame_kinds::world::Kind;
use sesame_resolver::Resolution;
use tokio::sync::watch;

use crate::observed::{AllObserved, Observed, newest};

const TICK: Duration = Duration::from_secs(5);

pub(crate) fn warnings<'a>(
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

pub(super) fn with_expiry(mut resolution: Resolution, now: Timestamp) -> Resolution {
    let expiries = resolution.listener_expiries();
    let gateways = resolution.statuses.gateways.iter_mut();
    let gateways = gateways.map(|(name, status)| (Kind::Gateway, name, &mut status.listeners));
    let sets = resolution.statuses.listener_sets.iter_mut();
    let sets = sets.map(|(name, status)| (Kind::ListenerSet, name, &mut status.listeners));
    for (kind, name, listeners) in gateways.chain(sets) {
        if let Some(own) = expiries.get(&kind.named(name.clone()).to_string()) {
            status::report_expiry(listeners, own, now);
        }
    }
    let gateways = resolution.statuses.gateways.values_mut();
    gateways.for_each(|status| status::report_lapsed(&mut status.conditions, now));
    let policies = resolution.statuses.policies.values_mut();
    for ancestor in policies.flat_map(|status| &mut status.ancestors) {
        status::report_lapsed(&mut ancestor.conditions, now);
    }
    resolution
}

/// Logs each warning once. Never returns.
pub(crate) async fn log(observed: watch::Receiver<AllObserved>) {
    let mut logged = BTreeSet::new();
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        let now = warnings(&newest(&observed), Timestamp::now());
        for (gateway, warning) in now.difference(&logged) {
            tracing::warn!(%gateway, "{}", warning.message);
        }
        logged = now;
    }
}
