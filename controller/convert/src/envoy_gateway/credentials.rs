//! Passwords, API keys and external authorization. Secrets are only referred to.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{put, put_list, put_map};
use super::super::verdicts::VerdictLog;
use super::references;

const MAX_BODY: i64 = 65_535;
const MAX_SOURCES: usize = 4;

/// Envoy Gateway forwards passwords, so the result does too.
pub(super) fn basic(id: &ObjectId, mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let to = "AccessPolicy basicAuth.users";
    let Some(users) = fields.take("users").and_then(|field| secret(id, field, to)) else {
        return output;
    };
    output.insert("users".to_owned(), users);
    put(&mut output, "forwardCredentials", Some(true));
    let header = fields.take("forwardUsernameHeader");
    let header =
        header.and_then(|field| own_header(field, "AccessPolicy basicAuth.usernameHeader"));
    put(&mut output, "usernameHeader", header);
    output
}

pub(super) fn api_keys(id: &ObjectId, mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let to = |name: &str| format!("AccessPolicy apiKeyAuth.{name}");
    let secrets = fields.list("credentialRefs").into_iter();
    let secrets: Vec<Value> = secrets
        .filter_map(|field| secret(id, field, &to("credentials")))
        .collect();
    let mut sources = Vec::new();
    for field in fields.list("extractFrom") {
        let mut fields = field.fields();
        for (name, ours) in [
            ("headers", "header"),
            ("params", "queryParameter"),
            ("cookies", "cookie"),
        ] {
            for value in fields.texts(name, &to("sources")) {
                sources.push(json!({ ours: value }));
            }
        }
    }
    if sources.len() > MAX_SOURCES {
        let reason = format!("Sesame supports at most {MAX_SOURCES} sources");
        fields.refuse("extractFrom", &reason, "remove sources");
    }
    let header = fields.take("forwardClientIDHeader");
    let header = header.and_then(|field| own_header(field, &to("clientHeader")));
    let sanitize = fields.flag("sanitize", &to("forwardCredentials"));
    if secrets.is_empty() {
        return output;
    }
    put_list(&mut output, "credentials", secrets);
    put_list(&mut output, "sources", sources);
    put(&mut output, "clientHeader", header);
    let forwards = sanitize != Some(true);
    put(&mut output, "forwardCredentials", forwards.then_some(true));
    output
}

/// Refers to a Secret in the policy's own namespace.
pub(super) fn secret(id: &ObjectId, field: TakenField, to: &str) -> Option<Value> {
    let text = |name: &str| field.value()[name].as_str();
    let name = text("name").unwrap_or_default().to_owned();
    let is_own = text("namespace").is_none_or(|namespace| namespace == id.namespace);
    let is_secret = text("kind").is_none_or(|kind| kind == "Secret");
    if name.is_empty() || !is_own || !is_secret {
        let reason = "Sesame reads only Secrets in the policy's own namespace";
        field.refuse(reason, "copy the Secret to this namespace");
        return None;
    }
    field.carry(to);
    Some(json!({ "name": name }))
}

fn own_header(field: TakenField, to: &str) -> Option<String> {
    if field.as_str().to_ascii_lowercase().starts_with("x-") {
        return field.text(to);
    }
    let reason = "Sesame sets only headers that begin with x-";
    field.refuse(reason, "rename the header");
    None
}

pub(super) fn external(
    draft: &Draft,
    id: &ObjectId,
    mut fields: RemainingFields,
) -> Map<String, Value> {
    let mut output = Map::new();
    let to = |name: &str| format!("AccessPolicy extAuth.{name}");
    let headers = fields.texts("headersToExtAuth", &to("allowedHeaders"));
    let mut settings = Map::new();
    put_list(&mut settings, "allowedHeaders", headers);
    let (protocol, key, service) = match (fields.take("grpc"), fields.take("http")) {
        (Some(grpc), None) => ("GRPC", "grpc", grpc),
        (None, Some(http)) => ("HTTP", "http", http),
        _ => {
            fields.refuse("grpc", "expected either grpc or http", "set one of them");
            return output;
        }
    };
    let mut service = service.fields();
    if protocol == "HTTP" {
        let path = service.text("path", &to("http.path"));
        put(&mut settings, "path", path);
        response_headers(&mut service, &mut settings);
    }
    let backend = backend(draft, id, &mut service, &to("backendRef"));
    if let Some(field) = fields.take("bodyToExtAuth") {
        let mut body = field.fields();
        if let Some(field) = body.take("maxRequestBytes") {
            let most = field.value().as_i64();
            if most.is_some_and(|it| (1..=MAX_BODY).contains(&it)) {
                let most = field.carry(&to("forwardBody.maxSize"));
                output.insert("forwardBody".to_owned(), json!({ "maxSize": most }));
            } else {
                let reason = format!("Sesame forwards 1 to {MAX_BODY} bytes");
                field.refuse(&reason, "use a value in this range");
            }
        }
    }
    if let Some(field) = fields.take("failOpen") {
        if field.value() == &Value::Bool(false) {
            field.unneeded("requests get 503 if the service is unreachable");
        } else {
            let difference = "stricter: requests get 503 if the service is unreachable";
            field.differ("AccessPolicy extAuth", difference);
        }
    }
    if let Some(field) = fields.take_tuning("timeout") {
        field.differ("AccessPolicy extAuth", "the timeout is always 5s");
    }
    if let Some(field) = fields.take("recomputeRoute")
        && field.value() == &Value::Bool(false)
    {
        field.unneeded("Sesame never selects another route after a check");
    }
    let Some(backend) = backend else {
        return Map::new();
    };
    put(&mut output, "protocol", Some(protocol));
    output.insert("backendRef".to_owned(), backend);
    put_map(&mut output, key, settings);
    output
}

/// An empty list means no header in Envoy Gateway, but all headers in Sesame.
fn response_headers(service: &mut RemainingFields, settings: &mut Map<String, Value>) {
    let to = "AccessPolicy extAuth.http.allowedResponseHeaders";
    let headers = service.texts("headersToBackend", to);
    if headers.is_empty() {
        let reason = "without a list, Sesame would copy all headers of the service's responses";
        let remedy = "set headersToBackend, for example to x-user";
        service.refuse("headersToBackend", reason, remedy);
    }
    put_list(settings, "allowedResponseHeaders", headers);
}

pub(super) fn backend(
    draft: &Draft,
    id: &ObjectId,
    service: &mut RemainingFields,
    to: &str,
) -> Option<Value> {
    let mut several = service.list("backendRefs").into_iter();
    let single = service.take("backendRef").or_else(|| several.next());
    for field in several {
        let reason = "Sesame asks one Service";
        field.refuse(reason, "combine the endpoints in one Service");
    }
    let field = single?;
    let mut reference = field.value().clone();
    if let Some(fields) = reference.as_object_mut() {
        fields.remove("weight");
    }
    let log = VerdictLog::default();
    references::rewrite(draft, id, field.path(), &mut reference, &log);
    if log.take().iter().any(|row| row.verdict.stops()) {
        let reason = "the Service is not in the input, or has no counterpart";
        field.refuse(reason, "refer to a Service");
        return None;
    }
    field.carry(to);
    Some(reference)
}

/// Returns the headers that any SecurityPolicy sets, in lower case. Sesame counts requests and
/// evaluates rules before it sets these headers, so a limit or rule for them would never apply.
pub(super) fn headers_of_checks(draft: &Draft) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (id, object) in draft.borrowed_inputs() {
        if id.kind != "SecurityPolicy" {
            continue;
        }
        let spec = &object["spec"];
        let providers = spec["jwt"]["providers"].as_array().into_iter().flatten();
        let claims = providers.filter_map(|it| it["claimToHeaders"].as_array());
        let claims = claims.flatten().map(|claim| &claim["header"]);
        let copied = spec["extAuth"]["http"]["headersToBackend"].as_array();
        let single = [
            &spec["basicAuth"]["forwardUsernameHeader"],
            &spec["apiKeyAuth"]["forwardClientIDHeader"],
        ];
        let all = claims.chain(copied.into_iter().flatten()).chain(single);
        names.extend(all.filter_map(Value::as_str).map(str::to_ascii_lowercase));
    }
    names
}
