//! An error about a wrong value states the object, path, value, expected value and line.

use serde_json::{Value as Json, json};

use super::super::*;
use super::nulls::{MAPS, objects, places};

/// Also returns the line on which the value at `place` starts.
fn text(value: &Json, place: &str) -> (String, usize) {
    let mut lines = Vec::new();
    let mut at = 0;
    write(value, "", "", place, &mut lines, &mut at);
    (lines.join("\n") + "\n", at)
}

fn write(
    value: &Json,
    lead: &str,
    here: &str,
    place: &str,
    lines: &mut Vec<String>,
    at: &mut usize,
) {
    let below: Vec<(String, String, &Json)> = match value {
        Json::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                let step = key.replace('/', "~1");
                (format!("{}:", json!(key)), format!("{here}/{step}"), value)
            })
            .collect(),
        Json::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| ("-".to_owned(), format!("{here}/{index}"), value))
            .collect(),
        _ => Vec::new(),
    };
    let indent = " ".repeat(lead.len());
    for (start, there, value) in below {
        let is_block = |value: &Json| match value {
            Json::Object(fields) => !fields.is_empty(),
            Json::Array(items) => !items.is_empty(),
            _ => false,
        };
        if is_block(value) {
            lines.push(format!("{indent}{start}"));
        } else {
            lines.push(format!("{indent}{start} {value}"));
        }
        if there == place {
            // A block starts on the line after its key.
            *at = lines.len() + usize::from(is_block(value));
        }
        write(value, &format!("{indent}  "), &there, place, lines, at);
    }
}

/// Converts a JSON pointer to a field path. In a Secret, stops before the first arbitrary map key.
fn path(place: &str, is_secret: bool) -> String {
    let mut path = String::new();
    let mut is_map = false;
    for step in place.trim_start_matches('/').split('/') {
        if is_map && is_secret {
            break;
        }
        let is_index = step.bytes().all(|byte| byte.is_ascii_digit());
        if is_index {
            path.extend(["[", step, "]"]);
        } else {
            let dot = if path.is_empty() { "" } else { "." };
            path.extend([dot, &step.replace("~1", "/")]);
        }
        is_map = MAPS.contains(&step);
    }
    path
}

#[test]
fn wrong_value_error_names_path_value_and_line() {
    let mut checked = 0;
    for object in objects() {
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        let mut all = Vec::new();
        places(&object, "", &mut all);
        for place in all {
            // Without these fields, the error cannot identify the object.
            let is_head = ["/kind", "/apiVersion", "/metadata"].contains(&place.as_str());
            // A port is a number or a name.
            let is_any = place.ends_with("/targetPort");
            if is_head || is_any || place == "/metadata/name" {
                continue;
            }
            let mut wrong = object.clone();
            let value = wrong.pointer_mut(&place).expect("the field exists");
            let is_quantity = place.contains("/resources/");
            let (instead, shown, expected) = match value {
                // A number would be a valid quantity.
                Json::String(_) if is_quantity => (json!(true), "true", &["is not a quantity"][..]),
                Json::String(_) => (
                    json!(7),
                    "7",
                    &[
                        "is not text; put it in quotes",
                        "is not one of ",
                        "is not base64",
                        "is not a",
                    ][..],
                ),
                Json::Number(_) => (json!("nine"), "\"nine\"", &["is not an integer"][..]),
                Json::Bool(_) => (json!("maybe"), "\"maybe\"", &["is not true or false"][..]),
                Json::Array(_) => (json!("seven"), "\"seven\"", &["is not a list"][..]),
                Json::Object(_) => (
                    json!("seven"),
                    "\"seven\"",
                    &["is not a mapping of fields"][..],
                ),
                Json::Null => unreachable!("objects contain no null"),
            };
            *value = instead;
            let is_secret = kind == "Secret";
            let (text, line) = text(&wrong, &place);
            let error = decode(&text, &DecodeLimits::default())
                .remove(0)
                .expect_err(&text);
            let Reason::Field { field, value, why } = error.reason.as_ref() else {
                panic!("{kind} {place}: {error}")
            };
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            assert_eq!(
                error.object.as_ref().map(|key| key.name.name.as_str()),
                Some(name)
            );
            assert_eq!(*field, path(&place, is_secret), "{kind}");
            let shown = if is_secret {
                "the value (which is not shown)"
            } else {
                shown
            };
            assert_eq!(value, shown, "{kind} {place}");
            assert!(
                expected.iter().any(|words| why.starts_with(words)),
                "{kind} {place}: {why}"
            );
            assert_eq!(error.line, line, "{kind} {place}: {error}\n{text}");
            let is_limited = why != "is not an integer" || kind == "GatewayClass";
            assert!(
                is_limited,
                "{kind} {place}: no range in `expected::INTEGERS`"
            );
            checked += 1;
        }
    }
    assert!(checked > 250, "only {checked} fields");
}

#[test]
fn misspelt_field_error_suggests_intended_field() {
    let mut checked = 0;
    for object in objects() {
        let version = object["apiVersion"].as_str().expect("a version");
        if !version.starts_with("gateway.networking.k8s.io/") {
            continue;
        }
        let mut all = Vec::new();
        places(&object["spec"], "/spec", &mut all);
        for place in all {
            let (parent, key) = place.rsplit_once('/').expect("starts with a slash");
            let in_map = parent
                .rsplit('/')
                .next()
                .is_some_and(|of| MAPS.contains(&of));
            if in_map || key.len() < 4 {
                continue;
            }
            let mut wrong = object.clone();
            let fields = wrong.pointer_mut(parent).and_then(Json::as_object_mut);
            let Some(fields) = fields else { continue };
            let value = fields.remove(key).expect("the field exists");
            let misspelt = &key[..key.len() - 1];
            fields.insert(misspelt.to_owned(), value);
            let place = format!("{parent}/{misspelt}");
            let (text, line) = text(&wrong, &place);
            match decode(&text, &DecodeLimits::default()).remove(0) {
                Ok(decoded) => {
                    let [(at, field)] = decoded.unknown_fields.as_slice() else {
                        panic!("{place}: {:?}", decoded.unknown_fields)
                    };
                    assert_eq!(field.path.to_string(), path(&place, false));
                    assert_eq!(field.similar, Some(key), "{place}");
                    let is_block = line - at;
                    assert!(
                        is_block <= 1,
                        "{place}: reported line {at}, expected {line}"
                    );
                }
                // The error names the missing required field.
                Err(error) => assert!(error.reason.to_string().contains(key), "{place}: {error}"),
            }
            checked += 1;
        }
    }
    assert!(checked > 150, "only {checked} fields");
}

#[test]
fn error_messages_start_as_expected() {
    let route = |rule: &str| {
        let text = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: demo}}\nspec:\n  rules:\n  {rule}\n"
        );
        decode(&text, &DecodeLimits::default())
            .remove(0)
            .expect_err(rule)
            .to_string()
    };
    for (rule, words) in [
        (
            "- backendRefs:\n    - {name: a, weight: nine}",
            "line 7: spec.rules[0].backendRefs[0].weight: \"nine\" is not an integer from 0 to 1000000",
        ),
        (
            "- backendRefs: [{name: a, port: 99999999999}]",
            "line 6: spec.rules[0].backendRefs[0].port: 99999999999 is not an integer from 1 to 65535",
        ),
        (
            "- backendRefs: [{name: 12}]",
            "line 6: spec.rules[0].backendRefs[0].name: 12 is not text; put it in quotes",
        ),
        (
            "- matches: [{path: {type: 1}}]",
            "line 6: spec.rules[0].matches[0].path.type: 1 is not one of Exact, PathPrefix, RegularExpression",
        ),
        (
            "- backendRefs: [{port: 80}]",
            "line 6: `spec.rules[0].backendRefs[0].name` is missing",
        ),
        ("- 5", "line 6: spec.rules[0]: 5 is not a mapping of fields"),
        (
            "- name: 'a/b'",
            "line 6: spec.rules[0].name: \"a/b\" is not a valid name: expected at most 253",
        ),
    ] {
        let message = route(rule);
        assert!(message.starts_with(words), "{message}");
    }
}
