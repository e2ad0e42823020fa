//! Middlewares that restrict access.

use serde_json::{Map, Value, json};
use sesame_kinds::api::{SESAME_GROUP, ServiceUrl};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::{network, put, put_list};
use super::middlewares::RuleParts;

const BASIC: &str = "AccessPolicy basicAuth";
const EXTERNAL: &str = "AccessPolicy extAuth";
const FILTER: &str = "AccessPolicy ipFilter";
const MAX_BODY: i64 = 65_535;

/// Returns true if policies of the route may refer to objects of the middleware's namespace.
fn is_own(parts: &RuleParts, fields: &RemainingFields, name: &str) -> bool {
    let is_own = parts.namespace == parts.owner.namespace;
    if !is_own {
        let reason = "an AccessPolicy refers to objects in its own namespace";
        fields.refuse(
            name,
            reason,
            "copy the Secret to the namespace of the route",
        );
    }
    is_own
}

pub(super) fn basic(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let mut output = Map::new();
    fields.skip("realm", "browsers show the URL");
    if is_own(parts, &fields, "secret")
        && let Some(field) = fields.take("secret")
    {
        let difference = "the Secret has the users in the key users; the digests must be bcrypt \
            with a cost of at most 12, apr1 or SHA-1, else requests get 500";
        let users = json!({"name": field.as_str(), "key": "users"});
        field.differ(&format!("{BASIC}.users"), difference);
        output.insert("users".to_owned(), users);
    } else {
        fields.skip("secret", "see secret");
        fields.refuse(
            "secret",
            "expected a Secret in the namespace of the route",
            "name one",
        );
    }
    if let Some(field) = fields.take("headerField") {
        if field.as_str().to_ascii_lowercase().starts_with("x-") {
            output.insert("usernameHeader".to_owned(), field.carry(BASIC));
        } else {
            field.refuse(
                "Sesame sets only headers that begin with x-",
                "rename the header",
            );
        }
    }
    let removes = fields.flag("removeHeader", &format!("{BASIC}.forwardCredentials"));
    let forwards = removes != Some(true);
    put(&mut output, "forwardCredentials", forwards.then_some(true));
    parts.set(&fields, "basicAuth", output);
}

pub(super) fn forward(draft: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let mut http = Map::new();
    let mut output = Map::new();
    address(draft, parts, &mut fields, (&mut http, &mut output));
    put(&mut output, "protocol", Some("HTTP"));
    let allowed = fields.texts(
        "authRequestHeaders",
        &format!("{EXTERNAL}.http.allowedHeaders"),
    );
    put_list(&mut http, "allowedHeaders", allowed);
    let to = format!("{EXTERNAL}.http.allowedResponseHeaders");
    let mut copied = fields.texts("authResponseHeaders", &to);
    copied.extend(fields.text("headerField", &to));
    if copied.is_empty() {
        let difference = "requests get all headers of the service's responses, as no list is given";
        fields.note_difference("authResponseHeaders", EXTERNAL, difference);
    }
    put_list(&mut http, "allowedResponseHeaders", copied);
    output.insert("http".to_owned(), http.into());
    let size = fields.number("maxBodySize", &format!("{EXTERNAL}.forwardBody.maxSize"));
    if fields.flag("forwardBody", &format!("{EXTERNAL}.forwardBody")) == Some(true) {
        let size = size
            .filter(|it| (1..=MAX_BODY).contains(it))
            .unwrap_or(MAX_BODY);
        output.insert("forwardBody".to_owned(), json!({ "maxSize": size }));
        let difference = "stricter: longer bodies get 413";
        fields.note_difference("maxBodySize", EXTERNAL, difference);
    }
    if let Some(field) = fields.take_set("trustForwardHeader", &json!(false)) {
        let reason = "proxies in front are trusted for a whole Gateway";
        field.refuse(reason, "set spec.edge.clientAddress, then accept the loss");
    }
    if let Some(field) = fields.take("authResponseHeadersRegex") {
        field.refuse("headers are listed by name", "list the headers");
    }
    if let Some(field) = fields.take("tls") {
        field.refuse(
            "the service is asked without TLS",
            "write a BackendTLSPolicy for it",
        );
    }
    if let Some(field) = fields.take("addAuthCookiesToResponse") {
        field.differ(
            EXTERNAL,
            "clients get the cookies of responses that deny requests",
        );
    }
    for name in [
        "preserveLocationHeader",
        "preserveRequestMethod",
        "maxResponseBodySize",
    ] {
        fields.skip(
            name,
            "the service gets the method, and clients get its response",
        );
    }
    if output.contains_key("backendRef") {
        parts.set(&fields, "extAuth", output);
    }
}

/// Reads the URL of the service.
fn address(
    draft: &mut Draft,
    parts: &RuleParts,
    fields: &mut RemainingFields,
    (http, output): (&mut Map<String, Value>, &mut Map<String, Value>),
) {
    let field = fields.take("address");
    let field = field.unwrap_or_else(|| fields.taken("address", json!("")));
    let parsed = ServiceUrl::parse(field.as_str()).map(|url| {
        let id = ObjectId::new("Service", url.namespace, url.name);
        (id, i64::from(url.port), url.path.to_owned())
    });
    match parsed {
        Ok((service, port, path)) if !path.contains('?') => {
            let difference = "the service gets the client's method, and its path after the path of \
                the address; only 200 lets requests pass";
            field.differ(EXTERNAL, difference);
            put(
                http,
                "path",
                Some(path).filter(|it| !it.is_empty() && it != "/"),
            );
            let namespace = &parts.owner.namespace;
            let foreign = Some(service.namespace.as_str()).filter(|it| it != namespace);
            if foreign.is_some() {
                routing::add_grant(draft, (SESAME_GROUP, "AccessPolicy", namespace), &service);
            }
            let backend = routing::backend_ref(&service.name, foreign, port, 1);
            output.insert("backendRef".to_owned(), backend);
        }
        Ok(_) => field.refuse("the address has a query", "use a path without it"),
        Err(why) => field.refuse(&why, "use the URL of a Service"),
    }
}

pub(super) fn addresses(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let mut output = Map::new();
    let networks = fields.texts("sourceRange", &format!("{FILTER}.allow"));
    if networks.is_empty() {
        fields.refuse("sourceRange", "there is no network", "list networks");
    }
    let networks: Vec<String> = networks.iter().map(|it| network(it)).collect();
    put_list(&mut output, "allow", networks);
    if let Some(field) = fields.take("ipStrategy") {
        if field.value().as_object().is_some_and(Map::is_empty) {
            field.unneeded("it is empty");
        } else {
            let reason = "proxies in front are trusted for a whole Gateway";
            field.refuse(reason, "set spec.edge.clientAddress, then accept the loss");
        }
    }
    if let Some(field) = fields.take_tuning("rejectStatusCode") {
        field.differ(FILTER, "other clients get 403");
    }
    parts.set(&fields, "ipFilter", output);
}
