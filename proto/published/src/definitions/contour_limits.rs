//! Patterns, enumerations and ranges of Contour's API, so that the API server rejects the same
//! values as in a cluster with Contour.

use serde_json::{Value, json};
use sesame_proto::schema::retry::Condition;

const LABELS: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DURATIONS: &str = r"(\d*(\.\d*)?(h|m|s|ms|us|µs|ns))+";
/// Fields that every object of this name must have.
const REQUIRED: [(&str, &[&str]); 20] = [
    ("", &["delegations", "services"]),
    ("corsPolicy", &["allowOrigin", "allowMethods"]),
    ("delegations", &["secretName", "targetNamespaces"]),
    ("directResponsePolicy", &["statusCode"]),
    ("expectedStatuses", &["start", "end"]),
    ("header", &["name"]),
    ("healthCheckPolicy", &["path"]),
    ("include", &["name"]),
    ("includes", &["name"]),
    ("ipAllowPolicy", &["source", "cidr"]),
    ("ipDenyPolicy", &["source", "cidr"]),
    ("jwtProviders", &["name"]),
    ("local", &["requests", "unit"]),
    ("queryParameter", &["name"]),
    ("remoteJWKS", &["uri"]),
    ("replacePrefix", &["replacement"]),
    ("services", &["name", "port"]),
    ("set", &["name", "value"]),
    ("slowStartPolicy", &["window"]),
    ("virtualhost", &["fqdn"]),
];

type Limits = Vec<(&'static [&'static str], Value)>;

/// Names of fields, some with the name of the object that has them. Limits of a list apply to its
/// entries.
fn limits() -> Limits {
    let mut limits = limits_of_numbers();
    limits.extend(limits_of_texts());
    limits
}

fn limits_of_numbers() -> Limits {
    let within = |first: i64, last: i64| json!({"minimum": first, "maximum": last});
    let redirects = json!({"enum": [301, 302, 303, 307, 308]});
    vec![
        (
            &["requestRedirectPolicy.statusCode", "redirectResponseCodes"],
            redirects,
        ),
        (&["directResponsePolicy.statusCode"], within(200, 599)),
        (&["responseStatusCode"], within(400, 599)),
        (&["expectedStatuses.start"], within(100, 599)),
        (&["expectedStatuses.end"], within(101, 600)),
        (&["port", "healthPort"], within(1, 65535)),
        (&["minWeightPercent"], within(0, 100)),
        (&["requests", "maxRequestBytes"], json!({"minimum": 1})),
        (
            &[
                "weight",
                "burst",
                "maxInternalRedirects",
                "unhealthyThresholdCount",
                "healthyThresholdCount",
            ],
            json!({"minimum": 0}),
        ),
        (&["retryPolicy.count"], json!({"minimum": -1})),
    ]
}

fn limits_of_texts() -> Limits {
    let retries = (1..).map_while(|number| Condition::try_from(number).ok());
    let retries: Vec<String> = retries.filter_map(Condition::name).collect();
    vec![
        (
            &["virtualhost.fqdn"],
            json!({"pattern": format!(r"^(\*\.)?{LABELS}$")}),
        ),
        (
            &["requestRedirectPolicy.hostname"],
            json!({"pattern": format!("^{LABELS}$"), "minLength": 1, "maxLength": 253}),
        ),
        (
            &["requestRedirectPolicy.path", "requestRedirectPolicy.prefix"],
            json!({"pattern": "^/.*$"}),
        ),
        (&["retryOn"], json!({"enum": retries})),
        (
            &[
                "response",
                "idle",
                "idleConnection",
                "perTryTimeout",
                "responseTimeout",
            ],
            json!({"pattern": format!("^({DURATIONS}|infinity|infinite)$")}),
        ),
        (
            &["remoteJWKS.timeout", "cacheDuration", "window"],
            json!({"pattern": format!("^{DURATIONS}$")}),
        ),
        (
            &["maxAge"],
            json!({"pattern": format!("^({DURATIONS}|0)$")}),
        ),
        (
            &["aggression"],
            json!({"pattern": r"^([0-9]+([.][0-9]+)?|[.][0-9]+)$"}),
        ),
        (
            &["allowMethods", "allowHeaders", "exposeHeaders"],
            json!({"pattern": "^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$"}),
        ),
        (&["scheme"], json!({"enum": ["http", "https"]})),
        (
            &["allowCrossSchemeRedirect"],
            json!({"enum": ["Always", "Never", "SafeOnly"]}),
        ),
        (&["unit"], json!({"enum": ["second", "minute", "hour"]})),
        (&["source"], json!({"enum": ["Peer", "Remote"]})),
        (&["dnsLookupFamily"], json!({"enum": ["auto", "v4", "v6"]})),
        (
            &["services.protocol"],
            json!({"enum": ["h2", "h2c", "tls"]}),
        ),
        (&[".protocol"], json!({"enum": ["http/1.1", "h2", "h2c"]})),
        (&["protocolVersion"], json!({"enum": ["v3"]})),
        (
            &["serviceType"],
            json!({"enum": ["grpc", "http"], "default": "grpc"}),
        ),
    ]
}

/// Adds the limits of Contour to a schema of one of its kinds. Removes defaults, which the API
/// server would store in every object, and `nullable`, so that the API server drops nulls instead
/// of storing them.
pub(super) fn add(schema: &mut Value) {
    add_below("", schema, &limits());
}

/// `name` is the field that contains the object, or is empty for the specification.
fn add_below(name: &str, schema: &mut Value, limits: &[(&[&str], Value)]) {
    let Some(keywords) = schema.as_object_mut() else {
        return;
    };
    keywords.remove("default");
    keywords.remove("nullable");
    if let Some(entries) = keywords.get_mut("items") {
        add_below(name, entries, limits);
    }
    let fields = keywords.get_mut("properties");
    let Some(fields) = fields.and_then(Value::as_object_mut) else {
        return;
    };
    for (field, schema) in fields.iter_mut() {
        add_below(field, schema, limits);
        let full = format!("{name}.{field}");
        let is_limited = |names: &&[&str]| names.iter().any(|it| it == field || *it == full);
        for (_, limit) in limits.iter().filter(|(names, _)| is_limited(names)) {
            let limited = match schema.get_mut("items") {
                Some(entries) => entries,
                None => &mut *schema,
            };
            let limit = limit.as_object().into_iter().flatten();
            for (keyword, value) in limit {
                limited[keyword] = value.clone();
            }
        }
    }
    let required = REQUIRED.iter().filter(|(object, _)| *object == name);
    let required = required.flat_map(|(_, fields)| *fields);
    let required: Vec<&&str> = required.filter(|it| fields.contains_key(**it)).collect();
    if !required.is_empty() {
        keywords.insert("required".to_owned(), json!(required));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::contour;
    use super::*;

    fn names(name: &str, schema: &Value, all: &mut BTreeSet<String>) {
        assert!(
            schema["default"].is_null() || name == "serviceType",
            "{name}: {schema}"
        );
        if !schema["items"].is_null() {
            names(name, &schema["items"], all);
        }
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            all.extend([field.clone(), format!("{name}.{field}")]);
            names(field, schema, all);
        }
    }

    #[test]
    fn limits_apply_to_existing_fields() {
        let mut all = BTreeSet::new();
        let definitions = [
            contour::http_proxy_definition(),
            contour::certificate_delegation_definition(),
            contour::extension_service_definition(),
        ];
        for definition in definitions {
            let definition = json!(definition.expect("a definition"));
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            names("", &schema["properties"]["spec"], &mut all);
        }
        for (fields, _) in limits() {
            assert!(fields.iter().all(|it| all.contains(*it)), "{fields:?}");
        }
        for (object, fields) in REQUIRED {
            let full = |field: &&str| all.contains(&format!("{object}.{field}"));
            assert!(fields.iter().all(full), "{object}: {fields:?}");
        }
    }
}
