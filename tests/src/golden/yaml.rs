//! Formats YAML for golden files: short values are inline, others are indented. Quotes every string
//! that a YAML parser might read as another type.

use std::fmt::Write as _;

use serde_json::{Map, Value};

const WIDTH: usize = 116;
/// Other keys follow in alphabetical order.
const FIRST: &[&str] = &["gateway", "name", "type", "status", "reason"];
/// YAML 1.1 or 1.2 parsers read these as booleans or null.
const RESERVED: &[&str] = &["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Returns the value as a YAML document.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

/// Continuation lines are indented by `indent`.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !fits(value, indent) => {
            for (index, (key, value)) in ordered(map).into_iter().enumerate() {
                if index > 0 {
                    pad(out, indent);
                }
                out.push_str(&scalar(key));
                out.push(':');
                match value {
                    Value::String(text) if is_lines(text) => {
                        out.push_str(" |\n");
                        for line in text.lines() {
                            pad(out, indent + 2);
                            out.push_str(line);
                            out.push('\n');
                        }
                    }
                    Value::Object(_) if !fits(value, indent + key.len() + 2) => {
                        out.push('\n');
                        pad(out, indent + 2);
                        block(out, value, indent + 2);
                    }
                    Value::Array(_) if !fits(value, indent + key.len() + 2) => {
                        out.push('\n');
                        pad(out, indent);
                        block(out, value, indent);
                    }
                    _ => {
                        out.push(' ');
                        inline(out, value);
                        out.push('\n');
                    }
                }
            }
        }
        Value::Array(items) if !fits(value, indent) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    pad(out, indent);
                }
                out.push_str("- ");
                block(out, item, indent + 2);
            }
        }
        _ => {
            inline(out, value);
            out.push('\n');
        }
    }
}

/// Returns true if the value fits on one line: a scalar or a short, shallow collection.
fn fits(value: &Value, indent: usize) -> bool {
    let mut line = String::new();
    inline(&mut line, value);
    let flat = match value {
        Value::Object(map) => map.len() <= 8 && map.values().all(|value| depth(value) < 2),
        Value::Array(items) => items.iter().all(|item| depth(item) < 1),
        _ => return true,
    };
    depth(value) == 0 || (flat && indent + line.len() <= WIDTH && !holds_lines(value))
}

/// Empty collections do not count.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) if !map.is_empty() => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(items) if !items.is_empty() => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn holds_lines(value: &Value) -> bool {
    match value {
        Value::String(text) => is_lines(text),
        Value::Object(map) => map.values().any(holds_lines),
        Value::Array(items) => items.iter().any(holds_lines),
        _ => false,
    }
}

/// Returns true if a literal block can represent the text without loss.
fn is_lines(text: &str) -> bool {
    text.ends_with('\n')
        && text
            .lines()
            .all(|line| line.trim() == line && !line.is_empty() && !line.contains(char::is_control))
}

fn inline(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => out.push_str(&scalar(text)),
        Value::Object(map) => {
            out.push('{');
            for (index, (key, value)) in ordered(map).into_iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                out.push_str(&scalar(key));
                out.push_str(": ");
                inline(out, value);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                inline(out, item);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // Writing to a String cannot fail.
            let _ = write!(out, "{value}");
        }
    }
}

/// Quotes as in JSON, which is valid YAML.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

fn ordered(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| {
        let place = FIRST.iter().position(|first| first == key);
        (place.unwrap_or(FIRST.len()), *key)
    });
    entries
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn written_yaml_reads_back() {
        let value = json!({
            "name": "a", "empty": {}, "none": [], "null": null, "long": "x ".repeat(200),
            "pem": "-----BEGIN-----\nabc\n", "odd": "a\n b", "number-like": "10", "yes": "no",
            "list": [[1, 2], [], [{"a": "b: c"}, {"pem": "line\nline\n"}], "- x", "#", ""],
            "nested": {"a": {"b": {"c": {"d": true, "e": [1.5, -2]}}}},
        });
        let read: Value = serde_saphyr::from_str(&to_yaml(&value)).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn short_mappings_stand_on_one_line() {
        let value = json!({"routes": [{"path": {"exact": "/a"}, "name": "r"}]});
        assert_eq!(to_yaml(&value), "routes:\n- {name: r, path: {exact: /a}}\n");
    }
}
