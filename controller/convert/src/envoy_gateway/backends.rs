//! The settings of a `BackendTrafficPolicy` that Sesame attaches to Services.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::fields::RemainingFields;
use super::super::values::{put, put_list, put_map};
use super::targets::{self, PolicyTarget};

const MAX_TARGETS: usize = 16;

pub(super) fn convert(
    draft: &mut Draft,
    id: &ObjectId,
    spec: &mut RemainingFields,
    timeout: &mut RemainingFields,
    targets: &[PolicyTarget],
    metadata: &Map<String, Value>,
) {
    let output = settings(spec, timeout);
    if output.is_empty() {
        return;
    }
    let mut services: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let supported = targets.iter().filter(|target| target.is_supported);
    for route in supported.flat_map(|it| targets::routes_of(draft, it)) {
        // The output has the Services that replace Backends.
        if let Some(output) = draft.outputs.get(&route) {
            for (namespace, name) in backends_of(&output.value, &route.namespace) {
                services.entry(namespace).or_default().insert(name);
            }
        }
    }
    let mut left_out = 0;
    for names in &mut services {
        let (namespace, names) = names;
        let before = names.len();
        names.retain(|name| !draft.claimed.contains(&(namespace.clone(), name.clone())));
        left_out += before - names.len();
    }
    if left_out > 0 {
        let difference = format!(
            "left out of {left_out} Services, which already have a BackendPolicy from another \
            policy"
        );
        spec.note_difference("targetRefs", "BackendPolicy targetRefs", &difference);
    }
    let mut count = 0;
    for (namespace, names) in services {
        let names: Vec<String> = names.into_iter().collect();
        let claims = names.iter().map(|name| (namespace.clone(), name.clone()));
        draft.claimed.extend(claims);
        for part in names.chunks(MAX_TARGETS) {
            count += 1;
            let mut metadata = metadata.clone();
            if count > 1 {
                put(&mut metadata, "name", Some(format!("{}-{count}", id.name)));
            }
            if namespace != id.namespace {
                put(&mut metadata, "namespace", Some(namespace.as_str()));
            }
            let mut output = output.clone();
            let refs = part.iter().map(|name| targets::service_ref(name));
            put_list(&mut output, "targetRefs", refs.collect());
            draft.add(id, sesame_object("BackendPolicy", metadata, output.into()));
        }
    }
    if count == 0 && left_out > 0 {
        return;
    }
    let difference = if count == 0 {
        "left out, because the input has no route to a Service"
    } else {
        "applies to the Services of the routes in the input, also for other routes to them"
    };
    spec.note_difference("targetRefs", "BackendPolicy targetRefs", difference);
}

/// Returns the namespaces and names of a route's Services.
fn backends_of(route: &Value, namespace: &str) -> Vec<(String, String)> {
    let rules = route["spec"]["rules"].as_array().into_iter().flatten();
    let refs = rules
        .filter_map(|rule| rule["backendRefs"].as_array())
        .flatten();
    let services = refs.filter(|it| it["kind"].as_str().is_none_or(|kind| kind == "Service"));
    let names = services.filter_map(|it| {
        let namespace = it["namespace"].as_str().unwrap_or(namespace);
        Some((namespace.to_owned(), it["name"].as_str()?.to_owned()))
    });
    names.collect()
}

fn settings(spec: &mut RemainingFields, timeout: &mut RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    if let Some(field) = spec.take_tuning("loadBalancer") {
        put_map(&mut output, "loadBalancer", balancer(field.fields()));
    }
    if let Some(field) = spec.take_tuning("healthCheck") {
        put_map(&mut output, "healthCheck", health(field.fields()));
    }
    let mut connection = Map::new();
    if let Some(field) = spec.take_tuning("circuitBreaker") {
        let breaker = breaker(field.fields(), &mut connection);
        put_map(&mut output, "circuitBreaker", breaker);
    }
    let mut tcp = timeout.section("tcp");
    renamed(
        &mut tcp,
        &mut connection,
        "connection",
        &[("connectTimeout", "timeout")],
    );
    drop(tcp);
    if let Some(field) = timeout.take("http") {
        // The TrafficPolicy takes the rest.
        let (own, rest) = field.split(&["connectionIdleTimeout", "maxConnectionDuration"]);
        let mut own = own.fields();
        let names = [
            ("connectionIdleTimeout", "idleTimeout"),
            ("maxConnectionDuration", "maxDuration"),
        ];
        renamed(&mut own, &mut connection, "connection", &names);
        drop(own);
        timeout.give_back("http", rest);
    }
    let mut keepalive = spec.tuning_section("tcpKeepalive");
    let mut part = Map::new();
    let names = [
        ("probes", "probes"),
        ("idleTime", "idle"),
        ("interval", "interval"),
    ];
    renamed(&mut keepalive, &mut part, "connection.keepalive", &names);
    drop(keepalive);
    put_map(&mut connection, "keepalive", part);
    // A backend that expects the header fails without it.
    let mut proxy = spec.section("proxyProtocol");
    let names = [("version", "proxyProtocol")];
    renamed(&mut proxy, &mut connection, "connection", &names);
    drop(proxy);
    put_map(&mut output, "connection", connection);
    output
}

fn renamed(
    fields: &mut RemainingFields,
    output: &mut Map<String, Value>,
    section: &str,
    names: &[(&str, &str)],
) {
    for (theirs, ours) in names {
        if let Some(field) = fields.take(theirs) {
            let value = field.carry(&format!("BackendPolicy {section}.{ours}"));
            output.insert((*ours).to_owned(), value);
        }
    }
}

fn balancer(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let kind = fields.take("type");
    let kind = match kind {
        Some(field) if field.as_str() == "ConsistentHash" => {
            field.differ(
                "BackendPolicy loadBalancer.type",
                "Maglev, as in Envoy Gateway",
            );
            "Maglev".to_owned()
        }
        Some(field) if ["LeastRequest", "Random", "RoundRobin"].contains(&field.as_str()) => {
            let kind = field.as_str().to_owned();
            field.carry("BackendPolicy loadBalancer.type");
            kind
        }
        _ => return output,
    };
    put(&mut output, "type", Some(kind));
    let mut start = fields.section("slowStart");
    let window = start.text("window", "BackendPolicy loadBalancer.slowStart.window");
    if let Some(window) = window {
        output.insert("slowStart".to_owned(), json!({ "window": window }));
    }
    let mut hash = fields.section("consistentHash");
    hash.skip("tableSize", "Sesame uses Envoy's default size");
    let to = "BackendPolicy loadBalancer.hash";
    let mut keys = Vec::new();
    let kind = hash.text("type", to);
    match kind.as_deref() {
        Some("SourceIP") => keys.push(json!({"type": "ClientAddress"})),
        Some("Cookie") => {
            let mut cookie = hash.section("cookie");
            let name = cookie.text("name", to);
            keys.push(json!({"type": "Cookie", "name": name}));
        }
        Some("Header" | "Headers" | "QueryParams") => {
            let single = hash.take("header").into_iter();
            let several = hash.list("headers");
            for field in single.chain(several) {
                let name = field.fields().text("name", to);
                keys.push(json!({"type": "Header", "name": name}));
            }
            for field in hash.list("queryParams") {
                let name = field.fields().text("name", to);
                keys.push(json!({"type": "QueryParameter", "name": name}));
            }
        }
        _ => {}
    }
    put_list(&mut output, "hash", keys);
    output
}

fn breaker(mut fields: RemainingFields, connection: &mut Map<String, Value>) -> Map<String, Value> {
    let mut output = Map::new();
    let to = "circuitBreaker";
    limit(
        &mut fields,
        "maxConnections",
        &mut output,
        to,
        "maxConnections",
    );
    limit(
        &mut fields,
        "maxPendingRequests",
        &mut output,
        to,
        "maxPendingRequests",
    );
    limit(
        &mut fields,
        "maxParallelRequests",
        &mut output,
        to,
        "maxRequests",
    );
    limit(
        &mut fields,
        "maxParallelRetries",
        &mut output,
        to,
        "maxRetries",
    );
    limit(
        &mut fields,
        "maxRequestsPerConnection",
        connection,
        "connection",
        "maxRequests",
    );
    let mut endpoint = fields.section("perEndpoint");
    limit(
        &mut endpoint,
        "maxConnections",
        &mut output,
        to,
        "maxConnectionsPerEndpoint",
    );
    output
}

fn limit(
    fields: &mut RemainingFields,
    name: &str,
    output: &mut Map<String, Value>,
    section: &str,
    ours: &str,
) {
    let Some(field) = fields.take(name) else {
        return;
    };
    let to = format!("BackendPolicy {section}.{ours}");
    let number = field.value().as_i64().unwrap_or_default();
    if (1..=i64::from(i32::MAX)).contains(&number) {
        output.insert(ours.to_owned(), field.carry(&to));
    } else {
        field.differ(&to, "left out: Sesame's limits are 1 to 2147483647");
    }
}

fn health(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let names = [("panicThreshold", "panicThreshold")];
    renamed(&mut fields, &mut output, "healthCheck", &names);
    let mut passive = fields.section("passive");
    let mut part = Map::new();
    let names = [
        ("consecutive5XxErrors", "consecutiveServerErrors"),
        ("consecutiveGatewayErrors", "consecutiveGatewayErrors"),
        ("interval", "interval"),
        ("baseEjectionTime", "baseEjectionTime"),
        ("maxEjectionPercent", "maxEjectionPercent"),
    ];
    renamed(&mut passive, &mut part, "healthCheck.passive", &names);
    put_map(&mut output, "passive", part);
    let mut active = fields.section("active");
    let mut part = Map::new();
    let names = [
        ("interval", "interval"),
        ("timeout", "timeout"),
        ("healthyThreshold", "healthyThreshold"),
        ("unhealthyThreshold", "unhealthyThreshold"),
    ];
    renamed(&mut active, &mut part, "healthCheck.active", &names);
    let kind = active.text("type", "BackendPolicy healthCheck.active");
    let check = match kind.as_deref() {
        Some("HTTP") => ("http", http_check(active.section("http"))),
        Some("GRPC") => {
            let mut grpc = active.section("grpc");
            let mut check = Map::new();
            let names = [("service", "service")];
            renamed(&mut grpc, &mut check, "healthCheck.active.grpc", &names);
            ("grpc", check)
        }
        Some("TCP") => {
            drop(active.section("tcp"));
            ("tcp", Map::new())
        }
        _ => return output,
    };
    part.insert(check.0.to_owned(), check.1.into());
    put_map(&mut output, "active", part);
    output
}

fn http_check(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let names = [("path", "path"), ("hostname", "hostname")];
    renamed(&mut fields, &mut output, "healthCheck.active.http", &names);
    if let Some(field) = fields.take("method")
        && field.as_str() == "GET"
    {
        field.unneeded("the only method that Sesame supports");
    }
    let statuses = fields
        .list("expectedStatuses")
        .into_iter()
        .filter_map(|field| {
            let status = field.value().as_i64()?;
            field.carry("BackendPolicy healthCheck.active.http.statuses");
            Some(json!({ "first": status }))
        });
    put_list(&mut output, "statuses", statuses.collect());
    output
}
