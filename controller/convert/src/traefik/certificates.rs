//! TLS of routes becomes HTTPS listeners, one for each host.

use serde_json::{Map, Value, json};
use sesame_proto::tls_parameters::is_cipher_suite;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::put;
use super::{ANNOTATIONS, CLASS, Routers, ingresses, matches, routes, streams};

const TLS: &str = "ListenerSet listeners.tls";
const OPTIONS: &str = "ListenerSet listeners.tls.options";
/// Name of the TLSOption of all routes without another one.
const DEFAULT: &str = "default";

/// An object, a host that it serves over TLS, and the options for the host.
type WantedOptions = (ObjectId, String, Map<String, Value>);

/// Adds the listeners of all objects, so that routes can use each other's certificates.
pub(super) fn convert(draft: &mut Draft, routers: &mut Routers) {
    routing::add_gateway(draft, CLASS);
    let mut wanted: Vec<WantedOptions> = Vec::new();
    for (id, object) in routers.of_kind("TLSStore") {
        store(draft, routers, &id, object);
    }
    for (id, object) in routers.of_kind("IngressRoute") {
        let tls = &object["spec"]["tls"];
        if !routes::may_use_tls(object) {
            continue;
        }
        // They count even if the certificate belongs to another object.
        let options = options(routers, &id, &tls["options"]);
        let list = object["spec"]["routes"].as_array().into_iter().flatten();
        let rules = list.filter_map(|it| it["match"].as_str());
        let hosts: Vec<String> = rules.flat_map(matches::hosts).collect();
        if let Some(secret) = secret(&id, tls) {
            let tls = with_options(json!({"certificateRefs": [{ "name": secret }]}), &options);
            add(draft, routers, &id, &hosts, "HTTPS", &tls);
        }
        wanted.extend(
            hosts
                .into_iter()
                .map(|it| (id.clone(), it, options.clone())),
        );
    }
    for (id, object) in routers.of_kind("Ingress") {
        if !ingresses::may_use_tls(&routers.inputs, object) {
            continue;
        }
        let options = options(routers, &id, &Value::Null);
        for (host, secret) in ingresses::certificates(object) {
            let tls = with_options(json!({"certificateRefs": [{ "name": secret }]}), &options);
            add(draft, routers, &id, &[host], "HTTPS", &tls);
        }
        let hosts = ingresses::hosts(object);
        wanted.extend(hosts.map(|it| (id.clone(), it, options.clone())));
    }
    for (id, object) in routers.of_kind("IngressRouteTCP") {
        let tls = &object["spec"]["tls"];
        let hosts = streams::hosts(object);
        if tls["passthrough"] == true {
            let settings = json!({"mode": "Passthrough"});
            add(draft, routers, &id, &hosts, "TLS", &settings);
        } else if !tls.is_null() {
            let options = options(routers, &id, &tls["options"]);
            if let Some(secret) = secret(&id, tls) {
                let tls = with_options(json!({"certificateRefs": [{ "name": secret }]}), &options);
                add(draft, routers, &id, &hosts, "TLS", &tls);
            }
            wanted.extend(
                hosts
                    .into_iter()
                    .map(|it| (id.clone(), it, options.clone())),
            );
        }
    }
    refuse_other_options(draft, routers, wanted);
}

fn with_options(mut tls: Value, options: &Map<String, Value>) -> Value {
    if !options.is_empty() {
        tls["options"] = options.clone().into();
    }
    tls
}

/// Refuses options that the listener of the host does not have, because another object adds it.
fn refuse_other_options(draft: &Draft, routers: &mut Routers, wanted: Vec<WantedOptions>) {
    for (id, host, options) in wanted {
        let Some((served, owner)) = serving(routers, &host) else {
            continue;
        };
        let set = ObjectId::new("ListenerSet", &owner.namespace, &owner.name);
        let name = routing::listener_name(&served);
        let listeners = draft.outputs.get(&set);
        let listeners = listeners.and_then(|it| it.value["spec"]["listeners"].as_array());
        let listener = listeners
            .into_iter()
            .flatten()
            .find(|it| it["name"] == *name);
        let given = listener.and_then(|it| it["tls"]["options"].as_object());
        if given.cloned().unwrap_or_default() != options {
            let reason = format!("{owner} adds the listener of {host:?}, with other options");
            let remedy = "use the same options for all objects of the host";
            let log = routers.log(&id);
            log.refuse("spec.tls.options", &reason, remedy);
        }
    }
}

/// Returns the Secret with the certificate. cert-manager can maintain the one for a resolver.
fn secret(id: &ObjectId, tls: &Value) -> Option<String> {
    let own = tls["secretName"].as_str().filter(|it| !it.is_empty());
    let resolved = tls["certResolver"].as_str().filter(|it| !it.is_empty());
    own.map(str::to_owned)
        .or_else(|| resolved.map(|_| resolved_secret(id)))
}

fn resolved_secret(id: &ObjectId) -> String {
    format!("{}-tls", id.name)
}

fn add(
    draft: &mut Draft,
    routers: &mut Routers,
    id: &ObjectId,
    hosts: &[String],
    protocol: &str,
    tls: &Value,
) {
    let mut listeners = Vec::new();
    for host in hosts {
        if !routers.certificates.contains_key(host) {
            routers.certificates.insert(host.clone(), id.clone());
            listeners.push(routing::listener(host, protocol, tls.clone()));
        }
    }
    if listeners.is_empty() {
        return;
    }
    let mut metadata = Map::new();
    put(&mut metadata, "name", Some(id.name.as_str()));
    put(&mut metadata, "namespace", Some(id.namespace.as_str()));
    let set = ObjectId::new("ListenerSet", &id.namespace, &id.name);
    match draft.outputs.get_mut(&set) {
        // An Ingress and an IngressRoute may have the same name.
        Some(known) => {
            if let Some(list) = known.value["spec"]["listeners"].as_array_mut() {
                list.append(&mut listeners);
            }
            known.sources.insert(id.clone());
        }
        None => routing::add_listeners(draft, id, CLASS, &metadata, &listeners),
    }
}

/// Returns the host of the listener that serves a host, and the object that adds it.
fn serving(routers: &Routers, host: &str) -> Option<(String, ObjectId)> {
    let parent = host
        .split_once('.')
        .map(|(_, parent)| format!("*.{parent}"));
    let candidates = [Some(host.to_owned()), parent, Some(String::new())];
    candidates.into_iter().flatten().find_map(|host| {
        let owner = routers.certificates.get(&host)?.clone();
        Some((host, owner))
    })
}

/// Returns the reference to the listener that serves a host over HTTPS.
pub(super) fn parent(routers: &Routers, host: &str, namespace: &str) -> Option<Value> {
    let (host, owner) = serving(routers, host)?;
    let set = ObjectId::new("ListenerSet", &owner.namespace, &owner.name);
    let name = routing::listener_name(&host);
    Some(routing::listener_parent(&set, namespace, &name))
}

/// Takes `tls` of a route.
pub(super) fn close(routers: &Routers, id: &ObjectId, mut fields: RemainingFields) {
    fields.text("secretName", &format!("{TLS}.certificateRefs"));
    if let Some(field) = fields.take("certResolver") {
        let difference = format!(
            "let cert-manager maintain the Secret {}, because Sesame requests no certificates",
            resolved_secret(id)
        );
        field.differ(&format!("{TLS}.certificateRefs"), &difference);
    }
    fields.skip("domains", "the Secret has the certificate");
    fields.skip("store", "there is only one store");
    if let Some(field) = fields.take("options") {
        let option = option_id(routers, id, field.value());
        let mut reference = field.fields();
        reference.text("namespace", OPTIONS);
        reference.text("name", OPTIONS);
        if !option.is_some_and(|it| routers.inputs.contains_key(&it)) {
            let reason = "the TLSOption is not in the input";
            reference.refuse("name", reason, "add it to the input");
        }
    }
}

/// Returns the TLSOption of a reference. The one named `default` has any namespace.
fn option_id(routers: &Routers, id: &ObjectId, reference: &Value) -> Option<ObjectId> {
    let name = reference["name"].as_str().unwrap_or(DEFAULT);
    if name == DEFAULT {
        let mut all = routers.of_kind("TLSOption").into_iter().map(|(id, _)| id);
        return all.find(|id| id.name == DEFAULT);
    }
    let namespace = reference["namespace"].as_str().unwrap_or(&id.namespace);
    Some(ObjectId::new("TLSOption", namespace, name))
}

/// Returns the listener options of a TLSOption. Routes without one use the one named `default`.
fn options(routers: &mut Routers, user: &ObjectId, reference: &Value) -> Map<String, Value> {
    let Some(id) = option_id(routers, user, reference) else {
        return Map::new();
    };
    let Some(object) = routers.using(user, &id) else {
        return Map::new();
    };
    let log = routers.log(&id);
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let mut options = Map::new();
    for (theirs, ours) in [("minVersion", "min-version"), ("maxVersion", "max-version")] {
        let Some(field) = spec.take(theirs) else {
            continue;
        };
        let version = match field.as_str() {
            "VersionTLS12" => "1.2",
            "VersionTLS13" => "1.3",
            _ if theirs == "minVersion" => {
                field.differ(OPTIONS, "stricter: Sesame requires TLS 1.2");
                continue;
            }
            _ => {
                field.refuse(
                    "Sesame requires TLS 1.2",
                    "use VersionTLS12 or VersionTLS13",
                );
                continue;
            }
        };
        field.carry(OPTIONS);
        put(
            &mut options,
            &format!("projectsesame.io/{ours}"),
            Some(version),
        );
    }
    suites(&mut spec, &mut options);
    if let Some(field) = spec.take("clientAuth") {
        let reason = "client certificates are validated for a whole Gateway, not for a host";
        let remedy = "give the host its own Gateway, and set spec.tls.frontend there";
        field.refuse(reason, remedy);
    }
    if let Some(field) = spec.take("sniStrict") {
        field.unneeded("hosts without a listener are never served");
    }
    for name in [
        "curvePreferences",
        "preferServerCipherSuites",
        "disableSessionTickets",
    ] {
        if let Some(field) = spec.take_tuning(name) {
            field.refuse("Sesame has no such option", "remove it");
        }
    }
    options
}

fn suites(spec: &mut RemainingFields, options: &mut Map<String, Value>) {
    if let Some(field) = spec.take("cipherSuites") {
        let list = field.value().as_array().cloned().unwrap_or_default();
        let names = list.iter().filter_map(Value::as_str);
        // Suites of TLS 1.3 cannot be configured.
        let names = names.filter(|it| it.contains("_WITH_"));
        let names: Option<Vec<String>> = names.map(cipher).collect();
        match names {
            Some(names) if names.is_empty() => field.unneeded("suites of TLS 1.3 are fixed"),
            Some(names) => {
                put(
                    options,
                    "projectsesame.io/cipher-suites",
                    Some(names.join(",")),
                );
                field.carry(OPTIONS);
            }
            None => field.refuse("Sesame does not support one of the suites", "remove it"),
        }
    }
    if let Some(field) = spec.take("alpnProtocols") {
        let list = field.value().as_array().cloned().unwrap_or_default();
        let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
        let known: Vec<&str> = names
            .iter()
            .copied()
            .filter(|it| ["h2", "http/1.1"].contains(it))
            .collect();
        if known.is_empty() {
            field.refuse("Sesame serves h2 and http/1.1", "use one of these");
        } else {
            put(options, "projectsesame.io/alpn", Some(known.join(",")));
            field.carry(OPTIONS);
        }
    }
}

/// Returns the name of OpenSSL for `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`.
fn cipher(name: &str) -> Option<String> {
    let (exchange, cipher) = name.strip_prefix("TLS_")?.split_once("_WITH_")?;
    let cipher = cipher.replace("AES_", "AES").replace("_CBC_SHA", "_SHA");
    let cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305");
    let name = format!("{exchange}_{cipher}").replace('_', "-");
    is_cipher_suite(&name).then_some(name)
}

fn store(draft: &mut Draft, routers: &mut Routers, id: &ObjectId, object: &Value) {
    let log = routers.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let mut certificate = spec.section("defaultCertificate");
    if let Some(secret) = certificate.text("secretName", &format!("{TLS}.certificateRefs")) {
        let options = options(routers, id, &Value::Null);
        let tls = with_options(json!({"certificateRefs": [{ "name": secret }]}), &options);
        add(draft, routers, id, &[String::new()], "HTTPS", &tls);
    }
    drop(certificate);
    if let Some(field) = spec.take("certificates") {
        let reason = "a listener has the certificate of its host";
        field
            .protecting(false)
            .refuse(reason, "name the Secret in the routes");
    }
    if let Some(field) = spec.take("defaultGeneratedCert") {
        let reason = "Sesame requests no certificates";
        field
            .protecting(false)
            .refuse(reason, "let cert-manager maintain a Secret");
    }
}
