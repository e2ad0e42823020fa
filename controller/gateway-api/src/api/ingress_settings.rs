//! `spec.ingress` in a SesameConfiguration: which Gateway serves Ingresses and HTTPProxies, and
//! how.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::GatewayRef;
use super::enums::open_enum;

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

/// Settings for Ingresses and HTTPProxies, in the controller's own configuration or in GatewayClass
/// parameters. Only the first configuration that sets this field applies: the controller's own
/// configuration comes first, then the parameters of the oldest GatewayClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressSettings {
    /// The Gateway for IngressClasses without parameters and for `classes` without `gatewayRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayRef>,
    /// HTTPProxy classes that have no Sesame IngressClass, such as `contour`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub classes: Option<Vec<ProxyClass>>,
    /// Namespaces in which an HTTPProxy may have a `virtualhost`; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 63)))]
    pub root_namespaces: Option<Vec<String>>,
    /// How HTTPProxies with the same host are handled; `Oldest` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<DuplicateHosts>,
    /// How invalid HTTPProxies are handled; `Contain` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<InvalidProxies>,
    /// How a missing Service is handled if its HTTPProxy route has other Services; `Refuse` by
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_backend: Option<MissingBackend>,
    /// Redirects plain HTTP requests to HTTPS even for routes with `permitInsecure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_permit_insecure: Option<bool>,
}

/// An HTTPProxy class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyClass {
    /// Name of the class, as written in HTTPProxies.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The Gateway that serves the class; `spec.ingress.gatewayRef` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayRef>,
    /// True if HTTPProxies without a class belong to this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}
