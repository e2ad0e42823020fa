//! `spec.ingress` in a SesameConfiguration: which Gateway serves Ingresses and HTTPProxies, and
//! how.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::enums::open_enum;
use super::{GatewayRef, LimitHeaders};

open_enum! {
    /// `spec.ingress.duplicates` in a SesameConfiguration.
    DuplicateHosts {
        /// The oldest root HTTPProxy serves the host.
        Oldest = "Oldest",
        /// No root HTTPProxy serves the host, as in Contour.
        AllInvalid = "AllInvalid",
    }
}

open_enum! {
    /// `spec.ingress.invalid` in a SesameConfiguration.
    InvalidProxies {
        /// Invalid routes respond with an error; other routes are served.
        Contain = "Contain",
        /// Routes of an invalid HTTPProxy and of its includes are not served, as in Contour.
        Withdraw = "Withdraw",
    }
}

open_enum! {
    /// `spec.ingress.missingBackend` in a SesameConfiguration.
    MissingBackend {
        /// Requests for an unusable Service get 503.
        Refuse = "Refuse",
        /// The route's other Services receive the unusable Service's requests, as in Contour.
        Reweight = "Reweight",
    }
}

open_enum! {
    /// `spec.ingress.watch` of a SesameConfiguration.
    IngressWatch {
        /// Ingresses and HTTPProxies are ignored.
        Off = "Off",
        /// Ingresses and HTTPProxies are ignored, but `kubectl sesame diff` shows what would be
        /// served.
        Report = "Report",
        /// Ingresses and HTTPProxies are served.
        Serve = "Serve",
    }
}

open_enum! {
    /// Protocol of a listener in `spec.ingress.listeners` of a SesameConfiguration.
    IngressProtocol {
        Http = "HTTP",
        Https = "HTTPS",
    }
}

open_enum! {
    /// A TLS version in `spec.ingress.tls` of a SesameConfiguration.
    TlsVersion {
        Tls12 = "1.2",
        Tls13 = "1.3",
    }
}

/// Settings for Ingresses and HTTPProxies, in the controller's own configuration or in GatewayClass
/// parameters. Only the first configuration that sets this field applies: the controller's own
/// configuration comes first, then the parameters of the oldest GatewayClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressSettings {
    /// Whether Ingresses and HTTPProxies are served; `Serve` by default. `Off` ignores them.
    /// `Report` does, too, except that `kubectl sesame diff` shows what `Serve` would change.
    pub watch: Option<IngressWatch>,
    /// Port of the HTTP listeners that serve Ingresses and HTTPProxies; by default, all HTTP
    /// listeners do.
    #[schemars(range(min = 1, max = 65535))]
    pub http: Option<i32>,
    /// Port of the HTTPS listeners that serve Ingresses and HTTPProxies, including those for their
    /// TLS hosts; by default, all HTTPS listeners do, and TLS hosts use port 443.
    #[schemars(range(min = 1, max = 65535))]
    pub https: Option<i32>,
    /// The Gateway for IngressClasses without parameters and for `classes` without `gatewayRef`.
    pub gateway_ref: Option<GatewayRef>,
    /// Serves Ingresses and HTTPProxies without a Gateway object: Sesame behaves as if the Gateway
    /// in `gatewayRef` existed, with these listeners. A Gateway object of this name takes
    /// precedence. TLS hosts of Ingresses and HTTPProxies do not need a listener.
    #[schemars(length(max = 64))]
    pub listeners: Option<Vec<IngressListener>>,
    /// HTTPProxy classes that have no Sesame IngressClass, such as `contour`.
    #[schemars(length(max = 64))]
    pub classes: Option<Vec<ProxyClass>>,
    /// Namespaces in which an HTTPProxy may have a `virtualhost`; all by default.
    #[schemars(length(max = 256), inner(length(max = 63)))]
    pub root_namespaces: Option<Vec<String>>,
    /// How HTTPProxies with the same host are handled; `Oldest` by default.
    pub duplicates: Option<DuplicateHosts>,
    /// How invalid HTTPProxies are handled; `Contain` by default.
    pub invalid: Option<InvalidProxies>,
    /// How a missing Service is handled if its HTTPProxy route has other Services; `Refuse` by
    /// default.
    pub missing_backend: Option<MissingBackend>,
    /// Redirects plain HTTP requests to HTTPS even for routes with `permitInsecure`.
    pub disable_permit_insecure: Option<bool>,
    /// TLS settings for clients of all hosts that Ingresses and HTTPProxies serve with their own
    /// Secrets.
    pub tls: Option<IngressTlsSettings>,
    /// TLS settings for connections to Services of Ingresses and HTTPProxies.
    pub backend_tls: Option<IngressBackendTls>,
    /// The TLS Secret for clients that send no server name, or an unknown one. They reach only
    /// HTTPProxies with `enableFallbackCertificate`. Other namespaces' HTTPProxies need a
    /// TLSCertificateDelegation or ReferenceGrant for the Secret.
    pub fallback_certificate: Option<SecretRef>,
    /// The service that decides about `rateLimitPolicy.global` of HTTPProxies. Without it, their
    /// routes get 500.
    pub rate_limit_service: Option<IngressRateLimitService>,
}

/// Rate limit service for HTTPProxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressRateLimitService {
    /// The ExtensionService, in any namespace. Its response timeout applies; `1s` by default.
    pub extension_service: ExtensionServiceRef,
    /// The domain sent to the service; `contour` by default.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^[^%]+$"))]
    pub domain: Option<String>,
    /// If true, requests pass if the service fails or is invalid. Otherwise, they get 500.
    pub fail_open: Option<bool>,
    /// Response headers that describe the limit; `Off` by default.
    pub headers: Option<LimitHeaders>,
    /// If true, gRPC requests beyond a limit get `RESOURCE_EXHAUSTED` instead of `UNAVAILABLE`.
    pub resource_exhausted: Option<bool>,
}

/// Namespace and name of an ExtensionService.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ExtensionServiceRef {
    /// Namespace of the ExtensionService.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// Name of the ExtensionService.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
}

/// A listener of a Gateway that exists only in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressListener {
    /// Unique name; by default, the protocol and the port, such as `http-80`.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: Option<String>,
    /// The port to which clients connect.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// `HTTP`, the default, or `HTTPS`, which requires `secretName`.
    pub protocol: Option<IngressProtocol>,
    /// Hostname such as `*.example.com`; all hosts by default.
    #[schemars(length(max = 253))]
    pub hostname: Option<String>,
    /// TLS Secret in the Gateway's namespace, for protocol `HTTPS`.
    #[schemars(length(max = 253))]
    pub secret_name: Option<String>,
}

impl IngressListener {
    /// Returns the name, or its default.
    pub fn listener_name(&self) -> String {
        let protocol = if self.is_https() { "https" } else { "http" };
        let default = || format!("{protocol}-{}", self.port);
        self.name.clone().unwrap_or_else(default)
    }

    /// Returns true for protocol `HTTPS`.
    pub fn is_https(&self) -> bool {
        self.protocol == Some(IngressProtocol::Https)
    }
}

/// TLS settings for clients of Ingresses and HTTPProxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressTlsSettings {
    /// Minimum TLS version; 1.2 by default. Objects may raise it.
    pub min_version: Option<TlsVersion>,
    /// Maximum TLS version; 1.3 by default. Objects may lower it.
    pub max_version: Option<TlsVersion>,
    /// TLS 1.2 cipher suites by OpenSSL name, in order of preference; the proxy's by default.
    #[schemars(
        length(min = 1, max = 10),
        inner(
            length(max = 64),
            regex(
                pattern = "^ECDHE-(ECDSA|RSA)-(AES128-GCM-SHA256|AES256-GCM-SHA384|CHACHA20-POLY1305|AES128-SHA|AES256-SHA)$"
            )
        )
    )]
    pub cipher_suites: Option<Vec<String>>,
    /// Key exchange groups in order of preference; the proxy's by default. `X25519MLKEM768` needs
    /// TLS 1.3.
    #[schemars(
        length(min = 1, max = 4),
        inner(
            length(max = 64),
            regex(pattern = "^(X25519MLKEM768|X25519|P-256|P-384)$")
        )
    )]
    pub key_exchange_groups: Option<Vec<String>>,
}

/// TLS settings for connections from the proxy to Services of Ingresses and HTTPProxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressBackendTls {
    /// Minimum TLS version; 1.2 by default.
    pub min_version: Option<TlsVersion>,
    /// Maximum TLS version; the proxy's by default.
    pub max_version: Option<TlsVersion>,
    /// TLS 1.2 cipher suites by OpenSSL name, in order of preference; the proxy's by default.
    #[schemars(
        length(min = 1, max = 10),
        inner(
            length(max = 64),
            regex(
                pattern = "^ECDHE-(ECDSA|RSA)-(AES128-GCM-SHA256|AES256-GCM-SHA384|CHACHA20-POLY1305|AES128-SHA|AES256-SHA)$"
            )
        )
    )]
    pub cipher_suites: Option<Vec<String>>,
    /// Key exchange groups in order of preference; the proxy's by default. `X25519MLKEM768` needs
    /// TLS 1.3.
    #[schemars(
        length(min = 1, max = 4),
        inner(
            length(max = 64),
            regex(pattern = "^(X25519MLKEM768|X25519|P-256|P-384)$")
        )
    )]
    pub key_exchange_groups: Option<Vec<String>>,
    /// As in Contour, accepts any certificate from a Service with protocol `tls` or `h2` but without
    /// `validation` or a BackendTLSPolicy; 503 by default. Authorization services are always
    /// verified.
    pub allow_unverified: Option<bool>,
}

impl IngressSettings {
    /// `https` must have another value if `http` is unset.
    pub const HTTP: u16 = 80;
    /// Default of `https`.
    pub const HTTPS: u16 = 443;
}

/// Namespace and name of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Namespace of the Secret.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// Name of the Secret.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
}

/// An HTTPProxy class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyClass {
    /// Name of the class, as written in HTTPProxies.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The Gateway that serves the class; `spec.ingress.gatewayRef` by default.
    pub gateway_ref: Option<GatewayRef>,
    /// True if HTTPProxies without a class belong to this class.
    pub default: Option<bool>,
}
