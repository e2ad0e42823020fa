//! Objects besides HTTPProxies: certificate delegations, and services for authorization.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sesame_kinds::api::GATEWAY_GROUP;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::values::put;
use super::super::verdicts::VerdictLog;
use super::balance;
use super::services;
use super::{ALPHA, ProxyTree, VERSION};

const GRANT: &str = "ReferenceGrant spec";
const AUTH: &str = "AccessPolicy extAuth";

pub(super) fn convert(draft: &mut Draft, tree: &mut ProxyTree, id: &ObjectId, object: &Value) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    match (id.kind.as_str(), version) {
        ("HTTPProxy", VERSION) => {}
        ("TLSCertificateDelegation", VERSION) => delegation(draft, tree, id, object),
        ("ExtensionService", ALPHA) => extension(draft, tree, id, object),
        ("Ingress", _) => {
            let reason = "Sesame serves Ingresses with Contour's annotations; keep it as it is";
            draft.unneeded(id, reason);
        }
        _ if version.starts_with("projectcontour.io/") => {
            let reason = "it may configure authorization and limits for all hosts";
            let remedy = "write policies for the Gateway, then accept the loss";
            draft.refuse(id, "kind", reason, remedy);
        }
        _ => draft.unneeded(id, "not an object of Contour; keep it as it is"),
    }
}

/// Certificates that listeners in other namespaces use.
fn delegation(draft: &mut Draft, tree: &ProxyTree, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let metadata = root.take_head("projectcontour.io/");
    let mut spec = root.section("spec");
    for (index, field) in spec.list("delegations").into_iter().enumerate() {
        let mut fields = field.fields();
        let secret = fields.text("secretName", GRANT).unwrap_or_default();
        let mut namespaces: BTreeSet<String> = BTreeSet::new();
        if let Some(field) = fields.take("targetNamespaces") {
            if field.value() == &json!(["*"]) {
                namespaces.extend(users(tree, &id.namespace, &secret));
                let difference = "lists the namespaces in the input that use the Secret";
                field.differ(GRANT, difference);
            } else {
                namespaces.extend(field.texts(GRANT));
            }
        }
        let from = namespaces.into_iter().map(|namespace| {
            json!({"group": GATEWAY_GROUP, "kind": "ListenerSet", "namespace": namespace})
        });
        let from: Vec<Value> = from.collect();
        if from.is_empty() {
            continue;
        }
        let mut metadata = metadata.clone();
        put(&mut metadata, "namespace", Some(id.namespace.as_str()));
        if index > 0 {
            put(
                &mut metadata,
                "name",
                Some(format!("{}-{}", id.name, index + 1)),
            );
        }
        let grant = json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1",
            "kind": "ReferenceGrant",
            "metadata": metadata,
            "spec": {"from": from, "to": [{"group": "", "kind": "Secret", "name": secret}]},
        });
        draft.add(id, grant);
    }
    drop(spec);
    drop(root);
    draft.record(id, &log, [id.clone()]);
}

/// Returns the namespaces of HTTPProxies whose certificate is a Secret in another namespace.
fn users(tree: &ProxyTree, namespace: &str, secret: &str) -> BTreeSet<String> {
    let wanted = format!("{namespace}/{secret}");
    let users = tree
        .proxies
        .iter()
        .filter(|(_, object)| object["spec"]["virtualhost"]["tls"]["secretName"] == *wanted);
    users.map(|(id, _)| id.namespace.clone()).collect()
}

/// Returns the Service of an ExtensionService in the input, and its port.
pub(super) fn target(draft: &Draft, id: &ObjectId) -> Option<(ObjectId, i64)> {
    let spec = &draft.input(id)?["spec"];
    let service = spec["services"].get(0)?;
    let name = service["name"].as_str()?;
    let port = service["port"].as_i64()?;
    Some((ObjectId::new("Service", &id.namespace, name), port))
}

fn extension(draft: &mut Draft, tree: &mut ProxyTree, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head("projectcontour.io/");
    let mut spec = root.section("spec");
    let services = spec.list("services");
    if services.len() != 1 {
        spec.refuse(
            "services",
            "an authorization service has one Service",
            "use one Service",
        );
    }
    for field in services {
        let mut service = field.fields();
        service.text("name", &format!("{AUTH}.backendRef"));
        service.number("port", &format!("{AUTH}.backendRef"));
        service.skip("weight", "there is one Service");
    }
    spec.skip("protocolVersion", "there is only one version");
    let protocol = spec.take("protocol");
    let name = protocol
        .as_ref()
        .map_or("h2", |field| field.as_str())
        .to_owned();
    let service = target(draft, id).map(|(service, _)| service);
    let validation = spec.take("validation");
    let is_verified = validation.is_some();
    if let (Some(field), Some(service)) = (validation, &service) {
        services::verify(draft, id, field.fields(), service);
    }
    match (name.as_str(), protocol) {
        ("h2", field) if !is_verified => {
            let reason = "connections with TLS verify the Service's certificate";
            let remedy = "set validation, or use protocol h2c";
            match field {
                Some(field) => field.refuse(reason, remedy),
                None => spec.refuse("protocol", reason, remedy),
            }
        }
        ("h2" | "h2c" | "http/1.1", Some(field)) => drop(field.carry(AUTH)),
        (_, Some(field)) => field.refuse("the protocol is unknown", "use h2, h2c or http/1.1"),
        (_, None) => {}
    }
    let mut settings = Map::new();
    if let Some(field) = spec.take_tuning("loadBalancerPolicy") {
        balance::strategy(field.fields(), &mut settings);
    }
    if let Some(field) = spec.take_tuning("timeoutPolicy") {
        let mut timeouts = field.fields();
        if let Some(field) = timeouts.take("response") {
            field.differ(AUTH, "the service may take 5 seconds");
        }
        timeouts.skip("idle", "Contour ignores it");
        balance::idle(timeouts.take("idleConnection"), &mut settings);
    }
    if let Some(field) = spec.take_tuning("circuitBreakerPolicy") {
        balance::breaker(field.fields(), &mut settings);
    }
    if let Some(service) = service {
        services::claim(tree, &spec, (service, id), &settings);
    }
    drop(spec);
    drop(root);
    let users = tree.proxies.iter().filter(|(proxy, object)| {
        let reference = &object["spec"]["virtualhost"]["authorization"]["extensionRef"];
        let namespace = reference["namespace"].as_str().filter(|it| !it.is_empty());
        let namespace = namespace.unwrap_or(&proxy.namespace);
        reference["name"] == *id.name && namespace == id.namespace
    });
    let users: Vec<ObjectId> = users.map(|(proxy, _)| proxy.clone()).collect();
    draft.record(id, &log, users.into_iter().chain([id.clone()]));
}
