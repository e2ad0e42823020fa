//! Redacts the values of headers and query parameters in JSON, because any of them may be an API
//! key.
//!
//! Envoy's dumps store name and value in separate members, so no text pattern can match both.
//! Redacting too much is harmless.

use std::path::Path;

use serde_json::{Map, Value};

use super::ReportPart;
use super::redact::REDACTED;

const NAMES: [&str; 2] = ["name", "key"];
const VALUES: [&str; 12] = [
    "value",
    "raw_value",
    "exact",
    "regex",
    "string_match",
    "exact_match",
    "prefix_match",
    "suffix_match",
    "contains_match",
    "safe_regex_match",
    "literal",
    "default_value",
];
const KEYS: [&str; 1] = ["session_key"];
/// Lower-case names of headers whose values cannot be secret.
const HARMLESS: [&str; 24] = [
    ":authority",
    ":method",
    ":scheme",
    "accept",
    "accept-encoding",
    "accept-language",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
    "access-control-request-method",
    "cache-control",
    "content-encoding",
    "content-type",
    "grpc-status",
    "host",
    "retry-after",
    "strict-transport-security",
    "upgrade",
    "vary",
    "x-content-type-options",
    "x-forwarded-proto",
];

/// Returns the redacted values, so that the caller can redact them in other parts, too.
pub(crate) fn redact(parts: &mut [ReportPart]) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    for part in parts
        .iter_mut()
        .filter(|part| Path::new(&part.name).extension() == Some("json".as_ref()))
    {
        let Ok(text) = &part.content else { continue };
        part.content = redact_text(text, &mut values).map_err(|error| {
            format!("left out, because header values cannot be redacted: {error}")
        });
    }
    values
}

fn redact_text(text: &str, values: &mut Vec<Vec<u8>>) -> serde_json::Result<String> {
    let mut value = serde_json::from_str(text)?;
    walk(&mut value, values);
    serde_json::to_string_pretty(&value)
}

/// The JSON parser limits the nesting depth, so the recursion cannot overflow the stack.
fn walk(value: &mut Value, values: &mut Vec<Vec<u8>>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, values)),
        Value::Object(members) => {
            let is_header = is_header(members);
            for (name, member) in members {
                if KEYS.contains(&name.as_str()) || is_header && VALUES.contains(&name.as_str()) {
                    redact_value(member, values);
                } else {
                    walk(member, values);
                }
            }
        }
        _ => {}
    }
}

fn is_header(members: &Map<String, Value>) -> bool {
    let names = NAMES.iter().filter_map(|name| members.get(*name)?.as_str());
    let mut names = names.map(str::to_ascii_lowercase).peekable();
    names.peek().is_some() && names.any(|name| !HARMLESS.contains(&name.as_str()))
}

fn redact_value(value: &mut Value, values: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text) => {
            let text = std::mem::replace(text, REDACTED.to_owned());
            // Also add each word, because the token after a scheme such as `Bearer` may occur alone
            // elsewhere.
            let words = text.split_whitespace().map(|word| word.as_bytes().to_vec());
            values.extend(words);
            values.push(text.into_bytes());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact_value(item, values)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|member| redact_value(member, values)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_headers_go_and_harmless_ones_stay() {
        let content = json!({
            "set": [{"name": "X-Api-Key", "value": "a\"1"}, {"name": "Content-Type", "value": "text/html"}],
            "header": {"key": "authorization", "value": "ApiKey b2"},
            "headers": [{"name": "x-origin", "string_match": {"safe_regex": {"regex": "c.3"}}, "invert_match": true}],
            "query_params": [{"name": "token", "exact": "d4"}],
            "clusters": [{"name": "web", "connect_timeout": "5s"}],
            "session_key": "e5",
        });
        let part = |name: &str, content: &str| ReportPart {
            name: name.to_owned(),
            content: Ok(content.to_owned()),
        };
        let mut parts = [
            part("snapshot.json", &content.to_string()),
            part("config_dump.json", "{\"name\": \"x-api-key\", \"val"),
            part("stats.txt", "{}"),
        ];
        let values = redact(&mut parts);
        let values: BTreeSet<_> = values
            .iter()
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .collect();
        let all = ["ApiKey", "ApiKey b2", "a\"1", "b2", "c.3", "d4", "e5"];
        assert_eq!(values, BTreeSet::from(all.map(str::to_owned)));
        let redacted: Value = serde_json::from_str(parts[0].content.as_ref().unwrap()).unwrap();
        assert_eq!(
            redacted,
            json!({
                "set": [{"name": "X-Api-Key", "value": REDACTED}, {"name": "Content-Type", "value": "text/html"}],
                "header": {"key": "authorization", "value": REDACTED},
                "headers": [{"name": "x-origin", "string_match": {"safe_regex": {"regex": REDACTED}}, "invert_match": true}],
                "query_params": [{"name": "token", "exact": REDACTED}],
                "clusters": [{"name": "web", "connect_timeout": "5s"}],
                "session_key": REDACTED,
            })
        );
        let left_out = parts[1].content.as_ref().unwrap_err();
        assert!(left_out.starts_with("left out, because"), "{left_out}");
        assert_eq!(parts[2].content.as_deref(), Ok("{}"));
    }
}
