//! `spec.ingress` of a SesameConfiguration: which Gateway serves Ingresses and HTTPProxies, and how.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::GatewayRef;
use super::enums::open_enum;

open_enum! {
    /// `spec.ingress.duplicates` of a SesameConfiguration.
    DuplicateHosts {
        /// The oldest root has the host.
        Oldest = "Oldest",
        /// No root has it, as in Contour.
        AllInvalid = "AllInvalid",
    }
}

open_enum! {
    /// `spec.ingress.invalid` of a SesameConfiguration.
    InvalidProxies {
        /// An invalid route answers with an error, and the others are served.
        Contain = "Contain",
        /// No route of an invalid HTTPProxy or below it is served, as in Contour.
        Withdraw = "Withdraw",
    }
}

open_enum! {
    /// `spec.ingress.missingBackend` of a SesameConfiguration.
    MissingBackend {
        /// The share of a Service that cannot be used is answered with 503.
        Refuse = "Refuse",
        /// The other Services of the route get its share, as in Contour.
        Reweight = "Reweight",
    }
}

/// Ingresses and HTTPProxies, for the controller's own configuration and for parameters of
/// GatewayClasses. The first configuration with this field applies as a whole. The controller's own
/// comes first, then the parameters of the oldest GatewayClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressSettings {
    /// The Gateway of IngressClasses without parameters and of `classes` without a Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayRef>,
    /// Classes of HTTPProxies without an IngressClass of Sesame, such as `contour`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub classes: Option<Vec<ProxyClass>>,
    /// Namespaces in which an HTTPProxy may have a `virtualhost`; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 63)))]
    pub root_namespaces: Option<Vec<String>>,
    /// Treatment of several HTTPProxies with one host: `Oldest` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<DuplicateHosts>,
    /// Treatment of invalid HTTPProxies: `Contain` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<InvalidProxies>,
    /// Treatment of a missing Service in a route of an HTTPProxy that has others: `Refuse` by
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_backend: Option<MissingBackend>,
    /// Redirects plain HTTP requests to HTTPS although routes have `permitInsecure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_permit_insecure: Option<bool>,
}

/// A class of HTTPProxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyClass {
    /// Name of the class, as HTTPProxies write it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The Gateway that serves the class; `spec.ingress.gatewayRef` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayRef>,
    /// True if HTTPProxies without a class belong to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}
