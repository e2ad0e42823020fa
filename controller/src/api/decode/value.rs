//! Objects as an API server sends them: values rather than text.

use super::{DecodeError, Decoded, Reason, decode_item, envelope, yaml};
use crate::world::Kind;

/// Decodes an object of a known kind. An API server leaves `apiVersion` and `kind` out of the items of its lists.
pub fn decode_value(
    value: serde_json::Value,
    kind: Kind,
    api_version: &str,
) -> Result<Decoded, DecodeError> {
    decode_item(
        value,
        Some((api_version, kind.as_str())),
        |kind, value, unknown_fields| {
            envelope(kind, value, unknown_fields).map_err(|error| {
                Reason::Invalid(if kind == Kind::Secret {
                    yaml::WITHHELD.to_owned()
                } else {
                    error.to_string()
                })
            })
        },
    )
}
