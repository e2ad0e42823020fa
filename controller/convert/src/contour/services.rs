//! Services of routes, and how their connections are secured.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::{put, put_list};
use super::{ProxyTree, Visit, actions, balance};

const BACKENDS: &str = "HTTPRoute rules.backendRefs";
const TLS: &str = "BackendTLSPolicy spec.validation";

/// The backends of a rule, and filters for requests that are mirrored.
#[derive(Debug, Default)]
pub(super) struct ReadServices {
    pub(super) backends: Vec<Value>,
    pub(super) mirrors: Vec<Value>,
}

/// `settings` apply to all Services of the route.
pub(super) fn read(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    visit: &Visit,
    fields: &mut RemainingFields,
    settings: &Map<String, Value>,
) -> ReadServices {
    let mut found = ReadServices::default();
    let list = fields.list("services");
    // As in Contour, all weights of 0 mean equal shares.
    let is_even = list
        .iter()
        .all(|it| it.value()["weight"].as_i64().unwrap_or_default() == 0);
    for field in list {
        let mut service = field.fields();
        let name = service.text("name", BACKENDS).unwrap_or_default();
        let port = service.number("port", BACKENDS).unwrap_or_default();
        let weight = service.number("weight", BACKENDS).unwrap_or_default();
        let id = ObjectId::new("Service", &visit.id.namespace, &name);
        protocol(draft, visit, &mut service, &id);
        let mut settings = settings.clone();
        if let Some(field) = service.take_tuning("slowStartPolicy") {
            balance::slow_start(field.fields(), &mut settings);
        }
        if let Some(field) = service.take_tuning("healthPort") {
            let reason = "health checks use the port of an endpoint, which the input lacks";
            field.refuse(reason, "set healthCheck.active.port of the BackendPolicy");
        }
        claim(tree, &service, (id, &visit.id), &settings);
        let mut filters = Vec::new();
        if let Some(field) = service.take("requestHeadersPolicy") {
            filters.extend(actions::headers(
                field.fields(),
                "RequestHeaderModifier",
                visit,
            ));
        }
        if let Some(field) = service.take("responseHeadersPolicy") {
            filters.extend(actions::headers(
                field.fields(),
                "ResponseHeaderModifier",
                visit,
            ));
        }
        actions::cookies(&mut service);
        if service.flag("mirror", "HTTPRoute rules.filters.requestMirror") == Some(true) {
            let backend = routing::backend_ref(&name, None, port, 1);
            let mut mirror = json!({ "backendRef": backend });
            if (1..100).contains(&weight) {
                mirror["percent"] = json!(weight);
            }
            found.mirrors.push(routing::filter("RequestMirror", mirror));
            continue;
        }
        let weight = if is_even { 1 } else { weight };
        let mut backend = routing::backend_ref(&name, None, port, weight);
        if !filters.is_empty() {
            backend["filters"] = filters.into();
        }
        found.backends.push(backend);
    }
    found
}

/// Records settings of a Service. Another object's settings take precedence.
pub(super) fn claim(
    tree: &mut ProxyTree,
    fields: &RemainingFields,
    (service, source): (ObjectId, &ObjectId),
    settings: &Map<String, Value>,
) {
    let name = service.name.clone();
    if !settings.is_empty()
        && let Some(owner) = tree.services.claim(service, source, settings)
    {
        let difference =
            format!("left out for Service {name}, which has other settings of {owner}");
        fields.note_difference("name", "BackendPolicy targetRefs", &difference);
    }
}

fn protocol(draft: &mut Draft, visit: &Visit, service: &mut RemainingFields, id: &ObjectId) {
    let validation = service.take("validation");
    let is_verified = validation.is_some();
    let protocol = service.take("protocol");
    let uses_tls = protocol
        .as_ref()
        .is_some_and(|it| ["tls", "h2"].contains(&it.as_str()));
    match protocol {
        Some(field) if field.as_str() == "h2c" => {
            let difference = "set appProtocol: kubernetes.io/h2c on the Service's port, which \
                selects the protocol";
            field.differ(BACKENDS, difference);
        }
        Some(field) if field.as_str() == "tls" && is_verified => {
            field.differ("BackendTLSPolicy", "all routes to the Service use TLS");
        }
        Some(field) if field.as_str() == "h2" && is_verified => {
            let difference = "all routes to the Service use TLS, and HTTP/1.1 unless its port has \
                appProtocol: kubernetes.io/h2c";
            field.differ("BackendTLSPolicy", difference);
        }
        Some(field) if uses_tls => {
            let reason = "connections with TLS verify the Service's certificate";
            field.refuse(
                reason,
                "set validation, or write a BackendTLSPolicy and accept the loss",
            );
        }
        Some(field) => field.refuse("the protocol is unknown", "use h2c, h2 or tls"),
        None => {}
    }
    match validation {
        Some(field) if uses_tls => verify(draft, &visit.id, field.fields(), id),
        Some(field) => field.unneeded("Contour ignores it without protocol tls or h2"),
        None => {}
    }
}

/// Adds a BackendTLSPolicy for a Service, unless it has one.
pub(super) fn verify(
    draft: &mut Draft,
    source: &ObjectId,
    mut fields: RemainingFields,
    service: &ObjectId,
) {
    let mut validation = Map::new();
    if let Some(field) = fields.take("caSecret") {
        let difference = "put ca.crt of the Secret into a ConfigMap of the same name, in the \
            namespace of the Service";
        let name = field.as_str().rsplit('/').next().unwrap_or_default();
        let reference = json!({"group": "", "kind": "ConfigMap", "name": name});
        put_list(&mut validation, "caCertificateRefs", vec![reference]);
        field.differ(&format!("{TLS}.caCertificateRefs"), difference);
    }
    let name = fields.text("subjectName", &format!("{TLS}.hostname"));
    let names = fields.texts("subjectNames", &format!("{TLS}.subjectAltNames"));
    put(
        &mut validation,
        "hostname",
        name.or_else(|| names.first().cloned()),
    );
    if names.len() > 1 {
        let names = names.into_iter();
        let names = names.map(|name| json!({"type": "Hostname", "hostname": name}));
        put_list(&mut validation, "subjectAltNames", names.collect());
    }
    if !routing::add_backend_tls(draft, source, service, &validation) {
        let reason = "another route verifies the Service's certificate in another way";
        fields.refuse("caSecret", reason, "use the same validation for each route");
    }
}
