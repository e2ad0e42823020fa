//! Conditions become matches.

use serde_json::{Map, Value, json};
use sesame_kinds::api::ProxyCondition;
use sesame_kinds::decode::from_value;
use sesame_proto::expressions::quote;
use sesame_proto::schema::path_match::Kind as PathKind;
use sesame_proto::schema::string_match::Kind as StringKind;
use sesame_proto::schema::text_match::Operator;
use sesame_proto::schema::{StringMatch, TextMatch};
use sesame_resolver::http_proxies::{ProxyMatch, route_match};

use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::RuleDraft;
use super::super::values::put_list;

const TO: &str = "HTTPRoute rules.matches";
const ELEMENTS: &str = "a prefix matches whole path elements: /a matches /a and /a/b, but not /ab";
const SLASH: &str = "a prefix that ends with a slash also matches the path without it";

/// A match, and its path prefix unless the path is matched in another way.
pub(super) struct ReadMatch {
    pub(super) matched: Value,
    pub(super) prefix: Option<String>,
    /// The conditions, if they have a text prefix, which becomes a prefix of path elements.
    pub(super) text: Option<TakenField>,
}

/// A rule whose text prefix becomes a prefix of path elements.
pub(super) struct TextPrefix {
    pub(super) prefix: String,
    pub(super) rule: RuleDraft,
    pub(super) conditions: TakenField,
}

impl TextPrefix {
    /// Records the verdict. `rules` are all rules of the host.
    pub(super) fn close(self, rules: &[RuleDraft]) {
        let Self {
            prefix,
            rule,
            conditions,
        } = self;
        let takes_over = |it: &&RuleDraft| {
            let path = it.matches.first().map_or(&Value::Null, |it| &it["path"]);
            let value = path["value"].as_str().unwrap_or_default();
            match path["type"].as_str() {
                Some("PathPrefix") => value != prefix && prefix.starts_with(value),
                Some("RegularExpression") => true,
                _ => false,
            }
        };
        let is_narrower = !prefix.ends_with('/');
        if !is_narrower
            || rules
                .iter()
                .filter(takes_over)
                .all(|it| protects_alike(&rule, it))
        {
            conditions.differ(TO, if is_narrower { ELEMENTS } else { SLASH });
        } else {
            let reason = format!("{ELEMENTS}; requests such as {prefix}x would lack checks");
            conditions.refuse(
                &reason,
                "end the prefix with a slash, or set the same checks",
            );
        }
    }
}

/// Returns true if the second rule has all checks of the first.
fn protects_alike(rule: &RuleDraft, other: &RuleDraft) -> bool {
    let limits = ["rateLimits", "requestBody"].into_iter();
    let mut limits = limits.filter(|it| rule.traffic.contains_key(*it));
    let mut access = rule.access.iter();
    // A response of the Gateway may deny requests.
    let filters = rule.fields.get("filters").and_then(Value::as_array);
    let mut filters = filters.into_iter().flatten();
    let forwards = rule.fields.contains_key("backendRefs")
        || filters.any(|it| it["type"] == "RequestRedirect");
    let access_alike = access.all(|(part, value)| other.access.get(part) == Some(value));
    (forwards || rule.fields == other.fields)
        && access_alike
        && limits.all(|it| other.traffic.contains_key(it))
}

/// Returns `None` if a condition was refused, because the route would match other requests.
pub(super) fn read(
    includes: &[Vec<ProxyCondition>],
    fields: &mut RemainingFields,
) -> Option<ReadMatch> {
    let field = fields.take("conditions");
    let own = field
        .as_ref()
        .map(|field| from_value(field.value().clone()));
    let own: Vec<ProxyCondition> = match own.transpose() {
        Ok(own) => own.unwrap_or_default(),
        Err(why) => {
            field?.refuse(&why, "correct the conditions");
            return None;
        }
    };
    let found = route_match(includes, &own).and_then(|found| convert(&found));
    match (found, field) {
        (Ok((mut found, true)), field) => {
            let unset = || fields.taken("conditions", Value::Bool(true));
            found.text = Some(field.unwrap_or_else(unset));
            Some(found)
        }
        (Ok((found, false)), field) => {
            drop(field.map(|field| field.carry(TO)));
            Some(found)
        }
        (Err(why), field) => {
            let remedy = "write the conditions in another way";
            match field {
                Some(field) => field.refuse(&why, remedy),
                None => fields.refuse("conditions", &why, remedy),
            }
            None
        }
    }
}

/// Returns the match of a route as text, or `None` if its conditions are refused.
pub(super) fn key(includes: &[Vec<ProxyCondition>], route: &Value) -> Option<String> {
    let own = Some(route["conditions"].clone()).filter(|it| !it.is_null());
    let own: Option<Vec<ProxyCondition>> = own.map(from_value).transpose().ok()?;
    let found = route_match(includes, &own.unwrap_or_default()).ok()?;
    Some(convert(&found).ok()?.0.matched.to_string())
}

fn convert(found: &ProxyMatch) -> Result<(ReadMatch, bool), String> {
    let ProxyMatch {
        path,
        headers,
        query_params,
    } = found;
    let mut matched = Map::new();
    let (kind, value, is_text) = match path {
        PathKind::Prefix(prefix) if prefix.is_empty() => ("PathPrefix", "/", false),
        PathKind::Prefix(prefix) => ("PathPrefix", prefix.as_str(), false),
        PathKind::TextPrefix(prefix) => ("PathPrefix", prefix.as_str(), true),
        PathKind::Exact(path) => ("Exact", path.as_str(), false),
        PathKind::Regex(pattern) => ("RegularExpression", pattern.as_str(), false),
    };
    let prefix = (kind == "PathPrefix").then(|| value.to_owned());
    matched.insert("path".to_owned(), json!({"type": kind, "value": value}));
    put_list(&mut matched, "headers", values("header", headers)?);
    put_list(
        &mut matched,
        "queryParams",
        values("query parameter", query_params)?,
    );
    let matched = Value::Object(matched);
    let found = ReadMatch {
        matched,
        prefix,
        text: None,
    };
    Ok((found, is_text))
}

fn values(what: &str, all: &[StringMatch]) -> Result<Vec<Value>, String> {
    let mut found: Vec<Value> = Vec::new();
    for StringMatch { name, kind } in all {
        if found.iter().any(|it| it["name"] == **name) {
            let why = format!("an HTTPRoute has only one condition for each {what}");
            return Err(why);
        }
        let (kind, value) = match kind {
            Some(StringKind::Exact(value)) => ("Exact", value.clone()),
            Some(StringKind::Regex(pattern)) => ("RegularExpression", pattern.clone()),
            Some(StringKind::Present(true)) => ("RegularExpression", ".*".to_owned()),
            Some(StringKind::Text(text)) if !text.negate => ("RegularExpression", pattern(text)),
            _ => {
                let why =
                    format!("an HTTPRoute cannot require that a {what} is absent or different");
                return Err(why);
            }
        };
        found.push(json!({"type": kind, "name": name, "value": value}));
    }
    Ok(found)
}

fn pattern(text: &TextMatch) -> String {
    let value = quote(&text.value);
    let (before, after) = match text.operator() {
        Operator::Exact => ("", ""),
        Operator::Prefix => ("", ".*"),
        Operator::Suffix => (".*", ""),
        Operator::Contains => (".*", ".*"),
    };
    let case = if text.ignore_case { "(?i)" } else { "" };
    format!("{case}{before}{value}{after}")
}
