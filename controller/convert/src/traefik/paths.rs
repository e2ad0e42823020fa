//! Middlewares that change paths, or redirect.

use serde_json::{Map, Value, json};
use sesame_proto::expressions::quote;

use super::super::draft::Draft;
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::routing::order::covers;
use super::super::values::put;
use super::middlewares::RuleParts;

const REWRITE: &str = "HTTPRoute rules.filters.urlRewrite.path";
const REGEX: &str = "RouteFilter urlRewrite.regex";
const REDIRECT: &str = "HTTPRoute rules.filters.requestRedirect";
const PREFIX: &str = "PathPrefix";
const EXACT: &str = "Exact";
const CHANGED: &str = "another middleware of the route changes the path before";
const COMBINE: &str = "combine the middlewares";
const PERMANENT: i64 = 308;
const TEMPORARY: i64 = 307;
const STATUS: &str = "307 or 308, so that clients keep the method";
const NO_HEADER: &str = "requests lack X-Forwarded-Prefix; set it with a RequestHeaderModifier";

/// Sets the prefix or the whole path. A later middleware sees the new path, and its filter replaces
/// this one.
fn push_path(parts: &mut RuleParts, kind: &str, value: String) {
    let path = if kind == PREFIX {
        json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": value})
    } else {
        json!({"type": "ReplaceFullPath", "replaceFullPath": value})
    };
    let filter = routing::filter("URLRewrite", json!({ "path": path }));
    parts.filters.push(filter);
    parts.path = Some((kind.to_owned(), value));
}

/// Returns true if an earlier middleware changes the path, which an expression would not see.
fn is_changed(parts: &RuleParts) -> bool {
    let path = &parts.matched["path"];
    let same =
        |(kind, value): &(String, String)| path["type"] == **kind && path["value"] == **value;
    !parts.path.as_ref().is_some_and(same)
}

fn push_regex(draft: &mut Draft, parts: &mut RuleParts, pattern: &str, substitution: &str) {
    let regex = json!({"pattern": pattern, "substitution": substitution});
    let spec = json!({"urlRewrite": {"regex": regex}});
    let base = format!("{}-rewrite", parts.owner.name);
    let sources = [parts.owner.clone()].into();
    let filter = routing::shared_filter(draft, &sources, parts.metadata, &base, spec);
    parts.filters.push(filter);
    parts.path = None;
}

pub(super) fn add_prefix(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let Some(field) = fields.take("prefix") else {
        return;
    };
    let prefix = field.as_str().trim_end_matches('/').to_owned();
    match parts.path.clone() {
        Some((kind, own)) if kind == PREFIX => {
            field.carry(REWRITE);
            let value = format!("{prefix}/{}", own.trim_start_matches('/'));
            push_path(parts, PREFIX, value);
        }
        Some((kind, own)) if kind == EXACT => {
            field.carry(REWRITE);
            push_path(parts, EXACT, format!("{prefix}{own}"));
        }
        Some(_) => field.refuse("an expression has no prefix", "use PathPrefix"),
        None => field.refuse(CHANGED, COMBINE),
    }
}

pub(super) fn replace(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    match fields.take("path") {
        Some(field) if parts.path.is_some() => {
            let value = field.differ(REWRITE, "requests lack X-Replaced-Path");
            push_path(parts, EXACT, value.as_str().unwrap_or_default().to_owned());
        }
        Some(field) => field.refuse(CHANGED, COMBINE),
        None => {}
    }
}

pub(super) fn replace_regex(draft: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let substitution = fields.take("replacement");
    let Some(field) = fields.take("regex") else {
        return refuse_lone(substitution);
    };
    let text = substitution.as_ref().map_or("", |it| it.as_str());
    let (pattern, text) = (anchored(field.as_str()), groups(text));
    match (pattern, text) {
        _ if is_changed(parts) => {
            field.refuse(CHANGED, COMBINE);
            drop(substitution.map(|it| it.carry(REGEX)));
        }
        (Some(pattern), Some(text)) if text.starts_with(['/', '\\']) => {
            field.differ(
                REGEX,
                "only at the start of a path; requests lack X-Replaced-Path",
            );
            drop(substitution.map(|it| it.carry(REGEX)));
            push_regex(draft, parts, &pattern, &text);
        }
        _ => {
            let reason = "an expression for a path begins with /, and so does its replacement";
            field.refuse(reason, "write it so");
            drop(substitution.map(|it| it.carry(REGEX)));
        }
    }
}

fn refuse_lone(replacement: Option<TakenField>) {
    if let Some(field) = replacement {
        field.refuse("there is no expression", "set regex");
    }
}

/// Returns an expression that begins with `^/` or `^(/`.
fn anchored(expression: &str) -> Option<String> {
    let pattern = format!("^{}", expression.trim_start_matches('^'));
    let is_path = ["^/", "^(/"].iter().any(|it| pattern.starts_with(it));
    is_path.then_some(pattern)
}

/// Writes `$1` and `${1}` as `\1`. Returns `None` for other references.
fn groups(text: &str) -> Option<String> {
    let mut output = String::new();
    let mut parts = text.split('$');
    output.push_str(parts.next()?);
    for part in parts {
        let (number, rest) = match part.strip_prefix('{') {
            Some(part) => part.split_once('}')?,
            None => part.split_at(
                part.find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(part.len()),
            ),
        };
        let is_group = number.len() == 1 && number != "0";
        if !is_group || !number.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        output.push('\\');
        output.push_str(number);
        output.push_str(rest);
    }
    Some(output)
}

pub(super) fn strip(draft: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    fields.skip("forceSlash", "paths always begin with a slash");
    let Some(field) = fields.take("prefixes") else {
        return;
    };
    let list = field.value().as_array().cloned().unwrap_or_default();
    let list: Vec<String> = list
        .iter()
        .filter_map(Value::as_str)
        .map(|it| it.trim_end_matches('/').to_owned())
        .collect();
    let Some((kind, own)) = parts.path.clone() else {
        return field.refuse(CHANGED, COMBINE);
    };
    let trimmed = own.trim_end_matches('/');
    let covering = list.iter().find(|it| covers(it, trimmed));
    match covering {
        Some(prefix) if [PREFIX, EXACT].contains(&kind.as_str()) => {
            field.differ(REWRITE, NO_HEADER);
            let whole = if kind == PREFIX { trimmed } else { &own };
            let rest = whole.strip_prefix(prefix.as_str()).unwrap_or_default();
            let rest = if rest.is_empty() { "/" } else { rest };
            push_path(parts, &kind, rest.to_owned());
        }
        _ if list.is_empty() => field.unneeded("the list is empty"),
        _ if is_changed(parts) => field.refuse(CHANGED, COMBINE),
        _ => {
            field.differ(REGEX, NO_HEADER);
            let names = list.iter().map(|it| quote(it.trim_start_matches('/')));
            let names: Vec<String> = names.collect();
            let pattern = format!("^/(?:{})(?:/|$)(.*)", names.join("|"));
            push_regex(draft, parts, &pattern, "/\\1");
        }
    }
}

pub(super) fn strip_regex(draft: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let Some(field) = fields.take("regex") else {
        return;
    };
    let list = field.value().as_array().cloned().unwrap_or_default();
    let single = list
        .first()
        .and_then(Value::as_str)
        .filter(|_| list.len() == 1);
    let pattern = single.filter(|it| !it.contains('(')).and_then(anchored);
    if is_changed(parts) {
        field.refuse(CHANGED, COMBINE);
    } else if let Some(pattern) = pattern {
        field.differ(REGEX, NO_HEADER);
        let pattern = format!("{}/?(.*)", pattern.trim_end_matches('/'));
        push_regex(draft, parts, &pattern, "/\\1");
    } else {
        let reason = "expected one expression that begins with / and has no groups";
        field.refuse(reason, "use replacePathRegex");
    }
}

fn status(fields: &mut RemainingFields) -> i64 {
    match fields.take("permanent") {
        Some(field) if field.value() == &json!(true) => {
            field.differ(REDIRECT, STATUS);
            PERMANENT
        }
        Some(field) => {
            field.differ(REDIRECT, STATUS);
            TEMPORARY
        }
        None => TEMPORARY,
    }
}

pub(super) fn redirect_scheme(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let status = status(&mut fields);
    let scheme = fields.text("scheme", REDIRECT);
    fields.skip("forwardedHeaders", "the listener's scheme counts");
    let port = fields.take("port");
    let number = port.as_ref().and_then(|it| it.as_str().parse::<i64>().ok());
    match port {
        Some(field) if number.is_some() => drop(field.carry(REDIRECT)),
        Some(field) => field.refuse("expected a number", "correct the port"),
        None => {}
    }
    if parts.is_https == (scheme.as_deref() == Some("https")) {
        // Traefik redirects only requests with another scheme.
        return;
    }
    let mut output = Map::new();
    put(&mut output, "scheme", scheme);
    put(&mut output, "port", number);
    put(&mut output, "statusCode", Some(status));
    parts.redirect = Some(routing::filter("RequestRedirect", output.into()));
}

/// Only redirects of a whole host to another one can be expressed.
pub(super) fn redirect_regex(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let status = status(&mut fields);
    let replacement = fields.take("replacement");
    let Some(field) = fields.take("regex") else {
        return refuse_lone(replacement);
    };
    let to = replacement.as_ref().map_or("", |it| it.as_str()).to_owned();
    let target = other_host(field.as_str(), &to);
    let Some((scheme, host)) = target else {
        let reason = "only redirects of all paths of a host to another host can be expressed";
        field.refuse(reason, "write a RequestRedirect or a RouteFilter");
        drop(replacement.map(|it| it.carry(REDIRECT)));
        return;
    };
    field.differ(REDIRECT, "all requests of the rule are redirected");
    drop(replacement.map(|it| it.carry(REDIRECT)));
    let to = json!({"scheme": scheme, "hostname": host, "statusCode": status});
    parts.redirect = Some(routing::filter("RequestRedirect", to));
}

/// Returns scheme and host for `^https?://host/(.*)` and `https://other/${1}`.
fn other_host(regex: &str, replacement: &str) -> Option<(String, String)> {
    let from = regex.trim_start_matches('^').trim_end_matches('$');
    let from = ["https?://", "http://", "https://"]
        .iter()
        .find_map(|it| from.strip_prefix(it))?;
    let from = from.strip_suffix("/(.*)")?.replace("\\.", ".");
    let (scheme, to) = replacement.split_once("://")?;
    let to = ["/${1}", "/$1"].iter().find_map(|it| to.strip_suffix(it))?;
    let plain = |it: &str| {
        let plain = |c: u8| c.is_ascii_alphanumeric() || b".-".contains(&c);
        !it.is_empty() && it.bytes().all(plain)
    };
    let is_plain = plain(&from) && plain(to) && ["http", "https"].contains(&scheme);
    (is_plain && from != to).then(|| (scheme.to_owned(), to.to_owned()))
}
