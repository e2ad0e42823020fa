//! Resolves small changes without a full resolution. Must return the same result as a full
//! resolution, or `None`.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::encoded::endpoint_entries;
use sesame_resolver::incremental::{self, Delta, RouteDelta, RouteStatusChange};

use super::Engine;
use crate::target::Targets;
use sesame_sources::manifests::ScanReport;
use sesame_sources::update::{GatewayRevision, Staging};

impl Engine {
    pub(super) fn resolve_changes(
        &mut self,
        scan: &ScanReport,
        wanted: &Targets,
    ) -> Option<(Vec<GatewayRevision>, Vec<RouteStatusChange>)> {
        let delta = {
            let known = self.known.borrow();
            // The published targets may differ from the last resolution.
            if known.held.is_some() {
                return None;
            }
            let (before, world) = (known.world.as_ref()?, self.manifests.world());
            incremental::resolve(
                before,
                world,
                &scan.changed,
                &mut self.resolver,
                &self.resolve,
            )?
        };
        let Delta { routes, endpoints } = delta;
        let endpoints = endpoint_entries(&endpoints);
        let RouteDelta { gateways, statuses } = routes;
        let mut gateways: BTreeMap<_, _> = gateways.into_iter().collect();
        let mut offers = Vec::with_capacity(wanted.len());
        for (name, wanted) in wanted {
            let mut encoded = Arc::clone(&wanted.encoded);
            if let Some(delta) = gateways.remove(name) {
                encoded = Arc::new(encoded.with_changes(&delta)?);
            }
            if !endpoints.is_empty() {
                encoded = Arc::new(encoded.with_changed_endpoints(&endpoints));
            }
            offers.push(GatewayRevision {
                gateway: name.clone(),
                encoded,
                manifest_revision: None,
                // Manifests are never staged.
                staging: Staging::Immediate,
                others: Arc::default(),
            });
        }
        gateways.is_empty().then_some((offers, statuses))
    }
}
