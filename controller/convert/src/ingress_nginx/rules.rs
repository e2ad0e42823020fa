//! `spec.rules` and `spec.defaultBackend` become the rules of HTTPRoutes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sesame_kinds::api::NGINX_PREFIX;
use sesame_resolver::nginx_annotations::{
    HttpsRedirects, NginxRedirect, group_references, has_groups, is_expression, pattern,
};

use super::super::draft::Draft;
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::{self, RuleDraft};
use super::super::values::{put, put_list};
use super::super::verdicts::FieldVerdict;
use super::canaries;
use super::{IngressInput, index};

const MATCHES: &str = "HTTPRoute rules.matches";
const BACKENDS: &str = "HTTPRoute rules.backendRefs";
const NAME_REDIRECT: u32 = 308;
const SLASH: &str =
    "the path without its last slash is served like the path; nginx redirects it there";

/// The rules for one host; an empty host is every host.
#[derive(Debug)]
pub(super) struct HostRules {
    pub(super) host: String,
    /// Plain HTTP is redirected to HTTPS.
    pub(super) redirects: bool,
    pub(super) rules: Vec<RuleDraft>,
}

pub(super) fn read(
    draft: &mut Draft,
    input: &mut IngressInput,
    spec: &mut RemainingFields,
) -> Vec<HostRules> {
    let object = draft.input(&input.id).cloned().unwrap_or_default();
    let own_tls = own_tls(&object);
    let default = spec.take("defaultBackend");
    let default = default.and_then(|field| backend(draft, input, field));
    let mut hosts: Vec<HostRules> = Vec::new();
    for field in spec.list("rules") {
        let mut rule = field.fields();
        let host = host(&mut rule);
        let mut rules = Vec::new();
        if let Some(field) = input.reading.app_root.clone() {
            rules.push(redirect_rule(&json!({"path": exact("/")}), &field));
        }
        if let Some(field) = rule.take("http") {
            for field in field.fields().list("paths") {
                rules.extend(path(draft, input, &host, field));
            }
        } else if owns_all(input, &host) {
            rules.extend(default.clone().map(|backend| forwarding(all(), backend)));
        }
        add(&mut hosts, input, &own_tls, &host, rules);
    }
    if let Some(backend) = default.filter(|_| owns_all(input, "")) {
        let rule = match &input.reading.redirect {
            Some(redirect) => redirect_rule(&all(), redirect),
            None => forwarding(all(), backend),
        };
        add(&mut hosts, input, &own_tls, "", vec![rule]);
    }
    add_names(&mut hosts, input, &own_tls);
    hosts
}

/// Returns false if an older Ingress serves all other paths of a host.
fn owns_all(input: &IngressInput, host: &str) -> bool {
    let owns_all = input
        .index
        .owns_path(&input.id, (&input.class, host), "/", "Prefix");
    if !owns_all {
        let reason = format!("an older Ingress serves all other paths of host {host:?}");
        let verdict = FieldVerdict::NotNeeded { reason };
        input.log.record("spec.defaultBackend", verdict);
    }
    owns_all
}

fn own_tls(object: &Value) -> BTreeSet<String> {
    let entries = object["spec"]["tls"].as_array().into_iter().flatten();
    entries
        .flat_map(|entry| index::tls_hosts(object, entry))
        .collect()
}

fn host(rule: &mut RemainingFields) -> String {
    let to = "HTTPRoute hostnames";
    let Some(field) = rule.take("host") else {
        return String::new();
    };
    if field.as_str().starts_with("*.") {
        let difference = "the wildcard also matches several labels";
        let host = field.differ(to, difference);
        return host.as_str().unwrap_or_default().to_owned();
    }
    field.text(to).unwrap_or_default()
}

fn add(
    hosts: &mut Vec<HostRules>,
    input: &IngressInput,
    own_tls: &BTreeSet<String>,
    host: &str,
    mut rules: Vec<RuleDraft>,
) {
    if let Some(known) = hosts.iter_mut().find(|known| known.host == host) {
        known.rules.append(&mut rules);
        return;
    }
    let parent = host
        .split_once('.')
        .map(|(_, parent)| format!("*.{parent}"));
    let has_tls = own_tls.contains(host) || parent.is_some_and(|it| own_tls.contains(&it));
    hosts.push(HostRules {
        host: host.to_owned(),
        redirects: match input.reading.https_redirects {
            HttpsRedirects::Never => false,
            HttpsRedirects::TlsHosts => has_tls,
            HttpsRedirects::AllHosts => true,
        },
        rules,
    });
}

/// Adds the names of `server-alias` and `from-to-www-redirect`, unless an Ingress has a rule for
/// them.
fn add_names(hosts: &mut Vec<HostRules>, input: &IngressInput, own_tls: &BTreeSet<String>) {
    let is_free = |name: &str| input.index.owns_name(&input.id, &input.class, name);
    let names = hosts.iter().map(|it| it.host.clone());
    let names: Vec<String> = names
        .filter(|it| !it.is_empty() && !it.starts_with('*'))
        .collect();
    let first = hosts.iter().find(|it| !it.host.is_empty());
    let first = first.map(|it| (it.redirects, it.rules.clone()));
    let aliases = input.reading.aliases.iter().filter(|it| is_free(it));
    for (alias, (redirects, rules)) in aliases.zip(std::iter::repeat(first).flatten()) {
        hosts.push(HostRules {
            host: alias.clone(),
            redirects,
            rules,
        });
    }
    if !input.reading.redirects_www {
        return;
    }
    for name in names {
        let other = index::www(&name);
        if is_free(&other) {
            let redirect = NginxRedirect {
                scheme: "",
                host: name,
                port: None,
                path: None,
                status: NAME_REDIRECT,
            };
            let rule = redirect_rule(&all(), &redirect);
            add(hosts, input, own_tls, &other, vec![rule]);
        }
    }
}

pub(super) fn all() -> Value {
    json!({"path": {"type": "PathPrefix", "value": "/"}})
}

fn exact(path: &str) -> Value {
    json!({"type": "Exact", "value": path})
}

fn forwarding(matched: Value, backend: Value) -> RuleDraft {
    let mut rule = RuleDraft {
        matches: vec![matched],
        ..RuleDraft::default()
    };
    put_list(&mut rule.fields, "backendRefs", vec![backend]);
    rule
}

pub(super) fn redirect_rule(matched: &Value, redirect: &NginxRedirect) -> RuleDraft {
    let NginxRedirect {
        scheme,
        host,
        port,
        path,
        status,
    } = redirect;
    let mut to = Map::new();
    put(&mut to, "scheme", Some(*scheme).filter(|it| !it.is_empty()));
    put(
        &mut to,
        "hostname",
        Some(host.as_str()).filter(|it| !it.is_empty()),
    );
    put(&mut to, "port", *port);
    if let Some(path) = path {
        to.insert("path".to_owned(), full_path(path));
    }
    put(&mut to, "statusCode", Some(*status));
    let mut rule = RuleDraft {
        matches: vec![matched.clone()],
        ..RuleDraft::default()
    };
    let filter = routing::filter("RequestRedirect", to.into());
    put_list(&mut rule.fields, "filters", vec![filter]);
    rule
}

fn full_path(path: &str) -> Value {
    json!({"type": "ReplaceFullPath", "replaceFullPath": path})
}

fn path(
    draft: &mut Draft,
    input: &mut IngressInput,
    host: &str,
    field: TakenField,
) -> Vec<RuleDraft> {
    let key = index::key_in(&input.id, &input.class, host, field.value());
    let [_, class, host, path_type, own] = &key;
    let index = input.index;
    if !index.owns_path(&input.id, (class, host), own, path_type) {
        field.unneeded("an older Ingress has the same host and path, and gets the requests");
        return Vec::new();
    }
    let mut entry = field.fields();
    let path_type = entry.take("pathType");
    let value = entry.take("path");
    let text = value.as_ref().map_or("/", TakenField::as_str).to_owned();
    let read = path_match(input, host, path_type, value);
    let backend = match entry.take("backend") {
        Some(field) if input.reading.redirect.is_some() => {
            field.unneeded("all requests are redirected");
            None
        }
        Some(field) => backend(draft, input, field),
        None => None,
    };
    let Some(matched) = read.map(|path| json!({ "path": path })) else {
        return Vec::new();
    };
    if let Some(redirect) = &input.reading.redirect {
        return vec![redirect_rule(&matched, redirect)];
    }
    let Some(backend) = backend else {
        return Vec::new();
    };
    let rewrite = rewrite(draft, input, &text);
    let mut rules = canaries::rules(draft, input, &key, &matched, &backend);
    for rule in &mut rules {
        put_list(
            &mut rule.fields,
            "filters",
            rewrite.iter().cloned().collect(),
        );
    }
    rules
}

/// Records the verdicts on text prefixes. `protects` is true if their requests need checks.
pub(super) fn close_prefixes(input: &mut IngressInput, protects: bool) {
    for (host, prefix, field) in std::mem::take(&mut input.text_prefixes) {
        let place = (input.class.as_str(), host.as_str());
        let is_narrower = !prefix.ends_with('/');
        if protects && is_narrower && input.index.has_wider_path(&input.id, place, &prefix) {
            let reason = format!(
                "it would match whole path elements: requests such as {prefix}x would reach \
                another Ingress without these checks"
            );
            field.refuse(&reason, "use pathType Prefix, or end the path with a slash");
        } else if is_narrower {
            field.differ(
                MATCHES,
                "it matches whole path elements: a longer last element no longer matches",
            );
        } else {
            field.differ(MATCHES, SLASH);
        }
    }
}

fn path_match(
    input: &mut IngressInput,
    host: &str,
    path_type: Option<TakenField>,
    value: Option<TakenField>,
) -> Option<Value> {
    let text = value.as_ref().map_or("", TakenField::as_str).to_owned();
    let text = if text.is_empty() {
        "/".to_owned()
    } else {
        text
    };
    let Some(path_type) = path_type else {
        value?.refuse("the path has no pathType", "set it to Prefix or Exact");
        return None;
    };
    let prefix = json!({"type": "PathPrefix", "value": text});
    let expressions = input.reading.are_expressions;
    let (found, is_text) = match path_type.as_str() {
        "Exact" => (exact(&text), false),
        "Prefix" | "ImplementationSpecific" if expressions && is_expression(&text) => {
            let value = pattern(&text);
            (json!({"type": "RegularExpression", "value": value}), false)
        }
        "ImplementationSpecific" if is_expression(&text) => {
            let reason = "without use-regex, the path is not a regular expression";
            path_type.refuse(reason, "use pathType Prefix or Exact, or the annotation");
            drop(value.map(|field| field.carry(MATCHES)));
            return None;
        }
        "Prefix" if !expressions || text == "/" => (prefix, false),
        "ImplementationSpecific" if text == "/" => (prefix, false),
        "Prefix" | "ImplementationSpecific" => (prefix, true),
        _ => {
            path_type.refuse("the type is unknown", "use Prefix or Exact");
            drop(value.map(|field| field.carry(MATCHES)));
            return None;
        }
    };
    let has_slash = text.len() > 1 && text.ends_with('/') && found["type"] == "PathPrefix";
    if is_text {
        input.text_prefixes.push((host.to_owned(), text, path_type));
    } else if has_slash {
        path_type.differ(MATCHES, SLASH);
    } else {
        path_type.carry(MATCHES);
    }
    drop(value.map(|field| field.carry(MATCHES)));
    Some(found)
}

/// Returns the filter for `rewrite-target`.
fn rewrite(draft: &mut Draft, input: &mut IngressInput, path: &str) -> Option<Value> {
    let target = input.reading.rewrite_target.as_ref()?;
    if !has_groups(target) {
        return Some(routing::filter(
            "URLRewrite",
            json!({ "path": full_path(target) }),
        ));
    }
    if !is_expression(path) {
        // A former path may have taken it.
        let name = format!("{NGINX_PREFIX}rewrite-target");
        if let Some(field) = input.annotations.remove(&name) {
            field.refuse(
                "the target refers to a group, but a path has none",
                "use a path such as /path(/|$)(.*)",
            );
        }
        return None;
    }
    let spec = json!({"urlRewrite": {"regex": {
        "pattern": format!("^{}", pattern(path)),
        "substitution": group_references(target),
    }}});
    let base = format!("{}-rewrite", input.id.name);
    Some(routing::shared_filter(
        draft,
        &input.sources,
        &input.metadata,
        &base,
        spec,
    ))
}

/// Returns a reference to the backend, or `None` if it was refused.
pub(super) fn backend(draft: &Draft, input: &IngressInput, field: TakenField) -> Option<Value> {
    let mut fields = field.fields();
    if let Some(field) = fields.take("resource") {
        field.refuse("only Services can be backends", "use a Service");
        return None;
    }
    let mut service = fields.section("service");
    let name = service.text("name", BACKENDS)?;
    let mut port = service.section("port");
    let number = if let Some(field) = port.take("number") {
        field.number(BACKENDS)?
    } else {
        let field = port.take("name")?;
        let found = routing::named_port(draft, &input.id.namespace, &name, field.as_str());
        let Some(number) = found else {
            let reason = "the Service is not in the input, or has no port with this name";
            field.refuse(reason, "add the Service to the input");
            return None;
        };
        field.differ(BACKENDS, "the number of the Service's port");
        number
    };
    Some(routing::backend_ref(&name, None, number, 1))
}
