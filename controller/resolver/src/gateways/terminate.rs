//! Resolves the parts of listeners that depend on referenced objects and policies.

use super::{CheckedGateway, ReferencedObjects};
use crate::context::ResolveContext;
use crate::listeners::{filters, termination};
use crate::policies::traffic::LimitCounts;

impl<'w> CheckedGateway<'w> {
    pub(super) fn terminate(
        &mut self,
        cx: &mut ResolveContext<'w, '_>,
        references: &mut ReferencedObjects<'_, 'w, '_>,
    ) {
        let Self {
            owner,
            listeners,
            sets,
            own,
            most_limits,
            filters: common,
            frontend,
            mesh,
            ..
        } = self;
        let sets = sets.iter().map(|set| (&set.owner, set.range.clone()));
        let gateway = (owner.namespace, owner.name);
        *common = references.traffic_policies.of_all_listeners(gateway);
        for (owner, range) in std::iter::once((&*owner, 0..*own)).chain(sets) {
            for listener in listeners.get_mut(range).unwrap_or_default() {
                let tls = (&mut *references.certificates, &mut *references.ca_bundles);
                termination::resolve(owner, listener, frontend, cx, tls);
                filters::resolve(owner, listener, mesh.is_some(), references.backends, cx);
                let of = (owner.kind, owner.namespace, owner.name);
                let name = &listener.spec.name;
                listener.traffic = references.traffic_policies.of_listener(gateway, of, name);
                let limits = LimitCounts::of(&listener.traffic.rate_limits);
                *most_limits = limits.larger(most_limits);
            }
        }
    }
}
