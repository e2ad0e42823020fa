//! `Ingress` and `IngressClass` in `networking.k8s.io/v1`.

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
    /// Name of the controller that serves the class.
    pub controller: Box<str>,
    /// The Gateway that serves the class, if the controller is Sesame.
    pub parameters: Option<IngressClassParameters>,
}

/// `IngressClassParametersReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressClassParameters {
    /// API group of the object; empty for the core group.
    pub api_group: Option<Box<str>>,
    /// The kind.
    pub kind: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// Scope of the object: `Cluster` (the default) or `Namespace`.
    pub scope: Option<Box<str>>,
    /// Namespace of the object; required with scope `Namespace`.
    pub namespace: Option<Box<str>>,
}

/// `IngressSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressSpec {
    /// Name of the IngressClass. The annotation `kubernetes.io/ingress.class` takes precedence.
    pub ingress_class_name: Option<String>,
    /// The backend for requests that match no rule.
    pub default_backend: Option<IngressBackend>,
    /// TLS hosts and their Secrets.
    pub tls: Vec<IngressTls>,
    /// The rules.
    pub rules: Vec<IngressRule>,
}

/// `IngressTLS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressTls {
    /// Hosts that use the certificate. If empty, all hosts of the rules use it.
    pub hosts: Vec<String>,
    /// Name of the Secret with the certificate, in the Ingress's namespace.
    pub secret_name: String,
}

/// `IngressRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressRule {
    /// Host that requests must match. A leading `*.` matches exactly one label, and an empty host
    /// matches every host.
    pub host: String,
    /// Paths and their backends. If unset, the default backend receives all requests for the host.
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
    /// The path to match; an empty path matches all paths.
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
    /// A Service in the Ingress's namespace.
    pub service: Option<IngressService>,
    /// Object of another kind that receives requests instead of a Service.
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
    /// Name of the port, or empty if the number is set.
    pub name: String,
    /// Number of the port, or 0 if the name is set.
    pub number: i32,
}

/// `TypedLocalObjectReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressResource {
    /// API group of the object; empty for the core group.
    pub api_group: Option<String>,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}
