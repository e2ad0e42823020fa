//! Checks that the list of fields in docs/configuration.md matches the SesameConfiguration CRD.

use serde_json::Value;
use sesame_published::configuration_definition;

const START: &str = "<!-- `make regenerate` writes the fields. -->\n";
const END: &str = "<!-- end of fields -->";

/// Path suffixes of fields that share one list item with their subfields.
const GROUPED_PATHS: &[&str] = &[
    ".fallbackCertificate",
    ".gatewayRef",
    ".map[]",
    ".nodePorts[]",
    ".resources",
    ".routes[]",
    ".tolerations[]",
];

const DOCUMENTED_ELSEWHERE: &[(&str, &str)] = &[
    ("spec.accessLog", "[access logs](access-logs.md)"),
    ("spec.edge", "[edge defaults](hardening.md#edge-defaults)"),
    (
        "spec.edgePorts[]",
        "[settings of single ports](tasks/clients.md)",
    ),
    ("spec.tracing", "[traces](tracing.md)"),
];

fn item(path: &str, values: &str, schema: &Value) -> String {
    let meaning = schema["description"].as_str().unwrap_or_default();
    let meaning = meaning.replace('\n', " ");
    assert!(!meaning.is_empty(), "{path} has no description");
    format!("- `{path}` ({values}): {meaning}\n")
}

/// Paths that end with an entry in [`GROUPED_PATHS`] get one item for all their subfields.
fn items(path: &str, schema: &Value, items: &mut Vec<String>) {
    let below = match schema["type"].as_str() {
        Some("array") => (format!("{path}[]"), &schema["items"]["properties"]),
        _ => (path.to_owned(), &schema["properties"]),
    };
    if let (path, Value::Object(fields)) = below {
        let names: Vec<String> = fields.keys().map(|name| format!("`{name}`")).collect();
        if let Some((_, page)) = DOCUMENTED_ELSEWHERE
            .iter()
            .find(|(known, _)| *known == path)
        {
            let names = names.join(", ");
            items.push(format!("- `{path}` ({names}): See {page}.\n"));
            return;
        }
        if GROUPED_PATHS.iter().any(|end| path.ends_with(end)) {
            items.push(item(&path, &names.join(", "), schema));
            return;
        }
        for (name, field) in fields {
            self::items(&format!("{path}.{name}"), field, items);
        }
        return;
    }
    let choices = schema["enum"].as_array().into_iter().flatten();
    let choices: Vec<String> = choices
        .filter_map(Value::as_str)
        .map(|word| format!("`{word}`"))
        .collect();
    let values = match (choices.is_empty(), schema["type"].as_str()) {
        (false, _) => choices.join(", "),
        (true, Some("array")) => "list".to_owned(),
        (true, Some("object")) => "map of strings".to_owned(),
        (true, Some("string")) if is_time(schema) => "time".to_owned(),
        (true, Some("string")) => "text".to_owned(),
        (true, Some("integer")) => match (&schema["minimum"], &schema["maximum"]) {
            (Value::Number(least), Value::Number(most)) => {
                let whole = |number: &serde_json::Number| number.as_f64().unwrap_or_default();
                format!("{} to {}", whole(least), whole(most))
            }
            _ => "number".to_owned(),
        },
        (true, Some("boolean")) => "`true`, `false`".to_owned(),
        other => panic!("{path}: {other:?}"),
    };
    items.push(item(path, &values, schema));
}

fn is_time(schema: &Value) -> bool {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    pattern.contains("ms)")
}

#[test]
fn configuration_fields_are_current() {
    let definition = configuration_definition().expect("a definition");
    let definition = serde_json::to_value(definition).expect("JSON");
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut found = Vec::new();
    items("spec", &schema["properties"]["spec"], &mut found);
    let list = found.concat();
    sesame_kit::generated::check("docs/configuration.md", |page| {
        let (before, rest) = page.split_once(START).expect("the start of the fields");
        let (_, after) = rest.split_once(END).expect("the end of the fields");
        format!("{before}{START}\n{list}\n{END}{after}")
    });
}
