//! The path that routes are compared with: Envoy makes it canonical first, or a route could be stepped around.
//!
//! Envoy has this from Chromium (`url_canon_path.cc`), and so `/%2e%2E/`, `\` and broken escapes are treated as there.

use sesame_proto::schema::Edge;
use sesame_proto::schema::edge::EscapedSlashes;

/// The outcome for a path with its query.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CanonicalPath {
    /// Routes are compared with it.
    Compared(String),
    /// The client is sent there first.
    Redirected(String),
    /// The request is refused with 400.
    Rejected(&'static str),
}

/// Returns what becomes of a path and query.
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

/// Resolves `.` and `..`, and writes characters as they are written in URLs; none for a path that is invalid.
fn collapse_dots(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
    if !bytes.first().is_some_and(|first| is_slash(*first)) {
        out.push(b'/');
    }
    let mut at = 0;
    // The last `%` that began no escape.
    let mut stray = None;
    while let Some(&byte) = bytes.get(at) {
        let dot = dot_length(bytes, at);
        if dot > 0 {
            at += dot;
            match after_dot(bytes, at).filter(|_| out.last() == Some(&b'/')) {
                None => out.push(b'.'),
                Some((consumed, up)) => {
                    at += consumed;
                    if up {
                        back_up(&mut out);
                    }
                }
            }
            continue;
        }
        at += 1;
        match byte {
            b'\\' => out.push(b'/'),
            b'%' => match escaped(bytes, at) {
                Some(0) => return None,
                Some(value) if is_unreserved(value) => {
                    out.push(value);
                    at += 2;
                    if let Some(stray) = stray {
                        escape_stray(&mut out, stray, bytes.get(at).copied());
                    }
                }
                Some(_) => out.push(b'%'),
                None => {
                    stray = Some(out.len());
                    out.push(b'%');
                }
            },
            _ if must_be_escaped(byte) => out.extend(format!("%{byte:02X}").bytes()),
            _ => out.push(byte),
        }
    }
    // Every byte is ASCII: what is not was escaped.
    String::from_utf8(out).ok()
}

/// Escapes a stray `%` if what was just unescaped behind it made an escape of it. `next` is the byte that comes next.
fn escape_stray(out: &mut Vec<u8>, stray: usize, next: Option<u8>) {
    let mut behind = out.get(stray + 1..).unwrap_or_default().to_vec();
    if behind.len() == 1 {
        behind.extend(next);
    }
    if behind.len() == 2 && escaped(&behind, 0).is_some() {
        out.splice(stray..=stray, *b"%25");
    }
}

/// Returns the length of a dot, plain or escaped; 0 if there is none.
fn dot_length(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..) {
        Some([b'.', ..]) => 1,
        Some([b'%', b'2', b'e' | b'E', ..]) => 3,
        _ => 0,
    }
}

/// Returns how many bytes behind a dot belong to it, and true if it means the directory above; none if it means nothing special.
fn after_dot(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let ends = |at: usize| match bytes.get(at) {
        None => Some(0),
        Some(byte) => is_slash(*byte).then_some(1),
    };
    if let Some(slash) = ends(at) {
        return Some((slash, false));
    }
    let second = dot_length(bytes, at);
    let slash = ends(at + second).filter(|_| second > 0)?;
    Some((second + slash, true))
}

/// Removes the last element, but never the first slash.
fn back_up(out: &mut Vec<u8>) {
    if out.len() > 1 {
        out.pop();
        while out.len() > 1 && out.last() != Some(&b'/') {
            out.pop();
        }
    }
}

fn escaped(bytes: &[u8], at: usize) -> Option<u8> {
    let digits = bytes.get(at..at + 2)?;
    let digits = str::from_utf8(digits).ok()?;
    let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| hex)
}

fn is_slash(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\')
}

/// Returns true for a byte whose escaped form means the same to everybody.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~')
}

fn must_be_escaped(byte: u8) -> bool {
    !byte.is_ascii_graphic()
        || matches!(
            byte,
            b'"' | b'#' | b'<' | b'>' | b'?' | b'^' | b'`' | b'{' | b'|' | b'}'
        )
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
    fn escaped_slashes_are_treated_as_the_gateway_says() {
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
