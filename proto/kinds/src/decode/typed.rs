//! Reads typed values from a tree, regardless of the tree's source.
//!
//! A null field counts as missing, because Kubernetes components write empty lists as null. In
//! lists and maps, null means an empty value. Errors report the innermost location. Unknown fields
//! are recorded with a suggested correction.

use std::slice;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

use super::at::{At, Step};
use super::expected;
use super::fault::Fault;
use super::notes::Notes;
use super::tree::{Entry, Node, Value};

pub(super) fn read<'de, S: DeserializeSeed<'de>>(
    seed: S,
    node: &'de Node,
    notes: &Notes,
) -> Result<S::Value, Fault> {
    let at = At::ROOT;
    seed.deserialize(Reader {
        node,
        at: &at,
        notes,
    })
}

#[derive(Clone, Copy)]
struct Reader<'p, 'de> {
    node: &'de Node,
    at: &'p At<'p>,
    notes: &'p Notes,
}

impl<'de> Reader<'_, 'de> {
    /// Adds this location unless the fault already has a location.
    fn locate<T>(self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        outcome.map_err(|fault| fault.at(self.node, || self.at.path()))
    }

    fn refuse<T>(self, expected: impl Into<String>) -> Result<T, Fault> {
        self.locate(Err(Fault::expected(expected.into())))
    }

    fn integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let read = match &self.node.value {
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(signed), _) => visitor.visit_i64(signed),
                (None, Some(unsigned)) => visitor.visit_u64(unsigned),
                (None, None) => return self.refuse(expected::integer(self.at.field())),
            },
            _ => return self.refuse(expected::integer(self.at.field())),
        };
        // The error states the field's range if a number does not fit the type.
        self.locate(read.map_err(|_: Fault| Fault::expected(expected::integer(self.at.field()))))
    }

    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let wanted = |visitor: &V| expected::text(visitor as &dyn Expected);
        match &self.node.value {
            Value::Text(text) => self.locate(visitor.visit_borrowed_str(text)),
            Value::Null => self.locate(visitor.visit_borrowed_str("")),
            Value::Bool(_) | Value::Number(_) => {
                let wanted = wanted(&visitor);
                self.refuse(format!("{wanted}{}", expected::quotes(&wanted)))
            }
            Value::List(_) | Value::Map(_) => self.refuse(wanted(&visitor)),
        }
    }

    fn fields<V: Visitor<'de>>(
        self,
        known: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let entries: &[Entry] = match &self.node.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            _ => return self.refuse("a mapping of fields"),
        };
        self.locate(visitor.visit_map(Fields {
            entries: entries.iter(),
            value: None,
            known,
            of: self,
        }))
    }
}

macro_rules! all {
    ($do:ident: $($name:ident)+) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.$do(visitor)
        })+
    };
}

impl<'de> Deserializer<'de> for Reader<'_, 'de> {
    type Error = Fault;

    all!(integer: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64);
    all!(integer: deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64);
    all!(text: deserialize_str deserialize_string deserialize_identifier);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Null => self.locate(visitor.visit_unit()),
            Value::Bool(value) => self.locate(visitor.visit_bool(*value)),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), ..) => self.locate(visitor.visit_i64(value)),
                (None, Some(value), _) => self.locate(visitor.visit_u64(value)),
                (None, None, value) => self.locate(visitor.visit_f64(value.unwrap_or_default())),
            },
            Value::Text(text) => self.locate(visitor.visit_borrowed_str(text)),
            Value::List(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Bool(value) => self.locate(visitor.visit_bool(*value)),
            _ => self.refuse("true or false"),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Null => self.locate(visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let items: &[Node] = match &self.node.value {
            Value::List(items) => items,
            Value::Null => &[],
            _ => return self.refuse("a list"),
        };
        self.locate(visitor.visit_seq(Items {
            items: items.iter().enumerate(),
            of: self,
        }))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.fields(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        #[cfg(test)]
        if let Value::Map(entries) = &self.node.value {
            let there = entries.iter().map(|entry| entry.key.to_string()).collect();
            let read = super::notes::TypeRead {
                name,
                fields,
                there,
            };
            self.notes.types.borrow_mut().push(read);
        }
        #[cfg(not(test))]
        let _ = name;
        self.fields(Some(fields), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let one_of = || format!("one of {}", variants.join(", "));
        match &self.node.value {
            Value::Text(text) => {
                let text: StrDeserializer<'_, Fault> = text.as_ref().into_deserializer();
                let read = visitor.visit_enum(text);
                self.locate(read.map_err(|_| Fault::expected(one_of())))
            }
            _ => self.refuse(one_of()),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    // No decoded type has fields of these types.
    serde::forward_to_deserialize_any! {
        bytes byte_buf char f32 f64 i128 tuple tuple_struct u128 unit unit_struct
    }
}

struct Fields<'p, 'de> {
    entries: slice::Iter<'de, Entry>,
    /// Entry whose key was read last.
    value: Option<&'de Entry>,
    /// `None` for a map, which accepts any key.
    known: Option<&'static [&'static str]>,
    of: Reader<'p, 'de>,
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        for entry in self.entries.by_ref() {
            let key = entry.key.as_ref();
            if let Some(known) = self.known {
                let is_root = matches!(self.of.at.step, Step::Root);
                if is_root && self.of.notes.beside.contains(&key) {
                    continue;
                }
                if !known.contains(&key) {
                    self.of.notes.record(self.of.at, entry, known);
                    continue;
                }
                if matches!(entry.value.value, Value::Null) {
                    continue;
                }
            }
            self.value = Some(entry);
            let key: StrDeserializer<'_, Fault> = key.into_deserializer();
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some(entry) = self.value.take() else {
            return Err(Fault::custom("a value without a key"));
        };
        let key = entry.key.as_ref();
        let at = At {
            parent: Some(self.of.at),
            step: match self.known {
                Some(_) => Step::Field(key),
                None => Step::Key(key),
            },
        };
        seed.deserialize(Reader {
            node: &entry.value,
            at: &at,
            notes: self.of.notes,
        })
    }
}

struct Items<'p, 'de> {
    items: std::iter::Enumerate<slice::Iter<'de, Node>>,
    of: Reader<'p, 'de>,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        let at = At {
            parent: Some(self.of.at),
            step: Step::Index(index),
        };
        let reader = Reader {
            node,
            at: &at,
            notes: self.of.notes,
        };
        seed.deserialize(reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}
