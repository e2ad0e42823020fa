//! `Gateway` becomes listeners of a ListenerSet. Hosts on port 80 may share the Gateway's listener.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::{self, RouteDraft, RuleDraft};
use super::super::values::{put, put_list};
use super::{ANNOTATIONS, Mesh, server_tls};

const LISTENERS: &str = "ListenerSet listeners";
const DEFAULT_CLASS: &str = "istio";
const HTTP_PORT: i64 = 80;
const HTTPS_PORT: i64 = 443;
const REDIRECT: i64 = 301;

/// A host of a Gateway's server.
#[derive(Clone, Debug)]
pub(super) struct PlacedServer {
    pub(super) class: String,
    /// The ListenerSet. `None` means the Gateway's own listener.
    set: Option<ObjectId>,
    listener: String,
    pub(super) port: i64,
    pub(super) protocol: &'static str,
    /// Empty for all hosts.
    pub(super) host: String,
    /// The only namespace whose VirtualServices have the host.
    pub(super) namespace: Option<String>,
    pub(super) redirects: bool,
    tls: Value,
}

impl PlacedServer {
    /// Returns the reference to the listener for a route.
    pub(super) fn parent(&self, namespace: &str) -> Value {
        match &self.set {
            Some(set) => routing::listener_parent(set, namespace, &self.listener),
            None => routing::http_parent(&self.class),
        }
    }

    fn is_same_place(&self, other: &Self) -> bool {
        let place = |it: &Self| (it.class.clone(), it.port, it.host.clone());
        place(self) == place(other)
    }
}

pub(super) fn convert(draft: &mut Draft, mesh: &mut Mesh, id: &ObjectId, object: &Value) {
    let log = mesh.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    let mut metadata = root.take_head(ANNOTATIONS);
    put(&mut metadata, "namespace", Some(id.namespace.as_str()));
    let mut spec = root.section("spec");
    let class = class(mesh, &mut spec);
    routing::add_gateway(draft, &class);
    let mut servers: Vec<PlacedServer> = Vec::new();
    let mut listeners = Vec::new();
    for field in spec.list("servers") {
        let mut fields = field.fields();
        fields.skip("name", "names appear only in Istio's statistics");
        let Some(server) = server(&mut fields, id, &class) else {
            continue;
        };
        for field in fields.list("hosts") {
            let placed = place(mesh, &servers, &field, &server);
            let Ok((placed, is_new)) = placed else {
                let reason = "another server has the same port and host, with other settings";
                field.refuse(reason, "use the same settings, or remove one of the two");
                continue;
            };
            if placed.protocol == "TCP" {
                field.unneeded("connections without TLS name no host");
            } else {
                field.carry(LISTENERS);
            }
            if is_new && placed.set.is_some() {
                listeners.push(listener(&placed));
            }
            servers.push(placed);
        }
    }
    if !listeners.is_empty() {
        routing::add_listeners(draft, id, &class, &metadata, &listeners);
    }
    add_redirect(draft, id, &metadata, &servers);
    mesh.servers.insert(id.clone(), servers);
}

/// Returns the name of the output Gateway.
fn class(mesh: &mut Mesh, spec: &mut RemainingFields) -> String {
    let to = "Gateway";
    let Some(field) = spec.take("selector") else {
        spec.note_difference(
            "selector",
            to,
            "the Gateway istio stands for all gateway pods",
        );
        mesh.selectors.push((Map::new(), DEFAULT_CLASS.to_owned()));
        return DEFAULT_CLASS.to_owned();
    };
    let labels = field.value().as_object().cloned().unwrap_or_default();
    let is_name = |it: &&str| {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        it.starts_with(|c: char| c.is_ascii_lowercase()) && it.bytes().all(plain)
    };
    let own = labels.get("istio").or_else(|| labels.values().next());
    let class = own.and_then(Value::as_str).filter(is_name);
    let first = class.unwrap_or(DEFAULT_CLASS).to_owned();
    let mut class = first.clone();
    let mut number = 1;
    while mesh
        .selectors
        .iter()
        .any(|(known, it)| *it == class && *known != labels)
    {
        number += 1;
        class = format!("{first}-{number}");
    }
    let difference = if number == 1 {
        "a Gateway replaces the pods; all Gateways with the same labels share it".to_owned()
    } else {
        format!("Gateway {class} replaces the pods, because {first} has other labels")
    };
    field.differ(to, &difference);
    mesh.selectors.push((labels, class.clone()));
    class
}

/// Reads a server without its hosts. Returns `None` if it was refused.
fn server(fields: &mut RemainingFields, id: &ObjectId, class: &str) -> Option<PlacedServer> {
    let mut port = fields.section("port");
    port.skip("name", "ports have no names");
    port.skip("targetPort", "Sesame has no such pods");
    let number = port.number("number", LISTENERS);
    if number.is_some_and(|it| ![HTTP_PORT, HTTPS_PORT].contains(&it)) {
        let difference = "clients use this port; Istio's Service may map another one to it";
        port.note_difference("number", LISTENERS, difference);
    }
    let given = port.take("protocol");
    let protocol = given.as_ref().map_or("", |it| it.as_str()).to_uppercase();
    let tls = fields.take("tls");
    let is_passed = tls
        .as_ref()
        .is_some_and(|it| it.value()["mode"] == "PASSTHROUGH");
    let protocol = match protocol.as_str() {
        "HTTP" | "HTTP2" | "GRPC" | "GRPC-WEB" => "HTTP",
        "HTTPS" if is_passed => "TLS",
        "HTTPS" => "HTTPS",
        "TLS" => "TLS",
        "TCP" | "MONGO" => "TCP",
        _ => "",
    };
    match given {
        Some(field) if protocol.is_empty() => {
            field.refuse("the protocol is unknown", "use HTTP, HTTPS, TLS or TCP");
        }
        Some(field) => drop(field.carry(LISTENERS)),
        None => port.refuse("protocol", "it is not set", "use HTTP, HTTPS, TLS or TCP"),
    }
    if let Some(field) = fields.take_set("bind", &json!("0.0.0.0")) {
        field.refuse("listeners have all addresses of the host", "remove it");
    }
    if let Some(field) = fields.take("defaultEndpoint") {
        field.refuse("routes name their Services", "add a VirtualService");
    }
    let mut redirects = false;
    let tls = match tls {
        Some(field) if ["HTTPS", "TLS"].contains(&protocol) => {
            server_tls::settings(field.fields())?
        }
        Some(field) => {
            let mut fields = field.fields();
            let to = "HTTPRoute rules.filters.requestRedirect";
            redirects = fields.flag("httpsRedirect", to) == Some(true);
            Value::Null
        }
        None if ["HTTPS", "TLS"].contains(&protocol) => {
            fields.refuse("tls", "there is no certificate", "set credentialName");
            return None;
        }
        None => Value::Null,
    };
    let number = number?;
    Some(PlacedServer {
        class: class.to_owned(),
        set: Some(ObjectId::new("ListenerSet", &id.namespace, &id.name)),
        listener: String::new(),
        port: number,
        protocol: Some(protocol).filter(|it| !it.is_empty())?,
        host: String::new(),
        namespace: None,
        redirects,
        tls,
    })
}

/// Returns the place of a server's host, and true if it needs a listener. Returns an error if
/// another server has other settings.
fn place(
    mesh: &Mesh,
    own: &[PlacedServer],
    field: &TakenField,
    server: &PlacedServer,
) -> Result<(PlacedServer, bool), ()> {
    let mut placed = server.clone();
    let (namespace, host) = field
        .as_str()
        .split_once('/')
        .unwrap_or(("*", field.as_str()));
    let namespace = match namespace {
        "." => server.set.as_ref().map(|it| it.namespace.clone()),
        "*" => None,
        other => Some(other.to_owned()),
    };
    let is_any = host == "*" || server.protocol == "TCP";
    placed.host = if is_any {
        String::new()
    } else {
        host.to_ascii_lowercase()
    };
    let name = routing::listener_name(&placed.host);
    placed.listener = match (server.protocol, server.port) {
        ("HTTPS" | "TLS", HTTPS_PORT) => name,
        ("HTTPS" | "TLS", port) => format!("{name}-{port}"),
        ("TCP", port) => format!("tcp-{port}"),
        ("HTTP", HTTP_PORT) if is_any => {
            placed.set = None;
            routing::HTTP.to_owned()
        }
        ("HTTP", HTTP_PORT) => format!("http-{name}"),
        (_, port) if is_any => format!("http-{port}"),
        (_, port) => format!("http-{name}-{port}"),
    };
    placed.namespace = namespace;
    let others = mesh.servers.values().flatten().chain(own);
    let mut others = others.filter(|it| it.is_same_place(&placed));
    match others.next() {
        Some(other) if other.tls != placed.tls || other.redirects != placed.redirects => Err(()),
        Some(other) => {
            placed.set.clone_from(&other.set);
            Ok((placed, false))
        }
        None => Ok((placed, true)),
    }
}

fn listener(placed: &PlacedServer) -> Value {
    let tls = placed.tls.clone();
    let mut listener = routing::listener(&placed.host, placed.protocol, tls.clone());
    listener["name"] = json!(placed.listener);
    listener["port"] = json!(placed.port);
    if let Some(fields) = listener.as_object_mut().filter(|_| tls.is_null()) {
        fields.remove("tls");
    }
    if let Some(namespace) = &placed.namespace {
        let labels = json!({"kubernetes.io/metadata.name": namespace});
        let selector = json!({"from": "Selector", "selector": {"matchLabels": labels}});
        listener["allowedRoutes"] = json!({ "namespaces": selector });
    }
    listener
}

/// Redirects the hosts of servers with `httpsRedirect`.
fn add_redirect(
    draft: &mut Draft,
    id: &ObjectId,
    metadata: &Map<String, Value>,
    servers: &[PlacedServer],
) {
    let redirecting = servers.iter().filter(|it| it.redirects);
    let parents: Vec<Value> = redirecting.map(|it| it.parent(&id.namespace)).collect();
    if parents.is_empty() {
        return;
    }
    let to = json!({"scheme": "https", "statusCode": REDIRECT});
    let filter = routing::filter("RequestRedirect", to);
    let mut rule = RuleDraft::default();
    put_list(&mut rule.fields, "filters", vec![filter]);
    let route = RouteDraft {
        name: format!("{}-redirect", id.name),
        hostnames: Vec::new(),
        parents,
        rules: vec![rule],
    };
    routing::add_routes(draft, &[id.clone()].into(), metadata, vec![route]);
}
