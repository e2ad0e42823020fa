//! The objects of one moment, by kind and name: the only input of resolution.
//!
//! Values sit behind `Arc`, so that a copy of a world is cheap and a change replaces one object. A world
//! decides nothing and drops nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::api::{
    BackendTlsPolicy, ConfigMap, EndpointSlice, Gateway, GatewayClass, GrpcRoute, HttpRoute,
    ListenerSet, Metadata, Namespace, NamespacedName, ReferenceGrant, Secret, Service, TcpRoute,
    TlsRoute, UdpRoute,
};

/// Objects of one kind by namespace and name.
pub type Objects<T> = BTreeMap<NamespacedName, Arc<T>>;

/// A kind and a name; prints as `Kind/namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The kind.
    pub kind: Kind,
    /// Namespace and name.
    pub name: NamespacedName,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

macro_rules! kinds {
    ($($kind:ident($type:ty) in $field:ident, $text:literal, $groups:expr, $cluster:literal;)+) => {
        /// The kinds that Sesame reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each is the API's own kind")]
        pub enum Kind { $($kind,)+ }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)+];

            /// The kind as the API writes it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $text,)+ }
            }

            /// The `apiVersion`s under which the kind is read.
            pub fn api_versions(self) -> &'static [&'static str] {
                match self { $(Self::$kind => $groups,)+ }
            }

            /// Whether objects of the kind have no namespace.
            pub fn cluster_scoped(self) -> bool {
                match self { $(Self::$kind => $cluster,)+ }
            }
        }

        /// One object of any kind.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each is the API's own kind")]
        pub enum AnyObject { $($kind(Arc<$type>),)+ }

        impl AnyObject {
            /// Its kind.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)+ }
            }

            /// Its metadata.
            pub fn metadata(&self) -> &Metadata {
                match self { $(Self::$kind(object) => &object.metadata,)+ }
            }

            /// Its kind and name.
            pub fn key(&self) -> ObjectKey {
                ObjectKey { kind: self.kind(), name: self.metadata().key() }
            }
        }

        /// All objects of one moment.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs, reason = "each is the API's own kind")]
        pub struct World { $(pub $field: Objects<$type>,)+ }

        impl World {
            /// Adds the object, replacing one of the same kind and name.
            pub fn insert(&mut self, object: AnyObject) {
                match object {
                    $(AnyObject::$kind(object) => { self.$field.insert(object.metadata.key(), object); })+
                }
            }

            /// Removes the object; says whether it was there.
            pub fn remove(&mut self, key: &ObjectKey) -> bool {
                match key.kind {
                    $(Kind::$kind => self.$field.remove(&key.name).is_some(),)+
                }
            }

            /// Whether there is such an object.
            pub fn contains(&self, key: &ObjectKey) -> bool {
                match key.kind {
                    $(Kind::$kind => self.$field.contains_key(&key.name),)+
                }
            }
        }
    };
}

const GATEWAY_V1: &[&str] = &["gateway.networking.k8s.io/v1"];
const GATEWAY_V1_BETA: &[&str] = &[
    "gateway.networking.k8s.io/v1",
    "gateway.networking.k8s.io/v1beta1",
];
const CORE: &[&str] = &["v1"];

kinds! {
    GatewayClass(GatewayClass) in gateway_classes, "GatewayClass", GATEWAY_V1_BETA, true;
    Gateway(Gateway) in gateways, "Gateway", GATEWAY_V1_BETA, false;
    ListenerSet(ListenerSet) in listener_sets, "ListenerSet", GATEWAY_V1, false;
    HttpRoute(HttpRoute) in http_routes, "HTTPRoute", GATEWAY_V1_BETA, false;
    GrpcRoute(GrpcRoute) in grpc_routes, "GRPCRoute", GATEWAY_V1, false;
    TlsRoute(TlsRoute) in tls_routes, "TLSRoute", GATEWAY_V1, false;
    TcpRoute(TcpRoute) in tcp_routes, "TCPRoute", GATEWAY_V1, false;
    UdpRoute(UdpRoute) in udp_routes, "UDPRoute", GATEWAY_V1, false;
    ReferenceGrant(ReferenceGrant) in reference_grants, "ReferenceGrant", GATEWAY_V1_BETA, false;
    BackendTlsPolicy(BackendTlsPolicy) in backend_tls_policies, "BackendTLSPolicy", GATEWAY_V1, false;
    Service(Service) in services, "Service", CORE, false;
    EndpointSlice(EndpointSlice) in endpoint_slices, "EndpointSlice", &["discovery.k8s.io/v1"], false;
    Secret(Secret) in secrets, "Secret", CORE, false;
    ConfigMap(ConfigMap) in config_maps, "ConfigMap", CORE, false;
    Namespace(Namespace) in namespaces, "Namespace", CORE, true;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
