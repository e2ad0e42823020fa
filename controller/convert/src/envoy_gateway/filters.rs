//! `Backend` becomes a Service with EndpointSlices, and `HTTPRouteFilter` becomes a `RouteFilter`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{put, put_map};
use super::super::verdicts::VerdictLog;
use super::{ANNOTATIONS, passed};

/// Name of the only port of a Service that replaces a Backend.
pub(super) const PORT_NAME: &str = "backend";
const MAX_SERVICE_NAME: usize = 63;

/// Returns the name of the Service that replaces a Backend. The suffix prevents the Service from
/// replacing an existing one.
pub(super) fn service_name(backend: &str) -> String {
    format!("{backend}-backend")
}

/// Returns the port of the Service that replaces a Backend.
pub(super) fn backend_port(backend: &Value) -> Option<u16> {
    let port = backend["spec"]["endpoints"][0]["ip"]["port"].as_u64()?;
    u16::try_from(port).ok().filter(|port| *port > 0)
}

pub(super) fn backend(draft: &mut Draft, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let metadata = root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    if let Some(field) = spec.take("type")
        && field.as_str() == "Endpoints"
    {
        field.unneeded("the only type that Sesame supports");
    }
    let mut ports: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
    for field in spec.list("endpoints") {
        if let Some((address, port)) = endpoint(field) {
            ports.entry(port).or_default().push(address);
        }
    }
    let mut protocol = None;
    for field in spec.list("appProtocols") {
        if field.as_str() == "gateway.envoyproxy.io/h2c" {
            field.carry("Service spec.ports.appProtocol");
            protocol = Some("kubernetes.io/h2c");
        }
    }
    drop(spec);
    drop(root);
    let name = service_name(&id.name);
    if !is_service_name(&name) {
        let reason = format!("Kubernetes permits no Service with the name {name}");
        let remedy = "rename the Backend to at most 55 lowercase letters, digits and hyphens";
        draft.refuse(id, "metadata.name", &reason, remedy);
    } else if let Some(port) = backend_port(object) {
        for made in service(metadata, id, port, protocol, &ports) {
            draft.add(id, made);
        }
    }
    let mut protected = passed::referrers(draft, id);
    protected.push(id.clone());
    draft.record(id, &log, protected);
}

fn is_service_name(name: &str) -> bool {
    let is_permitted =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= MAX_SERVICE_NAME
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(is_permitted)
}

fn endpoint(field: TakenField) -> Option<(IpAddr, u16)> {
    let mut fields = field.fields();
    fields.skip("zone", "the endpoints of a converted Backend have no zone");
    let ip = fields.take("ip")?;
    let address = ip.value()["address"].as_str().unwrap_or_default();
    let address = address.parse::<IpAddr>();
    let port = ip.value()["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok());
    let (Ok(address), Some(port @ 1..)) = (address, port) else {
        ip.refuse("expected an address and a port", "correct the endpoint");
        return None;
    };
    ip.carry("EndpointSlice endpoints");
    Some((address, port))
}

fn service(
    metadata: Map<String, Value>,
    id: &ObjectId,
    port: u16,
    protocol: Option<&str>,
    ports: &BTreeMap<u16, Vec<IpAddr>>,
) -> Vec<Value> {
    let name = service_name(&id.name);
    let mut metadata = metadata;
    put(&mut metadata, "name", Some(name.as_str()));
    let mut service_port = Map::new();
    put(&mut service_port, "name", Some(PORT_NAME));
    put(&mut service_port, "port", Some(port));
    put(&mut service_port, "appProtocol", protocol);
    let mut made = vec![json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [service_port]},
    })];
    for (port, addresses) in ports {
        for (family, is_v4) in [("IPv4", true), ("IPv6", false)] {
            let own = addresses.iter().filter(|it| it.is_ipv4() == is_v4);
            let endpoints: Vec<Value> = own.map(|it| json!({"addresses": [it]})).collect();
            if endpoints.is_empty() {
                continue;
            }
            let mut slice = Map::new();
            let suffix = family.to_ascii_lowercase();
            put(&mut slice, "name", Some(format!("{name}-{port}-{suffix}")));
            put(&mut slice, "namespace", metadata.get("namespace").cloned());
            let labels = json!({"kubernetes.io/service-name": name});
            put(&mut slice, "labels", Some(labels));
            made.push(json!({
                "addressType": family,
                "apiVersion": "discovery.k8s.io/v1",
                "endpoints": endpoints,
                "kind": "EndpointSlice",
                "metadata": slice,
                "ports": [{"name": PORT_NAME, "port": port}],
            }));
        }
    }
    made
}

/// Refuses the filter if it is more than one of Sesame's filters.
pub(super) fn route_filter(draft: &mut Draft, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let metadata = root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let mut output = Map::new();
    put_map(
        &mut output,
        "urlRewrite",
        rewrite(spec.section("urlRewrite")),
    );
    if let Some(field) = spec.take("directResponse") {
        if output.is_empty() {
            let response = response(draft, id, field.fields());
            output.insert("directResponse".to_owned(), Value::Object(response));
        } else {
            let reason = "a RouteFilter has either urlRewrite or directResponse";
            field.refuse(
                reason,
                "remove urlRewrite, which has no effect on the response",
            );
        }
    }
    drop(spec);
    drop(root);
    let mut protected = passed::referrers(draft, id);
    protected.push(id.clone());
    draft.record(id, &log, protected);
    if output.is_empty() {
        let reason = "nothing of the filter can be converted";
        draft.refuse(id, "spec", reason, "remove the references to it");
        return;
    }
    draft.add(id, sesame_object("RouteFilter", metadata, output.into()));
}

fn rewrite(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let mut path = fields.section("path");
    path.skip("type", "the other fields determine the type");
    if let Some(field) = path.take("replaceRegexMatch") {
        let text = |name: &str| field.value()[name].as_str().unwrap_or_default().to_owned();
        let (pattern, substitution) = (text("pattern"), text("substitution"));
        let starts = pattern.starts_with("^/") || pattern.starts_with("^(/");
        let fields = field.value().as_object().map_or(0, Map::len);
        if starts && fields == 2 {
            field.carry("RouteFilter urlRewrite.regex");
            let regex = json!({"pattern": pattern, "substitution": substitution});
            output.insert("regex".to_owned(), regex);
        } else {
            field.refuse(
                "Sesame's patterns start with ^/ or ^(/",
                "match the path from its start",
            );
        }
    }
    let mut hostname = fields.section("hostname");
    if let Some(field) = hostname.take("type") {
        if field.as_str() == "Header" {
            field.carry("RouteFilter urlRewrite.hostFromHeader");
        } else {
            field.refuse("Sesame supports only Header", "use a URLRewrite filter");
        }
    }
    let header = hostname.text("header", "RouteFilter urlRewrite.hostFromHeader");
    put(&mut output, "hostFromHeader", header);
    drop(fields.take_tuning("appendXForwardedHost"));
    output
}

fn response(draft: &Draft, id: &ObjectId, mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let status = fields.number("statusCode", "RouteFilter directResponse.statusCode");
    put(&mut output, "statusCode", Some(status.unwrap_or(200)));
    let kind = fields.text("contentType", "RouteFilter directResponse.contentType");
    put(&mut output, "contentType", kind);
    let body = fields.take("body");
    let body = body.and_then(|body| inline_body(draft, id, body.fields(), 4096));
    put(&mut output, "body", body);
    output
}

/// Returns the text of a body, which may be in a ConfigMap in the input.
pub(super) fn inline_body(
    draft: &Draft,
    id: &ObjectId,
    mut body: RemainingFields,
    most: usize,
) -> Option<String> {
    body.skip("type", "the other fields determine the type");
    let text = if let Some(field) = body.take("valueRef") {
        let name = field.value()["name"].as_str().unwrap_or_default();
        let kind = field.value()["kind"].as_str().unwrap_or_default();
        let map = draft.input(&ObjectId::new("ConfigMap", &id.namespace, name));
        let data = map.and_then(|map| map["data"].as_object());
        let entry =
            data.and_then(|data| data.get("response.body").or_else(|| data.values().next()));
        let text = entry
            .and_then(Value::as_str)
            .filter(|_| kind == "ConfigMap");
        let Some(text) = text.map(str::to_owned) else {
            field.refuse(
                "the input does not contain the ConfigMap with the body",
                "add the ConfigMap to the input, or write the body inline",
            );
            return None;
        };
        field.differ(
            "body",
            "copied from the ConfigMap; later changes have no effect",
        );
        text
    } else {
        body.take("inline")?.text("body")?
    };
    // Envoy Gateway formats bodies; Sesame sends them as they are.
    if text.len() <= most && !text.contains('%') {
        return Some(text);
    }
    let reason = format!("expected at most {most} bytes without %");
    body.refuse("content", &reason, "shorten the body, and remove variables");
    None
}
