//! The kinds of objects that a Gateway owns.

use std::fmt;

use kube::core::{ApiResource, GroupVersionKind};
use sesame_gateway_api::api::NamespacedName;

/// Kind of an object that is made for a Gateway. In this order objects are given up: Pods before their rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum OwnedKind {
    Service,
    EndpointSlice,
    DaemonSet,
    ServiceAccount,
    RoleBinding,
    Role,
}

/// Kind and name of an object.
pub(super) type OwnedKey = (OwnedKind, NamespacedName);

impl OwnedKind {
    /// All kinds.
    pub(super) const ALL: [Self; 6] = [
        Self::Service,
        Self::EndpointSlice,
        Self::DaemonSet,
        Self::ServiceAccount,
        Self::RoleBinding,
        Self::Role,
    ];

    /// Returns the kind as the API writes it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::DaemonSet => "DaemonSet",
            Self::ServiceAccount => "ServiceAccount",
            Self::RoleBinding => "RoleBinding",
            Self::Role => "Role",
        }
    }

    /// Returns `group/version`, or the version of the core group.
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::Service | Self::ServiceAccount => "v1",
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::DaemonSet => "apps/v1",
            Self::RoleBinding | Self::Role => "rbac.authorization.k8s.io/v1",
        }
    }

    /// Returns the kind's name in the paths of the API server.
    pub(super) fn resource(self) -> ApiResource {
        let version = self.api_version();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, self.as_str()))
    }

    /// Returns true for the kinds that a fleet consists of.
    pub(super) fn is_of_fleet(self) -> bool {
        !matches!(self, Self::Service | Self::EndpointSlice)
    }

    /// Returns true for the kinds whose objects are in the controller's own namespace, away from their Gateway.
    pub(super) fn is_away(self) -> bool {
        matches!(self, Self::RoleBinding | Self::Role)
    }
}

impl fmt::Display for OwnedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
