//! Defaults of golden cases: `tests/golden/_defaults` contains the parts that most outputs share,
//! and a case contains only the difference.
//!
//! A default is an object. It applies to the objects at a given path (`clusters`,
//! `gateways.*.listeners`; `*` matches any name), or to objects whose `@type` ends with a given
//! name. The difference is a JSON merge patch (RFC 7396) to the default: it omits equal fields, and
//! contains null for fields that only the default has. No information may be lost:
//! [`Defaults::merged`] restores the complete value.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

/// The defaults for one kind of output.
pub struct Defaults(Map<String, Value>);

impl Defaults {
    /// Reads a defaults file. If it does not exist, there are no defaults.
    pub fn read(file: &Path) -> Result<Self> {
        let Ok(text) = std::fs::read_to_string(file) else {
            return Ok(Self(Map::new()));
        };
        let defaults = serde_saphyr::from_str(&text);
        Ok(Self(defaults.with_context(|| {
            format!("{} cannot be read", file.display())
        })?))
    }

    /// Returns the value without the parts that are equal to the defaults.
    pub fn difference(&self, value: &Value) -> Value {
        self.smaller(value, None, &mut Vec::new())
    }

    /// Restores the complete value from a difference.
    pub fn merged(&self, difference: &Value) -> Value {
        self.larger(difference, None, &mut Vec::new())
    }

    fn smaller(&self, value: &Value, outer: Option<&Value>, path: &mut Vec<String>) -> Value {
        match value {
            Value::Object(map) => {
                let none = Map::new();
                let default = self.of(map, outer, path).unwrap_or(&none);
                let mut difference = Map::new();
                for (key, value) in map
                    .iter()
                    .filter(|(key, value)| default.get(*key) != Some(value))
                {
                    path.push(key.clone());
                    difference.insert(key.clone(), self.smaller(value, default.get(key), path));
                    path.pop();
                }
                for key in default.keys().filter(|key| !map.contains_key(*key)) {
                    difference.insert(key.clone(), Value::Null);
                }
                difference.into()
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.smaller(item, None, path))
                .collect(),
            scalar => scalar.clone(),
        }
    }

    fn larger(&self, value: &Value, outer: Option<&Value>, path: &mut Vec<String>) -> Value {
        match value {
            Value::Object(map) => {
                let none = Map::new();
                let default = self.of(map, outer, path).unwrap_or(&none);
                let mut whole = default.clone();
                for (key, value) in map {
                    path.push(key.clone());
                    match value {
                        Value::Null => whole.remove(key),
                        value => {
                            whole.insert(key.clone(), self.larger(value, default.get(key), path))
                        }
                    };
                    path.pop();
                }
                whole.into()
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.larger(item, None, path))
                .collect(),
            scalar => scalar.clone(),
        }
    }

    /// Returns the default for an object: the first that is found by its type, by its path, or in
    /// the enclosing object's default.
    fn of<'a>(
        &'a self,
        map: &Map<String, Value>,
        outer: Option<&'a Value>,
        path: &[String],
    ) -> Option<&'a Map<String, Value>> {
        let is_here = |pattern: &str| {
            let parts: Vec<&str> = pattern.split('.').collect();
            let mut both = parts.iter().zip(path);
            parts.len() == path.len() && both.all(|(part, name)| *part == "*" || part == name)
        };
        let of_type = map.get("@type").and_then(Value::as_str);
        of_type
            .and_then(|name| self.0.get(name.rsplit('.').next()?))
            .or_else(|| {
                self.0
                    .iter()
                    .find(|(key, _)| is_here(key))
                    .map(|(_, value)| value)
            })
            .or(outer)
            .and_then(Value::as_object)
    }
}
