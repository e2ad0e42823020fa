//! Conditions on HTTP requests become matches.

use serde_json::{Map, Value, json};
use sesame_proto::expressions::quote;

use super::super::draft::ObjectId;
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::order::rest_of_text;
use super::super::values::{put, put_list};
use super::conditions::take_list;
use super::hosts::{Bound, gateway_name};

const TO: &str = "HTTPRoute rules.matches";
const ELEMENTS: &str = "a prefix matches whole path elements: /a matches /a and /a/b, but not /ab";
const SLASH: &str = "it also matches the path without the last slash";
pub(super) const SIDECARS: &str = "it applies to sidecars only";

/// The Gateways that a match applies to.
#[derive(PartialEq)]
pub(super) enum MatchScope {
    /// It applies to sidecars.
    None,
    Some,
    All,
}

impl Bound {
    /// Names without a namespace are in `namespace`.
    pub(super) fn scope(&self, matched: &Value, namespace: &str) -> MatchScope {
        let names = &matched["gateways"];
        if is_unset(names) {
            let labels = ["sourceLabels", "sourceNamespace"];
            return if labels.iter().all(|it| is_unset(&matched[it])) {
                MatchScope::All
            } else {
                MatchScope::None
            };
        }
        let Some(names) = names.as_array() else {
            return MatchScope::Some;
        };
        let names = names.iter().filter_map(Value::as_str);
        let names: Vec<_> = names.map(|it| gateway_name(namespace, it)).collect();
        let has = |it: &&ObjectId| names.contains(&(&it.namespace, &it.name));
        match self.gateways.iter().filter(has).count() {
            0 => MatchScope::None,
            count if count == self.gateways.len() => MatchScope::All,
            _ => MatchScope::Some,
        }
    }
}

/// Istio does not distinguish empty and unset values.
fn is_unset(value: &Value) -> bool {
    *value == Value::Null || [json!([]), json!({}), json!("")].contains(value)
}

/// Skips the sources of sidecars' requests.
pub(super) fn skip_sources(fields: &mut RemainingFields) {
    for name in ["sourceLabels", "sourceNamespace"] {
        fields.skip(name, "the Gateways decide, or it is empty");
    }
}

/// Returns the matches, or `None` if the route would match other requests. `is_answer` is true if
/// the route forwards no requests, so that it must not match fewer.
pub(super) fn read(
    fields: &mut RemainingFields,
    (bound, namespace): (&Bound, &str),
    is_answer: bool,
) -> Option<Vec<Value>> {
    let Some(field) = take_list(fields, "match") else {
        return Some(vec![json!({"path": {"type": "PathPrefix", "value": "/"}})]);
    };
    let mut matches = Vec::new();
    let mut is_complete = true;
    for field in field.items() {
        let scope = bound.scope(field.value(), namespace);
        if scope == MatchScope::None {
            field.unneeded(SIDECARS);
            continue;
        }
        let is_partial = scope == MatchScope::Some;
        match conditions(field.fields(), bound, (is_partial, is_answer)) {
            Some(found) => matches.extend(found),
            None => is_complete = false,
        }
    }
    is_complete.then_some(matches)
}

fn conditions(
    mut fields: RemainingFields,
    bound: &Bound,
    (is_partial, is_answer): (bool, bool),
) -> Option<Vec<Value>> {
    for name in ["name", "statPrefix"] {
        fields.skip(name, "names appear only in Istio's logs and statistics");
    }
    skip_sources(&mut fields);
    let mut is_complete = true;
    if let Some(field) = fields.take("gateways") {
        if is_partial {
            field.refuse("the match has other Gateways", "split the VirtualService");
            is_complete = false;
        } else {
            field.carry("HTTPRoute parentRefs");
        }
    }
    if let Some(field) = fields.take("port") {
        let is_only = bound.servers.iter().all(|it| *field.value() == it.port);
        if is_only {
            field.unneeded("the Gateways have no other port");
        } else {
            let reason = "a route applies to all ports of its Gateways";
            field.refuse(reason, "split the Gateway by port");
            is_complete = false;
        }
    }
    for (name, reason) in [
        (
            "withoutHeaders",
            "a match cannot require that a header is absent",
        ),
        ("scheme", "a route matches the listener's scheme"),
        ("authority", "a match has no host"),
    ] {
        if let Some(field) = fields.take(name) {
            field.refuse(
                reason,
                "split the VirtualService, or change the order of routes",
            );
            is_complete = false;
        }
    }
    let ignores_case = fields.flag("ignoreUriCase", &format!("{TO}.path")) == Some(true);
    let paths = match fields.take("uri") {
        Some(field) => path(field, ignores_case, is_answer),
        None => Some(vec![json!({"type": "PathPrefix", "value": "/"})]),
    };
    let method = match fields.take("method") {
        Some(field) if field.value()["exact"].is_string() => {
            let method = field.value()["exact"].clone();
            let is_only = field.value().as_object().is_some_and(|it| it.len() == 1);
            if is_only {
                field.carry(&format!("{TO}.method"));
            }
            Some(method).filter(|_| is_only)
        }
        Some(field) => {
            field.refuse("a match has one method", "list exact methods");
            is_complete = false;
            None
        }
        None => None,
    };
    let headers = values(&mut fields, "headers", &mut is_complete);
    let parameters = values(&mut fields, "queryParams", &mut is_complete);
    let matches = paths?.into_iter().map(|path| {
        let mut matched = Map::new();
        matched.insert("path".to_owned(), path);
        put(&mut matched, "method", method.clone());
        put_list(&mut matched, "headers", headers.clone());
        put_list(&mut matched, "queryParams", parameters.clone());
        Value::Object(matched)
    });
    is_complete.then(|| matches.collect())
}

/// Returns the paths. A text prefix of an answer becomes two, so that it matches no fewer requests.
fn path(field: TakenField, ignores_case: bool, is_answer: bool) -> Option<Vec<Value>> {
    let to = format!("{TO}.path");
    let (kind, value) = match string(field.value()) {
        Some((kind, value)) if kind == "regex" || value.starts_with('/') => (kind, value),
        _ => {
            field.refuse("expected exact, prefix or regex, and a path", "correct it");
            return None;
        }
    };
    let ignores_case = ignores_case && value != "/";
    let expression = |value: String| json!({"type": "RegularExpression", "value": value});
    let quoted = quote(&value);
    let paths = match (kind, ignores_case) {
        ("regex", _) => vec![expression(value)],
        ("exact", true) => vec![expression(format!("(?i){quoted}"))],
        (_, true) => vec![expression(format!("(?i){quoted}.*"))],
        ("exact", _) => vec![json!({"type": "Exact", "value": value})],
        _ => {
            let mut paths = vec![json!({"type": "PathPrefix", "value": value})];
            let is_text = !value.ends_with('/');
            if is_text && is_answer {
                paths.push(expression(rest_of_text(&value)));
                field.carry(&to);
                return Some(paths);
            }
            match value.as_str() {
                "/" => field.carry(&to),
                _ if is_text => field.differ(&to, ELEMENTS),
                _ => field.differ(&to, SLASH),
            };
            return Some(paths);
        }
    };
    field.carry(&to);
    Some(paths)
}

/// Returns the operator and value of a string match.
pub(super) fn string(value: &Value) -> Option<(&'static str, String)> {
    let fields = value.as_object().filter(|it| it.len() == 1)?;
    let known = ["exact", "prefix", "regex"].into_iter();
    let mut known = known.filter_map(|kind| Some((kind, fields.get(kind)?.as_str()?.to_owned())));
    known.next()
}

fn values(fields: &mut RemainingFields, list: &str, is_complete: &mut bool) -> Vec<Value> {
    let to = format!("{TO}.{list}");
    let mut found = Vec::new();
    let Some(field) = fields.take(list) else {
        return found;
    };
    let names = field
        .value()
        .as_object()
        .map(|it| it.keys().cloned().collect());
    let names: Vec<String> = names.unwrap_or_default();
    let mut fields = field.fields();
    for name in names {
        let Some(field) = fields.take(&name) else {
            *is_complete = false;
            continue;
        };
        let is_present = field.value().as_object().is_some_and(Map::is_empty);
        let (kind, value) = match string(field.value()) {
            Some(("exact", value)) => ("Exact", value),
            Some(("prefix", value)) => ("RegularExpression", format!("{}.*", quote(&value))),
            Some((_, value)) => ("RegularExpression", value),
            None if is_present => ("RegularExpression", ".*".to_owned()),
            None => {
                field.refuse("expected exact, prefix or regex", "correct it");
                *is_complete = false;
                continue;
            }
        };
        if name.starts_with(':') {
            field.refuse("it is not a header", "match the path, host or method");
            *is_complete = false;
            continue;
        }
        field.carry(&to);
        found.push(json!({"type": kind, "name": name, "value": value}));
    }
    found
}
