//! `ClientTrafficPolicy` becomes `spec.edge` of a SesameConfiguration, and TLS settings of a
//! Gateway.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::fields::RemainingFields;
use super::super::values::{milliseconds, put, put_list, put_map};
use super::super::verdicts::VerdictLog;
use super::gateways::{configure, has_listener_set, listeners, port, set_options, set_validation};
use super::targets::{self, PolicyTarget};
use super::{ANNOTATIONS, tls};

/// Fields that protect nothing, and have no counterpart.
const TUNING: &[&str] = &[
    "tcpKeepalive",
    "http1",
    "http2",
    "grpc",
    "healthCheck",
    "scheme",
];
const TUNING_HEADERS: &[&str] = &[
    "enableEnvoyHeaders",
    "disableRateLimitHeaders",
    "requestID",
    "preserveXRequestID",
];

#[derive(Default)]
struct ClientSettings {
    edge: Map<String, Value>,
    tls_options: Map<String, Value>,
    validation: Option<Value>,
    response_headers: Map<String, Value>,
}

pub(super) fn convert(draft: &mut Draft, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let metadata = root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let targets = targets::read(draft, id, &mut spec, &["Gateway"]);
    let settings = read(&mut spec);
    if let Some(broader) = targets::overriding(draft, id, &targets) {
        let difference = format!(
            "in Envoy Gateway, this policy replaces {broader} for its listeners; in Sesame, it \
            adds to that policy"
        );
        spec.note_difference("targetRefs", "Gateway", &difference);
    }
    for target in &targets {
        if let Err(reason) = apply(draft, id, target, &settings) {
            let remedy = "set the Gateway's configuration by hand";
            spec.refuse("targetRefs", &format!("{}: {reason}", target.id), remedy);
        }
    }
    drop(spec);
    drop(root);
    draft.record(id, &log, targets::ids(&targets));
    let refs = targets::as_refs(&targets);
    if !settings.response_headers.is_empty() && !refs.is_empty() {
        let headers = json!({"response": settings.response_headers});
        let mut metadata = metadata;
        put(&mut metadata, "name", Some(format!("{}-headers", id.name)));
        let mut output = Map::new();
        put(&mut output, "headers", Some(headers));
        put_list(&mut output, "targetRefs", refs);
        draft.add(id, sesame_object("TrafficPolicy", metadata, output.into()));
    }
}

fn read(spec: &mut RemainingFields) -> ClientSettings {
    let mut settings = ClientSettings::default();
    let edge = &mut settings.edge;
    let mut path = spec.section("path");
    let names = [
        ("KeepUnchanged", "Keep"),
        ("RejectRequest", "Reject"),
        ("UnescapeAndForward", "Unescape"),
        ("UnescapeAndRedirect", "Redirect"),
    ];
    word(
        &mut path,
        "escapedSlashesAction",
        &names,
        edge,
        "escapedSlashes",
    );
    let merge = path.flag(
        "disableMergeSlashes",
        "SesameConfiguration edge.repeatedSlashes",
    );
    let merge = merge.map(|keep| if keep { "Keep" } else { "Merge" });
    put(edge, "repeatedSlashes", merge);
    drop(path);
    headers(spec.section("headers"), &mut settings);
    let edge = &mut settings.edge;
    let mut timeout = spec.section("timeout");
    let mut http = timeout.section("http");
    for (theirs, ours) in [
        ("requestReceivedTimeout", "requestTimeout"),
        ("idleTimeout", "connectionIdleTimeout"),
        ("streamIdleTimeout", "streamIdleTimeout"),
    ] {
        if let Some(field) = http.take(theirs) {
            if milliseconds(field.as_str()).is_some() {
                let value = field.carry(&format!("SesameConfiguration edge.{ours}"));
                edge.insert(ours.to_owned(), value);
            } else {
                field.refuse("expected a duration", "use a value such as 30s");
            }
        }
    }
    drop(http);
    drop(timeout.take_tuning("tcp"));
    drop(timeout);
    connection(spec.section("connection"));
    protocols(spec, edge);
    detection(spec.section("clientIPDetection"), &mut settings.edge);
    let (options, validation) = tls::convert(spec.section("tls"));
    settings.tls_options = options;
    settings.validation = validation;
    for name in TUNING {
        drop(spec.take_tuning(name));
    }
    settings
}

/// Replaces Envoy Gateway's word with Sesame's.
fn word(
    fields: &mut RemainingFields,
    name: &str,
    words: &[(&str, &str)],
    edge: &mut Map<String, Value>,
    ours: &str,
) {
    if let Some(field) = fields.take(name)
        && let Some((_, word)) = words.iter().find(|(theirs, _)| *theirs == field.as_str())
    {
        field.carry(&format!("SesameConfiguration edge.{ours}"));
        edge.insert(ours.to_owned(), json!(word));
    }
}

fn headers(mut fields: RemainingFields, settings: &mut ClientSettings) {
    let edge = &mut settings.edge;
    let names = [
        ("Allow", "Allow"),
        ("RejectRequest", "Reject"),
        ("DropHeader", "Drop"),
    ];
    word(
        &mut fields,
        "withUnderscoresAction",
        &names,
        edge,
        "headerUnderscores",
    );
    let mut certificate = fields.section("xForwardedClientCert");
    let mut part = Map::new();
    let names = ["Sanitize", "SanitizeSet", "ForwardOnly", "AppendForward"];
    let names = names.map(|name| (name, name));
    word(&mut certificate, "mode", &names, &mut part, "mode");
    let to = "SesameConfiguration edge.forwardClientCertificate.details";
    put_list(
        &mut part,
        "details",
        certificate.texts("certDetailsToAdd", to),
    );
    put_map(edge, "forwardClientCertificate", part);
    let mut late = fields.section("lateResponseHeaders");
    for name in ["set", "add", "remove"] {
        if let Some(field) = late.take(name) {
            if field.value().to_string().contains('%') {
                let reason = "Sesame does not support Envoy's variables in headers";
                field.refuse(reason, "write the values without variables");
            } else {
                let value = field.carry(&format!("TrafficPolicy headers.response.{name}"));
                settings.response_headers.insert(name.to_owned(), value);
            }
        }
    }
    for name in TUNING_HEADERS {
        drop(fields.take_tuning(name));
    }
}

fn connection(mut fields: RemainingFields) {
    let limit = "Sesame divides each host's connection limit among listeners instead";
    let buffer = "Sesame's buffers have 32 KiB";
    for (name, difference) in [
        ("connectionLimit", limit),
        ("bufferLimit", buffer),
        ("socketBufferLimit", buffer),
    ] {
        if let Some(field) = fields.take_tuning(name) {
            field.differ("", difference);
        }
    }
    drop(fields.take_tuning("maxAcceptPerSocketEvent"));
}

fn protocols(spec: &mut RemainingFields, edge: &mut Map<String, Value>) {
    let to = "SesameConfiguration edge.proxyProtocol";
    if let Some(field) = spec.take("proxyProtocol") {
        let mut fields = field.fields();
        let optional = fields.flag("optional", to) == Some(true);
        let mode = if optional { "Optional" } else { "Required" };
        edge.insert("proxyProtocol".to_owned(), json!({ "mode": mode }));
        spec.skip("enableProxyProtocol", "proxyProtocol takes precedence");
    } else if spec.flag("enableProxyProtocol", to) == Some(true) {
        edge.insert("proxyProtocol".to_owned(), json!({"mode": "Required"}));
    }
    if let Some(field) = spec.take("http3") {
        if field.value() == &json!({}) {
            field.carry("SesameConfiguration edge.http3");
            edge.insert("http3".to_owned(), json!({"mode": "Enabled"}));
        } else {
            field.refuse("the field has an unknown setting", "use http3: {}");
        }
    }
}

fn detection(mut fields: RemainingFields, edge: &mut Map<String, Value>) {
    const OURS: &str = "SesameConfiguration edge.clientAddress";
    let mut address = Map::new();
    let mut forwarded = fields.section("xForwardedFor");
    if let Some(field) = forwarded.take("numTrustedHops") {
        let hops = field
            .value()
            .as_i64()
            .filter(|hops| (0..=16).contains(hops));
        if let Some(hops) = hops {
            field.carry(OURS);
            put(&mut address, "hops", Some(hops));
        } else {
            field.refuse("Sesame trusts at most 16 proxies", "use a smaller number");
        }
    }
    if let Some(field) = forwarded.take("trustedCIDRs") {
        put(&mut address, "networks", Some(field.carry(OURS)));
    }
    put_map(edge, "clientAddress", address);
}

/// Changes the Gateway's output.
fn apply(
    draft: &mut Draft,
    id: &ObjectId,
    target: &PolicyTarget,
    settings: &ClientSettings,
) -> Result<(), String> {
    let ClientSettings {
        edge,
        tls_options,
        validation,
        response_headers: _,
    } = settings;
    let section = target.section.as_deref();
    if !tls_options.is_empty() && section.is_none() && has_listener_set(draft, &target.id) {
        return Err("set tls.options in its ListenerSets too".to_owned());
    }
    let gateway = draft.change(&target.id, id).ok_or("not in the input")?;
    let port = match section {
        Some(name) => Some(port(gateway, name).ok_or("no listener has this name")?),
        None => None,
    };
    set_options(gateway, section, tls_options);
    if let Some(validation) = validation {
        let is_tls = |it: &Value| it["protocol"] == "TLS" && it["tls"]["mode"] != "Passthrough";
        if listeners(gateway).iter().any(is_tls) {
            return Err("only HTTPS listeners can validate client certificates".to_owned());
        }
        set_validation(gateway, port, validation)?;
    }
    if edge.is_empty() {
        return Ok(());
    }
    let mut parts = Map::new();
    match port {
        None => put_map(&mut parts, "edge", edge.clone()),
        Some(port) => put_list(
            &mut parts,
            "edgePorts",
            vec![json!({"port": port, "edge": edge})],
        ),
    }
    configure(draft, id, &target.id, parts)
}
