//! The Gateways and their objects.

use std::collections::{BTreeMap, BTreeSet};

use super::Basis;
use super::kinds::{OwnedKey, OwnedKind};
use super::owned::ExistingObject;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::settings::GatewaySettings;

/// Gateways and their objects.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// Name of the controller: another controller may have Gateways, too.
    pub(super) controller: String,
    /// Namespace of the controller, in which objects have no owner reference.
    pub(super) namespace: String,
    /// URL of the collector that agents of fleets send spans to.
    pub(super) fleet_spans: Option<String>,
    /// All Gateways, ours or not.
    pub(super) gateways: BTreeMap<NamespacedName, Basis>,
    /// All GatewayClasses, ours or not, by the name under which their Gateways are published
    /// together.
    pub(super) classes: BTreeMap<NamespacedName, Basis>,
    /// True if class-owned objects in the controller's own namespace are not watched.
    pub(super) unwatched_home: bool,
    /// UIDs of deleted Gateways, which may have left objects behind.
    pub(super) gone: BTreeSet<String>,
    /// Objects with our label, with any owner.
    pub(super) objects: BTreeMap<OwnedKey, ExistingObject>,
    /// Kinds of fleets and of routes that cannot be watched.
    pub(super) unwatched: BTreeSet<OwnedKind>,
    /// The subset that the API server does not know.
    pub(super) absent: BTreeSet<OwnedKind>,
}

impl Inventory {
    /// Returns the Gateway, or the GatewayClass, that is published under this name with these settings.
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
