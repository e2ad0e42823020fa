//! `tcpproxy` becomes a TLSRoute.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::routing;
use super::host::ProxyHostDraft;
use super::{ProxyTree, Visit, balance, services};

pub(super) fn convert(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    host: &ProxyHostDraft,
    visit: &Visit,
    spec: &mut RemainingFields,
) {
    let Some(field) = spec.take("tcpproxy") else {
        return;
    };
    if !host.has_tls {
        field.refuse("the host has no tls", "set virtualhost.tls");
        return;
    }
    connections(draft, tree, host, visit, field.fields());
}

fn connections(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    host: &ProxyHostDraft,
    visit: &Visit,
    mut fields: RemainingFields,
) {
    let mut settings = Map::new();
    if let Some(field) = fields.take_tuning("loadBalancerPolicy") {
        balance::strategy(field.fields(), &mut settings);
    }
    if let Some(field) = fields.take_tuning("healthCheckPolicy") {
        balance::tcp_health(field.fields(), &mut settings);
    }
    let found = services::read(draft, tree, visit, &mut fields, &settings);
    let include = fields.take("include");
    let former = fields.take("includes");
    if found.backends.is_empty() {
        if let Some(field) = include.or(former) {
            below(draft, tree, host, visit, field.fields());
        } else {
            fields.refuse("services", "there is no Service", "add one");
        }
        return;
    }
    for field in include.into_iter().chain(former) {
        field.refuse(
            "a tcpproxy has either services or an include",
            "remove one of them",
        );
    }
    let listener = routing::listener_name(&host.fqdn);
    let parent = routing::listener_parent(&host.root, &visit.id.namespace, &listener);
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "TLSRoute",
        "metadata": visit.metadata,
        "spec": {
            "parentRefs": [parent],
            "hostnames": [host.fqdn],
            "rules": [{"backendRefs": found.backends}],
        },
    });
    draft.add_from(&visit.sources(), route);
}

/// Follows an include to the HTTPProxy with the Services.
fn below(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    host: &ProxyHostDraft,
    visit: &Visit,
    mut fields: RemainingFields,
) {
    let name = fields.text("name", "TLSRoute").unwrap_or_default();
    let namespace = fields
        .text("namespace", "TLSRoute")
        .filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or_else(|| visit.id.namespace.clone());
    let id = ObjectId::new("HTTPProxy", &namespace, &name);
    let object: Option<&Value> = tree.proxies.get(&id).copied();
    let Some(object) = object.filter(|_| !visit.path.contains(&id)) else {
        let reason = "the HTTPProxy is not in the input, or includes itself";
        fields.refuse("name", reason, "add it to the input, or remove the include");
        return;
    };
    let log = tree.logs.entry(id.clone()).or_default().clone();
    let roots = tree.roots.entry(id.clone()).or_default();
    roots.insert(host.root.clone());
    let mut root = RemainingFields::of_object(object, &log);
    let mut below = visit.clone();
    below.metadata = root.take_head("projectcontour.io/");
    below.path.push(id.clone());
    below.id = id;
    let mut spec = root.section("spec");
    spec.skip("ingressClassName", "the root selects the Gateway");
    match spec.take("tcpproxy") {
        Some(field) => connections(draft, tree, host, &below, field.fields()),
        None => fields.refuse(
            "name",
            "the HTTPProxy has no tcpproxy",
            "correct the include",
        ),
    }
}
