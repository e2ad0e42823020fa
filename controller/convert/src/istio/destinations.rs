//! `DestinationRule` becomes BackendPolicies and BackendTLSPolicies.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::values::{put, put_map};
use super::{ANNOTATIONS, Mesh, backend_tls, backends, balancing};

const CONNECTION: &str = "BackendPolicy connection";
const BREAKER: &str = "BackendPolicy circuitBreaker";
const PASSIVE: &str = "BackendPolicy healthCheck.passive";

pub(super) fn convert(draft: &mut Draft, mesh: &mut Mesh, id: &ObjectId, object: &Value) {
    let log = mesh.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let host = object["spec"]["host"].as_str().unwrap_or_default();
    let mut spec = root.section("spec");
    if let Some(suffix) = host.strip_prefix('*') {
        let protects = object["spec"].to_string().contains("\"tls\"");
        if protects {
            let users = users_of(mesh, suffix);
            mesh.users.entry(id.clone()).or_default().extend(users);
        }
        for name in spec.names() {
            if let Some(field) = spec.take(&name) {
                let reason = "a BackendPolicy names its Services";
                field.protecting(protects).refuse(reason, "name the hosts");
            }
        }
        return;
    }
    let target = backends::target(mesh, &id.namespace, host);
    let Some(service) = target.map(|it| it.service().clone()) else {
        return close(spec);
    };
    let is_used = |id: &ObjectId| mesh.users.contains_key(id);
    let subsets = object["spec"]["subsets"].as_array().into_iter().flatten();
    let mut subsets = subsets.filter_map(|it| it["name"].as_str());
    if !is_used(&service) && !subsets.any(|it| is_used(&subset(&service, it))) {
        return close(spec);
    }
    let users = mesh.users.get(&service).cloned().unwrap_or_default();
    mesh.users.entry(id.clone()).or_default().extend(users);
    spec.text("host", "BackendPolicy targetRefs");
    spec.skip("exportTo", "the routes in the input use the rule");
    if let Some(field) = spec.take("workloadSelector") {
        field.refuse("policies apply to all routes", "remove it");
    }
    let policy = spec.take("trafficPolicy");
    let shared = policy.as_ref().map(|it| it.value().clone());
    if let Some(field) = policy {
        traffic(draft, mesh, (id, &service), vec![field]);
    }
    for field in spec.list("subsets") {
        let mut fields = field.fields();
        let name = fields
            .text("name", "Service metadata.name")
            .unwrap_or_default();
        fields.skip(
            "labels",
            "the Service of the subset selects them if a route uses it",
        );
        let own = fields.take("trafficPolicy");
        let service = subset(&service, &name);
        if !mesh.users.contains_key(&service) {
            if let Some(field) = own {
                field.unneeded("no route of a Gateway uses the subset");
            }
            continue;
        }
        let parts = with_inherited(&spec, own, shared.as_ref());
        traffic(draft, mesh, (id, &service), parts);
    }
}

/// Returns the policy of a subset, and the parts of the host's policy that it does not set.
fn with_inherited(
    spec: &RemainingFields,
    own: Option<TakenField>,
    shared: Option<&Value>,
) -> Vec<TakenField> {
    let mut parts = shared
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    parts.retain(|name, _| own.as_ref().is_none_or(|it| it.value()[name].is_null()));
    let inherited = Some(parts).filter(|it| !it.is_empty());
    let inherited = inherited.map(|it| spec.taken("trafficPolicy", it.into()));
    inherited.into_iter().chain(own).collect()
}

/// Returns the users of Services and ServiceEntries whose hosts end in `suffix`.
fn users_of(mesh: &Mesh, suffix: &str) -> BTreeSet<ObjectId> {
    let is_covered = |id: &ObjectId| {
        if id.kind == "Service" {
            let host = format!("{}.{}.svc.cluster.local", id.name, id.namespace);
            return host.ends_with(suffix);
        }
        let entry = mesh.inputs.get(id).map(|it| &it["spec"]["hosts"]);
        let hosts = entry.and_then(Value::as_array).into_iter().flatten();
        let mut hosts = hosts.filter_map(Value::as_str);
        hosts.any(|it| it.ends_with(suffix))
    };
    let users = mesh.users.iter().filter(|(id, _)| is_covered(id));
    users.flat_map(|(_, users)| users).cloned().collect()
}

fn subset(service: &ObjectId, name: &str) -> ObjectId {
    ObjectId::new(
        "Service",
        &service.namespace,
        &format!("{}-{name}", service.name),
    )
}

fn close(mut spec: RemainingFields) {
    for name in spec.names() {
        spec.skip(&name, "no route of a Gateway reaches the host");
    }
}

/// Converts the parts of a policy of one Service.
fn traffic(
    draft: &mut Draft,
    mesh: &mut Mesh,
    (id, service): (&ObjectId, &ObjectId),
    parts: Vec<TakenField>,
) {
    let mut settings = Map::new();
    let mut last = None;
    for field in parts {
        let mut fields = field.fields();
        settings_of(draft, (id, service), &mut fields, &mut settings);
        last = Some(fields);
    }
    let Some(fields) = last else {
        return;
    };
    if let Some(owner) = mesh.services.claim(service.clone(), id, &settings)
        && !settings.is_empty()
    {
        let difference = format!(
            "left out for Service {}, which has settings of {owner}",
            service.name
        );
        fields.note_difference("loadBalancer", "BackendPolicy targetRefs", &difference);
    }
}

fn settings_of(
    draft: &mut Draft,
    (id, service): (&ObjectId, &ObjectId),
    fields: &mut RemainingFields,
    settings: &mut Map<String, Value>,
) {
    if let Some(field) = fields.take_tuning("loadBalancer") {
        balancing::balancer(field.fields(), settings);
    }
    if let Some(field) = fields.take_tuning("connectionPool") {
        pool(field.fields(), settings);
    }
    if let Some(field) = fields.take_tuning("outlierDetection") {
        outliers(field.fields(), settings);
    }
    if let Some(field) = fields.take_tuning("retryBudget") {
        field.refuse("the percentages differ", "set circuitBreaker.retryBudget");
    }
    if let Some(field) = fields.take("proxyProtocol") {
        let mut proxy = field.fields();
        if let Some(field) = proxy.take("version") {
            let version = field.carry(&format!("{CONNECTION}.proxyProtocol"));
            add(settings, "connection", "proxyProtocol", version);
        } else {
            add(settings, "connection", "proxyProtocol", json!("V1"));
        }
    }
    if let Some(field) = fields.take("tls") {
        backend_tls::convert(draft, id, service, field.fields());
    }
    if let Some(field) = fields.take("portLevelSettings") {
        let protects = field.value().to_string().contains("\"tls\"");
        let reason = "the settings of one port are not converted";
        let remedy = "write a BackendPolicy with the port as sectionName";
        field.protecting(protects).refuse(reason, remedy);
    }
    if let Some(field) = fields.take_tuning("tunnel") {
        field.refuse("Sesame opens no tunnels", "remove it");
    }
}

/// Sets a field of a part.
fn add(settings: &mut Map<String, Value>, part: &str, name: &str, value: Value) {
    let part = settings.entry(part).or_insert_with(|| json!({}));
    part[name] = value;
}

fn pool(mut fields: RemainingFields, settings: &mut Map<String, Value>) {
    let mut tcp = fields.section("tcp");
    number(
        &mut tcp,
        "maxConnections",
        settings,
        "circuitBreaker",
        "maxConnections",
    );
    time(&mut tcp, "connectTimeout", settings, "timeout");
    time(&mut tcp, "idleTimeout", settings, "idleTimeout");
    time(&mut tcp, "maxConnectionDuration", settings, "maxDuration");
    if let Some(field) = tcp.take("tcpKeepalive") {
        let mut keepalive = field.fields();
        let to = format!("{CONNECTION}.keepalive");
        let mut output = Map::new();
        put(&mut output, "probes", keepalive.number("probes", &to));
        for (theirs, ours) in [("time", "idle"), ("interval", "interval")] {
            if let Some(time) = keepalive.duration(theirs, &to) {
                put(&mut output, ours, Some(routing::duration(time)));
            }
        }
        add(settings, "connection", "keepalive", output.into());
    }
    drop(tcp);
    let mut http = fields.section("http");
    for (theirs, ours) in [
        ("http1MaxPendingRequests", "maxPendingRequests"),
        ("http2MaxRequests", "maxRequests"),
        ("maxRetries", "maxRetries"),
    ] {
        number(&mut http, theirs, settings, "circuitBreaker", ours);
    }
    number(
        &mut http,
        "maxRequestsPerConnection",
        settings,
        "connection",
        "maxRequests",
    );
    time(&mut http, "idleTimeout", settings, "idleTimeout");
    http.skip("maxConcurrentStreams", "the backend limits its streams");
    for name in ["h2UpgradePolicy", "useClientProtocol"] {
        if let Some(field) = http.take(name) {
            let difference = "appProtocol of the Service's port selects HTTP/2";
            field.differ("Service spec.ports", difference);
        }
    }
}

fn number(
    fields: &mut RemainingFields,
    theirs: &str,
    settings: &mut Map<String, Value>,
    part: &str,
    ours: &str,
) {
    let to = if part == "connection" {
        CONNECTION
    } else {
        BREAKER
    };
    let given = fields.number(theirs, &format!("{to}.{ours}"));
    if let Some(number) = given.filter(|it| (1..=i64::from(i32::MAX)).contains(it)) {
        add(settings, part, ours, json!(number));
    }
}

fn time(fields: &mut RemainingFields, theirs: &str, settings: &mut Map<String, Value>, ours: &str) {
    if let Some(time) = fields.duration(theirs, &format!("{CONNECTION}.{ours}")) {
        add(settings, "connection", ours, json!(routing::duration(time)));
    }
}

fn outliers(mut fields: RemainingFields, settings: &mut Map<String, Value>) {
    let mut output = Map::new();
    for (theirs, ours) in [
        ("consecutiveErrors", "consecutiveServerErrors"),
        ("consecutive5xxErrors", "consecutiveServerErrors"),
        ("consecutiveGatewayErrors", "consecutiveGatewayErrors"),
        ("maxEjectionPercent", "maxEjectionPercent"),
    ] {
        put(
            &mut output,
            ours,
            fields.number(theirs, &format!("{PASSIVE}.{ours}")),
        );
    }
    for name in ["interval", "baseEjectionTime"] {
        if let Some(time) = fields.duration(name, &format!("{PASSIVE}.{name}")) {
            put(&mut output, name, Some(routing::duration(time)));
        }
    }
    let mut check = Map::new();
    put_map(&mut check, "passive", output);
    let to = "BackendPolicy healthCheck.panicThreshold";
    put(
        &mut check,
        "panicThreshold",
        fields.number("minHealthPercent", to),
    );
    for name in [
        "splitExternalLocalOriginErrors",
        "consecutiveLocalOriginFailures",
    ] {
        if let Some(field) = fields.take(name) {
            field.differ(PASSIVE, "failed connections count as server errors");
        }
    }
    put_map(settings, "healthCheck", check);
}
