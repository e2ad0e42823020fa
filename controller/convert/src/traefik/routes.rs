//! `IngressRoute` becomes HTTPRoutes.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::routing::order::{HostUnit, OrderedRule};
use super::super::values::put;
use super::matches::RuleTerm;
use super::middlewares::{self, RuleParts};
use super::services::{self, ReadServices, ServiceUser};
use super::{ANNOTATIONS, CLASS, ORDER, Routers, certificates, classes, matches};

const PARENTS: &str = "HTTPRoute parentRefs";
pub(super) const UNKNOWN_PORT: &str =
    "the port of an entry point other than web and websecure is unknown, and may not be public";
pub(super) const BOTH_PORTS: &str = "rename it, or accept that it becomes ports 80 and 443";
pub(super) const HTTP: &str = "web";
pub(super) const HTTPS: &str = "websecure";

/// Ports that serve a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPoints {
    pub(super) http: bool,
    pub(super) https: bool,
}

/// A rule of Traefik, without its matches.
pub(super) struct Router<'r> {
    pub(super) owner: &'r ObjectId,
    pub(super) metadata: &'r Map<String, Value>,
    pub(super) entry_points: EntryPoints,
    pub(super) priority: i64,
    pub(super) middlewares: Vec<ObjectId>,
    pub(super) services: ReadServices,
}

/// Returns true if entry points of an object may have TLS.
pub(super) fn may_use_tls(object: &Value) -> bool {
    let spec = &object["spec"];
    !spec["tls"].is_null() || spec["entryPoints"] != json!([HTTP])
}

pub(super) fn convert(draft: &mut Draft, routers: &mut Routers, id: &ObjectId, object: &Value) {
    let log = routers.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    let classes = root.take_annotations(|key| key == classes::ANNOTATION);
    let mut metadata = root.take_head(ANNOTATIONS);
    put(&mut metadata, "namespace", Some(id.namespace.as_str()));
    routers.metadata.insert(id.clone(), metadata.clone());
    let mut spec = root.section("spec");
    for field in classes.into_values().chain(spec.take("ingressClassName")) {
        classes::close(routers, field);
    }
    if let Some(field) = spec.take("parentRefs") {
        field.refuse(
            "a rule has no parent rule",
            "repeat its middlewares and conditions",
        );
    }
    let has_tls = spec.has("tls");
    let given = spec.take("entryPoints");
    let entry_points = entry_points(&spec, given, has_tls);
    if let Some(field) = spec.take("tls") {
        certificates::close(routers, id, field.fields());
    }
    for field in spec.list("routes") {
        route(
            draft,
            routers,
            (id, &metadata),
            entry_points,
            field.fields(),
        );
    }
}

/// Returns the ports if no entry point is named.
pub(super) fn all_ports(has_tls: bool) -> EntryPoints {
    EntryPoints {
        http: !has_tls,
        https: true,
    }
}

/// Returns the ports for entry points, or `None` if one is unknown. Traefik's Helm chart uses the
/// same names.
pub(super) fn ports(names: &[&str], has_tls: bool) -> Option<EntryPoints> {
    let is_known = names.iter().all(|it| [HTTP, HTTPS].contains(it));
    is_known.then(|| EntryPoints {
        http: names.contains(&HTTP) && !has_tls,
        https: names.contains(&HTTPS) || has_tls,
    })
}

fn entry_points(spec: &RemainingFields, given: Option<TakenField>, has_tls: bool) -> EntryPoints {
    let given = match given {
        Some(field) if field.value() == &json!([]) => {
            field.unneeded("an empty list stands for all");
            None
        }
        other => other,
    };
    let Some(field) = given else {
        let difference = "all entry points: ports 80 and 443";
        spec.note_difference("entryPoints", PARENTS, difference);
        return all_ports(has_tls);
    };
    let list = field.value().as_array();
    let names = list.and_then(|it| it.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    let has_http = names.as_ref().is_some_and(|it| it.contains(&HTTP));
    match names.and_then(|names| ports(&names, has_tls)) {
        Some(entry_points) if has_http && has_tls => {
            field.differ(PARENTS, "with tls, only port 443");
            entry_points
        }
        Some(entry_points) => {
            field.carry(PARENTS);
            entry_points
        }
        None => {
            field.refuse(UNKNOWN_PORT, BOTH_PORTS);
            all_ports(has_tls)
        }
    }
}

fn route(
    draft: &mut Draft,
    routers: &mut Routers,
    (id, metadata): (&ObjectId, &Map<String, Value>),
    entry_points: EntryPoints,
    mut fields: RemainingFields,
) {
    fields.skip("kind", "there is only one");
    fields.skip("syntax", "both syntaxes are read");
    fields.skip(
        "observability",
        "logs and traces are configured for the Gateway",
    );
    if let Some(field) = fields.take_tuning("respondingTimeouts") {
        field.refuse(
            "clients are limited for a whole Gateway",
            "set spec.edge.requestTimeout",
        );
    }
    let rule = fields.take("match");
    let length = rule.as_ref().map_or(0, |it| it.as_str().len());
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let priority = match fields.take("priority") {
        Some(field) => {
            let given = field.value().as_i64().filter(|it| *it != 0);
            field.differ("HTTPRoute rules.matches", ORDER);
            given.unwrap_or(length)
        }
        None => length,
    };
    let rule = rule.unwrap_or_else(|| fields.taken("match", "".into()));
    let text = rule.as_str().to_owned();
    let terms = matches::read(rule, &text);
    if terms.is_none() {
        // Others must not get its requests.
        for host in matches::stated_hosts(&text) {
            routers.hosts.add(&host, id, priority);
        }
    }
    let mut list = Vec::new();
    for field in fields.list("middlewares") {
        list.extend(middlewares::reference(routers, field, &id.namespace));
    }
    let mut found = ReadServices::default();
    let user = ServiceUser {
        owner: id,
        kind: "HTTPRoute",
        namespace: &id.namespace,
        depth: 0,
    };
    services::read(draft, routers, user, fields.list("services"), &mut found);
    let router = Router {
        owner: id,
        metadata,
        entry_points,
        priority,
        middlewares: list,
        services: found,
    };
    for term in terms.into_iter().flatten() {
        if !add(draft, routers, &router, &term) {
            let reason = "no certificate in the input covers the host";
            let remedy = "set secretName, or add the TLSStore default to the input";
            fields.refuse("match", reason, remedy);
        }
    }
}

/// Adds a rule for one alternative. Returns false if its host has no certificate.
pub(super) fn add(
    draft: &mut Draft,
    routers: &mut Routers,
    router: &Router<'_>,
    term: &RuleTerm,
) -> bool {
    let Router {
        owner,
        metadata,
        entry_points,
        priority,
        middlewares: list,
        services,
    } = router;
    let EntryPoints { http, https } = *entry_points;
    routers.hosts.add(&term.host, owner, *priority);
    let secure = certificates::parent(routers, &term.host, &owner.namespace);
    let is_served = !https || secure.is_some() || http;
    let plain = http.then(|| (routing::http_parent(CLASS), false));
    let secure = secure.filter(|_| https).map(|it| (it, true));
    for (parent, is_https) in plain.into_iter().chain(secure) {
        let mut parts = RuleParts::new(owner, metadata, &term.matched, is_https);
        middlewares::apply(draft, routers, &mut parts, list);
        if !term.clients.is_empty() {
            // A client must be in the networks of the rule and of the middleware.
            let mut filter = Map::new();
            put(&mut filter, "allow", Some(term.clients.clone()));
            if !parts.insert("ipFilter", filter) {
                let log = routers.log(owner);
                let fields = RemainingFields::of_object(&Value::Null, &log);
                let reason = "a middleware also restricts clients";
                fields.refuse("spec.routes.match", reason, "combine the networks");
            }
        }
        let is_limited = ["rateLimits", "requestBody"]
            .iter()
            .any(|it| parts.traffic.contains_key(*it));
        let is_protected = is_limited || !parts.access.is_empty();
        let session = services.session.clone();
        let mut rule = parts.into_rule(services.backends.clone(), services.mirrors.clone());
        if rule.fields.contains_key("backendRefs") {
            put(&mut rule.fields, "sessionPersistence", session);
        }
        let mut rules = vec![rule.clone()];
        if term.is_text && is_protected {
            rule.matches = vec![matches::rest(&term.matched)];
            if let Some(Value::Array(filters)) = rule.fields.get_mut("filters") {
                filters.retain(|it| it["type"] != "URLRewrite");
            }
            rules.push(rule);
        }
        for rule in rules {
            let unit = HostUnit {
                owner: (*owner).clone(),
                host: term.host.clone(),
                parent: parent.clone(),
                rules: vec![OrderedRule { place: 0, rule }],
            };
            routers.units.push((*priority, unit));
        }
    }
    is_served
}
