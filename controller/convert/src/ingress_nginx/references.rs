//! Annotations that refer to other objects: passwords, authorization, headers and mirrors.

use serde_json::{Map, json};
use sesame_kinds::api::{GATEWAY_GROUP, NGINX_PREFIX, SESAME_GROUP, ServiceUrl};
use sesame_resolver::nginx_annotations::copied_headers;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::TakenField;
use super::super::routing;
use super::super::values::{put, put_list, put_map};
use super::IngressInput;
use super::policies::IngressPolicies;

pub(super) type ConvertReference =
    fn(&mut Draft, &mut IngressInput, TakenField, &mut IngressPolicies);

/// Annotations that refer to other objects.
pub(super) const ALL: &[(&str, ConvertReference)] = &[
    ("auth-type", basic_auth),
    ("auth-url", external_auth),
    ("custom-headers", response_headers),
    ("mirror-target", mirror),
];

fn basic_auth(
    _: &mut Draft,
    input: &mut IngressInput,
    field: TakenField,
    policies: &mut IngressPolicies,
) {
    if field.as_str() != "basic" {
        field.refuse(
            "Sesame supports basic only",
            "use another check of an AccessPolicy",
        );
        return;
    }
    let mut other = |name: &str| input.annotations.remove(&format!("{NGINX_PREFIX}{name}"));
    let (secret, format) = (other("auth-secret"), other("auth-secret-type"));
    if let Some(format) = format {
        match format.as_str() {
            "auth-file" => drop(format.carry("AccessPolicy basicAuth.users.key")),
            _ => format.refuse(
                "the Secret must contain one htpasswd file",
                "put all users into the key auth, and use auth-file",
            ),
        }
    }
    let Some(secret) = secret else {
        field.refuse("there is no auth-secret", "name the Secret with the users");
        return;
    };
    let is_name = |c: u8| c.is_ascii_alphanumeric() || b"./-".contains(&c);
    if !secret.as_str().bytes().all(is_name) || secret.as_str().is_empty() {
        secret.refuse("expected the name of a Secret", "correct the value");
        drop(field.carry("AccessPolicy basicAuth"));
        return;
    }
    let name = match secret.as_str().split_once('/') {
        Some((namespace, name)) if namespace == input.id.namespace => name.to_owned(),
        Some(_) => {
            let reason = "the Secret must be in the namespace of the Ingress";
            secret.refuse(reason, "copy the Secret");
            drop(field.carry("AccessPolicy basicAuth"));
            return;
        }
        None => secret.as_str().to_owned(),
    };
    secret.differ(
        "AccessPolicy basicAuth.users",
        "the digests must be bcrypt with a cost of at most 12, apr1 or SHA-1, else requests get 500",
    );
    field.carry("AccessPolicy basicAuth");
    // ingress-nginx forwards passwords.
    let users = json!({"users": {"name": name, "key": "auth"}, "forwardCredentials": true});
    policies.access.insert("basicAuth".to_owned(), users);
}

/// Returns the Service of a URL and its path.
fn service(field: TakenField) -> Option<(TakenField, ObjectId, i64, String)> {
    match ServiceUrl::parse(field.as_str()) {
        Ok(url) => {
            let ServiceUrl {
                namespace,
                name,
                port,
                path,
            } = url;
            let id = ObjectId::new("Service", namespace, name);
            let path = path.to_owned();
            Some((field, id, port.into(), path))
        }
        Err(why) => {
            field.refuse(&why, "use the URL of a Service");
            None
        }
    }
}

fn external_auth(
    draft: &mut Draft,
    input: &mut IngressInput,
    field: TakenField,
    policies: &mut IngressPolicies,
) {
    input.has_auth_url = true;
    let Some((field, id, port, path)) = service(field) else {
        return;
    };
    if path.contains(['$', '?']) {
        field.refuse(
            "the path has a query or variables",
            "use a path without them",
        );
        return;
    }
    let mut http = Map::new();
    put(
        &mut http,
        "path",
        Some(path.as_str()).filter(|it| !it.is_empty()),
    );
    let name = format!("{NGINX_PREFIX}auth-response-headers");
    if let Some(field) = input.annotations.remove(&name) {
        match copied_headers(field.as_str()) {
            Ok(names) => {
                field.carry("AccessPolicy extAuth.http.allowedResponseHeaders");
                put_list(&mut http, "allowedResponseHeaders", names);
            }
            Err(why) => field.refuse(&why, "correct the value"),
        }
    }
    let foreign = Some(id.namespace.as_str()).filter(|it| *it != input.id.namespace);
    if foreign.is_some() {
        let from = (SESAME_GROUP, "AccessPolicy", input.id.namespace.as_str());
        routing::add_grant(draft, from, &id);
    }
    let mut auth = Map::new();
    put(&mut auth, "protocol", Some("HTTP"));
    let backend = routing::backend_ref(&id.name, foreign, port, 1);
    auth.insert("backendRef".to_owned(), backend);
    put_map(&mut auth, "http", http);
    policies.access.insert("extAuth".to_owned(), auth.into());
    field.differ(
        "AccessPolicy extAuth",
        "the service gets the client's method and host, and this path followed by the request's \
        path; only its status 200 allows a request",
    );
}

/// Reads a ConfigMap in the input.
fn response_headers(
    draft: &mut Draft,
    input: &mut IngressInput,
    field: TakenField,
    policies: &mut IngressPolicies,
) {
    let (namespace, name) = match field.as_str().split_once('/') {
        Some((namespace, name)) => (namespace, name),
        None => (input.id.namespace.as_str(), field.as_str()),
    };
    let map = draft.input(&ObjectId::new("ConfigMap", namespace, name));
    let Some(data) = map.and_then(|map| map["data"].as_object()) else {
        field.refuse("the ConfigMap is not in the input", "add it to the input");
        return;
    };
    let set = data
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}));
    let set = json!({ "set": set.collect::<Vec<_>>() });
    policies
        .filters
        .push(routing::filter("ResponseHeaderModifier", set));
    field.differ(
        "HTTPRoute rules.filters.responseHeaderModifier",
        "a copy of the ConfigMap's present content",
    );
}

fn mirror(
    draft: &mut Draft,
    input: &mut IngressInput,
    field: TakenField,
    policies: &mut IngressPolicies,
) {
    let Some((field, id, port, path)) = service(field) else {
        return;
    };
    if !matches!(path.as_str(), "$request_uri" | "/$request_uri") {
        let reason = "mirrored requests keep their path";
        field.refuse(reason, "end the URL with $request_uri");
        return;
    }
    let foreign = Some(id.namespace.as_str()).filter(|it| *it != input.id.namespace);
    if foreign.is_some() {
        let from = (GATEWAY_GROUP, "HTTPRoute", input.id.namespace.as_str());
        routing::add_grant(draft, from, &id);
    }
    let backend = routing::backend_ref(&id.name, foreign, port, 1);
    let mirror = routing::filter("RequestMirror", json!({ "backendRef": backend }));
    policies.forwarding.push(mirror);
    field.carry("HTTPRoute rules.filters.requestMirror");
}
