//! `Ingress` and `IngressClass` of `networking.k8s.io/v1`.

use serde::Deserialize;

use super::Object;

/// `Ingress` v1.
pub type Ingress = Object<IngressSpec>;

/// `IngressClass` v1.
pub type IngressClass = Object<IngressClassSpec>;

/// `IngressClassSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressClassSpec {
    /// The controller that serves the class.
    pub controller: Box<str>,
    /// For Sesame: the Gateway that serves the class.
    pub parameters: Option<IngressClassParameters>,
}

/// `IngressClassParametersReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressClassParameters {
    /// The API group; core if empty.
    pub api_group: Option<Box<str>>,
    /// The kind.
    pub kind: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// `Cluster` (the default) or `Namespace`.
    pub scope: Option<Box<str>>,
    /// Namespace; required with scope `Namespace`.
    pub namespace: Option<Box<str>>,
}

/// `IngressSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressSpec {
    /// The class; the annotation `kubernetes.io/ingress.class` takes precedence.
    pub ingress_class_name: Option<String>,
    /// The backend for requests that match no rule.
    pub default_backend: Option<IngressBackend>,
    /// Certificates.
    pub tls: Vec<IngressTls>,
    /// The rules.
    pub rules: Vec<IngressRule>,
}

/// `IngressTLS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressTls {
    /// The hosts. An empty list means the hosts of all rules.
    pub hosts: Vec<String>,
    /// The Secret, in the namespace of the Ingress.
    pub secret_name: String,
}

/// `IngressRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressRule {
    /// The host; a leading `*.` matches exactly one label. An empty host matches every host.
    pub host: String,
    /// The paths; if unset, the default backend gets all requests for the host.
    pub http: Option<IngressHttp>,
}

/// `HTTPIngressRuleValue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressHttp {
    /// The paths.
    pub paths: Vec<IngressPath>,
}

/// `HTTPIngressPath`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressPath {
    /// The path; all paths if empty.
    pub path: String,
    /// `Exact`, `Prefix` or `ImplementationSpecific`.
    pub path_type: String,
    /// The backend for requests that match the path.
    pub backend: IngressBackend,
}

/// `IngressBackend`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressBackend {
    /// A Service in the namespace of the Ingress.
    pub service: Option<IngressService>,
    /// An object of another kind, instead of a Service.
    pub resource: Option<IngressResource>,
}

/// `IngressServiceBackend`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressService {
    /// The name.
    pub name: String,
    /// The port.
    pub port: IngressServicePort,
}

/// `ServiceBackendPort`: a name or a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressServicePort {
    /// The name.
    pub name: String,
    /// The number; 0 if unset.
    pub number: i32,
}

/// `TypedLocalObjectReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressResource {
    /// The API group; core if empty.
    pub api_group: Option<String>,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}
