//! Destinations of routes: Services, subsets of Services, and hosts of ServiceEntries.

use std::net::IpAddr;

use serde_json::{Map, Value, json};
use sesame_kinds::api::GATEWAY_GROUP;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::values::put;
use super::{ANNOTATIONS, Mesh};

const BACKENDS: &str = "HTTPRoute rules.backendRefs";
const LOCAL: &str = ".svc.cluster.local";

/// Meaning of a host name.
pub(super) enum HostTarget {
    Service(ObjectId),
    /// The ServiceEntry, and the Service that replaces it.
    Entry(ObjectId, ObjectId),
}

impl HostTarget {
    pub(super) fn service(&self) -> &ObjectId {
        match self {
            Self::Service(id) | Self::Entry(_, id) => id,
        }
    }
}

/// Resolves a host name for an object in a namespace.
pub(super) fn target(mesh: &Mesh, namespace: &str, host: &str) -> Option<HostTarget> {
    let entries = mesh.of_kind("ServiceEntry.networking.istio.io").into_iter();
    let mut entries = entries.filter(|(_, object)| {
        let hosts = object["spec"]["hosts"].as_array().into_iter().flatten();
        hosts.into_iter().any(|it| it == host)
    });
    if let Some((id, _)) = entries.next() {
        let service = ObjectId::new("Service", &id.namespace, &format!("{}-entry", id.name));
        return Some(HostTarget::Entry(id, service));
    }
    let local = host
        .strip_suffix(LOCAL)
        .or_else(|| host.strip_suffix(".svc"));
    let (name, namespace) = match (host.contains('.'), local) {
        (false, _) => (host, namespace),
        (true, Some(local)) => local.split_once('.')?,
        // Istio does not complete such names, but the Service is the only sensible meaning.
        (true, None) => host.split_once('.').filter(|(name, namespace)| {
            let id = ObjectId::new("Service", namespace, name);
            mesh.inputs.contains_key(&id)
        })?,
    };
    let is_name = !name.is_empty() && !namespace.is_empty() && !namespace.contains('.');
    is_name.then(|| HostTarget::Service(ObjectId::new("Service", namespace, name)))
}

/// The VirtualService whose route sends requests to a destination.
pub(super) struct DestinationUser<'u> {
    pub(super) id: &'u ObjectId,
    /// Kind of the output route.
    pub(super) kind: &'u str,
    /// Namespace of short host names.
    pub(super) namespace: &'u str,
}

/// Returns a reference to the destination, or `None` if it was refused.
pub(super) fn destination(
    draft: &mut Draft,
    mesh: &mut Mesh,
    user: &DestinationUser<'_>,
    field: TakenField,
    weight: i64,
) -> Option<Value> {
    let DestinationUser {
        id: user,
        kind,
        namespace,
    } = user;
    let mut fields = field.fields();
    let host = fields.take("host")?;
    let Some(target) = target(mesh, namespace, host.as_str()) else {
        let reason = "the host is neither a Service nor in a ServiceEntry of the input";
        host.refuse(reason, "use a Service, or one with your own EndpointSlices");
        return None;
    };
    mesh.users
        .entry(target.service().clone())
        .or_default()
        .insert((*user).clone());
    let mut port = fields.section("port");
    let number = port
        .number("number", BACKENDS)
        .or_else(|| only_port(mesh, &target));
    let Some(number) = number else {
        drop(host.carry(BACKENDS));
        let reason = "the Service is not in the input, or has several ports";
        port.refuse("number", reason, "add the Service to the input, or set it");
        return None;
    };
    drop(port);
    let service = match &target {
        HostTarget::Entry(entry, service) => {
            mesh.users
                .entry(entry.clone())
                .or_default()
                .insert((*user).clone());
            entry_service(draft, mesh, entry, service);
            service.clone()
        }
        HostTarget::Service(service) => match fields.take("subset") {
            Some(field) => subset(draft, mesh, user, service, field)?,
            None => service.clone(),
        },
    };
    host.carry(BACKENDS);
    let foreign = Some(service.namespace.as_str()).filter(|it| *it != user.namespace);
    if foreign.is_some() {
        routing::add_grant(draft, (GATEWAY_GROUP, kind, &user.namespace), &service);
    }
    Some(routing::backend_ref(&service.name, foreign, number, weight))
}

fn only_port(mesh: &Mesh, target: &HostTarget) -> Option<i64> {
    let id = match target {
        HostTarget::Service(id) | HostTarget::Entry(id, _) => id,
    };
    match mesh.inputs.get(id)?["spec"]["ports"].as_array()?.as_slice() {
        [port] => port["port"].as_i64().or_else(|| port["number"].as_i64()),
        _ => None,
    }
}

/// Returns the Service for the Pods of a subset.
fn subset(
    draft: &mut Draft,
    mesh: &mut Mesh,
    user: &ObjectId,
    service: &ObjectId,
    field: TakenField,
) -> Option<ObjectId> {
    let name = field.as_str().to_owned();
    let rules = mesh
        .of_kind("DestinationRule.networking.istio.io")
        .into_iter();
    let mut found = rules.filter_map(|(id, rule)| {
        let host = rule["spec"]["host"].as_str()?;
        let target = target(mesh, &id.namespace, host)?;
        let subsets = rule["spec"]["subsets"].as_array()?;
        let subset = subsets.iter().find(|it| it["name"] == *name)?;
        (target.service() == service).then(|| (id, subset["labels"].clone()))
    });
    let Some((rule, labels)) = found.next() else {
        let reason = "no DestinationRule in the input defines the subset";
        field.refuse(reason, "add it to the input");
        return None;
    };
    let original = mesh.inputs.get(service).map(|it| (*it)["spec"].clone());
    let Some(spec) = original.filter(|it| it["selector"].is_object()) else {
        let reason = "the Service is not in the input, or selects no Pods";
        field.refuse(reason, "add the Service to the input");
        return None;
    };
    let mut selector = spec["selector"].as_object().cloned().unwrap_or_default();
    selector.extend(labels.as_object().cloned().unwrap_or_default());
    let id = ObjectId::new(
        "Service",
        &service.namespace,
        &format!("{}-{name}", service.name),
    );
    if mesh.inputs.contains_key(&id) {
        let reason = format!("the input has another Service {}", id.name);
        field.refuse(&reason, "rename the subset");
        return None;
    }
    field.differ(BACKENDS, "a Service for the subset's Pods");
    mesh.users
        .entry(rule.clone())
        .or_default()
        .insert(user.clone());
    mesh.users
        .entry(id.clone())
        .or_default()
        .insert(user.clone());
    let made = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": id.name, "namespace": id.namespace},
        "spec": {"selector": selector, "ports": ports(&spec)},
    });
    if !draft.outputs.contains_key(&id) {
        // Other VirtualServices may use it, so only its DestinationRule stops it.
        draft.add(&rule, made);
    }
    Some(id)
}

/// Returns a Service's ports without those that only its owner may choose.
fn ports(spec: &Value) -> Vec<Value> {
    let mut ports = spec["ports"].as_array().cloned().unwrap_or_default();
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
    ports
}

/// Adds the Service and EndpointSlices that replace a ServiceEntry.
fn entry_service(draft: &mut Draft, mesh: &mut Mesh, id: &ObjectId, service: &ObjectId) {
    if draft.outputs.contains_key(service) || mesh.logs.contains_key(id) {
        return;
    }
    let object = mesh.inputs.get(id).copied().unwrap_or(&Value::Null);
    let log = mesh.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    spec.texts("hosts", "Service");
    spec.skip(
        "exportTo",
        "a ReferenceGrant permits the routes in the input",
    );
    spec.skip("location", "it affects only the mesh");
    spec.skip("addresses", "routes refer to the Service");
    if let Some(field) = spec.take("resolution") {
        match field.as_str() {
            "STATIC" => drop(field.carry("EndpointSlice")),
            _ => field.refuse(
                "Sesame resolves no names of backends, because they can become rejected addresses",
                "list addresses with resolution STATIC",
            ),
        }
    }
    let mut ports = Vec::new();
    for field in spec.list("ports") {
        let mut port = field.fields();
        let name = port.text("name", "Service spec.ports").unwrap_or_default();
        let number = port
            .number("number", "Service spec.ports")
            .unwrap_or_default();
        let target = port
            .number("targetPort", "EndpointSlice ports")
            .unwrap_or(number);
        port.skip("protocol", "the route's kind determines it");
        ports.push((name.to_ascii_lowercase(), number, target));
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for field in spec.list("endpoints") {
        let mut endpoint = field.fields();
        for name in ["labels", "network", "locality", "serviceAccount"] {
            endpoint.skip(name, "it affects only the mesh");
        }
        if let Some(field) = endpoint.take_tuning("weight") {
            field.refuse("all endpoints have equal shares", "remove it");
        }
        if let Some(field) = endpoint.take("ports") {
            field.refuse("all endpoints have the entry's ports", "use targetPort");
        }
        let Some(field) = endpoint.take("address") else {
            continue;
        };
        match field.as_str().parse() {
            Ok(address) => {
                field.carry("EndpointSlice endpoints");
                addresses.push(address);
            }
            Err(_) => field.refuse("expected an address", "list addresses only"),
        }
    }
    drop(spec);
    drop(root);
    for made in objects(service, &ports, &addresses) {
        draft.add(id, made);
    }
}

fn objects(service: &ObjectId, ports: &[(String, i64, i64)], all: &[IpAddr]) -> Vec<Value> {
    let ObjectId {
        name, namespace, ..
    } = service;
    let own = ports.iter();
    let own = own.map(|(name, number, _)| json!({"name": name, "port": number}));
    let mut made = vec![json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": own.collect::<Vec<_>>()},
    })];
    for (family, is_v4) in [("IPv4", true), ("IPv6", false)] {
        let addresses = all.iter().filter(|it| it.is_ipv4() == is_v4);
        let endpoints: Vec<Value> = addresses.map(|it| json!({"addresses": [it]})).collect();
        if endpoints.is_empty() {
            continue;
        }
        let mut metadata = Map::new();
        let suffix = family.to_ascii_lowercase();
        put(&mut metadata, "name", Some(format!("{name}-{suffix}")));
        put(&mut metadata, "namespace", Some(namespace.as_str()));
        let labels = json!({"kubernetes.io/service-name": name});
        metadata.insert("labels".to_owned(), labels);
        let targets = ports.iter();
        let targets = targets.map(|(name, _, target)| json!({"name": name, "port": target}));
        made.push(json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": family,
            "endpoints": endpoints,
            "ports": targets.collect::<Vec<_>>(),
        }));
    }
    made
}
