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
    /// The controller that manages Gateways of this class.
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
    /// The class.
    pub gateway_class_name: String,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// Requested addresses.
    #[serde(default)]
    pub addresses: Vec<GatewayAddress>,
    /// Labels, annotations and parameters for the resources that are created for the Gateway.
    pub infrastructure: Option<Infrastructure>,
    /// The `ListenerSets` that may attach.
    pub allowed_listeners: Option<AllowedListeners>,
    /// TLS to backends, and client validation.
    pub tls: Option<GatewayTls>,
    /// GEP-3951: the mesh to which a Gateway outside the cluster sends requests.
    pub mesh: Option<GatewayMesh>,
    /// Experimental: the scope in which routes attach to this Gateway by default.
    pub default_scope: Option<String>,
}

/// `ListenerSetSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetSpec {
    /// The Gateway to which the listeners are added.
    pub parent_ref: ObjectRef,
    /// The listeners.
    pub listeners: Vec<Listener>,
}

/// `Listener` and `ListenerEntry`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Name, unique within the object.
    pub name: String,
    /// Hostname to match; matches all if missing or empty.
    pub hostname: Option<String>,
    /// The port that clients use.
    pub port: i32,
    /// The protocol.
    pub protocol: Protocol,
    /// TLS, for HTTPS and TLS.
    pub tls: Option<ListenerTls>,
    /// The routes that may attach.
    pub allowed_routes: Option<AllowedRoutes>,
    /// Experimental: filters for requests before a route is chosen.
    pub filters: Option<ListenerFilters>,
}

/// `ListenerFilters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListenerFilters {
    /// The filters, in the order in which they are applied.
    pub requests: Vec<ListenerFilter>,
}

/// `ListenerFilter`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerFilter {
    /// Selects which member below is set.
    #[serde(rename = "type")]
    pub type_: FilterType,
    /// For `ExternalAuth`.
    pub external_auth: Option<Box<ExternalAuth>>,
    /// For `ExtensionRef`.
    pub extension_ref: Option<Box<ObjectRef>>,
}

/// `ListenerTLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListenerTls {
    /// Terminate (the default) or Passthrough.
    pub mode: Option<TlsMode>,
    /// Certificates.
    pub certificate_refs: Vec<ObjectRef>,
    /// Implementation-specific options.
    pub options: BTreeMap<String, String>,
}

/// A reference to an object by group, kind, name and namespace. The defaults depend on the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// API group.
    pub group: Option<String>,
    /// Kind.
    pub kind: Option<String>,
    /// Name.
    pub name: String,
    /// Namespace; defaults to the namespace of the referrer.
    pub namespace: Option<String>,
}

/// `AllowedRoutes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedRoutes {
    /// The namespaces of the routes; `Same` if unset.
    pub namespaces: Option<AllowedNamespaces>,
    /// Kinds of routes. Defaults to the kinds that the protocol supports.
    pub kinds: Vec<RouteGroupKind>,
}

/// `AllowedListeners`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedListeners {
    /// The namespaces of the ListenerSets; `None` if unset.
    pub namespaces: Option<AllowedNamespaces>,
}

/// `RouteNamespaces` and `ListenerNamespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedNamespaces {
    /// The namespaces.
    pub from: Option<FromNamespaces>,
    /// The selector for `from: Selector`.
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
    /// Type; `IPAddress` if unset.
    #[serde(rename = "type")]
    pub type_: Option<AddressType>,
    /// The address; if empty, any address of the type.
    pub value: String,
    /// Experimental: the scope of reachability; up to the implementation if missing or empty.
    pub routability: Option<String>,
}

/// `GatewayInfrastructure`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Infrastructure {
    /// Labels for created resources.
    pub labels: BTreeMap<String, String>,
    /// Annotations for created resources.
    pub annotations: BTreeMap<String, String>,
    /// Parameters.
    pub parameters_ref: Option<ObjectRef>,
}

/// `GatewayTLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayTls {
    /// The client certificate presented to backends.
    pub backend: Option<GatewayBackendTls>,
    /// Client validation.
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
    /// For every HTTPS listener whose port is not in `per_port`.
    pub default: FrontendTlsConfig,
    /// Configurations that replace the default, each for one port.
    #[serde(default)]
    pub per_port: Vec<FrontendTlsPort>,
}

/// `TLSPortConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsPort {
    /// The port.
    pub port: i32,
    /// Configuration of the port.
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
    /// CA certificates.
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// Mode; `AllowValidOnly` if unset.
    pub mode: Option<FrontendValidationMode>,
}
