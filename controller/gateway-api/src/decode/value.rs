//! Decodes objects from API server responses.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::notes::Notes;
use super::tree::Node;
use super::{DecodeError, Decoded, decode_item, typed};
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
