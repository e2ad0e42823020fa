//! `virtualhost` becomes a listener, and defaults for the routes of the whole tree.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::{self, CORS};
use super::super::values::{put, put_list};
use super::access::{self, ProxyAuth};
use super::{ProxyTree, Visit, limits, tokens};

const TLS: &str = "ListenerSet listeners.tls";
const MIN_VERSION: &str = "projectsesame.io/min-version";
const MAX_VERSION: &str = "projectsesame.io/max-version";

/// Settings that all routes of a host share.
pub(super) struct ProxyHostDraft {
    pub(super) root: ObjectId,
    pub(super) class: String,
    pub(super) fqdn: String,
    /// True if the host has a listener on the HTTPS port.
    pub(super) has_tls: bool,
    pub(super) cors: Option<Value>,
    pub(super) auth: Option<ProxyAuth>,
    /// Providers of tokens, by name.
    pub(super) providers: BTreeMap<String, Value>,
    pub(super) default_provider: Option<String>,
    pub(super) limits: Vec<Value>,
    pub(super) addresses: Map<String, Value>,
}

/// `takes_connections` is true if the HTTPProxy forwards connections.
pub(super) fn convert(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    visit: &Visit,
    class: &str,
    (field, takes_connections): (TakenField, bool),
) -> Option<ProxyHostDraft> {
    let mut fields = field.fields();
    let to = "HTTPRoute hostnames";
    let Some(fqdn) = fields.take("fqdn") else {
        fields.refuse("fqdn", "there is no host", "set it");
        return None;
    };
    let host = fqdn.as_str().to_ascii_lowercase();
    if tree.hosts.contains_key(&host) {
        fqdn.refuse(
            "an older HTTPProxy has the same host",
            "remove one of the two",
        );
        return None;
    }
    tree.hosts.insert(host.clone(), visit.id.clone());
    if host.starts_with("*.") {
        fqdn.differ(to, "the wildcard also matches several labels");
    } else {
        fqdn.carry(to);
    }
    let has_tls = match fields.take("tls") {
        Some(field) => {
            let tls = tls(field.fields(), takes_connections)?;
            let protocol = if takes_connections { "TLS" } else { "HTTPS" };
            let listener = routing::listener(&host, protocol, tls);
            routing::add_listeners(draft, &visit.id, class, &visit.metadata, &[listener]);
            true
        }
        None => false,
    };
    let cors = fields.take("corsPolicy").map(|field| cors(field.fields()));
    let auth = fields.take("authorization");
    let auth = auth.and_then(|field| access::authorization(draft, visit, field.fields()));
    let (providers, default_provider) = tokens::providers(&mut fields);
    Some(ProxyHostDraft {
        root: visit.id.clone(),
        class: class.to_owned(),
        fqdn: host,
        has_tls,
        cors,
        auth,
        providers,
        default_provider,
        limits: limits::convert(&mut fields, true).unwrap_or_default(),
        addresses: access::addresses(&mut fields).unwrap_or_default(),
    })
}

/// Returns the listener's settings.
fn tls(mut fields: RemainingFields, takes_connections: bool) -> Option<Value> {
    let reason = "client certificates are validated for a whole Gateway, not for a host";
    let remedy = "give the host its own Gateway, and set spec.tls.frontend there";
    if let Some(field) = fields.take("clientValidation") {
        field.refuse(reason, remedy);
    }
    if let Some(field) = fields.take_set("enableFallbackCertificate", &json!(false)) {
        let field = field.protecting(false);
        let reason = "a listener without a hostname serves clients without a server name";
        field.refuse(reason, "add such a listener to the Gateway");
    }
    if let Some(field) = fields.take_set("passthrough", &json!(false))
        && field.value() == &json!(true)
    {
        field.carry("ListenerSet listeners.tls.mode");
        if takes_connections {
            return Some(json!({"mode": "Passthrough"}));
        }
        fields.refuse(
            "passthrough",
            "there is no tcpproxy",
            "add it, or use secretName",
        );
        return None;
    }
    let Some(secret) = fields.take("secretName") else {
        fields.refuse("secretName", "there is no certificate", "name the Secret");
        return None;
    };
    let mut certificate = Map::new();
    match secret.as_str().split_once('/') {
        Some((namespace, name)) => {
            put(&mut certificate, "name", Some(name));
            put(&mut certificate, "namespace", Some(namespace));
        }
        None => put(&mut certificate, "name", Some(secret.as_str())),
    }
    secret.carry("ListenerSet listeners.tls.certificateRefs");
    let mut options = Map::new();
    for (theirs, ours) in [
        ("minimumProtocolVersion", MIN_VERSION),
        ("maximumProtocolVersion", MAX_VERSION),
    ] {
        let Some(field) = fields.take(theirs) else {
            continue;
        };
        if ["1.2", "1.3"].contains(&field.as_str()) {
            options.insert(ours.to_owned(), field.carry(&format!("{TLS}.options")));
        } else {
            field.refuse("expected 1.2 or 1.3", "correct the version");
        }
    }
    let mut tls = Map::new();
    put_list(&mut tls, "certificateRefs", vec![certificate]);
    if !options.is_empty() {
        tls.insert("options".to_owned(), options.into());
    }
    Some(tls.into())
}

fn cors(mut fields: RemainingFields) -> Value {
    let mut output = Map::new();
    let mut origins = Vec::new();
    for field in fields.list("allowOrigin") {
        let origin = field.as_str().to_owned();
        let is_plain = |it: &str| {
            it.bytes()
                .all(|c| c.is_ascii_alphanumeric() || b":/.-".contains(&c))
        };
        if origin == "*" || is_plain(&origin) {
            field.carry(&format!("{CORS}.allowOrigins"));
            origins.push(origin);
        } else {
            let reason = "origins are exact, or have a wildcard as their first label";
            field.refuse(reason, "list the origins, or use a wildcard");
        }
    }
    put_list(&mut output, "allowOrigins", origins);
    routing::cors_rest(&mut fields, &mut output);
    if let Some(field) = fields.take_set("allowPrivateNetwork", &json!(false)) {
        let field = field.protecting(false);
        field.refuse("the CORS filter has no such field", "remove it");
    }
    routing::filter("CORS", output.into())
}
