//! Emulates how Envoy routes requests with a snapshot.

use sesame_proto::schema::route::Action;
use sesame_proto::schema::text_match::Operator;
use sesame_proto::schema::{
    Listener, Protocol, Route, RouteTable, Snapshot, TextMatch, VirtualHost, path_match,
    string_match,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) port: u32,
    pub(super) sni: &'a str,
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) method: &'a str,
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) query: &'a [(&'a str, &'a str)],
}

pub(super) const GET: Request<'static> = Request {
    port: 80,
    sni: "",
    host: "example.com",
    path: "/",
    method: "GET",
    headers: &[],
    query: &[],
};

pub(super) fn answer(snapshot: &Snapshot, request: &Request<'_>) -> String {
    match find(snapshot, request) {
        None => "404".to_owned(),
        Some(route) => describe(route.action.as_ref()),
    }
}

pub(super) fn find<'s>(snapshot: &'s Snapshot, request: &Request<'_>) -> Option<&'s Route> {
    let port = snapshot
        .ports
        .iter()
        .find(|port| port.port == request.port)?;
    let listener: &Listener = match port.listeners.first()?.protocol() {
        Protocol::Http => port.listeners.first()?,
        _ => port.listeners.iter().find(|listener| {
            let domain = if listener.hostname.is_empty() {
                "*"
            } else {
                &listener.hostname
            };
            covers(domain, request.sni)
        })?,
    };
    let table: &RouteTable = snapshot
        .route_tables
        .iter()
        .find(|table| table.name == listener.route_table)?;
    let host = virtual_host(table, request.host)?;
    host.routes.iter().find(|route| matches(route, request))
}

/// Finds the virtual host as Envoy does, regardless of the table's order: the exact domain, the
/// longest wildcard, or `*`.
fn virtual_host<'t>(table: &'t RouteTable, host: &str) -> Option<&'t VirtualHost> {
    let covering = table
        .virtual_hosts
        .iter()
        .filter(|vh| covers(&vh.domain, host));
    covering.max_by_key(|vh| (!vh.domain.contains('*'), vh.domain.len()))
}

fn covers(domain: &str, host: &str) -> bool {
    match domain.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => domain == host,
    }
}

fn matches(route: &Route, request: &Request<'_>) -> bool {
    let full = |pattern: &str, text: &str| {
        regex::Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|regex| regex.is_match(text))
    };
    let path = match route
        .path
        .as_ref()
        .and_then(|path| path.kind.as_ref())
        .expect("a path")
    {
        path_match::Kind::Exact(path) => path == request.path,
        path_match::Kind::Prefix(prefix) => request
            .path
            .strip_prefix(prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        path_match::Kind::TextPrefix(prefix) => request.path.starts_with(prefix.as_str()),
        path_match::Kind::Regex(pattern) => full(pattern, request.path),
    };
    let all = |wanted: &[sesame_proto::schema::StringMatch], given: &[(&str, &str)]| {
        wanted.iter().all(|wanted| {
            let mut named = given.iter().filter(|(name, _)| *name == wanted.name);
            match wanted.kind.as_ref().expect("a kind") {
                string_match::Kind::Exact(text) => named.any(|(_, value)| text == value),
                string_match::Kind::Regex(pattern) => named.any(|(_, value)| full(pattern, value)),
                string_match::Kind::Present(present) => named.next().is_some() == *present,
                string_match::Kind::Text(text) => {
                    let value = named.next().map(|(_, value)| *value);
                    let value = value.or(text.missing_is_empty.then_some(""));
                    value.is_some_and(|value| compares(text, value) != text.negate)
                }
            }
        })
    };
    path && (route.method.is_empty() || route.method == request.method)
        && all(&route.headers, request.headers)
        && all(&route.query_params, request.query)
}

fn compares(text: &TextMatch, value: &str) -> bool {
    let fold = |given: &str| {
        if text.ignore_case {
            given.to_ascii_lowercase()
        } else {
            given.to_owned()
        }
    };
    let (value, wanted) = (fold(value), fold(&text.value));
    match text.operator() {
        Operator::Exact => value == wanted,
        Operator::Prefix => value.starts_with(&wanted),
        Operator::Suffix => value.ends_with(&wanted),
        Operator::Contains => value.contains(&wanted),
    }
}

fn describe(action: Option<&Action>) -> String {
    match action.expect("an action") {
        Action::DirectResponse(response) => response.status.to_string(),
        Action::Redirect(redirect) => {
            format!("{} {}:{}", redirect.status, redirect.scheme, redirect.port)
        }
        Action::Forward(forward) => {
            let shares: Vec<String> = forward
                .backends
                .iter()
                .map(|share| {
                    let backend = share.backend.strip_prefix("Service/").unwrap_or("500");
                    if forward.backends.len() == 1 {
                        backend.to_owned()
                    } else {
                        format!("{}x{backend}", share.weight)
                    }
                })
                .collect();
            shares.join(" ")
        }
    }
}
