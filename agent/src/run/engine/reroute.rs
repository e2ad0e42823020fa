//! What becomes of the Gateways when a few routes have changed and nothing else, without a resolution of everything and
//! without decoding what is served. It must give what these would give, or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_gateway_api::resolve::reroute::{Before, OtherStatus, Rerouted, is_of, reroute};
use sesame_gateway_api::world::{ObjectKey, World};

use super::Engine;
use crate::run::target::Targets;
use crate::source::manifests::ScanReport;
use crate::source::update::GatewayRevision;

impl Engine {
    /// What the Gateways are to serve, and which routes say something else, where nothing but a few routes has changed
    /// since the last time; none if only a resolution of everything tells.
    pub(super) fn reroute(
        &mut self,
        scan: &ScanReport,
        wanted: &Targets,
    ) -> Option<(Vec<GatewayRevision>, Vec<OtherStatus>)> {
        let before = {
            let known = self.known.borrow();
            // What is wanted is not what was resolved, or something else has changed meanwhile.
            if known.held.is_some() {
                return None;
            }
            as_they_were(scan, known.world.as_ref()?)?
        };
        let world = self.manifests.world();
        let Rerouted { hosts, statuses } =
            reroute(world, &before, &mut self.of_neighbours, &self.resolve)?;
        let mut hosts: BTreeMap<_, _> = hosts.into_iter().collect();
        let mut offers = Vec::with_capacity(wanted.len());
        for (name, wanted) in wanted {
            let packed = match hosts.remove(name) {
                Some(hosts) => Arc::new(wanted.packed.with_hosts(&hosts)?),
                None => Arc::clone(&wanted.packed),
            };
            offers.push(GatewayRevision {
                gateway: name.clone(),
                packed,
                snapshot: None,
                manifest_revision: None,
            });
        }
        hosts.is_empty().then_some((offers, statuses))
    }
}

/// The routes that have changed, as they were in this world; none if anything else has, or one came.
fn as_they_were(scan: &ScanReport, world: &World) -> Option<Before> {
    let as_it_was = |key: &ObjectKey| {
        let route = Some(key).filter(|key| is_of(key.kind))?;
        Some((route.clone(), world.get(route)?))
    };
    scan.changed.iter().map(as_it_was).collect()
}
