//! Holds the cluster state from which a plan is computed.

use std::collections::{BTreeMap, BTreeSet};

use super::Basis;
use super::kinds::{OwnedKey, OwnedKind};
use super::owned::ExistingObject;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::settings::GatewaySettings;

/// Gateways and their objects.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// Name of this controller. Gateways of other controllers are ignored.
    pub(super) controller: String,
    /// Namespace of the controller. A Gateway in another namespace cannot own objects in it.
    pub(super) namespace: String,
    /// URL of the collector to which fleet agents send spans.
    pub(super) fleet_spans: Option<String>,
    /// All Gateways, including Gateways of other controllers.
    pub(super) gateways: BTreeMap<NamespacedName, Basis>,
    /// All GatewayClasses, whichever controller they name. The key is the name under which a
    /// class's jointly served Gateways are published.
    pub(super) classes: BTreeMap<NamespacedName, Basis>,
    /// True if the watches do not cover objects that a GatewayClass owns in the controller's own
    /// namespace.
    pub(super) unwatched_home: bool,
    /// UIDs of deleted Gateways, which may have left objects behind.
    pub(super) gone: BTreeSet<String>,
    /// All objects with our label, regardless of their owner.
    pub(super) objects: BTreeMap<OwnedKey, ExistingObject>,
    /// Kinds of fleet objects and routes that cannot be watched.
    pub(super) unwatched: BTreeSet<OwnedKind>,
    /// Kinds in `unwatched` that the API server does not serve.
    pub(super) absent: BTreeSet<OwnedKind>,
}

impl Inventory {
    /// Returns the GatewayClass or Gateway published under this name, depending on the settings.
    pub(super) fn basis(
        &self,
        name: &NamespacedName,
        settings: &GatewaySettings,
    ) -> Option<&Basis> {
        if settings.is_merged() {
            self.classes.get(name)
        } else {
            self.gateways.get(name)
        }
    }

    /// Returns all Gateways and GatewayClasses.
    pub(super) fn bases(&self) -> impl Iterator<Item = &Basis> {
        self.gateways.values().chain(self.classes.values())
    }
}
