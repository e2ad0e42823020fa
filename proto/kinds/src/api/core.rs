//! The core kinds that resolution reads: Service, `EndpointSlice`, Secret, `ConfigMap` and
//! Namespace.
//!
//! Only the fields that resolution needs are kept, in compact form, because a cluster has many of
//! these objects. Secret values are never printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Deserializer};

use super::{Metadata, Object};

/// `Service` v1.
pub type Service = Object<ServiceSpec>;

/// `ServiceSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// Type of the Service; empty means `ClusterIP`.
    #[serde(rename = "type")]
    pub type_: Box<str>,
    /// DNS name for type `ExternalName`.
    pub external_name: Box<str>,
    /// The ports.
    pub ports: Box<[ServicePort]>,
    /// Which endpoints are preferred, such as `PreferClose`.
    pub traffic_distribution: Box<str>,
}

impl ServiceSpec {
    /// Returns true if endpoints in the client's zone are preferred.
    pub fn prefers_zone(&self) -> bool {
        matches!(
            &*self.traffic_distribution,
            "PreferClose" | "PreferSameZone"
        )
    }
}

/// `ServicePort`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// Name of the port. May be empty if the Service has only one port.
    pub name: Box<str>,
    /// Port number that the Service exposes.
    pub port: i32,
    /// Transport protocol; empty means TCP.
    pub protocol: Box<str>,
    /// Application protocol, for instance `kubernetes.io/h2c`.
    pub app_protocol: Option<Box<str>>,
    /// Port of the Pods. The default is `port`.
    pub target_port: Option<TargetPort>,
}

/// `IntOrString`: number or name of a Pod's port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// Number.
    Number(i32),
    /// Name, which may have a different number in each Pod.
    Name(Box<str>),
}

/// `EndpointSlice` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    /// Metadata. The label `kubernetes.io/service-name` contains the Service's name.
    pub metadata: Metadata,
    /// Type of the addresses: IPv4, IPv6 or FQDN.
    pub address_type: Box<str>,
    /// The endpoints.
    pub endpoints: Box<[SliceEndpoint]>,
    /// The ports that every endpoint listens on.
    pub ports: Box<[SlicePort]>,
}

impl EndpointSlice {
    /// The label whose value is the name of the slice's Service.
    pub const SERVICE_NAME_LABEL: &'static str = "kubernetes.io/service-name";

    /// Returns the name of the slice's Service, or `None` if the label is missing.
    pub fn service(&self) -> Option<&str> {
        self.metadata.labels.get(Self::SERVICE_NAME_LABEL)
    }
}

/// `Endpoint`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SliceEndpoint {
    /// The first address. Like other EndpointSlice consumers, Sesame ignores the rest.
    #[serde(rename = "addresses", deserialize_with = "first")]
    pub address: Option<Box<str>>,
    /// Conditions of the endpoint.
    pub conditions: EndpointConditions,
    /// Zone of the endpoint.
    pub zone: Option<Box<str>>,
}

fn first<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<str>>, D::Error> {
    let addresses = Vec::<Box<str>>::deserialize(deserializer)?;
    Ok(addresses.into_iter().next())
}

/// `EndpointConditions`. An unset `ready` counts as true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointConditions {
    /// True if the endpoint may receive new traffic.
    pub ready: Option<bool>,
    /// True if the endpoint can respond, even while it is terminating.
    pub serving: Option<bool>,
    /// True if the endpoint is shutting down.
    pub terminating: Option<bool>,
}

/// `EndpointPort`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlicePort {
    /// Name of the port, as in the Service.
    pub name: Option<Box<str>>,
    /// Port number that the endpoints listen on.
    pub port: Option<i32>,
    /// Transport protocol; unset means TCP.
    pub protocol: Option<Box<str>>,
}

/// `Secret` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Secret {
    /// Metadata.
    pub metadata: Metadata,
    /// Type, for instance `kubernetes.io/tls`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Values, already decoded from base64.
    pub data: BTreeMap<String, SecretBytes>,
    /// Plain text values, which take precedence over `data`, as in the API server.
    pub string_data: BTreeMap<String, SecretText>,
}

impl Secret {
    /// Returns the value of `key` from `string_data` or `data`.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        match self.string_data.get(key) {
            Some(text) => Some(text.0.as_bytes()),
            None => self.data.get(key).map(|bytes| bytes.0.as_slice()),
        }
    }

    /// Returns true if the type is unset or `Opaque`. Secrets of other types contain credentials
    /// for other purposes.
    pub fn is_opaque(&self) -> bool {
        matches!(self.type_.as_str(), "" | "Opaque")
    }

    /// Returns all keys with their values, sorted by key.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let keys: BTreeSet<&String> = self.data.keys().chain(self.string_data.keys()).collect();
        let entries = keys.into_iter();
        entries.filter_map(|key| Some((key.as_str(), self.get(key)?)))
    }
}

/// A binary value of a Secret. `Debug` prints only its length.
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
            // The library's error quotes the invalid byte, which must not appear in messages.
            .map_err(|_| D::Error::invalid_value(Unexpected::Other("text"), &"base64"))
    }
}

/// A text value of a Secret. `Debug` prints only its length.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

/// `ConfigMap` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigMap {
    /// Metadata.
    pub metadata: Metadata,
    /// Text values, by key.
    pub data: BTreeMap<String, String>,
    /// Binary values, already decoded from base64.
    pub binary_data: BTreeMap<String, SecretBytes>,
}

impl ConfigMap {
    /// Returns the binary or text value of `key`.
    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        let binary = self.binary_data.get(key).map(|bytes| bytes.0.as_slice());
        binary.or_else(|| Some(self.data.get(key)?.as_bytes()))
    }
}

/// `ClusterTrustBundle` in `certificates.k8s.io`.
pub type ClusterTrustBundle = Object<ClusterTrustBundleSpec>;

/// `ClusterTrustBundleSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterTrustBundleSpec {
    /// PEM-encoded CA certificates.
    pub trust_bundle: String,
}

/// `Namespace` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Metadata, including the labels that namespace selectors match.
    pub metadata: Metadata,
}
