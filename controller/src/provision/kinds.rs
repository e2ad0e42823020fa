//! Lists the kinds of objects that a Gateway owns.

use std::fmt;

use kube::core::{ApiResource, GroupVersionKind};
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{ADOPTION_LABEL, GATEWAY_LABEL};

/// Objects are deleted in this order: routes before their Gateway, Pods before their permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum OwnedKind {
    TcpRoute,
    UdpRoute,
    Gateway,
    Service,
    EndpointSlice,
    DaemonSet,
    Deployment,
    PodDisruptionBudget,
    ServiceAccount,
    RoleBinding,
    Role,
    ConfigMap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Service,
    Fleet,
    Adoption,
    Upstream,
}

pub(super) type OwnedKey = (OwnedKind, NamespacedName);

impl OwnedKind {
    pub(super) const ALL: [Self; 12] = [
        Self::TcpRoute,
        Self::UdpRoute,
        Self::Gateway,
        Self::Service,
        Self::EndpointSlice,
        Self::DaemonSet,
        Self::Deployment,
        Self::PodDisruptionBudget,
        Self::ServiceAccount,
        Self::RoleBinding,
        Self::Role,
        Self::ConfigMap,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::TcpRoute => "TCPRoute",
            Self::UdpRoute => "UDPRoute",
            Self::Gateway => "Gateway",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::DaemonSet => "DaemonSet",
            Self::Deployment => "Deployment",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::ServiceAccount => "ServiceAccount",
            Self::RoleBinding => "RoleBinding",
            Self::Role => "Role",
            Self::ConfigMap => "ConfigMap",
        }
    }

    /// Returns `group/version`, or only the version for the core group.
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::TcpRoute | Self::UdpRoute | Self::Gateway => "gateway.networking.k8s.io/v1",
            Self::Service | Self::ServiceAccount | Self::ConfigMap => "v1",
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::DaemonSet | Self::Deployment => "apps/v1",
            Self::PodDisruptionBudget => "policy/v1",
            Self::RoleBinding | Self::Role => "rbac.authorization.k8s.io/v1",
        }
    }

    pub(super) fn resource(self) -> ApiResource {
        let version = self.api_version();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, self.as_str()))
    }

    pub(super) fn purpose(self) -> Purpose {
        match self {
            Self::Service | Self::EndpointSlice => Purpose::Service,
            Self::DaemonSet
            | Self::Deployment
            | Self::PodDisruptionBudget
            | Self::ServiceAccount
            | Self::RoleBinding
            | Self::Role => Purpose::Fleet,
            Self::ConfigMap => Purpose::Adoption,
            Self::TcpRoute | Self::UdpRoute | Self::Gateway => Purpose::Upstream,
        }
    }

    pub(super) fn is_of_fleet(self) -> bool {
        self.purpose() == Purpose::Fleet
    }

    pub(super) fn is_workload(self) -> bool {
        matches!(self, Self::DaemonSet | Self::Deployment)
    }

    pub(super) fn is_of_workload(self, on_pods: bool) -> bool {
        match self {
            Self::Service
            | Self::EndpointSlice
            | Self::TcpRoute
            | Self::UdpRoute
            | Self::Gateway
            | Self::ConfigMap => false,
            Self::DaemonSet => !on_pods,
            Self::Deployment | Self::PodDisruptionBudget => on_pods,
            Self::ServiceAccount | Self::RoleBinding | Self::Role => true,
        }
    }

    /// Returns true if objects of this kind are in the controller's namespace.
    pub(super) fn is_remote(self) -> bool {
        matches!(self, Self::RoleBinding | Self::Role | Self::ConfigMap)
    }

    /// Adoption previews need their own label, because a ConfigMap with [`GATEWAY_LABEL`] is a
    /// publication.
    pub(super) fn label(self) -> &'static str {
        match self.purpose() {
            Purpose::Adoption => ADOPTION_LABEL,
            Purpose::Service | Purpose::Fleet | Purpose::Upstream => GATEWAY_LABEL,
        }
    }
}

impl fmt::Display for OwnedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
