//! Files of this host in place of the Secrets and ConfigMaps that they stand for.

use std::borrow::Cow;
use std::sync::Arc;

use sesame_gateway_api::api::NamespacedName;
use tokio::sync::watch;

use super::{HostSettings, Origin, Target, render_all};
use crate::run::engine::SourceState;
use crate::source::update::GatewayRevision;

/// Returns the revisions with the content of local files.
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
            offer.snapshot = None;
            offer.encoded = Arc::new(encoded);
        }
    }
    changed
}

/// Takes the newest content of local files: renders what is wanted now with it, whatever the source is like.
pub(in crate::run) fn take_local(known: &watch::Sender<SourceState>, host: &HostSettings) {
    let local = host.local.newest();
    if known.borrow().local == local {
        return;
    }
    let before = known.borrow().gateways.clone();
    let as_before = |(name, target): (&NamespacedName, &Arc<Target>)| target.to_revision(name);
    let offers: Vec<GatewayRevision> = before.iter().map(as_before).collect();
    let cause = Origin::Source("a change of local files");
    let mut targets = render_all(&offers, host, &before, cause);
    for (name, target) in &mut targets {
        if let Some(old) = before.get(name).filter(|old| old.encoded == target.encoded) {
            *target = Arc::clone(old);
        }
    }
    known.send_modify(|known| {
        known.gateways = targets;
        known.local = local;
    });
}
