//! Authorization and address filters become AccessPolicies.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sesame_kinds::api::SESAME_GROUP;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::{put, put_list, put_map};
use super::{Visit, objects};

const TO: &str = "AccessPolicy extAuth";
const FILTER: &str = "AccessPolicy ipFilter";
const DEFAULT_BODY: i64 = 1024;
const MAX_BODY: i64 = 65_535;

/// Authorization of a host's requests.
#[derive(Clone, Debug)]
pub(super) struct ProxyAuth {
    service: ObjectId,
    port: i64,
    settings: Map<String, Value>,
    /// Default for routes without their own policy.
    is_disabled: bool,
}

impl ProxyAuth {
    /// Returns the policy's section in a namespace.
    pub(super) fn in_namespace(&self, draft: &mut Draft, namespace: &str) -> Value {
        let foreign = Some(self.service.namespace.as_str()).filter(|it| *it != namespace);
        if foreign.is_some() {
            let from = (SESAME_GROUP, "AccessPolicy", namespace);
            routing::add_grant(draft, from, &self.service);
        }
        let mut section = self.settings.clone();
        let backend = routing::backend_ref(&self.service.name, foreign, self.port, 1);
        section.insert("backendRef".to_owned(), backend);
        section.into()
    }
}

/// Returns `None` if the ExtensionService is unknown, which is refused.
pub(super) fn authorization(
    draft: &mut Draft,
    visit: &Visit,
    mut fields: RemainingFields,
) -> Option<ProxyAuth> {
    let mut reference = fields.section("extensionRef");
    reference.skip("apiVersion", "there is only one version");
    let name = reference.text("name", TO).unwrap_or_default();
    let namespace = reference.text("namespace", TO).filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or_else(|| visit.id.namespace.clone());
    let id = ObjectId::new("ExtensionService", &namespace, &name);
    let target = objects::target(draft, &id);
    if target.is_none() {
        let reason = "the ExtensionService is not in the input, or has no Service";
        reference.refuse("name", reason, "add it to the input");
    }
    drop(reference);
    let mut settings = Map::new();
    let is_http = fields
        .text("serviceType", &format!("{TO}.protocol"))
        .as_deref()
        == Some("http");
    put(
        &mut settings,
        "protocol",
        Some(if is_http { "HTTP" } else { "GRPC" }),
    );
    if !is_http {
        let difference = "the service does not get the client's certificate";
        fields.note_difference("serviceType", TO, difference);
    }
    if let Some(field) = fields.take("httpSettings") {
        put_map(&mut settings, "http", http(field.fields()));
    }
    if let Some(field) = fields.take("withRequestBody") {
        settings.insert("forwardBody".to_owned(), body(field.fields()));
    }
    if let Some(field) = fields.take("responseTimeout") {
        field.differ(TO, "the service may take 5 seconds");
    }
    if let Some(field) = fields.take("failOpen") {
        if field.value() == &json!(true) {
            field.differ(
                TO,
                "stricter: if the service cannot be reached, requests get 503",
            );
        } else {
            field.carry(TO);
        }
    }
    let is_disabled = policy(&mut fields).unwrap_or_default();
    let (service, port) = target?;
    Some(ProxyAuth {
        service,
        port,
        settings,
        is_disabled,
    })
}

fn http(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let to = |name: &str| format!("{TO}.http.{name}");
    let path = fields.text("pathPrefix", &to("path"));
    put(&mut output, "path", path.filter(|it| !it.is_empty()));
    let sent = names(
        &mut fields,
        "allowedAuthorizationHeaders",
        &to("allowedHeaders"),
    );
    put_list(&mut output, "allowedHeaders", sent);
    let copied = names(
        &mut fields,
        "allowedUpstreamHeaders",
        &to("allowedResponseHeaders"),
    );
    if !copied.is_empty() {
        let difference =
            "stricter: clients cannot send these headers to any route of the namespace";
        fields.note_difference("allowedUpstreamHeaders", TO, difference);
    }
    put_list(&mut output, "allowedResponseHeaders", copied);
    output
}

fn names(fields: &mut RemainingFields, list: &str, to: &str) -> Vec<String> {
    let headers = fields.list(list).into_iter();
    let headers = headers.filter_map(|field| {
        let mut header = field.fields();
        header.skip("ignoreCase", "names of headers match in any case");
        for name in ["prefix", "suffix", "contains"] {
            if let Some(field) = header.take(name) {
                field.refuse("headers are listed by name", "list the headers");
            }
        }
        header.text("exact", to)
    });
    headers.collect()
}

fn body(mut fields: RemainingFields) -> Value {
    let to = format!("{TO}.forwardBody.maxSize");
    let size = fields
        .number("maxRequestBytes", &to)
        .unwrap_or(DEFAULT_BODY);
    if size > MAX_BODY {
        fields.refuse(
            "maxRequestBytes",
            "at most 65535 bytes are sent",
            "use a smaller size",
        );
    }
    if let Some(field) = fields.take_set("allowPartialMessage", &json!(false))
        && field.value() == &json!(true)
    {
        field.differ(&to, "stricter: longer bodies get 413");
    }
    fields.skip(
        "packAsBytes",
        "a gRPC service always gets the body as bytes",
    );
    json!({"maxSize": size.clamp(0, MAX_BODY)})
}

/// Takes `authPolicy`. Returns `None` if it is unset, or true if it disables authorization.
fn policy(fields: &mut RemainingFields) -> Option<bool> {
    let mut policy = fields.take("authPolicy")?.fields();
    let is_disabled = policy.flag("disabled", "AccessPolicy targetRefs");
    if let Some(field) = policy.take("context") {
        let is_empty = field.value().as_object().is_some_and(Map::is_empty);
        if is_empty {
            field.unneeded("it is empty");
        } else {
            let reason = "the service gets no context, and might decide with it";
            field.refuse(
                reason,
                "let the service decide by host and path, then accept the loss",
            );
        }
    }
    Some(is_disabled.unwrap_or_default())
}

/// Returns true if a route must be authorized.
pub(super) fn is_authorized(fields: &mut RemainingFields, auth: Option<&ProxyAuth>) -> bool {
    let own = policy(fields);
    auth.is_some_and(|auth| !own.unwrap_or(auth.is_disabled))
}

/// Returns `ipFilter`, or `None` if both lists are unset, so that the host's apply.
pub(super) fn addresses(fields: &mut RemainingFields) -> Option<Map<String, Value>> {
    let mut sources: BTreeSet<String> = BTreeSet::new();
    let mut filter = Map::new();
    for (theirs, ours) in [("ipAllowPolicy", "allow"), ("ipDenyPolicy", "deny")] {
        let mut networks = Vec::new();
        for field in fields.list(theirs) {
            let mut entry = field.fields();
            let to = format!("{FILTER}.{ours}");
            networks.extend(entry.text("cidr", &to));
            let source = entry.text("source", &format!("{FILTER}.source"));
            sources.insert(source.unwrap_or_default());
        }
        put_list(&mut filter, ours, networks);
    }
    if filter.is_empty() {
        return None;
    }
    if sources.len() > 1
        || sources
            .iter()
            .any(|it| !["Peer", "Remote"].contains(&it.as_str()))
    {
        let reason = "all networks of a policy have the same source, Peer or Remote";
        fields.refuse("ipAllowPolicy", reason, "write two AccessPolicies");
        return Some(Map::new());
    }
    let is_peer = sources.contains("Peer");
    put(&mut filter, "source", is_peer.then_some("Peer"));
    Some(filter)
}
