//! Normalizes a path as Envoy does before routing, to prevent clients from bypassing routes.

use sesame_proto::canonical_path::collapse_dots;
use sesame_proto::schema::Edge;
use sesame_proto::schema::edge::EscapedSlashes;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CanonicalPath {
    /// Envoy matches routes against this path.
    Compared(String),
    /// Envoy first redirects the client to this path.
    Redirected(String),
    /// Envoy rejects the request with 400.
    Rejected(&'static str),
}

pub(super) fn canonical(path_and_query: &str, edge: Edge) -> CanonicalPath {
    let (path, query) = match path_and_query.find('?') {
        Some(at) => path_and_query.split_at(at),
        None => (path_and_query, ""),
    };
    let action = edge.escaped_slashes();
    let mut path = path.to_owned();
    let mut redirected = false;
    if action != EscapedSlashes::Keep {
        let unescaped = unescape_slashes(&path);
        let found = unescaped.len() != path.len();
        if found && action == EscapedSlashes::Reject {
            return CanonicalPath::Rejected("the path has an escaped slash (%2F or %5C)");
        }
        redirected = found && action == EscapedSlashes::Redirect;
        path = unescaped;
    }
    let Some(mut path) = collapse_dots(&path) else {
        return CanonicalPath::Rejected("the path has an escaped NUL (%00)");
    };
    if !edge.keep_repeated_slashes {
        path = merge_slashes(path);
    }
    path.push_str(query);
    if redirected {
        CanonicalPath::Redirected(path)
    } else {
        CanonicalPath::Compared(path)
    }
}

fn unescape_slashes(path: &str) -> String {
    path.replace("%2F", "/")
        .replace("%2f", "/")
        .replace("%5C", "\\")
        .replace("%5c", "\\")
}

fn merge_slashes(path: String) -> String {
    if !path.contains("//") {
        return path;
    }
    let elements: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let end = if path.ends_with('/') { "/" } else { "" };
    format!("/{}{end}", elements.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compared(path: &str) -> String {
        match canonical(path, Edge::default()) {
            CanonicalPath::Compared(path) => path,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn a_path_is_canonical_before_routes_see_it() {
        for (path, expected) in [
            ("/", "/"),
            ("/a/../b", "/b"),
            ("/a/./b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/../..", "/"),
            ("/%2e%2E/a", "/a"),
            ("/a/.b/..c", "/a/.b/..c"),
            ("/a.", "/a."),
            ("//a///b//", "/a/b/"),
            ("/a\\b", "/a/b"),
            ("/a//../b", "/a/b"),
            ("/x?y=/a/../b//c", "/x?y=/a/../b//c"),
            ("/a%20b", "/a%20b"),
            ("/a%zz", "/a%zz"),
            ("/a|b", "/a%7Cb"),
            ("/%61%2d%7E.%7C", "/a-~.%7C"),
            ("/%2%61", "/%252a"),
            ("/%%36%31", "/%2561"),
            ("/%u0041", "/%u0041"),
            ("//", "//"),
        ] {
            assert_eq!(compared(path), expected, "{path}");
        }
    }

    #[test]
    fn escaped_slashes_follow_gateway_setting() {
        let with = |action: EscapedSlashes| {
            let edge = Edge {
                escaped_slashes: action.into(),
                ..Edge::default()
            };
            canonical("/a%2F..%5cb?q", edge)
        };
        let plain = || "/b?q".to_owned();
        assert_eq!(
            with(EscapedSlashes::Redirect),
            CanonicalPath::Redirected(plain())
        );
        assert_eq!(
            with(EscapedSlashes::Unescape),
            CanonicalPath::Compared(plain())
        );
        assert_eq!(
            with(EscapedSlashes::Keep),
            CanonicalPath::Compared("/a%2F..%5cb?q".to_owned())
        );
        assert!(matches!(
            with(EscapedSlashes::Reject),
            CanonicalPath::Rejected(_)
        ));
        assert!(matches!(
            canonical("/%00", Edge::default()),
            CanonicalPath::Rejected(_)
        ));
    }

    proptest! {
        #[test]
        fn any_path_becomes_ascii_from_the_root(path in "([/.%\\\\a2eEfF5cC0]|%2e|%2F|%5c|é|\\PC){0,24}") {
            let edge = Edge {
                escaped_slashes: EscapedSlashes::Unescape.into(),
                ..Edge::default()
            };
            if let CanonicalPath::Compared(once) = canonical(&path, edge) {
                prop_assert!(once.starts_with('/'), "{once}");
                prop_assert!(once.is_ascii() || path.contains('?'), "{once}");
            }
        }
    }
}
