//! The core kinds that resolution reads: Service, `EndpointSlice`, Secret, `ConfigMap`, Namespace.
//!
//! Only the fields that are read are kept, because a cluster has many of these objects. Secret values never print.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Metadata, Object};

/// `Service` v1.
pub type Service = Object<ServiceSpec>;

/// `ServiceSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `ClusterIP` when empty.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// For `type: ExternalName`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_name: String,
    /// The ports.
    #[serde(deserialize_with = "super::exact::vec")]
    pub ports: Vec<ServicePort>,
}

/// `ServicePort`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// Names the port in `EndpointSlices`; may be empty when there is only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The Service's port.
    pub port: i32,
    /// TCP when empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// The protocol on the port, for instance `kubernetes.io/h2c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// `EndpointSlice` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    /// The label `kubernetes.io/service-name` names the Service.
    pub metadata: Metadata,
    /// IPv4, IPv6 or FQDN.
    pub address_type: String,
    /// The endpoints.
    #[serde(deserialize_with = "super::exact::vec")]
    pub endpoints: Vec<SliceEndpoint>,
    /// The ports, by name.
    #[serde(deserialize_with = "super::exact::vec")]
    pub ports: Vec<SlicePort>,
}

impl EndpointSlice {
    /// The label that names the Service.
    pub const SERVICE_NAME_LABEL: &'static str = "kubernetes.io/service-name";
}

/// `Endpoint`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SliceEndpoint {
    /// Addresses of one endpoint; consumers use the first.
    #[serde(deserialize_with = "super::exact::vec")]
    pub addresses: Vec<String>,
    /// Its conditions.
    pub conditions: EndpointConditions,
}

/// `EndpointConditions`; an absent `ready` counts as true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointConditions {
    /// True if it may take new traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// True if it answers, ready or terminating.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// True if it is being stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// `EndpointPort`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlicePort {
    /// The Service port's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The endpoint's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// TCP when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// `Secret` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Secret {
    /// Metadata.
    pub metadata: Metadata,
    /// For instance `kubernetes.io/tls`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Values, decoded from base64.
    #[serde(skip_serializing)]
    pub data: BTreeMap<String, SecretBytes>,
    /// Values as text; they win over `data`, as in the API server.
    #[serde(skip_serializing)]
    pub string_data: BTreeMap<String, SecretText>,
}

impl Secret {
    /// The bytes under `key`.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        match self.string_data.get(key) {
            Some(text) => Some(text.0.as_bytes()),
            None => self.data.get(key).map(|bytes| bytes.0.as_slice()),
        }
    }
}

/// A Secret's value. Prints only its length.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(pub Vec<u8>);

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use base64::Engine as _;
        use serde::de::{Error as _, Unexpected};

        let text = String::deserialize(deserializer)?;
        let packed: String = text.split_ascii_whitespace().collect();
        base64::engine::general_purpose::STANDARD
            .decode(packed)
            .map(Self)
            // The library's own error quotes the offending byte: keep the value out of messages.
            .map_err(|_| D::Error::invalid_value(Unexpected::Other("text"), &"base64"))
    }
}

/// A Secret's value given as text. Prints only its length.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

/// `ConfigMap` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigMap {
    /// Metadata.
    pub metadata: Metadata,
    /// Text values.
    pub data: BTreeMap<String, String>,
}

/// `Namespace` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Its labels matter to selectors.
    pub metadata: Metadata,
}

impl Serialize for SecretBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("<{} bytes>", self.0.len()))
    }
}
