//! Builds Gateways, listeners, routes and policies for sources that describe hosts and paths.

mod filters;
mod limits;
pub(super) mod order;
mod services;
mod wider;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sesame_kinds::api::{CONTROLLER_NAME, GATEWAY_GROUP};

pub(super) use self::filters::{
    CORS, cors_rest, filter, header_modifier, merge_rewrites, shared_filter,
};
use self::limits::within_limits;
pub(super) use self::services::{ServiceSettings, add_backend_tls};
use super::draft::{Draft, ObjectId, sesame_object};
pub(super) use super::values::{bytes, duration};
use super::values::{put, put_list};

const API: &str = "gateway.networking.k8s.io/v1";
const CLASS: &str = "sesame";
/// Name of the HTTP listener.
pub(super) const HTTP: &str = "http";
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// Limits of the CRDs.
const MAX_LISTENERS: usize = 64;
const MAX_TARGETS: usize = 16;
const MAX_NAME: usize = 200;

/// A rule of an HTTPRoute, and the policies that its requests need, without targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RuleDraft {
    pub(super) matches: Vec<Value>,
    pub(super) fields: Map<String, Value>,
    pub(super) access: Map<String, Value>,
    pub(super) traffic: Map<String, Value>,
}

/// An HTTPRoute.
#[derive(Clone, Debug)]
pub(super) struct RouteDraft {
    pub(super) name: String,
    pub(super) hostnames: Vec<String>,
    pub(super) parents: Vec<Value>,
    pub(super) rules: Vec<RuleDraft>,
}

/// Returns an object's metadata with another name.
pub(super) fn named(metadata: &Map<String, Value>, name: &str) -> Map<String, Value> {
    let mut metadata = metadata.clone();
    put(&mut metadata, "name", Some(name));
    metadata
}

/// Returns `name-suffix`, or `name-number` if that were too long.
pub(super) fn suffixed(name: &str, suffix: &str, number: usize) -> String {
    let whole = format!("{name}-{}", suffix.replace('*', "wildcard"));
    if whole.len() <= MAX_NAME {
        whole
    } else {
        format!("{name}-{number}")
    }
}

/// Adds the Gateway for a class of the source, unless it exists.
pub(super) fn add_gateway(draft: &mut Draft, class: &str) {
    // Every object needs it, so no object's protections stop it.
    let source = ObjectId::new("IngressClass", "", class);
    let gateway = json!({
        "apiVersion": API,
        "kind": "Gateway",
        "metadata": {"name": class, "namespace": "default"},
        "spec": {
            "gatewayClassName": CLASS,
            "allowedListeners": {"namespaces": {"from": "All"}},
            "listeners": [{
                "name": HTTP,
                "port": HTTP_PORT,
                "protocol": "HTTP",
                "allowedRoutes": {"namespaces": {"from": "All"}},
            }],
        },
    });
    let gateway_class = json!({
        "apiVersion": API,
        "kind": "GatewayClass",
        "metadata": {"name": CLASS},
        "spec": {"controllerName": CONTROLLER_NAME},
    });
    for object in [gateway_class, gateway] {
        if !draft.outputs.contains_key(&ObjectId::of(&object)) {
            draft.add(&source, object);
        }
    }
}

/// Returns the reference to a Gateway's HTTP listener.
pub(super) fn http_parent(class: &str) -> Value {
    json!({"name": class, "namespace": "default", "sectionName": HTTP})
}

/// Returns the reference to a listener of a ListenerSet.
pub(super) fn listener_parent(set: &ObjectId, own_namespace: &str, listener: &str) -> Value {
    let mut parent = Map::new();
    put(&mut parent, "group", Some(GATEWAY_GROUP));
    put(&mut parent, "kind", Some("ListenerSet"));
    put(&mut parent, "name", Some(set.name.as_str()));
    let foreign = Some(set.namespace.as_str()).filter(|it| *it != own_namespace);
    put(&mut parent, "namespace", foreign);
    put(&mut parent, "sectionName", Some(listener));
    parent.into()
}

/// Returns a host, and all wildcards that cover it. The empty host covers all.
pub(super) fn covering(host: &str) -> Vec<String> {
    let mut hosts = vec![host.to_owned()];
    let mut rest = host.strip_prefix("*.").unwrap_or(host);
    while let Some((_, parent)) = rest.split_once('.') {
        hosts.push(format!("*.{parent}"));
        rest = parent;
    }
    if !host.is_empty() {
        hosts.push(String::new());
    }
    hosts
}

/// Returns the name of a host's listener. Host names and listener names have the same form.
pub(super) fn listener_name(host: &str) -> String {
    match host {
        "" => "https".to_owned(),
        host => host.replace('*', "wildcard"),
    }
}

/// Returns a listener for a host, with `tls` as its TLS settings.
pub(super) fn listener(host: &str, protocol: &str, tls: Value) -> Value {
    let mut listener = Map::new();
    put(&mut listener, "name", Some(listener_name(host)));
    put(
        &mut listener,
        "hostname",
        Some(host).filter(|host| !host.is_empty()),
    );
    put(&mut listener, "port", Some(HTTPS_PORT));
    put(&mut listener, "protocol", Some(protocol));
    listener.insert("tls".to_owned(), tls);
    // Other namespaces may have paths of the same host, as in the source.
    let all = json!({"namespaces": {"from": "All"}});
    listener.insert("allowedRoutes".to_owned(), all);
    listener.into()
}

/// Adds a ListenerSet to a class's Gateway.
pub(super) fn add_listeners(
    draft: &mut Draft,
    source: &ObjectId,
    class: &str,
    metadata: &Map<String, Value>,
    listeners: &[Value],
) {
    if listeners.len() > MAX_LISTENERS {
        let reason = format!("a ListenerSet has at most {MAX_LISTENERS} listeners");
        draft.refuse(source, "spec.tls", &reason, "split the object");
        return;
    }
    let set = json!({
        "apiVersion": API,
        "kind": "ListenerSet",
        "metadata": named(metadata, &source.name),
        "spec": {
            "parentRef": {
                "group": GATEWAY_GROUP,
                "kind": "Gateway",
                "name": class,
                "namespace": "default",
            },
            "listeners": listeners,
        },
    });
    draft.add(source, set);
}

/// Returns a reference to a backend. `weight` is left out if it is 1.
pub(super) fn backend_ref(name: &str, namespace: Option<&str>, port: i64, weight: i64) -> Value {
    let mut backend = Map::new();
    put(&mut backend, "name", Some(name));
    put(&mut backend, "namespace", namespace);
    put(&mut backend, "port", Some(port));
    put(&mut backend, "weight", Some(weight).filter(|it| *it != 1));
    backend.into()
}

/// Lets objects of one namespace refer to an object in another one.
pub(super) fn add_grant(
    draft: &mut Draft,
    (group, kind, namespace): (&str, &str, &str),
    to: &ObjectId,
) {
    let name = format!("{}-to-{}", namespace, to.name);
    let grant = json!({
        "apiVersion": "gateway.networking.k8s.io/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": {
            "name": suffixed(&name, &kind.to_ascii_lowercase(), 1),
            "namespace": to.namespace,
        },
        "spec": {
            "from": [{"group": group, "kind": kind, "namespace": namespace}],
            "to": [{"group": "", "kind": to.kind, "name": to.name}],
        },
    });
    // Several objects may need the same permission, which alone serves nothing, so no refused
    // field stops it.
    if !draft.outputs.contains_key(&ObjectId::of(&grant)) {
        draft.add(to, grant);
    }
}

/// Returns the name of a part. Numbers of several parts have the same length, because the Gateway
/// API orders equal matches by name.
fn numbered(name: &str, index: usize, count: usize) -> String {
    let digits = count.to_string().len();
    match index {
        0 => name.to_owned(),
        index => format!("{name}-{:0digits$}", index + 1),
    }
}

/// Adds HTTPRoutes in one namespace, and their policies under the name `base`.
pub(super) fn add_routes(
    draft: &mut Draft,
    sources: &BTreeSet<ObjectId>,
    metadata: &Map<String, Value>,
    routes: Vec<RouteDraft>,
) {
    let mut routes: Vec<RouteDraft> = routes.into_iter().flat_map(within_limits).collect();
    add_policies(
        draft,
        sources,
        metadata,
        &mut routes,
        "AccessPolicy",
        |it| &it.access,
    );
    add_policies(
        draft,
        sources,
        metadata,
        &mut routes,
        "TrafficPolicy",
        |it| &it.traffic,
    );
    for RouteDraft {
        name,
        hostnames,
        parents,
        rules,
    } in routes
    {
        let rules = rules.into_iter().map(
            |RuleDraft {
                 matches,
                 mut fields,
                 ..
             }| {
                put_list(&mut fields, "matches", matches);
                Value::Object(fields)
            },
        );
        let mut spec = Map::new();
        put_list(&mut spec, "parentRefs", parents);
        put_list(&mut spec, "hostnames", hostnames);
        put_list(&mut spec, "rules", rules.collect());
        let route = json!({
            "apiVersion": API,
            "kind": "HTTPRoute",
            "metadata": named(metadata, &name),
            "spec": spec,
        });
        draft.add_from(sources, route);
    }
}

/// Adds one policy for all rules with the same settings. A rule that shares its route with
/// other settings gets a name, which the policy's `sectionName` selects.
fn add_policies(
    draft: &mut Draft,
    sources: &BTreeSet<ObjectId>,
    metadata: &Map<String, Value>,
    routes: &mut [RouteDraft],
    kind: &str,
    settings: fn(&RuleDraft) -> &Map<String, Value>,
) {
    let mut groups: Vec<(Map<String, Value>, Vec<Value>)> = Vec::new();
    for route in routes {
        let first = route.rules.first().map(settings).cloned();
        let is_whole = route
            .rules
            .iter()
            .all(|it| Some(settings(it)) == first.as_ref());
        for (index, rule) in route.rules.iter_mut().enumerate() {
            if settings(rule).is_empty() || is_whole && index > 0 {
                continue;
            }
            let section = format!("rule-{}", index + 1);
            let section = Some(section).filter(|_| !is_whole);
            if let Some(section) = &section {
                put(&mut rule.fields, "name", Some(section.as_str()));
            }
            let mut target = Map::new();
            put(&mut target, "group", Some(GATEWAY_GROUP));
            put(&mut target, "kind", Some("HTTPRoute"));
            put(&mut target, "name", Some(route.name.as_str()));
            put(&mut target, "sectionName", section);
            let alike = groups.iter_mut().find(|(it, _)| it == settings(rule));
            match alike {
                Some((_, targets)) => targets.push(target.into()),
                None => groups.push((settings(rule).clone(), vec![target.into()])),
            }
        }
    }
    let base = metadata
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let policies = groups.iter().flat_map(|(spec, targets)| {
        let parts = targets.chunks(MAX_TARGETS);
        parts.map(move |targets| (spec, targets))
    });
    let policies: Vec<_> = policies.collect();
    let count = policies.len();
    for (index, (spec, targets)) in policies.into_iter().enumerate() {
        let mut spec = spec.clone();
        put_list(&mut spec, "targetRefs", targets.to_vec());
        let metadata = named(metadata, &numbered(&base, index, count));
        draft.add_from(sources, sesame_object(kind, metadata, spec.into()));
    }
}

/// Returns the port number of a Service in the input.
pub(super) fn named_port(draft: &Draft, namespace: &str, service: &str, port: &str) -> Option<i64> {
    let id = ObjectId::new("Service", namespace, service);
    let ports = draft.input(&id)?["spec"]["ports"].as_array()?;
    let port = ports.iter().find(|it| it["name"] == *port)?;
    port["port"].as_i64()
}
