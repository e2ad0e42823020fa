//! Defaults for the golden cases. A case contains only its difference from
//! `tests/golden/_defaults`, as a JSON merge patch (RFC 7396). [`Defaults::merged`] must restore
//! the complete value.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

/// The defaults for one kind of output.
pub struct Defaults(Map<String, Value>);

impl Defaults {
    /// Reads a defaults file. A missing file contains no defaults.
    pub fn read(file: &Path) -> Result<Self> {
        let Ok(text) = std::fs::read_to_string(file) else {
            return Ok(Self(Map::new()));
        };
        let defaults = serde_saphyr::from_str(&text);
        Ok(Self(defaults.with_context(|| {
            format!("{} cannot be read", file.display())
        })?))
    }

    /// Returns the value without parts that equal the defaults.
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
                let default = self.find(map, outer, path).unwrap_or(&none);
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
                let default = self.find(map, outer, path).unwrap_or(&none);
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

    /// Looks up defaults by type, then by path, and finally in the enclosing object's default.
    fn find<'a>(
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
        let type_name = map.get("@type").and_then(Value::as_str);
        type_name
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
