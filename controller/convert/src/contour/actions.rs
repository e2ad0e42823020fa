//! Header changes, rewrites, redirects and direct responses of routes.

use serde_json::{Map, Value, json};

use super::super::draft::Draft;
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::put;
use super::Visit;

const FILTERS: &str = "HTTPRoute rules.filters";
const DEFAULT_REDIRECT: i64 = 302;

/// Returns the filters for a header policy.
pub(super) fn headers(mut fields: RemainingFields, kind: &str, visit: &Visit) -> Vec<Value> {
    let to = format!("{FILTERS} ({kind})");
    let mut set = Vec::new();
    let mut filters = Vec::new();
    for field in fields.list("set") {
        let mut header = field.fields();
        let name = header.text("name", &to).unwrap_or_default();
        let Some(field) = header.take("value") else {
            continue;
        };
        let value = field
            .as_str()
            .replace("%CONTOUR_NAMESPACE%", &visit.id.namespace);
        let is_dynamic = value.matches('%').count() > 1;
        if is_dynamic {
            let reason = "values of headers in routes are literal";
            field.refuse(reason, "use valueFrom of a TrafficPolicy's headers");
        } else if name.eq_ignore_ascii_case("host") {
            field.carry(&format!("{FILTERS}.urlRewrite.hostname"));
            filters.push(routing::filter("URLRewrite", json!({ "hostname": value })));
        } else {
            field.carry(&to);
            set.push(json!({"name": name, "value": value}));
        }
    }
    let remove = fields.texts("remove", &to);
    let modifier = routing::header_modifier(kind, set, Vec::new(), remove);
    modifier.into_iter().chain(filters).collect()
}

/// Takes changes to cookies.
pub(super) fn cookies(fields: &mut RemainingFields) {
    if let Some(field) = fields.take("cookieRewritePolicies") {
        let reason = "Sesame does not rewrite cookies";
        field.refuse(reason, "let the application set their attributes");
    }
}

/// Returns the filter for `pathRewritePolicy`. `prefix` is the prefix that requests match.
pub(super) fn path_rewrite(mut fields: RemainingFields, prefix: Option<&str>) -> Option<Value> {
    let list = fields.list("replacePrefix");
    let is_own = |it: &Value| it["prefix"].as_str() == prefix && prefix.is_some();
    let is_any = |it: &Value| it["prefix"].as_str().unwrap_or_default().is_empty();
    let own = list.iter().position(|it| is_own(it.value()));
    let chosen = own.or_else(|| list.iter().position(|it| is_any(it.value())));
    let mut found = None;
    for (index, field) in list.into_iter().enumerate() {
        if Some(index) != chosen {
            field.unneeded("no request of the route has this prefix");
            continue;
        }
        let mut entry = field.fields();
        if prefix.is_none() {
            let reason = "only a path prefix can be replaced";
            entry.refuse("replacement", reason, "use a prefix condition");
        }
        entry.skip("prefix", "it is the route's prefix");
        found = entry.text("replacement", &format!("{FILTERS}.urlRewrite.path"));
    }
    let path = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": found?});
    Some(routing::filter("URLRewrite", json!({ "path": path })))
}

pub(super) fn redirect(mut fields: RemainingFields) -> Value {
    let to = format!("{FILTERS}.requestRedirect");
    let mut output = Map::new();
    put(&mut output, "scheme", fields.text("scheme", &to));
    put(&mut output, "hostname", fields.text("hostname", &to));
    match fields.number("port", &to) {
        Some(port) => put(&mut output, "port", Some(port)),
        None => fields.note_difference("port", &to, "the port of the listener or the scheme"),
    }
    let path = fields.text("path", &to);
    let path = path.map(|it| json!({"type": "ReplaceFullPath", "replaceFullPath": it}));
    let prefix = fields.text("prefix", &to);
    let prefix = prefix.map(|it| json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": it}));
    put(&mut output, "path", path.or(prefix));
    let status = fields.number("statusCode", &to).unwrap_or(DEFAULT_REDIRECT);
    put(&mut output, "statusCode", Some(status));
    routing::filter("RequestRedirect", output.into())
}

/// Adds a RouteFilter for `directResponsePolicy`.
pub(super) fn respond(draft: &mut Draft, visit: &Visit, mut fields: RemainingFields) -> Value {
    let to = "RouteFilter directResponse";
    let mut output = Map::new();
    put(&mut output, "statusCode", fields.number("statusCode", to));
    let body = fields.text("body", to);
    put(&mut output, "body", body.filter(|it| !it.is_empty()));
    let spec = json!({ "directResponse": output });
    let base = format!("{}-response", visit.id.name);
    routing::shared_filter(draft, &visit.sources(), &visit.metadata, &base, spec)
}
