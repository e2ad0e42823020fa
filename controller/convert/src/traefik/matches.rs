//! Rules become hosts and matches.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::fields::TakenField;
use super::super::routing::order::{Overlap, overlap, rest_of_text};
use super::super::values::{network, put_list};
use super::rule::{Alternative, Matcher, parse, parse_loosely};

const TO: &str = "HTTPRoute rules.matches";
const ELEMENTS: &str = "a prefix matches whole path elements: /a matches /a and /a/b, but not /ab";
const SLASH: &str = "a prefix that ends with a slash also matches the path without it";
const WILDCARD: &str = "an expression for hosts becomes a wildcard, which matches more hosts";
const CLIENTS: &str = "other clients get 403, and reach no other route";

/// One alternative of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuleTerm {
    /// Empty for all hosts.
    pub(super) host: String,
    pub(super) matched: Value,
    /// Networks of the clients; all if empty.
    pub(super) clients: Vec<String>,
    /// True if the path is a text prefix, which matches fewer requests than in Traefik.
    pub(super) is_text: bool,
}

/// Returns the alternatives of a rule, or `None` if it was refused.
pub(super) fn read(field: TakenField, rule: &str) -> Option<Vec<RuleTerm>> {
    let mut differences = BTreeSet::new();
    match terms(rule, &mut differences) {
        Ok(terms) => {
            if differences.is_empty() {
                field.carry(TO);
            } else {
                let all: Vec<&str> = differences.into_iter().collect();
                field.differ(TO, &all.join("; "));
            }
            Some(terms)
        }
        Err(why) => {
            field.refuse(&why, "write the rule in another way");
            None
        }
    }
}

/// Returns the hosts of a rule, if it can be read.
pub(super) fn hosts(rule: &str) -> Vec<String> {
    let terms = terms(rule, &mut BTreeSet::new()).unwrap_or_default();
    terms.into_iter().map(|it| it.host).collect()
}

/// Returns hosts that contain all requests of a rule, even if it cannot be read. An empty one stands
/// for all.
pub(super) fn stated_hosts(rule: &str) -> BTreeSet<String> {
    let Ok(alternatives) = parse_loosely(rule) else {
        return [String::new()].into();
    };
    let hosts = alternatives.iter().flat_map(|alternative| {
        let stated = alternative.iter().find_map(stated);
        stated
            .filter(|it| !it.is_empty())
            .unwrap_or_else(|| vec![String::new()])
    });
    hosts.collect()
}

fn stated(matcher: &Matcher) -> Option<Vec<String>> {
    let args = matcher.args.iter();
    match matcher.name.as_str() {
        "Host" | "HostHeader" | "HostSNI" => {
            let hosts = args.map(|it| it.trim_end_matches('.').to_ascii_lowercase());
            Some(
                hosts
                    .map(|it| if it == "*" { String::new() } else { it })
                    .collect(),
            )
        }
        "HostRegexp" | "HostSNIRegexp" => args.map(|it| wildcard(it)).collect(),
        _ => None,
    }
}

fn terms(rule: &str, differences: &mut BTreeSet<&'static str>) -> Result<Vec<RuleTerm>, String> {
    let mut terms = Vec::new();
    for alternative in parse(rule)? {
        for term in alternatives(&alternative, differences)? {
            if !terms.contains(&term) {
                terms.push(term);
            }
        }
    }
    Ok(terms)
}

/// Returns a term for each combination of the matchers' arguments.
fn alternatives(
    alternative: &Alternative,
    differences: &mut BTreeSet<&'static str>,
) -> Result<Vec<RuleTerm>, String> {
    let all = json!({"path": {"type": "PathPrefix", "value": "/"}});
    let mut terms = vec![RuleTerm {
        host: String::new(),
        matched: all,
        clients: Vec::new(),
        is_text: false,
    }];
    for matcher in alternative {
        let options = options(matcher, differences)?;
        let mut next = Vec::new();
        for (term, option) in terms
            .iter()
            .flat_map(|a| options.iter().map(move |b| (a, b)))
        {
            next.extend(both(term, option)?);
        }
        terms = next;
        if terms.len() > 64 {
            return Err("the rule has too many alternatives".to_owned());
        }
    }
    Ok(terms)
}

/// Returns `None` if no request matches both.
fn both(first: &RuleTerm, second: &RuleTerm) -> Result<Option<RuleTerm>, String> {
    let host = match (first.host.as_str(), second.host.as_str()) {
        (a, b) if b.is_empty() || a == b => a,
        ("", b) => b,
        (a, b) if !a.starts_with('*') && !b.starts_with('*') => return Ok(None),
        _ => return Err("the rule combines expressions for hosts".to_owned()),
    };
    let clients = match (first.clients.is_empty(), second.clients.is_empty()) {
        (_, true) => first.clients.clone(),
        (true, _) => second.clients.clone(),
        _ => return Err("the rule names clients twice".to_owned()),
    };
    let matched = match overlap(&first.matched, &second.matched) {
        Overlap::None => return Ok(None),
        Overlap::Both(both) => both,
        Overlap::Unknown => return Err("the rule combines expressions".to_owned()),
    };
    let is_text = [first, second]
        .iter()
        .any(|it| it.is_text && it.matched["path"] == matched["path"]);
    Ok(Some(RuleTerm {
        host: host.to_owned(),
        matched,
        clients,
        is_text,
    }))
}

fn options(
    part: &Matcher,
    differences: &mut BTreeSet<&'static str>,
) -> Result<Vec<RuleTerm>, String> {
    let Matcher { name, args } = part;
    let any = json!({"path": {"type": "PathPrefix", "value": "/"}});
    let made = |host: String, matched: Value, is_text: bool| RuleTerm {
        host,
        matched,
        clients: Vec::new(),
        is_text,
    };
    let mut terms = Vec::new();
    match name.as_str() {
        "Host" | "HostHeader" => {
            let hosts = args
                .iter()
                .map(|it| it.trim_end_matches('.').to_ascii_lowercase());
            terms.extend(hosts.map(|it| made(it, any.clone(), false)));
        }
        "HostRegexp" => {
            for arg in args {
                let host = wildcard(arg).ok_or("an expression for hosts is not a wildcard")?;
                differences.insert(WILDCARD);
                terms.push(made(host, any.clone(), false));
            }
        }
        "Path" | "PathPrefix" | "PathRegexp" => {
            for arg in args {
                let (path, difference) = path(name, arg)?;
                let is_text = difference == Some(ELEMENTS);
                differences.extend(difference);
                terms.push(made(String::new(), json!({ "path": path }), is_text));
            }
        }
        "Method" => {
            for arg in args {
                let mut matched = any.clone();
                matched["method"] = json!(arg.to_ascii_uppercase());
                terms.push(made(String::new(), matched, false));
            }
        }
        "Header" | "Headers" | "HeaderRegexp" | "HeadersRegexp" | "Query" | "QueryRegexp" => {
            for value in value(name, args)? {
                let list = if name.starts_with('Q') {
                    "queryParams"
                } else {
                    "headers"
                };
                let mut matched: Map<String, Value> = any.as_object().cloned().unwrap_or_default();
                put_list(&mut matched, list, vec![value]);
                terms.push(made(String::new(), matched.into(), false));
            }
        }
        "ClientIP" => {
            differences.insert(CLIENTS);
            let mut all = made(String::new(), any.clone(), false);
            all.clients = args.iter().map(|it| network(it)).collect();
            terms.push(all);
        }
        other => return Err(format!("Sesame has no counterpart of {other}")),
    }
    if terms.is_empty() {
        return Err(format!("{name} has no argument"));
    }
    Ok(terms)
}

/// Returns the wildcard for an expression that begins with any label.
pub(super) fn wildcard(expression: &str) -> Option<String> {
    let text = expression.trim_start_matches('^').trim_end_matches('$');
    let starts = [
        ".+\\.",
        ".*\\.",
        "[^.]+\\.",
        "[a-z]+\\.",
        "[a-z0-9-]+\\.",
        "[a-zA-Z0-9-]+\\.",
    ];
    let rest = starts.iter().find_map(|it| text.strip_prefix(it));
    // The older syntax: `{subdomain:[a-z]+}.example.com`.
    let older = || {
        let (name, rest) = text.strip_prefix('{')?.split_once("}.")?;
        (!name.contains('{')).then_some(rest)
    };
    let host = rest
        .map(|it| it.replace("\\.", "."))
        .or_else(|| older().map(str::to_owned))?;
    let plain = |c: u8| c.is_ascii_alphanumeric() || b".-".contains(&c);
    let is_plain = !host.is_empty() && host.bytes().all(plain);
    is_plain.then(|| format!("*.{}", host.to_ascii_lowercase()))
}

fn path(name: &str, arg: &str) -> Result<(Value, Option<&'static str>), String> {
    if name == "PathRegexp" {
        let pattern = whole(arg);
        return Ok((json!({"type": "RegularExpression", "value": pattern}), None));
    }
    if !arg.starts_with('/') || arg.contains(['{', '}']) {
        return Err("a path has an expression, or does not begin with a slash".to_owned());
    }
    let (kind, difference) = match (name, arg) {
        ("Path", _) => ("Exact", None),
        (_, "/") => ("PathPrefix", None),
        _ if arg.ends_with('/') => ("PathPrefix", Some(SLASH)),
        _ => ("PathPrefix", Some(ELEMENTS)),
    };
    Ok((json!({"type": kind, "value": arg}), difference))
}

/// Returns an expression that matches the whole text. Traefik's match any part.
pub(super) fn whole(expression: &str) -> String {
    let (start, text) = match expression.strip_prefix('^') {
        Some(text) => ("", text),
        None => (".*", expression),
    };
    let (text, end) = match text.strip_suffix('$') {
        Some(text) if !text.ends_with('\\') => (text, ""),
        _ => (text, ".*"),
    };
    let text = if text.contains('|') {
        format!("(?:{text})")
    } else {
        text.to_owned()
    };
    format!("{start}{text}{end}")
}

/// Returns conditions on headers or query parameters, one of which must hold.
fn value(name: &str, args: &[String]) -> Result<Vec<Value>, String> {
    let is_regex = name.contains("Regexp");
    let condition = |key: &str, value: &str| {
        let (kind, value) = match (is_regex, value) {
            (true, _) => ("RegularExpression", whole(value)),
            (false, value) => ("Exact", value.to_owned()),
        };
        json!({"type": kind, "name": key, "value": value})
    };
    match args {
        // The older syntax: `Query(`a=b`)`.
        [arg] if name == "Query" => Ok(vec![match arg.split_once('=') {
            Some((key, value)) => condition(key, value),
            None => json!({"type": "RegularExpression", "name": arg, "value": ".*"}),
        }]),
        [key, _] if name == "Query" && key.contains('=') => {
            Err("several query parameters; use && instead".to_owned())
        }
        [key, value] => Ok(vec![condition(key, value)]),
        _ => Err(format!("{name} needs a name and a value")),
    }
}

/// Returns a match for the rest of a text prefix.
pub(super) fn rest(matched: &Value) -> Value {
    let mut rest = matched.clone();
    let prefix = matched["path"]["value"].as_str().unwrap_or_default();
    rest["path"] = json!({"type": "RegularExpression", "value": rest_of_text(prefix)});
    rest
}
