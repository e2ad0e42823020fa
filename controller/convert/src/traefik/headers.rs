//! The middleware `headers`: header changes, CORS and security headers.

use serde_json::{Map, Value, json};

use super::super::draft::Draft;
use super::super::fields::RemainingFields;
use super::super::routing::{self, CORS};
use super::super::values::{put, put_list};
use super::matches::wildcard;
use super::middlewares::RuleParts;

const TO: &str = "HTTPRoute rules.filters";

pub(super) fn convert(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    for (index, name) in ["customRequestHeaders", "customResponseHeaders"]
        .into_iter()
        .enumerate()
    {
        let Some(field) = fields.take(name) else {
            continue;
        };
        let values = field.value().as_object().cloned().unwrap_or_default();
        field.carry(TO);
        for (name, value) in values {
            if index == 0 && name.eq_ignore_ascii_case("host") {
                let host = routing::filter("URLRewrite", json!({ "hostname": value }));
                parts.filters.push(host);
            } else if value == "" {
                parts.headers[index].1.push(name);
            } else {
                parts.headers[index]
                    .0
                    .push(json!({"name": name, "value": value}));
            }
        }
    }
    cors(parts, &mut fields);
    let mut set = Vec::new();
    security(&mut fields, parts.is_https, &mut set);
    let set = set
        .into_iter()
        .map(|(name, value)| json!({"name": name, "value": value}));
    parts.headers[1].0.extend(set);
    for name in [
        "sslProxyHeaders",
        "hostsProxyHeaders",
        "isDevelopment",
        "addVaryHeader",
    ] {
        fields.skip(name, "Sesame's listeners know scheme and host");
    }
    for name in [
        "sslRedirect",
        "sslTemporaryRedirect",
        "sslForceHost",
        "sslHost",
    ] {
        if let Some(field) = fields.take(name) {
            field.refuse("Traefik has removed it", "use redirectScheme");
        }
    }
    if let Some(field) = fields.take("allowedHosts") {
        field.refuse(
            "routes name their hosts",
            "list the hosts in the rule, then accept the loss",
        );
    }
}

/// Returns the headers that browsers enforce.
fn security(fields: &mut RemainingFields, is_https: bool, set: &mut Vec<(&'static str, String)>) {
    let age = fields.number("stsSeconds", TO);
    let subdomains = fields.flag("stsIncludeSubdomains", TO) == Some(true);
    let preload = fields.flag("stsPreload", TO) == Some(true);
    let forced = fields.flag("forceSTSHeader", TO) == Some(true);
    if let Some(age) = age.filter(|age| *age > 0 && (is_https || forced)) {
        let mut value = format!("max-age={age}");
        if subdomains {
            value.push_str("; includeSubDomains");
        }
        if preload {
            value.push_str("; preload");
        }
        set.push(("Strict-Transport-Security", value));
    }
    for (name, header, value) in [
        ("frameDeny", "X-Frame-Options", "DENY"),
        ("contentTypeNosniff", "X-Content-Type-Options", "nosniff"),
        ("browserXssFilter", "X-XSS-Protection", "1; mode=block"),
    ] {
        if fields.flag(name, TO) == Some(true) {
            set.push((header, value.to_owned()));
        }
    }
    for (name, header) in [
        ("customFrameOptionsValue", "X-Frame-Options"),
        ("customBrowserXSSValue", "X-XSS-Protection"),
        ("contentSecurityPolicy", "Content-Security-Policy"),
        (
            "contentSecurityPolicyReportOnly",
            "Content-Security-Policy-Report-Only",
        ),
        ("publicKey", "Public-Key-Pins"),
        ("referrerPolicy", "Referrer-Policy"),
        ("permissionsPolicy", "Permissions-Policy"),
        ("featurePolicy", "Feature-Policy"),
    ] {
        if let Some(value) = fields.text(name, TO) {
            set.retain(|(known, _)| *known != header);
            set.push((header, value));
        }
    }
}

fn cors(parts: &mut RuleParts, fields: &mut RemainingFields) {
    let mut output = Map::new();
    let to = format!("{CORS}.allowOrigins");
    let mut origins = fields.texts("accessControlAllowOriginList", &to);
    for field in fields.list("accessControlAllowOriginListRegex") {
        let text = field.as_str().trim_start_matches('^').to_owned();
        let found = text.split_once("://").and_then(|(scheme, host)| {
            let is_scheme = ["http", "https"].contains(&scheme);
            Some(format!("{scheme}://{}", wildcard(host)?)).filter(|_| is_scheme)
        });
        if let Some(origin) = found {
            field.differ(&to, "the wildcard matches one or more labels");
            origins.push(origin);
        } else {
            let reason = "origins are exact, or have a wildcard as their first label";
            field.refuse(reason, "list the origins, or use a wildcard");
        }
    }
    let is_used = !origins.is_empty();
    put_list(&mut output, "allowOrigins", origins);
    for (theirs, ours) in [
        ("accessControlAllowMethods", "allowMethods"),
        ("accessControlAllowHeaders", "allowHeaders"),
        ("accessControlExposeHeaders", "exposeHeaders"),
    ] {
        put_list(
            &mut output,
            ours,
            fields.texts(theirs, &format!("{CORS}.{ours}")),
        );
    }
    let to = format!("{CORS}.allowCredentials");
    let credentials = fields.flag("accessControlAllowCredentials", &to);
    put(
        &mut output,
        "allowCredentials",
        credentials.filter(|it| *it),
    );
    let age = fields.number("accessControlMaxAge", &format!("{CORS}.maxAge"));
    put(&mut output, "maxAge", age.filter(|it| *it > 0));
    if is_used {
        parts
            .filters
            .insert(0, routing::filter("CORS", Value::Object(output)));
    }
}
