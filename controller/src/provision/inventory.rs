//! Holds the cluster state from which a plan is computed.

use std::collections::{BTreeMap, BTreeSet};

use super::Basis;
use super::kinds::{OwnedKey, OwnedKind};
use super::owned::ExistingObject;
use sesame_kinds::api::NamespacedName;
use sesame_resolver::settings::GatewaySettings;

#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// This controller's name.
    pub(super) controller: String,
    /// The controller's namespace, where Gateways in other namespaces cannot own objects.
    pub(super) namespace: String,
    pub(super) fleet_spans: Option<String>,
    /// Includes Gateways that belong to other controllers.
    pub(super) gateways: BTreeMap<NamespacedName, Basis>,
    /// Keyed by the published name of the class's merged Gateways.
    pub(super) classes: BTreeMap<NamespacedName, Basis>,
    /// True if the GatewayClasses' objects in the controller's namespace are not watched.
    pub(super) unwatched_home: bool,
    /// UIDs of deleted owners, whose objects may still exist.
    pub(super) gone: BTreeSet<String>,
    /// Includes foreign objects with our label.
    pub(super) objects: BTreeMap<OwnedKey, ExistingObject>,
    pub(super) unwatched: BTreeSet<OwnedKind>,
    /// Kinds that the API server does not serve.
    pub(super) absent: BTreeSet<OwnedKind>,
}

impl Inventory {
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

    pub(super) fn bases(&self) -> impl Iterator<Item = &Basis> {
        self.gateways.values().chain(self.classes.values())
    }
}
