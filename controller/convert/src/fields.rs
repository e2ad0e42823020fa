//! Takes the fields of an input object one by one, and records a verdict for each.
//!
//! A field that no handler takes is refused when its parent is dropped, so no field is ever lost
//! silently. An unknown field counts as protecting unless its section only tunes traffic.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::verdicts::{FieldVerdict, VerdictLog};

const NO_COUNTERPART: &str = "Sesame has no counterpart, or this version does not know the field";
const REMOVE: &str = "remove the field, or accept the loss";

/// The remaining fields of a mapping.
#[derive(Debug)]
pub(super) struct RemainingFields {
    path: String,
    entries: Map<String, Value>,
    protects: bool,
    log: VerdictLog,
}

/// A field that was taken from its mapping, and needs a verdict.
#[derive(Debug)]
pub(super) struct TakenField {
    path: String,
    /// `None` once the field has a verdict.
    value: Option<Value>,
    protects: bool,
    log: VerdictLog,
}

impl RemainingFields {
    /// Starts with a whole object.
    pub(super) fn of_object(value: &Value, log: &VerdictLog) -> Self {
        let entries = value.as_object().cloned().unwrap_or_default();
        Self {
            path: String::new(),
            entries,
            protects: true,
            log: log.clone(),
        }
    }

    /// Takes everything except `spec`, and returns the metadata of output objects: name, namespace,
    /// labels and annotations. Annotations with the prefix `refused` are settings, and refused.
    pub(super) fn take_head(&mut self, refused: &str) -> Map<String, Value> {
        for name in ["apiVersion", "kind", "status"] {
            self.entries.remove(name);
        }
        let mut metadata = match self.entries.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            let settings: Vec<String> = annotations
                .keys()
                .filter(|key| key.starts_with(refused))
                .cloned()
                .collect();
            for key in settings {
                let value = annotations.remove(&key).unwrap_or_default();
                drop(self.taken(&format!("metadata.annotations.{key}"), value));
            }
        }
        let kept = ["name", "namespace", "labels", "annotations"];
        metadata.retain(|name, value| {
            let is_empty = value.as_object().is_some_and(Map::is_empty);
            kept.contains(&name.as_str()) && !is_empty
        });
        metadata
    }

    /// Takes the annotations that `is_setting` selects, by key.
    pub(super) fn take_annotations(
        &mut self,
        is_setting: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, TakenField> {
        let annotations = self.entries.get_mut("metadata");
        let annotations = annotations.and_then(|it| it.get_mut("annotations"));
        let Some(annotations) = annotations.and_then(Value::as_object_mut) else {
            return BTreeMap::new();
        };
        let all = std::mem::take(annotations).into_iter();
        let (settings, rest): (Map<_, _>, _) = all.partition(|(key, _)| is_setting(key));
        *annotations = rest;
        let taken = settings.into_iter().map(|(key, value)| {
            let field = self.taken(&format!("metadata.annotations.{key}"), value);
            (key, field)
        });
        taken.collect()
    }

    /// Takes a field. Unset and null fields are the same.
    pub(super) fn take(&mut self, name: &str) -> Option<TakenField> {
        let value = self.entries.remove(name).filter(|value| !value.is_null())?;
        Some(self.taken(name, value))
    }

    /// Returns true if the field is set and was not taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns the names of the fields that were not taken.
    pub(super) fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// Takes a field that tunes traffic, and protects nothing.
    pub(super) fn take_tuning(&mut self, name: &str) -> Option<TakenField> {
        let mut field = self.take(name)?;
        field.protects = false;
        Some(field)
    }

    /// Returns a field that was taken, so that another handler can take it.
    pub(super) fn give_back(&mut self, name: &str, mut field: TakenField) {
        if let Some(value) = field.value.take() {
            self.entries.insert(name.to_owned(), value);
        }
    }

    /// Takes a field that is not needed.
    pub(super) fn skip(&mut self, name: &str, reason: &str) {
        if let Some(field) = self.take(name) {
            field.unneeded(reason);
        }
    }

    /// Takes a mapping. Returns an empty one if the field is unset.
    pub(super) fn section(&mut self, name: &str) -> Self {
        match self.take(name) {
            Some(field) => field.fields(),
            None => self.empty(name),
        }
    }

    /// Takes a mapping that tunes traffic, and protects nothing.
    pub(super) fn tuning_section(&mut self, name: &str) -> Self {
        match self.take_tuning(name) {
            Some(field) => field.fields(),
            None => self.empty(name),
        }
    }

    /// Takes a list. Returns an empty one if the field is unset.
    pub(super) fn list(&mut self, name: &str) -> Vec<TakenField> {
        self.take(name).map(TakenField::items).unwrap_or_default()
    }

    pub(super) fn text(&mut self, name: &str, to: &str) -> Option<String> {
        self.take(name)?.text(to)
    }

    pub(super) fn texts(&mut self, name: &str, to: &str) -> Vec<String> {
        let field = self.take(name);
        field.map(|field| field.texts(to)).unwrap_or_default()
    }

    pub(super) fn number(&mut self, name: &str, to: &str) -> Option<i64> {
        self.take(name)?.number(to)
    }

    pub(super) fn flag(&mut self, name: &str, to: &str) -> Option<bool> {
        self.take(name)?.flag(to)
    }

    /// Records that an unset field, or one that was taken before, means something else in Sesame.
    pub(super) fn note_difference(&self, name: &str, to: &str, difference: &str) {
        self.taken(name, Value::Bool(true)).differ(to, difference);
    }

    /// Refuses a value that was taken before.
    pub(super) fn refuse(&self, name: &str, reason: &str, remedy: &str) {
        self.taken(name, Value::Bool(true)).refuse(reason, remedy);
    }

    fn empty(&self, name: &str) -> Self {
        Self {
            path: joined(&self.path, name),
            entries: Map::new(),
            protects: self.protects,
            log: self.log.clone(),
        }
    }

    /// Returns a field that is unset, or was taken before.
    pub(super) fn taken(&self, name: &str, value: Value) -> TakenField {
        TakenField {
            path: joined(&self.path, name),
            value: Some(value),
            protects: self.protects,
            log: self.log.clone(),
        }
    }
}

impl Drop for RemainingFields {
    fn drop(&mut self) {
        for (name, value) in std::mem::take(&mut self.entries) {
            drop(self.taken(&name, value));
        }
    }
}

impl TakenField {
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn value(&self) -> &Value {
        self.value.as_ref().unwrap_or(&Value::Null)
    }

    /// Returns the text, or an empty string for other types.
    pub(super) fn as_str(&self) -> &str {
        self.value().as_str().unwrap_or_default()
    }

    /// Sets whether losing the field might lose a protection.
    pub(super) fn protecting(mut self, protects: bool) -> Self {
        self.protects = protects;
        self
    }

    /// Records that the value is carried to the field `to`.
    pub(super) fn carry(self, to: &str) -> Value {
        let verdict = FieldVerdict::Carried { to: to.to_owned() };
        self.close(verdict)
    }

    /// Records that the value is carried to the field `to`, with a difference.
    pub(super) fn differ(self, to: &str, difference: &str) -> Value {
        let (to, difference) = (to.to_owned(), difference.to_owned());
        self.close(FieldVerdict::Differs { to, difference })
    }

    /// Records that Sesame does not need the field.
    pub(super) fn unneeded(self, reason: &str) {
        let reason = reason.to_owned();
        self.close(FieldVerdict::NotNeeded { reason });
    }

    /// Records that the field cannot be converted.
    pub(super) fn refuse(self, reason: &str, remedy: &str) {
        let refused = FieldVerdict::refused(reason, remedy, self.protects);
        self.close(refused);
    }

    /// Opens a mapping, whose fields get their own verdicts.
    pub(super) fn fields(mut self) -> RemainingFields {
        let entries = match self.value.take() {
            Some(Value::Object(entries)) => entries,
            other => {
                self.value = other;
                self.refuse_type("a mapping");
                Map::new()
            }
        };
        RemainingFields {
            path: self.path.clone(),
            entries,
            protects: self.protects,
            log: self.log.clone(),
        }
    }

    /// Moves some of a mapping's fields into another mapping. Values of other types stay in the
    /// second part.
    pub(super) fn split(mut self, names: &[&str]) -> (Self, Self) {
        let mut rest = self.value.take().unwrap_or_default();
        let mut moved = Map::new();
        if let Some(fields) = rest.as_object_mut() {
            let found = names.iter().filter_map(|name| fields.remove_entry(*name));
            moved.extend(found);
        }
        let part = |value| Self {
            path: self.path.clone(),
            value: Some(value),
            protects: self.protects,
            log: self.log.clone(),
        };
        (part(Value::Object(moved)), part(rest))
    }

    /// Opens a list, whose items get their own verdicts.
    pub(super) fn items(mut self) -> Vec<Self> {
        let items = match self.value.take() {
            Some(Value::Array(items)) => items,
            other => {
                self.value = other;
                self.refuse_type("a list");
                Vec::new()
            }
        };
        let item = |(index, value)| Self {
            path: format!("{}[{index}]", self.path),
            value: Some(value),
            protects: self.protects,
            log: self.log.clone(),
        };
        items.into_iter().enumerate().map(item).collect()
    }

    pub(super) fn text(mut self, to: &str) -> Option<String> {
        if !self.value().is_string() {
            self.refuse_type("text");
            return None;
        }
        self.carry(to).as_str().map(str::to_owned)
    }

    pub(super) fn texts(mut self, to: &str) -> Vec<String> {
        let texts = self.value().as_array().and_then(|items| {
            let items = items.iter().map(|item| item.as_str().map(str::to_owned));
            items.collect::<Option<Vec<_>>>()
        });
        let Some(texts) = texts else {
            self.refuse_type("a list of texts");
            return Vec::new();
        };
        self.carry(to);
        texts
    }

    pub(super) fn number(mut self, to: &str) -> Option<i64> {
        let Some(number) = self.value().as_i64() else {
            self.refuse_type("a whole number");
            return None;
        };
        self.carry(to);
        Some(number)
    }

    pub(super) fn flag(mut self, to: &str) -> Option<bool> {
        let Some(flag) = self.value().as_bool() else {
            self.refuse_type("true or false");
            return None;
        };
        self.carry(to);
        Some(flag)
    }

    fn refuse_type(&mut self, expected: &str) {
        if let Some(value) = self.value.take() {
            let field = Self {
                path: self.path.clone(),
                value: Some(value),
                protects: self.protects,
                log: self.log.clone(),
            };
            let reason = format!("the value has another type, expected {expected}");
            field.refuse(&reason, "correct the value");
        }
    }

    fn close(mut self, verdict: FieldVerdict) -> Value {
        self.log.record(&self.path, verdict);
        self.value.take().unwrap_or_default()
    }
}

impl Drop for TakenField {
    fn drop(&mut self) {
        if self.value.take().is_some_and(|value| !value.is_null()) {
            let refused = FieldVerdict::refused(NO_COUNTERPART, REMOVE, self.protects);
            self.log.record(&self.path, refused);
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    match (path, name) {
        ("", name) => name.to_owned(),
        (path, "") => path.to_owned(),
        (path, name) => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn untaken_field_is_refused() {
        let log = VerdictLog::default();
        let object = json!({"spec": {"known": 1, "new": {"below": true}, "unset": null}});
        let mut root = RemainingFields::of_object(&object, &log);
        let mut spec = root.section("spec");
        assert_eq!(spec.number("known", "there"), Some(1));
        drop(spec);
        drop(root);
        let rows = log.take();
        let paths: Vec<&str> = rows.iter().map(|row| row.path.as_str()).collect();
        assert_eq!(paths, ["spec.known", "spec.new"]);
        assert!(matches!(&rows[1].verdict, FieldVerdict::Refused(it) if it.protects));
    }

    #[test]
    fn wrong_type_is_refused_once() {
        let log = VerdictLog::default();
        let mut root = RemainingFields::of_object(&json!({"a": 1, "b": "x", "c": [1]}), &log);
        assert_eq!(root.text("a", "a"), None);
        assert!(root.section("b").names().is_empty());
        assert!(root.texts("c", "c").is_empty());
        drop(root);
        assert_eq!(log.take().len(), 3);
    }

    #[test]
    fn tuning_field_protects_nothing() {
        let log = VerdictLog::default();
        let mut root = RemainingFields::of_object(&json!({"a": {"b": {"c": 1}}}), &log);
        drop(root.tuning_section("a"));
        drop(root);
        assert!(matches!(&log.take()[0].verdict, FieldVerdict::Refused(it) if !it.protects));
    }
}
