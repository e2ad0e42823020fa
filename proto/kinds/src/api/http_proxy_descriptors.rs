//! Descriptors of an `HTTPProxy` for a rate limit service.

use schemars::JsonSchema;
use serde::Deserialize;

use super::ProxyHeaderCondition;

/// `RateLimitDescriptor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProxyDescriptor {
    /// The entries.
    pub entries: Vec<ProxyDescriptorEntry>,
}

/// `RateLimitDescriptorEntry`. Exactly one field must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyDescriptorEntry {
    /// A fixed value.
    pub generic_key: Option<ProxyGenericKey>,
    /// Value of a request header.
    pub request_header: Option<ProxyDescriptorHeader>,
    /// A fixed value for requests with matching headers.
    pub request_header_value_match: Option<ProxyDescriptorMatch>,
    /// The client's address.
    pub remote_address: Option<ProxyRemoteAddress>,
}

/// `GenericKeyDescriptor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProxyGenericKey {
    /// The key; `generic_key` if empty.
    pub key: String,
    /// The value.
    pub value: String,
}

/// `RequestHeaderDescriptor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyDescriptorHeader {
    /// Name of the header.
    pub header_name: String,
    /// The key.
    pub descriptor_key: String,
}

/// `RequestHeaderValueMatchDescriptor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyDescriptorMatch {
    /// Conditions on request headers.
    pub headers: Vec<ProxyHeaderCondition>,
    /// False if the entry applies to requests that do not match; true by default.
    pub expect_match: Option<bool>,
    /// The value.
    pub value: String,
}

/// `RemoteAddressDescriptor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ProxyRemoteAddress {}
