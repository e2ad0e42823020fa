//! Filters of rules, and RouteFilters.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sesame_kinds::api::SESAME_GROUP;

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::fields::RemainingFields;
use super::super::values::{put, put_list};
use super::named;

/// The output field of CORS policies.
pub(in super::super) const CORS: &str = "HTTPRoute rules.filters.cors";

/// Returns a filter, whose type is its member's name with a capital letter.
pub(in super::super) fn filter(kind: &str, value: Value) -> Value {
    let member = match kind {
        "CORS" => "cors".to_owned(),
        "URLRewrite" => "urlRewrite".to_owned(),
        kind => {
            let (first, rest) = kind.split_at(1);
            first.to_lowercase() + rest
        }
    };
    let mut filter = Map::new();
    put(&mut filter, "type", Some(kind));
    filter.insert(member, value);
    filter.into()
}

/// Reads the fields of a CORS policy that are named as in Gateway API.
pub(in super::super) fn cors_rest(fields: &mut RemainingFields, output: &mut Map<String, Value>) {
    for name in ["allowMethods", "allowHeaders", "exposeHeaders"] {
        let list = fields.texts(name, &format!("{CORS}.{name}"));
        put_list(output, name, list);
    }
    let credentials = fields.flag("allowCredentials", &format!("{CORS}.allowCredentials"));
    put(output, "allowCredentials", credentials.filter(|it| *it));
    let age = fields.duration("maxAge", &format!("{CORS}.maxAge"));
    put(output, "maxAge", age.map(|it| it.div_ceil(1000)));
}

/// Adds a RouteFilter, and returns the filter that refers to it.
fn route_filter(
    draft: &mut Draft,
    sources: &BTreeSet<ObjectId>,
    metadata: Map<String, Value>,
    spec: Value,
) -> Value {
    let name = metadata.get("name").cloned().unwrap_or_default();
    draft.add_from(sources, sesame_object("RouteFilter", metadata, spec));
    extension_ref(name.as_str().unwrap_or_default())
}

/// Returns the filter that refers to a RouteFilter.
fn extension_ref(name: &str) -> Value {
    let reference = json!({"group": SESAME_GROUP, "kind": "RouteFilter", "name": name});
    filter("ExtensionRef", reference)
}

/// Returns the filter that refers to a RouteFilter with this spec. Rules with the same spec share a
/// RouteFilter; others get a number after `base`.
pub(in super::super) fn shared_filter(
    draft: &mut Draft,
    sources: &BTreeSet<ObjectId>,
    metadata: &Map<String, Value>,
    base: &str,
    spec: Value,
) -> Value {
    let namespace = metadata.get("namespace").and_then(Value::as_str);
    let namespace = namespace.unwrap_or("default").to_owned();
    let mut number = 1;
    loop {
        let name = match number {
            1 => base.to_owned(),
            number => format!("{base}-{number}"),
        };
        let id = ObjectId::new("RouteFilter", &namespace, &name);
        match draft.outputs.get(&id) {
            Some(known) if known.value["spec"] == spec => {
                for source in sources {
                    draft.change(&id, source);
                }
                return extension_ref(&name);
            }
            Some(_) => number += 1,
            None => return route_filter(draft, sources, named(metadata, &name), spec),
        }
    }
}

/// Returns a filter that changes headers, or `None` if it changes none.
pub(in super::super) fn header_modifier(
    kind: &str,
    set: Vec<Value>,
    add: Vec<Value>,
    remove: Vec<String>,
) -> Option<Value> {
    let mut modifier = Map::new();
    put_list(&mut modifier, "set", set);
    put_list(&mut modifier, "add", add);
    put_list(&mut modifier, "remove", remove);
    (!modifier.is_empty()).then(|| filter(kind, modifier.into()))
}

/// Merges the rewrites of the host and the path, because a rule has only one URLRewrite.
pub(in super::super) fn merge_rewrites(filters: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for filter in filters {
        let is_rewrite = filter["type"] == "URLRewrite";
        let known = merged
            .iter_mut()
            .find(|it| is_rewrite && it["type"] == "URLRewrite");
        match known.and_then(|it| it["urlRewrite"].as_object_mut()) {
            Some(known) => {
                let more = filter["urlRewrite"].as_object().cloned();
                known.extend(more.unwrap_or_default());
            }
            None => merged.push(filter),
        }
    }
    merged
}
