//! A placeholder for fields whose content is ignored.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Records that a field is present, and ignores its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted;

impl<'de> Deserialize<'de> for Noted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NotedVisitor)
    }
}

impl JsonSchema for Noted {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Noted".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-preserve-unknown-fields": true})
    }
}

struct NotedVisitor;

impl<'de> Visitor<'de> for NotedVisitor {
    type Value = Noted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Noted, E> {
        Ok(Noted)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Noted, E> {
        Ok(Noted)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Noted, E> {
        Ok(Noted)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Noted, E> {
        Ok(Noted)
    }

    fn visit_str<E>(self, _: &str) -> Result<Noted, E> {
        Ok(Noted)
    }

    fn visit_unit<E>(self) -> Result<Noted, E> {
        Ok(Noted)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Noted, A::Error> {
        while list.next_element::<Noted>()?.is_some() {}
        Ok(Noted)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Noted, A::Error> {
        while map.next_entry::<String, Noted>()?.is_some() {}
        Ok(Noted)
    }
}
