//! What resolution has for the publisher.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::delta::RouteTableDelta;
use sesame_proto::schema::EndpointSet;
use sesame_proto::shard::{RefreshedShards, Splitter};

use super::cluster_state::ClusterState;
use crate::publish::Bundle;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::ResolvedGateway;
use sesame_gateway_api::status::Statuses;
use sesame_gateway_api::world::{Kind, World};
use sesame_published::names::{DEFAULT_FLEET, FLEET_LABEL};

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

/// What was made of each Gateway the last time, to go on from.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    splitters: BTreeMap<NamespacedName, Splitter>,
    offers: Offers,
    /// Whether of some Gateway nothing could be made.
    failed: bool,
}

/// What came of a change of endpoints alone.
#[derive(Debug)]
pub(super) enum Refresh {
    /// What is offered is the same.
    Same,
    /// This is offered now.
    Offers(Offers),
    /// Only a whole resolution tells.
    Whole,
}

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
        let mut splitters = BTreeMap::new();
        for resolved in gateways {
            let name = resolved.gateway.clone();
            let fleet = fleet(state.world(), &name);
            let mut splitter = self.splitters.remove(&name).unwrap_or_default();
            match Bundle::new(resolved, &fleet, &mut splitter) {
                Ok(bundle) => {
                    offers.insert(name.clone(), Offer::Publish(Arc::new(bundle)));
                }
                Err(why) => {
                    tracing::warn!(gateway = %name, %why, "the Gateway cannot be published; what was published stays");
                    unpublishable.insert(name.clone(), why);
                }
            }
            splitters.insert(name, splitter);
        }
        *self = Self {
            splitters,
            offers: offers.clone(),
            failed: !unpublishable.is_empty(),
        };
        (offers, unpublishable)
    }

    /// Changes virtual hosts of what is offered; none if only a whole resolution tells, which is to follow then.
    pub(super) fn change_hosts(
        &mut self,
        changed: &[(NamespacedName, RouteTableDelta)],
    ) -> Option<Offers> {
        for (name, delta) in changed {
            let splitter = self.splitters.get_mut(name)?;
            let Some(Offer::Publish(bundle)) = self.offers.get_mut(name) else {
                return None;
            };
            *bundle = Arc::new(bundle.with_changed_hosts(delta, splitter)?);
        }
        Some(self.offers.clone())
    }

    /// Makes the same with these endpoint sets, where a Gateway has them.
    pub(super) fn refresh(&mut self, sets: &[EndpointSet]) -> Refresh {
        // With other endpoints it may be possible.
        if self.failed {
            return Refresh::Whole;
        }
        let mut changed = false;
        for (name, splitter) in &mut self.splitters {
            let Some(Offer::Publish(bundle)) = self.offers.get_mut(name) else {
                continue;
            };
            match splitter.refresh(sets) {
                Ok(RefreshedShards::Changed(shards)) if shards.is_empty() => {}
                Ok(RefreshedShards::Changed(shards)) => {
                    *bundle = Arc::new(bundle.with_endpoints(shards));
                    changed = true;
                }
                // Resolution says of which Gateway, and why.
                Ok(RefreshedShards::Whole) | Err(_) => return Refresh::Whole,
            }
        }
        if changed {
            Refresh::Offers(self.offers.clone())
        } else {
            Refresh::Same
        }
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
