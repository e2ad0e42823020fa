//! Applies local files and the host's session ticket keys to targets.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use sesame_kinds::api::NamespacedName;
use tokio::sync::watch;

use super::{HostSettings, Origin, Target, render_all};
use crate::engine::SourceState;
use sesame_sources::update::GatewayRevision;

pub(super) fn with_local<'a>(
    gateways: &'a [GatewayRevision],
    host: &HostSettings,
) -> Cow<'a, [GatewayRevision]> {
    let local = host.local.newest();
    let mut changed = Cow::Borrowed(gateways);
    for (place, offer) in gateways.iter().enumerate() {
        if let Some(encoded) = offer.encoded.with_substitutes(&local.usable)
            && let Some(offer) = changed.to_mut().get_mut(place)
        {
            offer.encoded = Arc::new(encoded);
        }
    }
    changed
}

/// Applies local changes without rereading the source.
pub(crate) fn apply_local(known: &watch::Sender<SourceState>, host: &HostSettings) {
    let local = host.local.newest();
    let before = known.borrow().gateways.clone();
    let cause = if known.borrow().local != local {
        "a change to local files"
    } else if before
        .values()
        .any(|target| has_older_tickets(target, host))
    {
        "a rotation of the host's session ticket keys"
    } else if before
        .values()
        .any(|target| target.options.endpoints.host != host.refused_addresses())
    {
        "a change to the host's addresses"
    } else {
        return;
    };
    let as_before = |(name, target): (&NamespacedName, &Arc<Target>)| target.to_revision(name);
    let offers: Vec<GatewayRevision> = before.iter().map(as_before).collect();
    let mut targets = render_all(
        &offers,
        host,
        &before,
        Origin::Source(cause),
        Instant::now(),
    );
    for (name, target) in &mut targets {
        let as_before = |old: &&Arc<Target>| {
            old.encoded == target.encoded
                && old.options.endpoints == target.options.endpoints
                && !has_older_tickets(old, host)
        };
        if let Some(old) = before.get(name).filter(as_before) {
            *target = Arc::clone(old);
        }
    }
    known.send_modify(|known| {
        known.gateways = targets;
        known.local = local;
    });
}

fn has_older_tickets(target: &Target, host: &HostSettings) -> bool {
    let stand_in = target.options.stand_in_tickets.as_ref();
    stand_in.is_some_and(|keys| *keys != host.tickets.stand_in())
}
