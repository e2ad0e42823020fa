//! Keeps all Gateways' publications, and applies endpoint and route changes without a full
//! resolution.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::delta::GatewayDelta;
use sesame_proto::encoded::canonical_endpoint_entries;
use sesame_proto::schema::EndpointSet;
use sesame_proto::shard::Splitter;

use super::carried::PublishedSets;
use super::cluster_state::ClusterState;
use crate::publish::{DesiredPublication, DesiredPublications, Publication};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, World};
use sesame_published::names::{DEFAULT_FLEET, FLEET_LABEL, MANAGED_FLEET};
use sesame_resolver::settings::GatewaySettings;
use sesame_resolver::{Options, Resolution, ResolvedGateway, merged_name};

#[derive(Debug, Default)]
pub(super) struct Publications {
    pub(super) splitters: BTreeMap<NamespacedName, Splitter>,
    /// Until the first resolution.
    pub(super) published_sets: PublishedSets,
    desired: DesiredPublications,
    failed: bool,
}

#[derive(Debug)]
pub(super) enum Refresh {
    Same,
    Changed(DesiredPublications),
    Whole,
}

impl Publications {
    /// Gateways in `names` that are not resolved keep their last publication. Also returns why
    /// publications failed.
    pub(super) fn build(
        &mut self,
        gateways: Vec<ResolvedGateway>,
        names: BTreeSet<NamespacedName>,
        settings: &BTreeMap<NamespacedName, GatewaySettings>,
        world: &World,
    ) -> (DesiredPublications, BTreeMap<NamespacedName, String>) {
        let mut desired: DesiredPublications = names
            .into_iter()
            .map(|name| (name, DesiredPublication::Retain))
            .collect();
        let mut unpublishable = BTreeMap::new();
        let mut splitters = BTreeMap::new();
        for resolved in gateways {
            let name = resolved.gateway.clone();
            let is_managed = settings.get(&name).is_some_and(GatewaySettings::is_managed);
            let fleet = fleet(world, &name, is_managed);
            let mut splitter = self.splitters.remove(&name).unwrap_or_default();
            match Publication::new(resolved, &fleet, &mut splitter) {
                Ok(publication) => {
                    desired.insert(
                        name.clone(),
                        DesiredPublication::Publish(Arc::new(publication)),
                    );
                }
                Err(why) => {
                    tracing::warn!(gateway = %name, %why, "cannot publish the Gateway; keeping \
                        the previous publication");
                    // Update endpoints even while the configuration cannot be published.
                    if let Some(DesiredPublication::Publish(before)) = self.desired.get(&name) {
                        let last = before
                            .with_last(&splitter)
                            .map_or_else(|| Arc::clone(before), Arc::new);
                        desired.insert(name.clone(), DesiredPublication::Publish(last));
                    }
                    unpublishable.insert(name.clone(), why);
                }
            }
            splitters.insert(name, splitter);
        }
        *self = Self {
            splitters,
            published_sets: std::mem::take(&mut self.published_sets),
            desired: desired.clone(),
            failed: !unpublishable.is_empty(),
        };
        (desired, unpublishable)
    }

    /// Returns `None` if a full resolution is needed.
    pub(super) fn change(
        &mut self,
        changed: &[(NamespacedName, GatewayDelta)],
    ) -> Option<DesiredPublications> {
        for (name, delta) in changed {
            let splitter = self.splitters.get_mut(name)?;
            let Some(DesiredPublication::Publish(publication)) = self.desired.get_mut(name) else {
                return None;
            };
            *publication = Arc::new(publication.with_changes(delta, splitter)?);
        }
        Some(self.desired.clone())
    }

    pub(super) fn refresh(&mut self, sets: Vec<EndpointSet>) -> Refresh {
        // If the last publication failed, a new attempt might succeed with these endpoints.
        if self.failed {
            return Refresh::Whole;
        }
        let sets = canonical_endpoint_entries(sets);
        let mut changed = false;
        for (name, splitter) in &mut self.splitters {
            let Some(DesiredPublication::Publish(publication)) = self.desired.get_mut(name) else {
                continue;
            };
            match publication.with_endpoints(&sets, splitter) {
                Ok(None) => {}
                Ok(Some(refreshed)) => {
                    *publication = Arc::new(refreshed);
                    changed = true;
                }
                // Only a full resolution can determine which Gateway is affected, and why.
                Err(_) => return Refresh::Whole,
            }
        }
        if changed {
            Refresh::Changed(self.desired.clone())
        } else {
            Refresh::Same
        }
    }
}

/// Includes Gateways that were published earlier and might be published again.
pub(super) fn names(
    resolution: &Resolution,
    unserved: &BTreeSet<NamespacedName>,
    state: &ClusterState,
    options: &Options,
) -> BTreeSet<NamespacedName> {
    let mut names = resolution.retained.clone();
    let served = resolution.statuses.gateways.keys();
    for gateway in served.filter(|gateway| !unserved.contains(*gateway)) {
        let merged = resolution.merged.get(gateway);
        names.insert(merged.map_or(gateway, |it| &it.published_as).clone());
    }
    let mut broken = state.broken(Kind::Gateway).peekable();
    if broken.peek().is_some() {
        // An undecodable Gateway's class is unknown, so the Gateway might be ours.
        let classes = state.world().gateway_classes.iter();
        let ours = classes.filter(|it| it.spec.controller_name == options.controller_name);
        names.extend(ours.map(|class| merged_name(&class.metadata.name, options)));
    }
    names.extend(broken.map(|key| key.name.clone()));
    let mut unread = state.broken(Kind::SesameConfiguration);
    if unread.any(|key| !state.world().contains(key) && is_parameters(&key.name, state, options)) {
        // It might declare any Gateway that has no object, so withdraw none.
        names.extend(state.published_before().cloned());
    }
    names
}

/// Returns true if a class of this controller refers to the configuration.
fn is_parameters(name: &NamespacedName, state: &ClusterState, options: &Options) -> bool {
    let classes = state.world().gateway_classes.iter();
    let mut ours = classes.filter(|it| it.spec.controller_name == options.controller_name);
    ours.any(|class| {
        let reference = class.spec.parameters_ref.as_ref();
        reference.is_some_and(|it| {
            it.name == name.name && it.namespace.as_deref() == Some(&*name.namespace)
        })
    })
}

/// Merged Gateways are published under their class's name.
fn fleet(world: &World, name: &NamespacedName, is_managed: bool) -> String {
    let gateway = world.gateways.get(&name.namespace, &name.name);
    let class = gateway.map_or(&name.name, |gateway| &gateway.spec.gateway_class_name);
    let class = world.gateway_classes.get("", class);
    let class_label = || class?.metadata.labels.get(FLEET_LABEL);
    let gateway_label = gateway.and_then(|gateway| gateway.metadata.labels.get(FLEET_LABEL));
    let label = gateway_label.or_else(class_label);
    let label = label.filter(|label| !label.is_empty());
    let default_fleet = if is_managed {
        MANAGED_FLEET
    } else {
        DEFAULT_FLEET
    };
    label.unwrap_or(default_fleet).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::cluster_state::tests::{observed, watched};
    use super::*;
    use crate::serve::Metrics;
    use crate::watch::{Input, PublishedBefore, WatchEvent, WatchedObject};

    #[test]
    fn undecodable_parameters_keep_all_earlier_publications() {
        let class = "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: \
            edge}, spec: {controllerName: projectsesame.io/gateway-controller, parametersRef: \
            {group: projectsesame.io, kind: SesameConfiguration, name: edge, namespace: web}}}";
        let parameters = "{apiVersion: projectsesame.io/v1alpha1, kind: SesameConfiguration, \
            metadata: {name: edge, namespace: web}, spec: {}}";
        let gateway = "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: \
            deleted, namespace: web}, spec: {gatewayClassName: edge, listeners: [{name: http, port: \
            80, protocol: HTTP}]}}";
        let [implied, deleted] = ["implied", "deleted"].map(|it| NamespacedName::new("web", it));
        let published = || PublishedBefore {
            names: [implied.clone(), deleted.clone()].into(),
            ..PublishedBefore::default()
        };
        let broken = || WatchedObject {
            object: Err("a number is too large".to_owned()),
            ..observed(parameters)
        };
        let kept = |configuration: WatchedObject, class: Option<&str>| {
            let mut state = ClusterState::default();
            let mut apply = |input| {
                state.apply(input, &Metrics::new());
            };
            apply(Input::Published(published()));
            if let Some(class) = class {
                let event = WatchEvent::Applied(observed(class));
                apply(watched(Kind::GatewayClass, event));
            }
            let event = WatchEvent::Deleted(observed(gateway));
            apply(watched(Kind::Gateway, event));
            let event = WatchEvent::Applied(configuration);
            apply(watched(Kind::SesameConfiguration, event));
            let options = Options::default();
            names(&Resolution::default(), &BTreeSet::new(), &state, &options)
        };
        assert_eq!(
            kept(broken(), Some(class)),
            BTreeSet::from([implied.clone()])
        );
        assert!(kept(broken(), None).is_empty());
        assert!(kept(observed(parameters), Some(class)).is_empty());
    }
}
