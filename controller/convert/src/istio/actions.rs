//! Header changes, rewrites, redirects, direct responses and CORS of routes.

use serde_json::{Map, Value, json};

use super::super::draft::Draft;
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::{self, CORS};
use super::super::values::{put, put_list};
use super::matches::string;
use super::routes::Visit;

const FILTERS: &str = "HTTPRoute rules.filters";
const DEFAULT_REDIRECT: i64 = 301;
const REDIRECTS: [i64; 5] = [301, 302, 303, 307, 308];

/// Returns the filters for `headers`.
pub(super) fn headers(mut fields: RemainingFields) -> Vec<Value> {
    let mut filters = Vec::new();
    for (part, kind) in [
        ("request", "RequestHeaderModifier"),
        ("response", "ResponseHeaderModifier"),
    ] {
        let Some(field) = fields.take(part) else {
            continue;
        };
        let mut changes = field.fields();
        let to = format!("{FILTERS} ({kind})");
        let mut lists: [Vec<Value>; 2] = Default::default();
        for (index, name) in ["set", "add"].into_iter().enumerate() {
            let Some(field) = changes.take(name) else {
                continue;
            };
            let values = field.value().as_object().cloned().unwrap_or_default();
            let is_dynamic = |it: &Value| it.as_str().is_none_or(|it| it.contains('%'));
            if values.values().any(is_dynamic) {
                field.refuse(
                    "values of headers are literal",
                    "use a TrafficPolicy's headers",
                );
                continue;
            }
            field.carry(&to);
            for (name, value) in values {
                let is_host = ["host", ":authority"].contains(&&*name.to_ascii_lowercase());
                if is_host && part == "request" {
                    filters.push(routing::filter("URLRewrite", json!({ "hostname": value })));
                } else {
                    lists[index].push(json!({"name": name, "value": value}));
                }
            }
        }
        let [set, add] = lists;
        let remove = changes.texts("remove", &to);
        filters.extend(routing::header_modifier(kind, set, add, remove));
    }
    filters
}

/// Returns the filters for `rewrite`. `path` is the path of the rule's only match.
pub(super) fn rewrite(
    draft: &mut Draft,
    visit: &Visit,
    field: TakenField,
    path: &Value,
) -> Vec<Value> {
    let mut fields = field.fields();
    let mut filters = Vec::new();
    if let Some(host) = fields.text("authority", &format!("{FILTERS}.urlRewrite.hostname")) {
        filters.push(routing::filter("URLRewrite", json!({ "hostname": host })));
    }
    if let Some(field) = fields.take("uri") {
        let to = format!("{FILTERS}.urlRewrite.path");
        let value = field.as_str().to_owned();
        let path = if path["type"] == "PathPrefix" {
            field.differ(&to, "the path never begins with two slashes");
            json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": value})
        } else {
            field.carry(&to);
            json!({"type": "ReplaceFullPath", "replaceFullPath": value})
        };
        filters.push(routing::filter("URLRewrite", json!({ "path": path })));
    }
    if let Some(field) = fields.take("uriRegexRewrite") {
        let text = |name: &str| field.value()[name].as_str().unwrap_or_default().to_owned();
        let (pattern, substitution) = (text("match"), text("rewrite"));
        let pattern = match pattern.as_bytes() {
            [b'^', ..] => pattern,
            _ => format!("^{pattern}"),
        };
        let starts = ["^/", "^(/"].iter().any(|it| pattern.starts_with(it));
        if starts && substitution.starts_with(['/', '\\']) {
            field.differ(
                "RouteFilter urlRewrite.regex",
                "only at the start of a path",
            );
            let regex = json!({"pattern": pattern, "substitution": substitution});
            let spec = json!({"urlRewrite": {"regex": regex}});
            let base = format!("{}-rewrite", visit.id.name);
            let sources = visit.sources();
            filters.push(routing::shared_filter(
                draft,
                &sources,
                &visit.metadata,
                &base,
                spec,
            ));
        } else {
            let reason = "an expression for a path begins with /, and so does its replacement";
            field.refuse(reason, "write it so");
        }
    }
    routing::merge_rewrites(filters)
}

pub(super) fn redirect(mut fields: RemainingFields) -> Value {
    let to = format!("{FILTERS}.requestRedirect");
    let mut output = Map::new();
    put(&mut output, "scheme", fields.text("scheme", &to));
    put(&mut output, "hostname", fields.text("authority", &to));
    let path = fields.text("uri", &to);
    let path = path.map(|it| json!({"type": "ReplaceFullPath", "replaceFullPath": it}));
    put(&mut output, "path", path);
    let port = fields.number("port", &to);
    let derived = fields.take("derivePort");
    put(&mut output, "port", port);
    match derived {
        Some(field) if field.as_str() == "FROM_PROTOCOL_DEFAULT" => drop(field.carry(&to)),
        Some(field) => drop(field.differ(&to, "the port of the listener or the scheme")),
        None if port.is_none() => {
            fields.note_difference("port", &to, "the port of the listener or the scheme");
        }
        None => {}
    }
    let mut status = DEFAULT_REDIRECT;
    if let Some(field) = fields.take("redirectCode") {
        match field.value().as_i64().filter(|it| REDIRECTS.contains(it)) {
            Some(given) => {
                status = given;
                field.carry(&to);
            }
            None => field.refuse("expected 301, 302, 303, 307 or 308", "use one of these"),
        }
    }
    put(&mut output, "statusCode", Some(status));
    routing::filter("RequestRedirect", output.into())
}

pub(super) fn respond(draft: &mut Draft, visit: &Visit, mut fields: RemainingFields) -> Value {
    let to = "RouteFilter directResponse";
    let mut output = Map::new();
    put(&mut output, "statusCode", fields.number("status", to));
    let mut body = fields.section("body");
    put(&mut output, "body", body.text("string", to));
    if let Some(field) = body.take("bytes") {
        field.refuse("bodies are text", "use string");
    }
    let base = format!("{}-response", visit.id.name);
    let spec = json!({ "directResponse": output });
    routing::shared_filter(draft, &visit.sources(), &visit.metadata, &base, spec)
}

pub(super) fn cors(mut fields: RemainingFields) -> Value {
    let mut output = Map::new();
    let to = format!("{CORS}.allowOrigins");
    let mut origins = fields.texts("allowOrigin", &to);
    for field in fields.list("allowOrigins") {
        let exact = match string(field.value()) {
            Some(("exact", origin)) => Some((origin, true)),
            _ => wildcard(field.value()),
        };
        let Some((origin, is_same)) = exact else {
            let reason = "origins are exact, or have a wildcard as their first label";
            field.refuse(reason, "list the origins, or use a wildcard");
            continue;
        };
        if is_same {
            field.carry(&to);
        } else {
            field.differ(&to, "the wildcard matches one or more labels");
        }
        origins.push(origin);
    }
    put_list(&mut output, "allowOrigins", origins);
    routing::cors_rest(&mut fields, &mut output);
    if let Some(field) = fields.take_tuning("unmatchedPreflights") {
        field.differ(CORS, "preflights of other origins get no permission");
    }
    routing::filter("CORS", output.into())
}

/// Returns the origin for an expression, and true if it means the same.
fn wildcard(value: &Value) -> Option<(String, bool)> {
    let (kind, text) = string(value)?;
    if kind != "regex" {
        return (text == "*" || text.is_empty()).then(|| ("*".to_owned(), true));
    }
    if [".*", "*"].contains(&text.as_str()) {
        return Some(("*".to_owned(), true));
    }
    let (scheme, host) = text.trim_start_matches('^').split_once("://")?;
    let host = [".*\\.", ".+\\.", "[^.]+\\."]
        .iter()
        .find_map(|it| host.strip_prefix(it))?;
    let host = host.trim_end_matches('$').replace("\\.", ".");
    let plain = |c: u8| c.is_ascii_alphanumeric() || b".-:".contains(&c);
    let is_plain = ["http", "https"].contains(&scheme) && host.bytes().all(plain);
    is_plain.then(|| (format!("{scheme}://*.{host}"), false))
}
