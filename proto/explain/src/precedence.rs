//! Explains why one of two matches takes precedence.

use std::cmp::{Ordering, Reverse};

use sesame_proto::provenance::Provenance;
use sesame_proto::schema::{Route, StringMatch, path_match, string_match};

pub(super) fn why_first(first: &Route, later: &Route) -> String {
    let name = &first.name;
    let parts = [
        (compare(first, later, |it| !it.grpc), "takes gRPC only"),
        (compare(first, later, not_exact), "matches an exact path"),
        (
            compare(first, later, |it| layer(it) != 1 || !is_regex(it)),
            "matches a regular expression of an HTTPProxy",
        ),
        (
            compare(first, later, |it| Reverse(path_length(it))),
            "matches a longer path",
        ),
        (
            compare(first, later, is_regex),
            "matches a prefix of the same length",
        ),
        (
            compare(first, later, |it| Reverse(proxy_regex(it))),
            "matches the alphabetically last of two regular expressions",
        ),
        (
            compare(first, later, |it| it.method.is_empty()),
            "matches a method",
        ),
        (
            compare(first, later, |it| Reverse(headers(it))),
            "matches more headers",
        ),
        (
            compare(first, later, |it| Reverse(it.query_params.len())),
            "matches more query parameters",
        ),
    ];
    let decided = parts.into_iter().find(|(order, _)| order.is_ne());
    match decided {
        Some((Ordering::Less, why)) => format!("{name} takes precedence: it {why}"),
        Some(_) => format!("{name} takes precedence: its route's hostname is more specific"),
        None if are_proxies(first, later) && conditions(first) != conditions(later) => format!(
            "{name} takes precedence: both have equally many conditions, and its conditions come \
            first by name, operator (exact, regex, prefix, suffix, contains, present) and value"
        ),
        None if object(first) == object(later) => {
            let listed = if layer(first) == 1 { "last" } else { "first" };
            format!("{name} takes precedence: neither is more specific, and it is listed {listed}")
        }
        None if layer(later) > layer(first) => format!(
            "{name} takes precedence: neither is more specific, and routes of the Gateway API \
            precede HTTPProxies, which precede Ingresses"
        ),
        None if layer(first) == 1 => format!(
            "{name} takes precedence: neither is more specific, and an HTTPProxy precedes the proxies it \
            includes"
        ),
        None => format!(
            "{name} takes precedence: neither is more specific, and its route is older, or of the \
            same age and first by name"
        ),
    }
}

fn compare<K: Ord>(first: &Route, later: &Route, key: impl Fn(&Route) -> K) -> Ordering {
    key(first).cmp(&key(later))
}

fn kind(route: &Route) -> Option<&path_match::Kind> {
    route.path.as_ref()?.kind.as_ref()
}

fn not_exact(route: &Route) -> bool {
    !matches!(kind(route), Some(path_match::Kind::Exact(_)))
}

fn is_regex(route: &Route) -> bool {
    matches!(kind(route), Some(path_match::Kind::Regex(_)))
}

fn are_proxies(first: &Route, later: &Route) -> bool {
    layer(first) == 1 && layer(later) == 1
}

/// Empty except for a regular expression in an HTTPProxy.
fn proxy_regex(route: &Route) -> String {
    match kind(route) {
        Some(path_match::Kind::Regex(pattern)) if layer(route) == 1 => pattern.clone(),
        _ => String::new(),
    }
}

fn conditions(route: &Route) -> (&[StringMatch], &[StringMatch]) {
    (&route.headers, &route.query_params)
}

fn path_length(route: &Route) -> usize {
    match kind(route) {
        Some(
            path_match::Kind::Exact(path)
            | path_match::Kind::Prefix(path)
            | path_match::Kind::TextPrefix(path)
            | path_match::Kind::Regex(path),
        ) => path.len(),
        None => 0,
    }
}

/// Lower ranks take precedence among equal matches.
fn layer(route: &Route) -> u8 {
    match object(route).map(|object| object.kind) {
        Some("Ingress") => 2,
        Some("HTTPProxy") => 1,
        _ => 0,
    }
}

/// Does not count the `Host` condition that Ingresses and HTTPProxies add for wildcard hosts.
fn headers(route: &Route) -> usize {
    let is_host_regex = |it: &&StringMatch| {
        it.name == "host" && matches!(it.kind, Some(string_match::Kind::Regex(_)))
    };
    let host_regexes = route.headers.iter().filter(is_host_regex).count();
    let ignored = if layer(route) == 0 {
        0
    } else {
        host_regexes.min(1)
    };
    route.headers.len().saturating_sub(ignored)
}

fn object(route: &Route) -> Option<Provenance<'_>> {
    Provenance::parse(&route.name).ok().map(Provenance::object)
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::PathMatch;

    use super::*;

    fn route(kind: &str, rule: usize, path: path_match::Kind, header: &str) -> Route {
        let header = StringMatch {
            name: header.to_owned(),
            kind: Some(string_match::Kind::Present(true)),
        };
        Route {
            name: format!("{kind}/web/r/rules/{rule}/matches/0"),
            path: Some(PathMatch { kind: Some(path) }),
            headers: vec![header],
            ..Route::default()
        }
    }

    #[test]
    fn only_proxies_compare_conditions_and_expressions() {
        let all = || path_match::Kind::Prefix(String::new());
        let regex = |text: &str| path_match::Kind::Regex(text.to_owned());
        for (kind, conditions, expressions) in [
            (
                "HTTPProxy",
                "equally many conditions",
                "alphabetically last",
            ),
            ("HTTPRoute", "listed first", "listed first"),
            ("Ingress", "listed first", "listed first"),
        ] {
            let by_header = [route(kind, 1, all(), "a"), route(kind, 0, all(), "b")];
            let by_regex = [("/b.*", 1), ("/a.*", 0)];
            let by_regex = by_regex.map(|(text, rule)| route(kind, rule, regex(text), "a"));
            for ([first, later], expected) in [(by_header, conditions), (by_regex, expressions)] {
                let why = why_first(&first, &later);
                assert!(why.contains(expected), "{kind}: {why}");
            }
        }
    }
}
