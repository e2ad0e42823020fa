//! The input to resolution: objects, last good key pairs, and last served ports. Worlds are cheap
//! to clone because clones share objects.

mod definitions;
mod last_good;
mod objects;
mod provenance;
pub mod references;
mod served_together;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, DeserializeSeed, Deserializer};

use crate::api::{
    AccessPolicy, BackendPolicy, BackendTlsPolicy, ClusterTrustBundle, ConfigMap, EndpointSlice,
    ExtensionService, Gateway, GatewayClass, GatewayMeshPolicy, GrpcRoute, HttpProxy, HttpRoute,
    Ingress, IngressClass, ListenerSet, MeshOcgPolicy, Metadata, Namespace, NamespacedName, Pod,
    ReferenceGrant, RouteFilter, Secret, Service, SesameConfiguration, TcpRoute,
    TlsCertificateDelegation, TlsRoute, TrafficPolicy, UdpRoute, XBackend, XBackendTrafficPolicy,
    XMesh, XTelemetryPolicy,
};

pub use definitions::{
    ApiRelease, BUNDLE_VERSION, CHANNEL, DefinitionRelease, Definitions, ReleaseChannel,
};
pub use last_good::LastGoodKeys;
pub use objects::{Named, Objects};
pub use served_together::{ServedPorts, ServedTogether};

/// Kind and name, displayed as `Kind/namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind.
    pub kind: Kind,
    /// Namespace and name.
    pub name: NamespacedName,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Last parameters by GatewayClass. Empty until the first resolution of a process.
pub type LastParameters = BTreeMap<String, LastParameter>;

/// The last parameters of a GatewayClass.
#[derive(Clone, Debug, PartialEq)]
pub enum LastParameter {
    /// The parameters have been unusable since this process started, so an earlier process may have
    /// used others.
    Unknown,
    /// The class has no parameters, or is newer than the process and never had usable ones.
    Absent,
    /// The last valid parameters.
    Valid(Arc<SesameConfiguration>),
}

macro_rules! kinds {
    ($($kind:ident($type:ty) in $field:ident, $text:literal $short:tt $plural:literal, $groups:expr, $cluster:literal;)+) => {
        /// The kinds that Sesame reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "variants are named after API kinds")]
        pub enum Kind { $($kind,)+ }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)+];

            /// Returns the API's name for the kind, such as `HTTPRoute`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $text,)+ }
            }

            /// Returns the plural, such as `HTTPRoutes`.
            pub fn plural(self) -> &'static str {
                match self { $(Self::$kind => $plural,)+ }
            }

            /// Returns short names, such as `gtw` for Gateway.
            pub fn short_names(self) -> &'static [&'static str] {
                match self { $(Self::$kind => &$short,)+ }
            }

            /// Returns the supported `apiVersion`s.
            pub fn api_versions(self) -> &'static [&'static str] {
                match self { $(Self::$kind => $groups,)+ }
            }

            /// Returns true if the kind's objects have no namespace.
            pub fn cluster_scoped(self) -> bool {
                match self { $(Self::$kind => $cluster,)+ }
            }
        }

        impl<'de> DeserializeSeed<'de> for Kind {
            type Value = AnyObject;

            fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<AnyObject, D::Error> {
                match self {
                    $(Self::$kind => {
                        <$type>::deserialize(from).map(|object| AnyObject::$kind(Arc::new(object)))
                    })+
                }
            }
        }

        /// An object of any kind.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "variants are named after API kinds")]
        pub enum AnyObject { $($kind(Arc<$type>),)+ }

        impl AnyObject {
            /// Returns the kind.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)+ }
            }

            /// Returns the metadata.
            pub fn metadata(&self) -> &Metadata {
                match self { $(Self::$kind(object) => &object.metadata,)+ }
            }

            /// Returns the metadata, copying the object first if it is shared.
            pub fn metadata_mut(&mut self) -> &mut Metadata {
                match self { $(Self::$kind(object) => &mut Arc::make_mut(object).metadata,)+ }
            }

            /// Returns kind and name.
            pub fn key(&self) -> ObjectKey {
                self.kind().named(self.metadata().key())
            }
        }

        /// All objects at one point in time.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs, reason = "fields are named after API kinds")]
        pub struct World {
            $(pub $field: Objects<$type>,)+
            /// Last valid key pair of each Secret.
            pub last_good: LastGoodKeys,
            /// Gateway API releases of the CRDs.
            pub definitions: Definitions,
            /// Last served ports of merged Gateways.
            pub served_together: ServedTogether,
            /// Last valid parameters of each GatewayClass.
            pub last_parameters: LastParameters,
            /// Number of live hosts, by the name under which Gateways are published.
            pub live_hosts: BTreeMap<NamespacedName, u32>,
        }

        impl World {
            /// Adds or replaces an object.
            pub fn insert(&mut self, object: AnyObject) {
                match object {
                    $(AnyObject::$kind(object) => { self.$field.insert(object); })+
                }
            }

            /// Returns true if the object existed.
            pub fn remove(&mut self, key: &ObjectKey) -> bool {
                match key.kind {
                    $(Kind::$kind => self.$field.remove(&key.name),)+
                }
            }

            /// Returns the object with this key.
            pub fn get(&self, key: &ObjectKey) -> Option<AnyObject> {
                let NamespacedName { namespace, name } = &key.name;
                match key.kind {
                    $(Kind::$kind => self.$field.get(namespace, name).cloned().map(AnyObject::$kind),)+
                }
            }

            /// Returns the sorted names of a kind's objects.
            pub fn names(&self, kind: Kind) -> Vec<NamespacedName> {
                match kind {
                    $(Kind::$kind => self.$field.iter().map(|object| object.metadata.key()).collect(),)+
                }
            }

            /// Returns the number of objects of a kind.
            pub fn count(&self, kind: Kind) -> usize {
                match kind { $(Kind::$kind => self.$field.len(),)+ }
            }

            /// Returns the total number of objects.
            pub fn len(&self) -> usize {
                [$(self.$field.len(),)+].iter().sum()
            }

            /// Returns a copy without the objects of these kinds.
            #[must_use]
            pub fn without(&self, kinds: &[Kind]) -> Self {
                let Self { $($field,)+ last_good, definitions, served_together, last_parameters, live_hosts } = self;
                Self {
                    $($field: if kinds.contains(&Kind::$kind) {
                        Objects::default()
                    } else {
                        $field.clone()
                    },)+
                    last_good: last_good.clone(),
                    definitions: definitions.clone(),
                    served_together: served_together.clone(),
                    last_parameters: last_parameters.clone(),
                    live_hosts: live_hosts.clone(),
                }
            }

            /// Returns true if the world contains no objects.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns true if the object exists.
            pub fn contains(&self, key: &ObjectKey) -> bool {
                self.get(key).is_some()
            }
        }
    };
}

const GATEWAY_V1: &[&str] = &["gateway.networking.k8s.io/v1"];
const GATEWAY_V1_BETA: &[&str] = &[
    "gateway.networking.k8s.io/v1",
    "gateway.networking.k8s.io/v1beta1",
];
// v1alpha3 has the same fields as v1. v1alpha2 is unsupported, because its TLSRoutes may omit
// hostnames and contain several rules without defined semantics.
const GATEWAY_TLS_ROUTE: &[&str] = &[
    "gateway.networking.k8s.io/v1",
    "gateway.networking.k8s.io/v1alpha3",
];
const GATEWAY_TLS_POLICY: &[&str] = &[
    "gateway.networking.k8s.io/v1",
    "gateway.networking.k8s.io/v1alpha3",
];
const CERTIFICATES: &[&str] = &[
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1beta1",
    "certificates.k8s.io/v1alpha1",
];
const EXPERIMENTAL: &[&str] = &["gateway.networking.x-k8s.io/v1alpha1"];
const CORE: &[&str] = &["v1"];
const NETWORKING: &[&str] = &["networking.k8s.io/v1"];
const CONTOUR: &[&str] = &["projectcontour.io/v1"];
const CONTOUR_ALPHA: &[&str] = &["projectcontour.io/v1alpha1"];
const SESAME: &[&str] = &["projectsesame.io/v1alpha1"];

kinds! {
    GatewayClass(GatewayClass) in gateway_classes, "GatewayClass" ["gc"] "GatewayClasses", GATEWAY_V1_BETA, true;
    Gateway(Gateway) in gateways, "Gateway" ["gtw"] "Gateways", GATEWAY_V1_BETA, false;
    ListenerSet(ListenerSet) in listener_sets, "ListenerSet" ["lset"] "ListenerSets", GATEWAY_V1, false;
    HttpRoute(HttpRoute) in http_routes, "HTTPRoute" [] "HTTPRoutes", GATEWAY_V1_BETA, false;
    GrpcRoute(GrpcRoute) in grpc_routes, "GRPCRoute" [] "GRPCRoutes", GATEWAY_V1, false;
    TlsRoute(TlsRoute) in tls_routes, "TLSRoute" [] "TLSRoutes", GATEWAY_TLS_ROUTE, false;
    TcpRoute(TcpRoute) in tcp_routes, "TCPRoute" [] "TCPRoutes", GATEWAY_V1, false;
    UdpRoute(UdpRoute) in udp_routes, "UDPRoute" [] "UDPRoutes", GATEWAY_V1, false;
    ReferenceGrant(ReferenceGrant) in reference_grants, "ReferenceGrant" ["refgrant"] "ReferenceGrants", GATEWAY_V1_BETA, false;
    BackendTlsPolicy(BackendTlsPolicy) in backend_tls_policies, "BackendTLSPolicy" ["btlspolicy"] "BackendTLSPolicies", GATEWAY_TLS_POLICY, false;
    BackendPolicy(BackendPolicy) in backend_policies, "BackendPolicy" ["bpolicy"] "BackendPolicies", SESAME, false;
    AccessPolicy(AccessPolicy) in access_policies, "AccessPolicy" ["apolicy"] "AccessPolicies", SESAME, false;
    TrafficPolicy(TrafficPolicy) in traffic_policies, "TrafficPolicy" ["tpolicy"] "TrafficPolicies", SESAME, false;
    GatewayMeshPolicy(GatewayMeshPolicy) in gateway_mesh_policies, "GatewayMeshPolicy" ["gwmeshpolicy"] "GatewayMeshPolicies", SESAME, false;
    MeshOcgPolicy(MeshOcgPolicy) in mesh_ocg_policies, "MeshOCGPolicy" ["ocgpolicy"] "MeshOCGPolicies", SESAME, true;
    XMesh(XMesh) in x_meshes, "XMesh" ["mesh"] "XMeshes", EXPERIMENTAL, true;
    XTelemetryPolicy(XTelemetryPolicy) in x_telemetry_policies, "XTelemetryPolicy" [] "XTelemetryPolicies", EXPERIMENTAL, false;
    XBackend(XBackend) in x_backends, "XBackend" [] "XBackends", EXPERIMENTAL, false;
    XBackendTrafficPolicy(XBackendTrafficPolicy) in x_backend_traffic_policies, "XBackendTrafficPolicy" ["xbtrafficpolicy"] "XBackendTrafficPolicies", EXPERIMENTAL, false;
    IngressClass(IngressClass) in ingress_classes, "IngressClass" [] "IngressClasses", NETWORKING, true;
    Ingress(Ingress) in ingresses, "Ingress" ["ing"] "Ingresses", NETWORKING, false;
    HttpProxy(HttpProxy) in http_proxies, "HTTPProxy" ["proxy", "proxies"] "HTTPProxies", CONTOUR, false;
    TlsCertificateDelegation(TlsCertificateDelegation) in tls_certificate_delegations, "TLSCertificateDelegation" ["tlscerts"] "TLSCertificateDelegations", CONTOUR, false;
    ExtensionService(ExtensionService) in extension_services, "ExtensionService" [] "ExtensionServices", CONTOUR_ALPHA, false;
    Service(Service) in services, "Service" ["svc"] "Services", CORE, false;
    EndpointSlice(EndpointSlice) in endpoint_slices, "EndpointSlice" [] "EndpointSlices", &["discovery.k8s.io/v1"], false;
    Pod(Pod) in pods, "Pod" ["po"] "Pods", CORE, false;
    Secret(Secret) in secrets, "Secret" [] "Secrets", CORE, false;
    ConfigMap(ConfigMap) in config_maps, "ConfigMap" ["cm"] "ConfigMaps", CORE, false;
    ClusterTrustBundle(ClusterTrustBundle) in cluster_trust_bundles, "ClusterTrustBundle" [] "ClusterTrustBundles", CERTIFICATES, true;
    Namespace(Namespace) in namespaces, "Namespace" ["ns"] "Namespaces", CORE, true;
    RouteFilter(RouteFilter) in route_filters, "RouteFilter" [] "RouteFilters", SESAME, false;
    SesameConfiguration(SesameConfiguration) in configurations, "SesameConfiguration" ["sesameconfig"] "SesameConfigurations", SESAME, false;
}

impl Kind {
    /// Returns the kind, or `None` if Sesame does not support it.
    pub fn find(api_version: &str, kind: &str) -> Option<Kind> {
        Self::ALL
            .iter()
            .copied()
            .find(|known| known.as_str() == kind && known.api_versions().contains(&api_version))
    }

    /// Parses a singular, plural or short name, ignoring case.
    pub fn parse(text: &str) -> Option<Kind> {
        let text_is = |name: &str| name.eq_ignore_ascii_case(text);
        Self::ALL.iter().copied().find(|kind| {
            let mut short = kind.short_names().iter();
            text_is(kind.as_str()) || text_is(kind.plural()) || short.any(|name| text_is(name))
        })
    }

    /// Returns the key of this kind's object with the given name.
    pub fn named(self, name: NamespacedName) -> ObjectKey {
        ObjectKey { kind: self, name }
    }

    /// Returns true if all fields of the kind are modeled, so unknown fields can be detected.
    pub fn is_modelled(self) -> bool {
        self.is_gateway_api() || self.is_own() || self.is_experimental() || self.is_contour()
    }

    /// Returns true if the kind is modeled and exists only in the experimental channel.
    pub fn is_experimental(self) -> bool {
        matches!(
            self,
            Self::XTelemetryPolicy | Self::XBackend | Self::XBackendTrafficPolicy
        )
    }

    /// Returns true if this is one of Contour's kinds.
    pub fn is_contour(self) -> bool {
        [CONTOUR, CONTOUR_ALPHA].contains(&self.api_versions())
    }

    /// Returns true if this is one of Sesame's own kinds.
    pub fn is_own(self) -> bool {
        self.api_versions() == SESAME
    }

    /// Returns the API group, or an empty string for the core group.
    pub fn group(self) -> &'static str {
        let version = self.api_versions().first();
        let group = version.and_then(|version| version.split_once('/'));
        group.map_or("", |(group, _)| group)
    }

    /// Returns the API group, or `None` for kinds without a CustomResourceDefinition.
    pub fn group_of_definition(self) -> Option<&'static str> {
        let is_defined = self.is_modelled() || self == Self::XMesh;
        is_defined.then(|| self.group())
    }

    /// Returns true if the kind is watched only while Gateways outside the cluster are enabled.
    pub fn is_of_extra_minimal_ocg(self) -> bool {
        matches!(
            self,
            Self::GatewayMeshPolicy | Self::MeshOcgPolicy | Self::XMesh
        )
    }

    /// Returns true if this kind routes connections or datagrams.
    pub fn is_l4_route(self) -> bool {
        matches!(self, Self::TlsRoute | Self::TcpRoute | Self::UdpRoute)
    }

    /// Returns true if this is a Gateway API kind.
    pub fn is_gateway_api(self) -> bool {
        self.api_versions()
            .iter()
            .any(|version| version.starts_with("gateway.networking.k8s.io/"))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_parsed_by_every_name() {
        for kind in Kind::ALL {
            let names = [kind.as_str(), kind.plural()].into_iter();
            for name in names.chain(kind.short_names().iter().copied()) {
                assert_eq!(Kind::parse(name), Some(*kind), "{name}");
                assert_eq!(Kind::parse(&name.to_uppercase()), Some(*kind), "{name}");
                assert_eq!(Kind::parse(&name.to_lowercase()), Some(*kind), "{name}");
            }
        }
        assert_eq!(Kind::Gateway.plural(), "Gateways");
        assert_eq!(Kind::parse("gatewaies"), None);
        assert_eq!(Kind::parse("deployments"), None);
    }
}
