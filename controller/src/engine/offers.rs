//! What resolution has for the publisher.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cluster_state::ClusterState;
use crate::api::NamespacedName;
use crate::cluster::published::{DEFAULT_FLEET, FLEET_LABEL};
use crate::publish::{Bundle, input_digest};
use crate::resolve::ResolvedGateway;
use crate::status::Statuses;
use crate::world::{Kind, World};

/// What to do about one Gateway.
#[derive(Clone, Debug)]
pub(crate) enum Offer {
    /// Publish this.
    Publish(Arc<Bundle>),
    /// It is ours, but there is nothing that could be published: what was published stays.
    Keep,
}

/// All Gateways that are ours; whatever else was published is to be withdrawn.
pub(crate) type Offers = BTreeMap<NamespacedName, Offer>;

/// The revisions that are offered.
pub(super) fn revisions(offers: &Offers) -> BTreeMap<NamespacedName, String> {
    offers
        .iter()
        .filter_map(|(name, offer)| match offer {
            Offer::Publish(bundle) => Some((name.clone(), bundle.revision.clone())),
            Offer::Keep => None,
        })
        .collect()
}

/// What was made of each Gateway the last time: most changes concern one of them.
#[derive(Debug, Default)]
pub(super) struct Bundles(BTreeMap<NamespacedName, (String, Result<Arc<Bundle>, String>)>);

impl Bundles {
    /// Makes what is to be published of each Gateway; the second value says of which that is not possible, and why.
    pub(super) fn offer(
        &mut self,
        gateways: Vec<ResolvedGateway>,
        statuses: &Statuses,
        unserved: &BTreeSet<NamespacedName>,
        state: &ClusterState,
    ) -> (Offers, BTreeMap<NamespacedName, String>) {
        let mut offers: Offers = statuses
            .gateways
            .keys()
            .filter(|name| !unserved.contains(*name))
            .map(|name| (name.clone(), Offer::Keep))
            .collect();
        for key in state.broken(Kind::Gateway) {
            offers.entry(key.name.clone()).or_insert(Offer::Keep);
        }
        let mut unpublishable = BTreeMap::new();
        let mut made = BTreeMap::new();
        for resolved in gateways {
            let name = resolved.gateway.clone();
            let fleet = fleet(state.world(), &name);
            let digest = input_digest(&resolved, &fleet);
            let bundle = match self.0.remove(&name) {
                Some((same, bundle)) if same == digest => bundle,
                _ => Bundle::new(&resolved, &fleet).map(Arc::new),
            };
            match &bundle {
                Ok(bundle) => {
                    offers.insert(name.clone(), Offer::Publish(Arc::clone(bundle)));
                }
                Err(why) => {
                    tracing::warn!(gateway = %name, %why, "the Gateway cannot be published; what was published stays");
                    unpublishable.insert(name.clone(), why.clone());
                }
            }
            made.insert(name, (digest, bundle));
        }
        self.0 = made;
        (offers, unpublishable)
    }
}

/// The fleet that the Gateway, or else its class, is labelled with.
fn fleet(world: &World, name: &NamespacedName) -> String {
    let Some(gateway) = world.gateways.get(&name.namespace, &name.name) else {
        return DEFAULT_FLEET.to_owned();
    };
    let of_class = || {
        world
            .gateway_classes
            .get("", &gateway.spec.gateway_class_name)?
            .metadata
            .labels
            .get(FLEET_LABEL)
    };
    let label = gateway.metadata.labels.get(FLEET_LABEL).or_else(of_class);
    let label = label.filter(|label| !label.is_empty());
    label.unwrap_or(DEFAULT_FLEET).to_owned()
}
