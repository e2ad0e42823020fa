//! Takes `apiVersion` and `kind` off an object on its way into its type.
//!
//! The types do not carry the two, and `serde(flatten)` would buffer the whole object and lose every line.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};

use super::Skipped;
use crate::world::{AnyObject, Kind};

/// An object and what its text says it is.
pub(super) struct Envelope {
    /// `apiVersion` as written.
    pub(super) api_version: String,
    /// `kind` as written.
    pub(super) kind: String,
    /// Whether there was a `spec`.
    pub(super) has_spec: bool,
    /// The object.
    pub(super) object: AnyObject,
}

/// Decodes an object of the kind.
pub(super) struct EnvelopeSeed(pub(super) Kind);

impl<'de> DeserializeSeed<'de> for EnvelopeSeed {
    type Value = Envelope;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Envelope, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EnvelopeSeed {
    type Value = Envelope;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Envelope, A::Error> {
        let mut seen = Seen::default();
        let object = self.0.deserialize(MapAccessDeserializer::new(Tap {
            map,
            seen: &mut seen,
        }))?;
        let Seen {
            api_version,
            kind,
            has_spec,
        } = seen;
        Ok(Envelope {
            api_version,
            kind,
            has_spec,
            object,
        })
    }
}

#[derive(Default)]
struct Seen {
    api_version: String,
    kind: String,
    has_spec: bool,
}

/// The map without the fields that `seen` takes.
struct Tap<'s, A> {
    map: A,
    seen: &'s mut Seen,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Tap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            match key.as_str() {
                "apiVersion" => self.seen.api_version = self.map.next_value()?,
                "kind" => self.seen.kind = self.map.next_value()?,
                "status" => {
                    self.map.next_value::<Skipped>()?;
                }
                _ => {
                    self.seen.has_spec |= key == "spec";
                    let key: StringDeserializer<A::Error> = key.into_deserializer();
                    return seed.deserialize(key).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
