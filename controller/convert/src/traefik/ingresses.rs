//! Ingresses with Traefik's class and annotations.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::values::put;
use super::routes::{EntryPoints, HTTP, Router};
use super::services::ReadServices;
use super::{ANNOTATIONS, CLASS, ORDER, Routers, classes, matches, routes, transports};

const PARENTS: &str = "HTTPRoute parentRefs";
const BACKENDS: &str = "HTTPRoute rules.backendRefs";
const PROVIDER: &str = "@kubernetescrd";
const DEFAULT_BACKEND: &str = "PathPrefix(`/`)";

/// Returns hosts and their Secrets.
pub(super) fn certificates(object: &Value) -> Vec<(String, String)> {
    let entries = object["spec"]["tls"].as_array().into_iter().flatten();
    let found = entries.flat_map(|entry| {
        let secret = entry["secretName"].as_str().unwrap_or_default();
        let hosts = entry["hosts"].as_array().into_iter().flatten();
        let hosts = hosts.filter_map(Value::as_str);
        hosts
            .map(|host| (host.to_ascii_lowercase(), secret.to_owned()))
            .collect::<Vec<_>>()
    });
    found.filter(|(_, secret)| !secret.is_empty()).collect()
}

pub(super) fn hosts(object: &Value) -> impl Iterator<Item = String> {
    let rules = object["spec"]["rules"].as_array().into_iter().flatten();
    rules.map(|it| it["host"].as_str().unwrap_or_default().to_ascii_lowercase())
}

/// Returns true if an Ingress of Traefik is served over HTTPS, or has certificates for others.
pub(super) fn may_use_tls(inputs: &BTreeMap<ObjectId, &Value>, object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    let setting = |name: &str| &annotations[&format!("{ANNOTATIONS}router.{name}")];
    let is_plain = setting("entrypoints") == HTTP && setting("tls") != "true";
    let has_certificates = object["spec"]["tls"]
        .as_array()
        .is_some_and(|it| !it.is_empty());
    let is_own = classes::is_own(inputs, classes::class(object).unwrap_or(CLASS));
    is_own && (has_certificates || !is_plain)
}

pub(super) fn convert(draft: &mut Draft, routers: &mut Routers, id: &ObjectId, object: &Value) {
    let log = routers.log(id);
    let class_name = classes::class(object).unwrap_or(CLASS);
    let is_own = classes::is_own(&routers.inputs, class_name);
    let is_known = classes::controller(&routers.inputs, class_name).is_some();
    let mut root = RemainingFields::of_object(object, &log);
    let found = root.take_annotations(|key| key.starts_with(ANNOTATIONS));
    let class_annotation = root.take_annotations(|key| key == classes::ANNOTATION);
    if !is_own && (found.is_empty() || is_known) {
        let reason = "another controller's Ingress; keep it as it is";
        for field in found.into_values().chain(class_annotation.into_values()) {
            field.unneeded(reason);
        }
        root.take_head("-");
        root.skip("spec", reason);
        return;
    }
    let mut metadata = root.take_head("-");
    put(&mut metadata, "namespace", Some(id.namespace.as_str()));
    routers.metadata.insert(id.clone(), metadata.clone());
    let mut spec = root.section("spec");
    for field in class_annotation
        .into_values()
        .chain(spec.take("ingressClassName"))
    {
        classes::close(routers, field);
    }
    let annotations = annotations(routers, &spec, found);
    for field in spec.list("tls") {
        let mut entry = field.fields();
        entry.texts("hosts", "ListenerSet listeners");
        entry.text("secretName", "ListenerSet listeners.tls");
    }
    let rules = rules(draft, id, &mut spec, annotations.matcher.as_deref());
    for (field, rule, backend) in rules {
        let length = i64::try_from(rule.len()).unwrap_or(i64::MAX);
        let router = Router {
            owner: id,
            metadata: &metadata,
            entry_points: annotations.entry_points,
            priority: annotations.priority.unwrap_or(length),
            middlewares: annotations.middlewares.clone(),
            services: ReadServices {
                backends: backend.into_iter().collect(),
                ..ReadServices::default()
            },
        };
        let terms = matches::read(field, &rule);
        if terms.is_none() {
            for host in matches::stated_hosts(&rule) {
                routers.hosts.add(&host, id, router.priority);
            }
        }
        for term in terms.into_iter().flatten() {
            if !routes::add(draft, routers, &router, &term) {
                let reason = "no certificate in the input covers the host";
                spec.refuse("rules.host", reason, "add spec.tls with a Secret");
            }
        }
    }
}

/// Settings of the annotations for all rules.
struct RouterAnnotations {
    entry_points: EntryPoints,
    priority: Option<i64>,
    matcher: Option<String>,
    middlewares: Vec<ObjectId>,
}

fn annotations(
    routers: &Routers,
    spec: &RemainingFields,
    mut found: BTreeMap<String, TakenField>,
) -> RouterAnnotations {
    let mut take = |name: &str| found.remove(&format!("{ANNOTATIONS}router.{name}"));
    let has_tls = take("tls").is_some_and(|it| it.text(PARENTS).as_deref() == Some("true"));
    // Certificates in spec.tls do not turn off plain HTTP.
    let entry_points = entry_points(spec, take("entrypoints"), has_tls);
    let priority = take("priority").and_then(|field| {
        let given = field.as_str().parse::<i64>().ok();
        field.differ("HTTPRoute rules.matches", ORDER);
        given.filter(|it| *it != 0)
    });
    let matcher = take("pathmatcher").and_then(|it| it.text("HTTPRoute rules.matches"));
    let list = take("middlewares").map(|it| middlewares(routers, it));
    for name in [
        "rulesyntax",
        "observability.accesslogs",
        "observability.metrics",
        "observability.tracing",
    ] {
        if let Some(field) = take(name) {
            field.unneeded("it affects no request");
        }
    }
    for (key, field) in found {
        let name = key.strip_prefix(ANNOTATIONS).unwrap_or_default();
        if name.starts_with("router.tls.certresolver") || name.starts_with("router.tls.domains") {
            let field = field.protecting(false);
            field.refuse(
                "Sesame requests no certificates",
                "use cert-manager, and spec.tls",
            );
        } else {
            field.refuse(
                "Sesame has no counterpart",
                "remove it, or use an IngressRoute",
            );
        }
    }
    RouterAnnotations {
        entry_points,
        priority,
        matcher,
        middlewares: list.unwrap_or_default(),
    }
}

fn entry_points(spec: &RemainingFields, given: Option<TakenField>, is_secure: bool) -> EntryPoints {
    let Some(field) = given else {
        spec.note_difference("rules", PARENTS, "all entry points: ports 80 and 443");
        return routes::all_ports(is_secure);
    };
    let names: Vec<&str> = field.as_str().split(',').map(str::trim).collect();
    if let Some(entry_points) = routes::ports(&names, is_secure) {
        field.carry(PARENTS);
        return entry_points;
    }
    field.refuse(routes::UNKNOWN_PORT, routes::BOTH_PORTS);
    routes::all_ports(is_secure)
}

/// Reads `namespace-name@kubernetescrd`, separated by commas.
fn middlewares(routers: &Routers, field: TakenField) -> Vec<ObjectId> {
    let mut found = Vec::new();
    for name in field.as_str().split(',').map(str::trim) {
        let own = name.strip_suffix(PROVIDER).unwrap_or_default();
        let known = routers.of_kind("Middleware").into_iter().map(|(id, _)| id);
        let mut known = known.filter(|id| format!("{}-{}", id.namespace, id.name) == own);
        let Some(id) = known.next() else {
            let reason = "a Middleware is not in the input, or comes from another provider";
            field.refuse(reason, "add it to the input");
            return Vec::new();
        };
        found.push(id);
    }
    field.carry("HTTPRoute rules.filters");
    found
}

/// Returns paths as rules of Traefik, with their backends.
fn rules(
    draft: &Draft,
    id: &ObjectId,
    spec: &mut RemainingFields,
    matcher: Option<&str>,
) -> Vec<(TakenField, String, Option<Value>)> {
    let mut found = Vec::new();
    if let Some(field) = spec.take("defaultBackend") {
        let backend = backend(draft, id, field);
        let field = spec.taken("defaultBackend", Value::Bool(true));
        found.push((field, DEFAULT_BACKEND.to_owned(), backend));
    }
    for field in spec.list("rules") {
        let mut rule = field.fields();
        let host = rule.text("host", "HTTPRoute hostnames").unwrap_or_default();
        let Some(field) = rule.take("http") else {
            continue;
        };
        for field in field.fields().list("paths") {
            let mut entry = field.fields();
            let kind = entry
                .text("pathType", "HTTPRoute rules.matches")
                .unwrap_or_default();
            let path = entry.take("path");
            let text = path.as_ref().map_or("/", |it| it.as_str()).to_owned();
            let name = match kind.as_str() {
                "Exact" => "Path",
                "Prefix" => "PathPrefix",
                _ => matcher.unwrap_or("PathPrefix"),
            };
            let host = match host.strip_prefix("*.") {
                Some(rest) => format!(
                    "HostRegexp(`[a-z0-9-]+\\.{}`) && ",
                    rest.replace('.', "\\.")
                ),
                None if host.is_empty() => String::new(),
                None => format!("Host(`{host}`) && "),
            };
            let rule = format!("{host}{name}(`{text}`)");
            let field = path.unwrap_or_else(|| entry.taken("path", Value::Bool(true)));
            let backend = entry.take("backend").and_then(|it| backend(draft, id, it));
            found.push((field, rule, backend));
        }
    }
    found
}

fn backend(draft: &Draft, id: &ObjectId, field: TakenField) -> Option<Value> {
    let mut fields = field.fields();
    if let Some(field) = fields.take("resource") {
        field.refuse("only Services can be backends", "use a Service");
        return None;
    }
    let mut service = fields.section("service");
    let name = service.text("name", BACKENDS)?;
    let mut port = service.section("port");
    let mut uses_tls = false;
    let number = port.number("number", BACKENDS);
    let named = port.take("name").and_then(|field| {
        uses_tls |= field.as_str().starts_with(transports::TLS_PORT);
        let found = routing::named_port(draft, &id.namespace, &name, field.as_str());
        match found {
            Some(_) => drop(field.differ(BACKENDS, "the number of the Service's port")),
            None => field.refuse("the Service is not in the input", "add it to the input"),
        }
        found
    });
    let number = number.or(named)?;
    let service_id = ObjectId::new("Service", &id.namespace, &name);
    uses_tls |= transports::has_tls_port(draft, &service_id, number) == Some(true);
    if uses_tls {
        port.refuse("", transports::IMPLIED, transports::UNVERIFIED);
    }
    Some(routing::backend_ref(&name, None, number, 1))
}
