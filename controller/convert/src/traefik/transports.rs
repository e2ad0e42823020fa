//! How requests and connections reach Services: ServersTransports, health checks and sessions.

use serde_json::{Map, Value, json};
use sesame_resolver::http_proxies::duration;

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::{put, put_list, put_map};
use super::ANNOTATIONS;

const SESSION: &str = "HTTPRoute rules.sessionPersistence";
const CHECK: &str = "BackendPolicy healthCheck.active";
const CONNECTION: &str = "BackendPolicy connection";
const TLS: &str = "BackendTLSPolicy spec.validation";
/// Traefik uses TLS for ports whose names begin so.
pub(super) const TLS_PORT: &str = "https";
const HTTPS_PORT: i64 = 443;
pub(super) const IMPLIED: &str = "Traefik uses HTTPS for port 443 and for ports whose name begins with \
    https, and here the Service's certificate is verified by name";
pub(super) const UNVERIFIED: &str =
    "name a ServersTransport with serverName, or write a BackendTLSPolicy and accept the loss";

/// Returns true if Traefik uses TLS for a port, or `None` if the port's name is unknown.
pub(super) fn has_tls_port(draft: &Draft, service: &ObjectId, number: i64) -> Option<bool> {
    if number == HTTPS_PORT {
        return Some(true);
    }
    let mut ports = draft.input(service)?["spec"]["ports"].as_array()?.iter();
    let port = ports.find(|it| it["port"] == number)?;
    let name = port["name"].as_str().unwrap_or_default();
    Some(name.starts_with(TLS_PORT))
}

/// Closes the fields for TLS of a transport without it.
fn without_tls(spec: &mut RemainingFields, is_known: bool) {
    for name in [
        "serverName",
        "rootCAs",
        "rootCAsSecrets",
        "insecureSkipVerify",
        "certificatesSecrets",
        "peerCertURI",
        "spiffe",
    ] {
        match spec.take(name) {
            Some(field) if is_known => field.unneeded("connections to the Service have no TLS"),
            Some(field) => field.refuse(
                "the name of the Service's port is unknown, and decides about TLS",
                "add the Service to the input, or set scheme",
            ),
            None => {}
        }
    }
}

/// Returns true if connections can be verified.
pub(super) fn transport(
    draft: &mut Draft,
    (id, service): (&ObjectId, &ObjectId),
    mut root: RemainingFields,
    settings: &mut Map<String, Value>,
    uses_tls: Option<bool>,
) -> bool {
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    if uses_tls != Some(true) {
        without_tls(&mut spec, uses_tls.is_some());
    }
    let mut validation = Map::new();
    let host = spec.text("serverName", &format!("{TLS}.hostname"));
    put(&mut validation, "hostname", host.clone());
    authorities(&mut spec, &mut validation);
    let mut is_verified = host.is_some();
    if let Some(field) = spec.take("insecureSkipVerify") {
        if field.value() == &json!(false) {
            field.unneeded("certificates are always verified");
        } else {
            field.refuse(
                "certificates are always verified",
                "set rootCAs and serverName",
            );
            is_verified = false;
        }
    }
    for (name, reason) in [
        (
            "certificatesSecrets",
            "the Gateway has one certificate for all backends",
        ),
        (
            "peerCertURI",
            "a backend's certificate must contain a host name",
        ),
        ("spiffe", "Sesame has no SPIFFE identity for backends"),
    ] {
        if let Some(field) = spec.take(name) {
            field.refuse(
                reason,
                "set spec.tls.backend of the Gateway, then accept the loss",
            );
        }
    }
    for name in [
        "maxIdleConnsPerHost",
        "disableHTTP2",
        "cipherSuites",
        "minVersion",
        "maxVersion",
    ] {
        if let Some(field) = spec.take_tuning(name) {
            field.differ(TLS, "Envoy manages connections to backends itself");
        }
    }
    timeouts(&mut spec, settings);
    if uses_tls == Some(true)
        && is_verified
        && !routing::add_backend_tls(draft, id, service, &validation)
    {
        let reason = "another transport verifies the Service's certificate in another way";
        spec.refuse("serverName", reason, "use one ServersTransport");
    }
    is_verified
}

fn authorities(spec: &mut RemainingFields, validation: &mut Map<String, Value>) {
    let mut refs = Vec::new();
    let difference = "put ca.crt of the Secret into a ConfigMap of the same name, in the namespace \
        of the Service";
    for field in spec.list("rootCAsSecrets") {
        refs.push(json!({"group": "", "kind": "ConfigMap", "name": field.as_str()}));
        field.differ(&format!("{TLS}.caCertificateRefs"), difference);
    }
    for field in spec.list("rootCAs") {
        let mut authority = field.fields();
        for name in ["secret", "configMap"] {
            if let Some(field) = authority.take(name) {
                refs.push(json!({"group": "", "kind": "ConfigMap", "name": field.as_str()}));
                field.differ(&format!("{TLS}.caCertificateRefs"), difference);
            }
        }
    }
    if refs.is_empty() {
        put(validation, "wellKnownCACertificates", Some("System"));
    }
    put_list(validation, "caCertificateRefs", refs);
}

fn timeouts(spec: &mut RemainingFields, settings: &mut Map<String, Value>) {
    let mut times = spec.tuning_section("forwardingTimeouts");
    for (theirs, ours) in [
        ("dialTimeout", "timeout"),
        ("idleConnTimeout", "idleTimeout"),
    ] {
        let Some(field) = times.take(theirs) else {
            continue;
        };
        let text = field.value().as_i64().map(|it| format!("{it}s"));
        match duration(text.as_deref().unwrap_or(field.as_str())) {
            Ok(time) => {
                field.carry(&format!("{CONNECTION}.{ours}"));
                let part = settings.entry("connection").or_insert_with(|| json!({}));
                part[ours] = json!(routing::duration(time));
            }
            Err(why) => field.refuse_duration(&why),
        }
    }
    for name in ["responseHeaderTimeout", "readIdleTimeout", "pingTimeout"] {
        if let Some(field) = times.take(name) {
            field.refuse(
                "Sesame limits whole requests",
                "use timeouts of a TrafficPolicy",
            );
        }
    }
}

pub(super) fn health(mut fields: RemainingFields, settings: &mut Map<String, Value>) {
    let mut check = Map::new();
    let mut http = Map::new();
    put(
        &mut http,
        "path",
        fields.text("path", &format!("{CHECK}.http")),
    );
    put(
        &mut http,
        "hostname",
        fields.text("hostname", &format!("{CHECK}.http")),
    );
    if let Some(status) = fields.number("status", &format!("{CHECK}.http.statuses")) {
        put_list(&mut http, "statuses", vec![json!({ "first": status })]);
    } else {
        put_list(
            &mut http,
            "statuses",
            vec![json!({"first": 200, "last": 399})],
        );
    }
    put(
        &mut check,
        "port",
        fields.number("port", &format!("{CHECK}.port")),
    );
    for name in ["interval", "timeout"] {
        let Some(field) = fields.take(name) else {
            continue;
        };
        let text = field.value().as_i64().map(|it| format!("{it}s"));
        match duration(text.as_deref().unwrap_or(field.as_str())) {
            Ok(time) => {
                let most = if name == "timeout" {
                    10_000
                } else {
                    86_400_000
                };
                field.differ(&format!("{CHECK}.{name}"), "at most 10 seconds for a check");
                put(&mut check, name, Some(routing::duration(time.min(most))));
            }
            Err(why) => field.refuse_duration(&why),
        }
    }
    for name in [
        "scheme",
        "mode",
        "unhealthyInterval",
        "followRedirects",
        "headers",
        "method",
    ] {
        if let Some(field) = fields.take(name) {
            field.differ(
                CHECK,
                "checks are GET requests, with the protocol of the Service's port",
            );
        }
    }
    check.insert("http".to_owned(), http.into());
    settings.insert("healthCheck".to_owned(), json!({ "active": check }));
}

pub(super) fn session(mut fields: RemainingFields) -> Option<Value> {
    let mut cookie = fields.take("cookie")?.fields();
    let mut output = Map::new();
    let mut session = Map::new();
    put(&mut session, "type", Some("Cookie"));
    put(&mut output, "name", cookie.text("name", SESSION));
    put(&mut output, "path", cookie.text("path", SESSION));
    if let Some(age) = cookie.number("maxAge", SESSION)
        && let Ok(age @ 1..) = u64::try_from(age)
    {
        let time = routing::duration(age.saturating_mul(1000));
        put(&mut session, "absoluteTimeout", Some(time));
        put(&mut output, "lifetimeType", Some("Permanent"));
    }
    for name in ["secure", "httpOnly", "sameSite", "domain"] {
        if let Some(field) = cookie.take_tuning(name) {
            field.differ(
                SESSION,
                "clients get new sessions; Sesame sets the attributes",
            );
        }
    }
    put_map(&mut session, "cookie", output);
    Some(session.into())
}
