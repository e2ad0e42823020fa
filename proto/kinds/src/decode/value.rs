//! Decodes values of other types: API server responses, and documents of any kind.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::notes::Notes;
use super::tree::Node;
use super::{DecodeError, DecodeLimits, Decoded, decode_item, sniff, typed, yaml};
use crate::world::Kind;

/// Decodes an object of a known kind. API servers omit `apiVersion` and `kind` in list items.
pub fn decode_value(
    value: serde_json::Value,
    kind: Kind,
    api_version: &str,
) -> Result<Decoded, DecodeError> {
    decode_item(&value.into(), Some((api_version, kind.as_str()))).map_err(|error| *error)
}

/// Decodes a value of any other type. The value must not contain secrets, because errors quote it.
pub fn from_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, String> {
    let node = Node::from(value);
    typed::read(PhantomData::<T>, &node, &Notes::default())
        .map_err(|fault| fault.into_reason(false).1.to_string())
}

/// Parses a YAML or JSON document of any kind. Errors never quote a Secret.
pub fn parse_untyped(text: &str, limits: &DecodeLimits) -> Result<serde_json::Value, DecodeError> {
    serde_saphyr::from_str_with_options(text, yaml::options(limits))
        .map_err(|error| yaml::error(&error, None, sniff::may_be_secret(text)))
}
