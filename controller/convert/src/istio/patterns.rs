//! Values of AuthorizationPolicies with wildcards.

use serde_json::{Value, json};

use super::super::fields::TakenField;
use super::conditions::texts;

/// Reads a value. The second argument is true if the rule denies.
pub(super) type ReadPattern = fn(&str, bool) -> Option<Pattern>;

pub(super) enum Pattern {
    All,
    One(Value),
    /// With a difference.
    Near(Value, &'static str),
}

/// Returns the values, an empty list for all values, or `None` if one was refused.
pub(super) fn patterns(
    field: TakenField,
    to: &str,
    read: ReadPattern,
    is_deny: bool,
) -> Option<Vec<Value>> {
    let (field, list) = texts(field)?;
    let mut values = Vec::new();
    let mut difference = None;
    let mut is_all = false;
    for value in list {
        match read(&value, is_deny) {
            Some(Pattern::All) => is_all = true,
            Some(Pattern::One(value)) => values.push(value),
            Some(Pattern::Near(value, why)) => {
                values.push(value);
                difference = Some(why);
            }
            None => {
                let reason = "a rule compares whole values, and paths by elements";
                field.refuse(reason, "list the values, or end paths with /*");
                return None;
            }
        }
    }
    match difference {
        Some(why) => field.differ(to, why),
        None => field.carry(to),
    };
    Some(if is_all { Vec::new() } else { values })
}

pub(super) fn method(value: &str, _: bool) -> Option<Pattern> {
    match value {
        "*" => Some(Pattern::All),
        value if value.contains('*') => None,
        value => Some(Pattern::One(json!(value))),
    }
}

pub(super) fn host(value: &str, _: bool) -> Option<Pattern> {
    let rest = value.strip_prefix("*.").unwrap_or(value);
    match value {
        "*" => Some(Pattern::All),
        _ if rest.contains(['*', ':']) => None,
        value => Some(Pattern::One(json!(value.to_ascii_lowercase()))),
    }
}

pub(super) fn path(value: &str, is_deny: bool) -> Option<Pattern> {
    if ["*", "/*"].contains(&value) {
        return Some(Pattern::All);
    }
    if !value.starts_with('/') || value.contains(['{', '}']) {
        return None;
    }
    let prefix = |value: &str| json!({"type": "PathPrefix", "value": value});
    match value.split_once('*') {
        None => Some(Pattern::One(json!({"type": "Exact", "value": value}))),
        Some((start, "")) => match start.strip_suffix('/') {
            Some(start) => Some(Pattern::Near(
                prefix(start),
                "it also matches the path itself",
            )),
            None if is_deny => None,
            None => Some(Pattern::Near(
                prefix(start),
                "stricter: only whole path elements",
            )),
        },
        Some(_) => None,
    }
}
