//! Services of routes, TraefikServices and ServersTransports.

use serde_json::{Map, Value, json};
use sesame_kinds::api::GATEWAY_GROUP;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::verdicts::VerdictLog;
use super::{ANNOTATIONS, FEWER, Routers, TOO_MANY, transports};

const BACKENDS: &str = "HTTPRoute rules.backendRefs";
const MIRROR: &str = "HTTPRoute rules.filters.requestMirror";
const CONNECTION: &str = "BackendPolicy connection";
const ALL_ROUTES: &str = "all routes to the Service use TLS";
const MAX_DEPTH: usize = 4;

/// Backends of a rule, and what belongs to them.
#[derive(Debug, Default)]
pub(super) struct ReadServices {
    pub(super) backends: Vec<Value>,
    pub(super) mirrors: Vec<Value>,
    pub(super) session: Option<Value>,
}

/// Who uses a service.
#[derive(Clone, Copy)]
pub(super) struct ServiceUser<'u> {
    pub(super) owner: &'u ObjectId,
    /// Kind of the output route.
    pub(super) kind: &'u str,
    /// Namespace of names.
    pub(super) namespace: &'u str,
    pub(super) depth: usize,
}

/// Reads a list of services into `found`.
pub(super) fn read(
    draft: &mut Draft,
    routers: &mut Routers,
    user: ServiceUser<'_>,
    list: Vec<TakenField>,
    found: &mut ReadServices,
) {
    if user.depth == 0 {
        routers.start_rule();
    }
    for field in list {
        if routers.follow() {
            one(draft, routers, user, field.fields(), found);
        } else {
            field.refuse(TOO_MANY, FEWER);
        }
    }
}

fn one(
    draft: &mut Draft,
    routers: &mut Routers,
    user: ServiceUser<'_>,
    mut fields: RemainingFields,
    found: &mut ReadServices,
) {
    let weight = fields.number("weight", BACKENDS).unwrap_or(1);
    if let Some(field) = fields.take("sticky") {
        found.session = transports::session(field.fields()).or(found.session.take());
    }
    let kind = fields.text("kind", BACKENDS);
    let own = fields
        .text("namespace", BACKENDS)
        .filter(|it| !it.is_empty());
    let namespace = own.unwrap_or_else(|| user.namespace.to_owned());
    if kind.as_deref() == Some("TraefikService") {
        named(draft, routers, user, (fields, &namespace, weight), found);
        return;
    }
    let name = fields.text("name", BACKENDS).unwrap_or_default();
    let id = ObjectId::new("Service", &namespace, &name);
    let (port, is_named_tls) = port(draft, &mut fields, &id);
    // Connections are passed on as they are.
    let port_tls = match port {
        _ if user.kind != "HTTPRoute" => Some(false),
        _ if is_named_tls => Some(true),
        Some(port) => transports::has_tls_port(draft, &id, port),
        None => None,
    };
    settings(draft, routers, user, &mut fields, (&id, port_tls));
    let Some(port) = port else {
        return;
    };
    let foreign = Some(namespace.as_str()).filter(|it| *it != user.owner.namespace);
    if foreign.is_some() {
        routing::add_grant(
            draft,
            (GATEWAY_GROUP, user.kind, &user.owner.namespace),
            &id,
        );
    }
    found
        .backends
        .push(routing::backend_ref(&name, foreign, port, weight));
}

/// Returns the number of a port, and true if its name stands for TLS.
fn port(draft: &Draft, fields: &mut RemainingFields, id: &ObjectId) -> (Option<i64>, bool) {
    let Some(field) = fields.take("port") else {
        fields.refuse("port", "there is no port", "set it");
        return (None, false);
    };
    let is_named_tls = field.as_str().starts_with(transports::TLS_PORT);
    if let Some(number) = field
        .value()
        .as_i64()
        .or_else(|| field.as_str().parse().ok())
    {
        field.carry(BACKENDS);
        return (Some(number), false);
    }
    let found = routing::named_port(draft, &id.namespace, &id.name, field.as_str());
    match found {
        Some(_) => drop(field.differ(BACKENDS, "the number of the Service's port")),
        None => field.refuse(
            "the Service is not in the input, or has no port with this name",
            "add the Service to the input",
        ),
    }
    (found, is_named_tls)
}

/// Reads how requests and connections reach a Service.
fn settings(
    draft: &mut Draft,
    routers: &mut Routers,
    user: ServiceUser<'_>,
    fields: &mut RemainingFields,
    (service, port_tls): (&ObjectId, Option<bool>),
) {
    let mut settings = Map::new();
    if let Some(field) = fields.take_set("passHostHeader", &json!(true)) {
        let reason = "backends get the client's host";
        field
            .protecting(false)
            .refuse(reason, "add a URLRewrite with the host");
    }
    for name in ["nativeLB", "nodePortLB", "responseForwarding"] {
        fields.skip(
            name,
            "requests go to endpoints, and responses are not buffered",
        );
    }
    fields.skip(
        "terminationDelay",
        "both directions of a connection end separately",
    );
    if let Some(field) = fields.take("proxyProtocol") {
        let mut proxy = field.fields();
        let version = proxy.number("version", &format!("{CONNECTION}.proxyProtocol"));
        let version = if version == Some(1) { "V1" } else { "V2" };
        let part = json!({ "proxyProtocol": version });
        settings.insert("connection".to_owned(), part);
    }
    if let Some(field) = fields.take("tls") {
        let reason = "connections of this kind have no TLS to backends";
        field.refuse(reason, "write a BackendTLSPolicy, then accept the loss");
    }
    balance(fields, &mut settings);
    let target = (service, port_tls);
    encryption(draft, routers, user, (&mut *fields, &mut settings), target);
    if !settings.is_empty()
        && let Some(owner) = routers
            .services
            .claim(service.clone(), user.owner, &settings)
    {
        let difference = format!(
            "left out for Service {}, which has settings of {owner}",
            service.name
        );
        fields.note_difference("name", "BackendPolicy targetRefs", &difference);
    }
}

/// Reads load balancing and health checks.
fn balance(fields: &mut RemainingFields, settings: &mut Map<String, Value>) {
    if let Some(field) = fields.take_tuning("strategy") {
        let kind = match field.as_str() {
            "p2c" | "leasttime" => Some("LeastRequest"),
            "hrw" => Some("RingHash"),
            _ => None,
        };
        if kind == Some("RingHash") {
            settings.insert(
                "loadBalancer".to_owned(),
                json!({"type": "RingHash", "hash": [{"type": "ClientAddress"}]}),
            );
        } else if let Some(kind) = kind {
            settings.insert("loadBalancer".to_owned(), json!({ "type": kind }));
        }
        field.carry("BackendPolicy loadBalancer.type");
    }
    if let Some(field) = fields.take_tuning("healthCheck") {
        transports::health(field.fields(), settings);
    }
    if let Some(field) = fields.take_tuning("passiveHealthCheck") {
        let mut passive = field.fields();
        let to = "BackendPolicy healthCheck.passive";
        let failures = passive.number("maxFailedAttempts", to);
        passive.text("failureWindow", to);
        let part = json!({"passive": {"consecutiveServerErrors": failures.unwrap_or(1)}});
        settings.insert("healthCheck".to_owned(), part);
    }
}

/// Reads how connections to a Service are encrypted. `port_tls` is true if the port needs TLS.
fn encryption(
    draft: &mut Draft,
    routers: &mut Routers,
    user: ServiceUser<'_>,
    (fields, settings): (&mut RemainingFields, &mut Map<String, Value>),
    (service, port_tls): (&ObjectId, Option<bool>),
) {
    let transport = fields.take("serversTransport");
    let scheme = fields.take("scheme");
    let uses_tls = match &scheme {
        Some(field) => Some(field.as_str() == "https"),
        None => port_tls,
    };
    let mut is_verified = false;
    if let Some(field) = transport {
        let (namespace, name) = match field.as_str().split_once('@') {
            Some((name, _)) => name.split_once('-').unwrap_or((user.namespace, name)),
            None => (user.namespace, field.as_str()),
        };
        let id = ObjectId::new("ServersTransport", namespace, name);
        match routers.using(user.owner, &id) {
            Some(object) => {
                let log = routers.log(&id);
                let root = RemainingFields::of_object(object, &log);
                is_verified =
                    transports::transport(draft, (&id, service), root, settings, uses_tls);
                field.carry("BackendPolicy");
            }
            None => field.refuse("the ServersTransport is not in the input", "add it"),
        }
    }
    match scheme {
        Some(field) if field.as_str() == "h2c" => {
            let difference = "set appProtocol: kubernetes.io/h2c on the Service's port";
            field.differ(BACKENDS, difference);
        }
        Some(field) if uses_tls == Some(true) && is_verified => {
            field.differ("BackendTLSPolicy", ALL_ROUTES);
        }
        Some(field) if uses_tls == Some(true) => field.refuse(
            "connections with TLS verify the Service's certificate by name",
            transports::UNVERIFIED,
        ),
        Some(field) => field.unneeded("http is the default"),
        None if uses_tls != Some(true) => {}
        None if is_verified => fields.note_difference("scheme", "BackendTLSPolicy", ALL_ROUTES),
        None => fields.refuse("scheme", transports::IMPLIED, transports::UNVERIFIED),
    }
}

/// Follows a reference to a TraefikService.
fn named(
    draft: &mut Draft,
    routers: &mut Routers,
    user: ServiceUser<'_>,
    (mut fields, namespace, weight): (RemainingFields, &str, i64),
    found: &mut ReadServices,
) {
    let Some(field) = fields.take("name") else {
        return;
    };
    fields.skip("port", "the TraefikService has ports");
    if field.as_str() == "noop@internal" {
        field.unneeded("the rule needs no backend");
        return;
    }
    let id = ObjectId::new("TraefikService", namespace, field.as_str());
    let object = routers.using(user.owner, &id);
    let Some(object) = object.filter(|_| user.depth < MAX_DEPTH) else {
        let reason = "the TraefikService is not in the input, is internal, or refers to itself";
        field.refuse(reason, "add it to the input");
        return;
    };
    field.carry(BACKENDS);
    let log = routers.log(&id);
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let below = ServiceUser {
        namespace,
        depth: user.depth + 1,
        ..user
    };
    let before = found.backends.len();
    if let Some(field) = spec.take("weighted") {
        let mut weighted = field.fields();
        if let Some(field) = weighted.take("sticky") {
            found.session = transports::session(field.fields()).or(found.session.take());
        }
        let list = weighted.list("services");
        read(draft, routers, below, list, found);
    }
    if let Some(field) = spec.take("mirroring") {
        mirroring(draft, routers, below, field.fields(), found);
    }
    if let Some(field) = spec.take("highestRandomWeight") {
        field.refuse("backends are chosen by weight only", "use weighted");
    }
    if user.depth > 0 && found.backends.len() > before + 1 {
        let reason = "weights of nested services cannot be combined";
        spec.refuse("weighted", reason, "list all services with their share");
    } else if weight != 1
        && let [backend] = &mut found.backends[before..]
    {
        backend["weight"] = json!(weight);
    }
}

fn mirroring(
    draft: &mut Draft,
    routers: &mut Routers,
    user: ServiceUser<'_>,
    mut fields: RemainingFields,
    found: &mut ReadServices,
) {
    fields.skip("mirrorBody", "mirrored requests have the same body");
    if let Some(field) = fields.take_tuning("maxBodySize") {
        field.differ(MIRROR, "bodies of any size are mirrored");
    }
    for field in fields.list("mirrors") {
        if !routers.follow() {
            field.refuse(TOO_MANY, FEWER);
            continue;
        }
        let mut mirror = field.fields();
        let percent = mirror.number("percent", MIRROR).unwrap_or_default();
        let mut copies = ReadServices::default();
        one(draft, routers, user, mirror, &mut copies);
        for mut backend in copies.backends {
            if let Some(fields) = backend.as_object_mut() {
                fields.remove("weight");
            }
            if percent > 0 {
                let mut filter = json!({ "backendRef": backend });
                if percent < 100 {
                    filter["percent"] = json!(percent);
                }
                found.mirrors.push(routing::filter("RequestMirror", filter));
            }
        }
    }
    one(draft, routers, user, fields, found);
}

/// Records verdicts on the annotations of a Service.
pub(super) fn annotations(draft: &mut Draft, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let found = root.take_annotations(|key| key.starts_with(ANNOTATIONS));
    for (key, field) in found {
        let protects = key.ends_with("serverstransport") || key.ends_with("serversscheme");
        let reason = "annotations of Services are not converted";
        let remedy = "write a BackendPolicy or a BackendTLSPolicy";
        field.protecting(protects).refuse(reason, remedy);
    }
    root.skip("metadata", "not an object of Traefik; keep it as it is");
    for name in root.names() {
        root.skip(&name, "not an object of Traefik; keep it as it is");
    }
    drop(root);
    let namespace = id.namespace.clone();
    let routes = draft.outputs.keys().filter(|it| {
        let kinds = ["HTTPRoute", "TLSRoute", "TCPRoute"];
        kinds.contains(&it.kind.as_str()) && it.namespace == namespace
    });
    let routes: Vec<ObjectId> = routes.cloned().chain([id.clone()]).collect();
    draft.record(id, &log, routes);
}
