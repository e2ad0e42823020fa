//! `IngressRouteTCP` and `IngressRouteUDP` become TLSRoutes, TCPRoutes and UDPRoutes.

use serde_json::{Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::values::put;
use super::rule::parse;
use super::services::{self, ReadServices, ServiceUser};
use super::{ANNOTATIONS, Routers, certificates, classes, matches};

const API: &str = "gateway.networking.k8s.io/v1";
const ALL: &str = "*";
/// Connections are routed before requests.
const FIRST: i64 = i64::MAX;

/// Returns the server names of a rule; an empty one stands for all.
fn names(rule: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for alternative in parse(rule)? {
        match alternative.as_slice() {
            [matcher] if matcher.name == "HostSNI" => {
                let own = matcher.args.iter();
                names.extend(own.map(|it| {
                    if it == ALL {
                        String::new()
                    } else {
                        it.to_ascii_lowercase()
                    }
                }));
            }
            _ => return Err("a route for connections matches server names only".to_owned()),
        }
    }
    Ok(names)
}

/// Returns the server names of all rules that can be read.
pub(super) fn hosts(object: &Value) -> Vec<String> {
    let routes = object["spec"]["routes"].as_array().into_iter().flatten();
    let rules = routes.filter_map(|it| it["match"].as_str());
    rules.filter_map(|it| names(it).ok()).flatten().collect()
}

pub(super) fn convert(draft: &mut Draft, routers: &mut Routers, id: &ObjectId, object: &Value) {
    let log = routers.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    let classes = root.take_annotations(|key| key == classes::ANNOTATION);
    let mut metadata = root.take_head(ANNOTATIONS);
    put(&mut metadata, "namespace", Some(id.namespace.as_str()));
    let mut spec = root.section("spec");
    for field in classes.into_values().chain(spec.take("ingressClassName")) {
        classes::close(routers, field);
    }
    let is_udp = id.kind == "IngressRouteUDP";
    let has_tls = spec.has("tls");
    if let Some(field) = spec.take("tls") {
        let mut tls = field.fields();
        if let Some(field) = tls.take("passthrough") {
            field.carry("ListenerSet listeners.tls.mode");
        }
        certificates::close(routers, id, tls);
    }
    match spec.take("entryPoints") {
        Some(field) if has_tls && field.value() == &json!([super::routes::HTTPS]) => {
            field.carry("TLSRoute parentRefs");
        }
        Some(field) if has_tls => {
            let reason = "the port of the entry point is unknown";
            field.refuse(reason, "accept that it becomes port 443");
        }
        None if has_tls => {}
        other => {
            let reason = "the port of the entry point is unknown, so it gets no listener";
            let remedy = "add a listener to the Gateway, and a TCPRoute or UDPRoute";
            if let Some(field) = other {
                field.unneeded("see above");
            }
            spec.refuse("entryPoints", reason, remedy);
        }
    }
    for (index, field) in spec.list("routes").into_iter().enumerate() {
        let mut fields = field.fields();
        fields.skip("priority", "server names select the route");
        fields.skip("syntax", "both syntaxes are read");
        let rule = fields.take("match");
        let text = rule.as_ref().map_or("", |it| it.as_str()).to_owned();
        let names = rule.map(|it| read_names(it, has_tls));
        if has_tls && names.as_ref().is_none_or(Option::is_none) {
            for host in matches::stated_hosts(&text) {
                routers.hosts.add(&host, id, FIRST);
            }
        }
        middlewares(routers, id, &mut fields);
        let kind = if is_udp { "UDPRoute" } else { "TLSRoute" };
        let mut found = ReadServices::default();
        let user = ServiceUser {
            owner: id,
            kind,
            namespace: &id.namespace,
            depth: 0,
        };
        let list = fields.list("services");
        services::read(draft, routers, user, list, &mut found);
        let names = names.flatten().unwrap_or_default();
        if is_udp || !has_tls || names.is_empty() || found.backends.is_empty() {
            continue;
        }
        add(
            draft,
            routers,
            id,
            (index, &metadata),
            (&names, &found.backends),
        );
    }
}

fn read_names(field: TakenField, has_tls: bool) -> Option<Vec<String>> {
    match names(field.as_str()) {
        Ok(names) if has_tls || names.iter().all(String::is_empty) => {
            field.carry("TLSRoute hostnames");
            Some(names)
        }
        Ok(_) => {
            field.refuse("connections without TLS name no host", "use HostSNI(`*`)");
            None
        }
        Err(why) => {
            field.refuse(&why, "split the route, or use an AccessPolicy");
            None
        }
    }
}

/// Middlewares for connections restrict clients.
fn middlewares(routers: &mut Routers, id: &ObjectId, fields: &mut RemainingFields) {
    for field in fields.list("middlewares") {
        let name = field.value()["name"].as_str().unwrap_or_default();
        let namespace = field.value()["namespace"].as_str().unwrap_or(&id.namespace);
        let middleware = ObjectId::new("MiddlewareTCP", namespace, name);
        routers.using(id, &middleware);
        let reason = "middlewares for connections are not converted";
        field.refuse(
            reason,
            "write an AccessPolicy with ipFilter, then accept the loss",
        );
    }
}

fn add(
    draft: &mut Draft,
    routers: &mut Routers,
    id: &ObjectId,
    (index, metadata): (usize, &serde_json::Map<String, Value>),
    (names, backends): (&[String], &[Value]),
) {
    let mut parents: Vec<Value> = Vec::new();
    for name in names {
        routers.hosts.add(name, id, FIRST);
        let parent = certificates::parent(routers, name, &id.namespace);
        parents.extend(parent.filter(|it| !parents.contains(it)));
    }
    let name = match index {
        0 => id.name.clone(),
        index => format!("{}-{}", id.name, index + 1),
    };
    let mut spec = json!({"parentRefs": parents, "rules": [{"backendRefs": backends}]});
    let hosts: Vec<&String> = names.iter().filter(|it| !it.is_empty()).collect();
    if !hosts.is_empty() {
        spec["hostnames"] = json!(hosts);
    }
    let route = json!({
        "apiVersion": API,
        "kind": "TLSRoute",
        "metadata": routing::named(metadata, &name),
        "spec": spec,
    });
    draft.add(id, route);
}
