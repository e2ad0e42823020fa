//! `VirtualService` becomes HTTPRoutes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::order::{self, HostUnit, OrderedRule, Overlap, overlap};
use super::super::routing::{self, RuleDraft};
use super::super::values::{put, put_list};
use super::backends::DestinationUser;
use super::hosts::{Bound, MESH, add_units, bound};
use super::{ANNOTATIONS, Mesh, actions, backends, matches, resilience, streams};

const MAX_DEPTH: usize = 4;
/// Istio puts a VirtualService's rule for all requests behind other VirtualServices' rules.
const LAST: usize = usize::MAX / 2;
/// How a request is answered; exactly one of them is set.
const ANSWERS: [&str; 2] = ["redirect", "directResponse"];

/// The VirtualService that is converted.
pub(super) struct Visit {
    pub(super) id: ObjectId,
    pub(super) metadata: Map<String, Value>,
    /// Namespace of short host names.
    namespace: String,
    /// VirtualServices that delegate to this one, and itself.
    path: Vec<ObjectId>,
}

impl Visit {
    pub(super) fn sources(&self) -> BTreeSet<ObjectId> {
        self.path.iter().cloned().collect()
    }

    fn user(&self) -> DestinationUser<'_> {
        DestinationUser {
            id: &self.id,
            kind: "HTTPRoute",
            namespace: &self.namespace,
        }
    }
}

pub(super) fn convert(draft: &mut Draft, mesh: &mut Mesh, id: &ObjectId, object: &Value) {
    let is_delegate = object["spec"]["hosts"].as_array().is_none_or(Vec::is_empty);
    if is_delegate {
        return;
    }
    let log = mesh.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    let mut metadata = root.take_head(ANNOTATIONS);
    put(&mut metadata, "namespace", Some(id.namespace.as_str()));
    mesh.metadata.insert(id.clone(), metadata.clone());
    let names = object["spec"]["gateways"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    if names.iter().all(|it| *it == MESH) {
        if let Some(field) = root.take("spec") {
            field.unneeded("it applies to sidecars only; keep it as it is");
        }
        return;
    }
    let mut spec = root.section("spec");
    let Some(bound) = bound(mesh, id, &mut spec) else {
        close_unmatched(spec);
        return;
    };
    for gateway in &bound.gateways {
        let users = mesh.users.entry(gateway.clone()).or_default();
        users.insert(id.clone());
    }
    for host in &bound.hosts {
        let users = mesh.hosts.entry(host.clone()).or_default();
        users.insert(id.clone());
    }
    streams::convert(draft, mesh, &bound, (id, &metadata), &mut spec);
    let visit = Visit {
        id: id.clone(),
        metadata,
        namespace: id.namespace.clone(),
        path: vec![id.clone()],
    };
    if spec.has("http") {
        let difference = "no retries by default; Istio retries failed connections and 503 twice";
        spec.note_difference("http.retries", "TrafficPolicy retry", difference);
    }
    let list = spec.list("http");
    let mut rules = entries(draft, mesh, &visit, &bound, list, None);
    if let Some(last) = rules.iter().position(is_catch_all) {
        rules.truncate(last + 1);
    }
    let rules: Vec<OrderedRule> = rules
        .into_iter()
        .map(|rule| {
            mesh.places += 1;
            let offset = if is_catch_all(&rule) { LAST } else { 0 };
            let place = offset + mesh.places;
            OrderedRule { place, rule }
        })
        .collect();
    add_units(mesh, &visit, &bound, &rules);
}

/// Returns true if the rule is for all requests. Istio ignores later rules of the VirtualService.
fn is_catch_all(rule: &RuleDraft) -> bool {
    rule.matches == [json!({"path": {"type": "PathPrefix", "value": "/"}})]
}

/// Returns the rules of `http`. `within` are the matches of the route that delegates to them.
fn entries(
    draft: &mut Draft,
    mesh: &mut Mesh,
    visit: &Visit,
    bound: &Bound,
    list: Vec<TakenField>,
    within: Option<&[Value]>,
) -> Vec<RuleDraft> {
    let mut rules = Vec::new();
    for field in list {
        let mut fields = field.fields();
        fields.skip("name", "names appear only in Istio's logs");
        let is_answer = ANSWERS.iter().any(|it| fields.has(it));
        let scope = (bound, &visit.namespace[..]);
        let Some(mut found) = matches::read(&mut fields, scope, is_answer) else {
            continue;
        };
        if let Some(within) = within {
            let Some(both) = intersections(within, &found) else {
                let reason = "the conditions of both VirtualServices cannot be combined";
                fields.refuse("match", reason, "repeat the conditions in the delegate");
                continue;
            };
            found = both;
        }
        if found.is_empty() {
            close_unmatched(fields);
            continue;
        }
        if let Some(field) = fields.take("delegate") {
            rules.extend(delegate(draft, mesh, visit, bound, (field, &found)));
            continue;
        }
        rules.extend(entry(draft, mesh, visit, &mut fields, found));
    }
    rules
}

/// Records that no request of a Gateway reaches a route.
fn close_unmatched(mut fields: RemainingFields) {
    for name in fields.names() {
        fields.skip(&name, "no request of the Gateways matches the route");
    }
}

fn intersections(within: &[Value], own: &[Value]) -> Option<Vec<Value>> {
    let mut found = Vec::new();
    for (outer, inner) in within.iter().flat_map(|a| own.iter().map(move |b| (a, b))) {
        match overlap(outer, inner) {
            Overlap::None => {}
            Overlap::Both(both) => found.push(both),
            Overlap::Unknown => return None,
        }
    }
    Some(found)
}

fn delegate(
    draft: &mut Draft,
    mesh: &mut Mesh,
    visit: &Visit,
    bound: &Bound,
    (field, within): (TakenField, &[Value]),
) -> Vec<RuleDraft> {
    let mut fields = field.fields();
    let name = fields.text("name", "HTTPRoute").unwrap_or_default();
    let namespace = fields.text("namespace", "HTTPRoute");
    let namespace = namespace.unwrap_or_else(|| visit.id.namespace.clone());
    let id = super::id_in(super::NETWORKING, "VirtualService", &namespace, &name);
    let object = mesh.inputs.get(&id).copied();
    let is_usable = visit.path.len() < MAX_DEPTH && !visit.path.contains(&id);
    let Some(object) = object.filter(|_| is_usable) else {
        let reason = "the VirtualService is not in the input, or delegates to itself";
        fields.refuse("name", reason, "add it to the input");
        return Vec::new();
    };
    if namespace != visit.id.namespace {
        let difference = "the HTTPRoute is in the namespace of the VirtualService with the hosts";
        fields.note_difference("namespace", "HTTPRoute", difference);
    }
    let log = mesh.log(&id);
    let users = mesh.users.entry(id.clone()).or_default();
    users.extend(visit.path.iter().cloned());
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    spec.skip("hosts", "the delegating VirtualService has the hosts");
    spec.skip("exportTo", "the delegating VirtualService is in the input");
    let mut path = visit.path.clone();
    path.push(id);
    let below = Visit {
        id: visit.id.clone(),
        metadata: visit.metadata.clone(),
        namespace,
        path,
    };
    entries(draft, mesh, &below, bound, spec.list("http"), Some(within))
}

/// Returns a rule for each match, because rewrites depend on the path.
fn entry(
    draft: &mut Draft,
    mesh: &mut Mesh,
    visit: &Visit,
    fields: &mut RemainingFields,
    found: Vec<Value>,
) -> Vec<RuleDraft> {
    let mut rule = RuleDraft::default();
    let mut filters = Vec::new();
    filters.extend(
        fields
            .take("corsPolicy")
            .map(|it| actions::cors(it.fields())),
    );
    if let Some(field) = fields.take("headers") {
        filters.extend(actions::headers(field.fields()));
    }
    resilience::convert(fields, &mut rule);
    for (field, percentage) in resilience::mirrors(fields) {
        let backend = backends::destination(draft, mesh, &visit.user(), field, 1);
        filters.extend(backend.map(|it| resilience::mirror_filter(&it, percentage)));
    }
    let redirect = fields.take("redirect");
    let response = fields.take("directResponse");
    let rewrite = fields.take("rewrite");
    let backends = destinations(draft, mesh, visit, fields.list("route"));
    match (redirect, response, backends) {
        (Some(field), None, None) => filters.push(actions::redirect(field.fields())),
        (None, Some(field), None) => filters.push(actions::respond(draft, visit, field.fields())),
        (None, None, Some(backends)) => put_list(&mut rule.fields, "backendRefs", backends),
        (redirect, response, _) => {
            let reason = "a route has exactly one of route, redirect and directResponse";
            for field in redirect.into_iter().chain(response) {
                field.refuse(reason, "correct the route");
            }
            fields.refuse("route", reason, "correct the route");
            return Vec::new();
        }
    }
    if !rule.fields.contains_key("backendRefs") {
        rule.fields.remove("timeouts");
        rule.traffic.remove("retry");
    }
    let rules = found.into_iter().map(|matched| {
        let mut rule = rule.clone();
        let mut filters = filters.clone();
        if let Some(field) = &rewrite {
            let field = fields.taken("rewrite", field.value().clone());
            filters.extend(actions::rewrite(draft, visit, field, &matched["path"]));
        }
        put_list(
            &mut rule.fields,
            "filters",
            routing::merge_rewrites(filters),
        );
        rule.matches = vec![matched];
        rule
    });
    let rules = rules.collect();
    if let Some(field) = rewrite {
        field.carry("HTTPRoute rules.filters");
    }
    rules
}

/// Returns the backends, or `None` if the route has no destinations.
fn destinations(
    draft: &mut Draft,
    mesh: &mut Mesh,
    visit: &Visit,
    list: Vec<TakenField>,
) -> Option<Vec<Value>> {
    if list.is_empty() {
        return None;
    }
    let is_single = list.len() == 1;
    let mut found = Vec::new();
    for field in list {
        let mut fields = field.fields();
        let weight = fields.number("weight", "HTTPRoute rules.backendRefs");
        let weight = if is_single {
            1
        } else {
            weight.unwrap_or_default()
        };
        let filters = fields
            .take("headers")
            .map(|it| actions::headers(it.fields()));
        let Some(field) = fields.take("destination") else {
            fields.refuse("destination", "there is no destination", "add it");
            continue;
        };
        let backend = backends::destination(draft, mesh, &visit.user(), field, weight);
        let Some(mut backend) = backend else {
            continue;
        };
        if let Some(filters) = filters.filter(|it| !it.is_empty()) {
            backend["filters"] = json!(filters);
        }
        found.push(backend);
    }
    Some(found)
}

/// Keeps the order of rules, and adds the HTTPRoutes.
pub(super) fn finish(draft: &mut Draft, mesh: &mut Mesh) {
    let mut units = std::mem::take(&mut mesh.units);
    for (earlier, later) in order::keep_order(&mut units, true) {
        let reason = format!(
            "an expression of an earlier route of {earlier} may match the same requests, which \
            would reach another route"
        );
        let remedy = "use prefixes, or make the conditions exclude each other";
        let log = mesh.log(&later);
        log.refuse("spec.http.match", &reason, remedy);
    }
    let mut owners: BTreeMap<ObjectId, Vec<&HostUnit>> = BTreeMap::new();
    for unit in &units {
        owners.entry(unit.owner.clone()).or_default().push(unit);
    }
    for (owner, units) in owners {
        let metadata = mesh.metadata.get(&owner).cloned().unwrap_or_default();
        let routes = order::routes(&owner.name, &units);
        let sources = [owner.clone()].into();
        routing::add_routes(draft, &sources, &metadata, routes);
    }
}
