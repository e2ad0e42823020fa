//! `GatewayClass`, Gateway and `ListenerSet`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    AddressType, FromNamespaces, FrontendValidationMode, LabelSelector, Object, Protocol, TlsMode,
};

/// `GatewayClass` v1.
pub type GatewayClass = Object<GatewayClassSpec>;
/// `Gateway` v1.
pub type Gateway = Object<GatewaySpec>;
/// `ListenerSet` v1.
pub type ListenerSet = Object<ListenerSetSpec>;

/// `GatewayClassSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    /// The controller that manages Gateways of this class.
    pub controller_name: String,
    /// Parameters of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<ObjectRef>,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// `GatewaySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// The class.
    pub gateway_class_name: String,
    /// The listeners.
    #[serde(deserialize_with = "super::exact::vec")]
    pub listeners: Vec<Listener>,
    /// Addresses asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub addresses: Vec<GatewayAddress>,
    /// Labels, annotations and parameters of what is created for the Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure: Option<Infrastructure>,
    /// The `ListenerSets` that may attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_listeners: Option<AllowedListeners>,
    /// TLS towards backends and the validation of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<GatewayTls>,
    /// Experimental: the scope in which routes attach to this Gateway by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_scope: Option<String>,
}

/// `ListenerSetSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetSpec {
    /// The Gateway it adds listeners to.
    pub parent_ref: ObjectRef,
    /// The listeners.
    #[serde(deserialize_with = "super::exact::vec")]
    pub listeners: Vec<Listener>,
}

/// `Listener` and `ListenerEntry`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Unique within its object.
    pub name: String,
    /// The hostname to match; none or empty means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The port seen from outside.
    pub port: i32,
    /// The protocol.
    pub protocol: Protocol,
    /// TLS, for HTTPS and TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// The routes that may attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_routes: Option<AllowedRoutes>,
}

/// `ListenerTLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListenerTls {
    /// Terminate (the default) or Passthrough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<TlsMode>,
    /// Certificates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub certificate_refs: Vec<ObjectRef>,
    /// Implementation-specific options.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// A reference to an object by group, kind, name and namespace. The defaults depend on the field that it stands in.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name.
    pub name: String,
    /// Namespace; the referrer's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// `AllowedRoutes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedRoutes {
    /// The namespaces of the routes; Same when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<AllowedNamespaces>,
    /// The kinds of the routes; those of the protocol when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub kinds: Vec<RouteGroupKind>,
}

/// `AllowedListeners`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedListeners {
    /// The namespaces of the ListenerSets; None when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<AllowedNamespaces>,
}

/// `RouteNamespaces` and `ListenerNamespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllowedNamespaces {
    /// The namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<FromNamespaces>,
    /// The selector for `from: Selector`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// `RouteGroupKind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteGroupKind {
    /// The Gateway API group when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The route kind.
    pub kind: String,
}

/// `GatewaySpecAddress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayAddress {
    /// `IPAddress` when absent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<AddressType>,
    /// The address; empty asks for any of the type.
    pub value: String,
}

/// `GatewayInfrastructure`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Infrastructure {
    /// Labels for created resources.
    pub labels: BTreeMap<String, String>,
    /// Annotations for created resources.
    pub annotations: BTreeMap<String, String>,
    /// Parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<ObjectRef>,
}

/// `GatewayTLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayTls {
    /// The client certificate shown to backends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<GatewayBackendTls>,
    /// Validation of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontend: Option<FrontendTls>,
}

/// `GatewayBackendTLS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayBackendTls {
    /// The Secret with the client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate_ref: Option<ObjectRef>,
}

/// `FrontendTLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTls {
    /// For every HTTPS listener whose port is not in `per_port`.
    pub default: FrontendTlsConfig,
    /// Replaces the default on one port.
    #[serde(default)]
    #[serde(deserialize_with = "super::exact::vec")]
    pub per_port: Vec<FrontendTlsPort>,
}

/// `TLSPortConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsPort {
    /// The port.
    pub port: i32,
    /// Its configuration.
    pub tls: FrontendTlsConfig,
}

/// `TLSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FrontendTlsConfig {
    /// Validation of client certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<FrontendTlsValidation>,
}

/// `FrontendTLSValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsValidation {
    /// CA certificates.
    #[serde(deserialize_with = "super::exact::vec")]
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// `AllowValidOnly` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FrontendValidationMode>,
}
