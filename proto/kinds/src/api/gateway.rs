//! `GatewayClass`, Gateway and `ListenerSet`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    AddressType, ExternalAuth, FilterType, FromNamespaces, FrontendValidationMode, GatewayMesh,
    LabelSelector, Object, Protocol, TlsMode,
};

/// `GatewayClass` v1.
pub type GatewayClass = Object<GatewayClassSpec>;
/// `Gateway` v1.
pub type Gateway = Object<GatewaySpec>;
/// `ListenerSet` v1.
pub type ListenerSet = Object<ListenerSetSpec>;

/// `GatewayClassSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    /// Name of the controller that manages Gateways of this class.
    pub controller_name: String,
    /// Parameters of the class.
    pub parameters_ref: Option<ObjectRef>,
    /// Human-readable description.
    pub description: Option<String>,
}

/// `GatewaySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// Name of the GatewayClass.
    pub gateway_class_name: String,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// Addresses that the Gateway requests.
    #[serde(default)]
    pub addresses: Vec<GatewayAddress>,
    /// Labels, annotations and parameters for the objects created for the Gateway.
    pub infrastructure: Option<Infrastructure>,
    /// Which `ListenerSets` may attach.
    pub allowed_listeners: Option<AllowedListeners>,
    /// The Gateway's certificate for backends, and the validation of clients' certificates.
    pub tls: Option<GatewayTls>,
    /// GEP-3951: the mesh to which this Gateway sends requests from outside the cluster.
    pub mesh: Option<GatewayMesh>,
    /// Experimental: makes this Gateway a default Gateway for routes in the given scope.
    pub default_scope: Option<String>,
}

/// `ListenerSetSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetSpec {
    /// The Gateway to which the set adds its listeners.
    pub parent_ref: ObjectRef,
    /// The listeners to add.
    pub listeners: Vec<Listener>,
}

/// `Listener` and `ListenerEntry`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Name of the listener, unique within the object.
    pub name: String,
    /// Hostname that requests must match. If unset or empty, the listener receives requests for all
    /// hosts.
    pub hostname: Option<String>,
    /// The port to which clients connect.
    pub port: i32,
    /// The protocol.
    pub protocol: Protocol,
    /// TLS settings for protocols HTTPS and TLS.
    pub tls: Option<ListenerTls>,
    /// Which routes may attach.
    pub allowed_routes: Option<AllowedRoutes>,
    /// Experimental: filters that apply to requests before routing.
    pub filters: Option<ListenerFilters>,
}

/// `ListenerFilters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListenerFilters {
    /// The filters, in order of execution.
    pub requests: Vec<ListenerFilter>,
}

/// `ListenerFilter`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerFilter {
    /// Type of the filter, which determines the member below that must be set.
    #[serde(rename = "type")]
    pub type_: FilterType,
    /// Settings for type `ExternalAuth`.
    pub external_auth: Option<Box<ExternalAuth>>,
    /// The referenced object for type `ExtensionRef`.
    pub extension_ref: Option<Box<ObjectRef>>,
}

/// `ListenerTLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListenerTls {
    /// TLS mode: Terminate (the default) or Passthrough.
    pub mode: Option<TlsMode>,
    /// Certificates.
    pub certificate_refs: Vec<ObjectRef>,
    /// Implementation-specific options.
    pub options: BTreeMap<String, String>,
}

/// A reference to an object by group, kind, name and namespace. The defaults depend on the field
/// that contains the reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// API group.
    pub group: Option<String>,
    /// Kind.
    pub kind: Option<String>,
    /// Name.
    pub name: String,
    /// Namespace. Defaults to the referring object's namespace.
    pub namespace: Option<String>,
}

/// `AllowedRoutes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedRoutes {
    /// Namespaces whose routes may attach; `Same` if unset.
    pub namespaces: Option<AllowedNamespaces>,
    /// Kinds of routes that may attach; by default, all kinds that the protocol supports.
    pub kinds: Vec<RouteGroupKind>,
}

/// `AllowedListeners`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedListeners {
    /// Namespaces whose ListenerSets may attach; `None` if unset.
    pub namespaces: Option<AllowedNamespaces>,
}

/// `RouteNamespaces` and `ListenerNamespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedNamespaces {
    /// Which namespaces are allowed: `All`, `Same`, `Selector` or `None`.
    pub from: Option<FromNamespaces>,
    /// Selects the allowed namespaces if `from` is `Selector`.
    pub selector: Option<LabelSelector>,
}

/// `RouteGroupKind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteGroupKind {
    /// API group; the Gateway API group if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The route kind.
    pub kind: String,
}

/// `GatewaySpecAddress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayAddress {
    /// Type of the address; `IPAddress` if unset.
    #[serde(rename = "type")]
    pub type_: Option<AddressType>,
    /// The address. If empty, the implementation chooses an address of this type.
    pub value: String,
    /// Experimental: from where the address must be reachable. If unset or empty, the
    /// implementation chooses.
    pub routability: Option<String>,
}

/// `GatewayInfrastructure`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Infrastructure {
    /// Labels for the created objects.
    pub labels: BTreeMap<String, String>,
    /// Annotations for the created objects.
    pub annotations: BTreeMap<String, String>,
    /// Object that contains settings for this Gateway.
    pub parameters_ref: Option<ObjectRef>,
}

/// `GatewayTLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayTls {
    /// The client certificate that the Gateway presents to backends.
    pub backend: Option<GatewayBackendTls>,
    /// Validation of clients' certificates.
    pub frontend: Option<FrontendTls>,
}

/// `GatewayBackendTLS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayBackendTls {
    /// The Secret with the client certificate.
    pub client_certificate_ref: Option<ObjectRef>,
}

/// `FrontendTLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTls {
    /// Settings for every HTTPS listener whose port is not in `per_port`.
    pub default: FrontendTlsConfig,
    /// Per-port settings, which replace `default` for these ports.
    #[serde(default)]
    pub per_port: Vec<FrontendTlsPort>,
}

/// `TLSPortConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsPort {
    /// The port.
    pub port: i32,
    /// Settings for this port.
    pub tls: FrontendTlsConfig,
}

/// `TLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FrontendTlsConfig {
    /// Validation of client certificates.
    pub validation: Option<FrontendTlsValidation>,
}

/// `FrontendTLSValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsValidation {
    /// CA certificates that verify clients' certificates.
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// How clients without a valid certificate are handled; `AllowValidOnly` if unset.
    pub mode: Option<FrontendValidationMode>,
}
