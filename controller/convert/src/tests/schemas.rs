//! Lists the fields of an API type, and sets them.

use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

/// Returns the paths of all leaves, with a value for each.
pub(super) fn leaves<T: JsonSchema>() -> Vec<(String, Value)> {
    let schema = schema_for!(T).to_value();
    let mut found = Vec::new();
    walk(&schema, &schema, "spec", &mut found);
    found
}

fn walk(root: &Value, schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    let reference = schema["$ref"].as_str().map(|it| it.trim_start_matches('#'));
    if let Some(target) = reference.and_then(|it| root.pointer(it)) {
        return walk(root, target, path, found);
    }
    if let Some(variants) = schema["anyOf"].as_array() {
        let variant = variants
            .iter()
            .find(|it| it["type"] != "null")
            .expect("a variant");
        return walk(root, variant, path, found);
    }
    if let Some(properties) = schema["properties"].as_object().filter(|it| !it.is_empty()) {
        for (name, property) in properties {
            walk(root, property, &format!("{path}.{name}"), found);
        }
        return;
    }
    let kind = schema["type"]
        .as_str()
        .or_else(|| schema["type"][0].as_str());
    let value = match kind {
        Some("array") => return walk(root, &schema["items"], &format!("{path}[0]"), found),
        Some("boolean") => json!(true),
        Some("integer") => json!(1),
        Some("object") => json!({"a": "b"}),
        _ => text(path),
    };
    found.push((path.to_owned(), value));
}

/// Returns a valid text for a field of an HTTPProxy or ExtensionService.
fn text(path: &str) -> Value {
    let name = path.rsplit('.').next().unwrap_or_default();
    json!(match name.trim_end_matches("[0]") {
        "name" if path.starts_with("spec.includes") => "team",
        "name" if path.starts_with("spec.tcpproxy.include") => "tcp",
        "name" if path.contains("extensionRef") => "auth",
        "require" => "corp",
        "prefix" | "exact" | "regex" | "path" => "/a",
        "minimumProtocolVersion" | "maximumProtocolVersion" => "1.3",
        "retryOn" => "gateway-error",
        "unit" => "minute",
        "uri" => "https://id.example.com/keys",
        "protocol" => "h2c",
        "window" | "maxAge" | "cacheDuration" | "response" | "idle" | "idleConnection"
        | "perTryTimeout" => "10s",
        _ => "1",
    })
}

/// Sets a value, and creates the mappings and lists above it.
pub(super) fn set(object: &mut Value, path: &str, value: Value) {
    let mut target = object;
    for part in path.split('.') {
        let (name, index) = match part.strip_suffix(']').and_then(|it| it.split_once('[')) {
            Some((name, index)) => (name, Some(index.parse::<usize>().expect("an index"))),
            None => (part, None),
        };
        target = &mut target[name];
        if let Some(index) = index {
            if !target.is_array() {
                *target = json!([null]);
            }
            target = &mut target[index];
        }
    }
    *target = value;
}
