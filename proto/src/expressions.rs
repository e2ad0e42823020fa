//! Limits the cost of regular expressions in a snapshot.
//!
//! If RE2 cannot cache all states, its time per byte is proportional to the size of the program:
//! `[ab]*a[ab]{900}c` examines each byte 900 times, which blocks a worker thread. The computed size
//! is never below RE2's own count; a test checks this against a real Envoy.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    Ast, ClassBracketed, ClassSet, ClassSetItem, GroupKind, Literal, Repetition, RepetitionKind,
    RepetitionRange,
};

use crate::schema::{
    CorsOrigin, Route, StringMatch, cors_origin, path_match, route::Action, string_match,
};

/// Maximum number of instructions per expression.
pub const MAX_INSTRUCTIONS: u64 = 1_500;
/// Maximum number of instructions per route, for all rules and matches.
pub const MAX_PER_ROUTE: u64 = 3_000;
/// Maximum number of instructions per virtual host. A request may be matched against all of them.
pub const MAX_PER_VIRTUAL_HOST: u64 = 6_000;

/// Maximum number of instructions in a route's allowed origins, enough for 64 origins of 253
/// characters.
pub const MAX_PER_ORIGINS: u64 = 17_500;

/// Number of instructions that RE2 adds to every program.
const ALWAYS: u64 = 5;
/// Maximum number of byte ranges in a Unicode class; the proxy matches single bytes.
const UNICODE_CLASS: u64 = 20;
/// Maximum number of byte ranges in `\w`, `\s`, `[:punct:]` and similar classes.
const NAMED_CLASS: u64 = 4;
const MAX_BYTES: usize = 16 * 1024;

/// Returns the size of a program, or `None` if the expression is invalid or too long.
pub fn instructions(pattern: &str) -> Option<u64> {
    if pattern.len() > MAX_BYTES {
        return None;
    }
    let ast = Parser::new().parse(pattern).ok()?;
    let counter = Counter {
        folds: folds(pattern),
    };
    Some(counter.instructions(&ast).saturating_add(ALWAYS))
}

fn folds(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|group| {
        group
            .bytes()
            .take_while(|byte| byte.is_ascii_alphabetic() || *byte == b'-')
            .any(|byte| byte == b'i')
    })
}

struct Counter {
    folds: bool,
}

impl Counter {
    fn instructions(&self, ast: &Ast) -> u64 {
        let sum = |parts: &[Ast]| sum(parts.iter().map(|part| self.instructions(part)));
        match ast {
            Ast::Empty(_) | Ast::Flags(_) => 1,
            Ast::Literal(it) => literal(it),
            Ast::Dot(_) | Ast::Assertion(_) => 2,
            Ast::ClassUnicode(_) => UNICODE_CLASS,
            Ast::ClassPerl(_) => NAMED_CLASS + 1,
            Ast::ClassBracketed(class) => self.class(class),
            Ast::Repetition(it) => self.repetition(it),
            Ast::Group(group) => {
                let inner = self.instructions(&group.ast);
                match group.kind {
                    GroupKind::NonCapturing(_) => inner,
                    GroupKind::CaptureIndex(_) | GroupKind::CaptureName { .. } => {
                        inner.saturating_add(2)
                    }
                }
            }
            Ast::Alternation(it) => sum(&it.asts).saturating_add(count(it.asts.len())),
            Ast::Concat(it) => sum(&it.asts),
        }
    }

    fn repetition(&self, repetition: &Repetition) -> u64 {
        let one = self.instructions(&repetition.ast);
        let loops = |times: u32| {
            one.saturating_mul(u64::from(times.max(1)))
                .saturating_add(4)
        };
        match &repetition.op.kind {
            RepetitionKind::ZeroOrOne => one.saturating_add(2),
            RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => loops(1),
            RepetitionKind::Range(RepetitionRange::Exactly(times)) => {
                one.saturating_mul(u64::from(*times)).max(2)
            }
            RepetitionKind::Range(RepetitionRange::AtLeast(times)) => loops(*times),
            RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => {
                let optional = u64::from(most.saturating_sub(*least));
                one.saturating_mul(u64::from(*least))
                    .saturating_add(one.saturating_add(2).saturating_mul(optional))
                    .max(2)
            }
        }
    }

    fn class(&self, class: &ClassBracketed) -> u64 {
        let ranges = ranges(&class.kind);
        // If case is ignored, a range such as `[X-c]` becomes three ranges.
        let ranges = if self.folds {
            ranges.saturating_mul(3)
        } else {
            ranges
        };
        ranges.saturating_add(u64::from(class.negated))
    }
}

fn literal(literal: &Literal) -> u64 {
    if literal.c.is_ascii() {
        1
    } else {
        // Counts each byte in upper and lower case.
        2 * count(literal.c.len_utf8())
    }
}

/// Adjacent ranges count as one.
fn ranges(set: &ClassSet) -> u64 {
    let mut written = Vec::new();
    let named = collect(set, &mut written);
    written.sort_unstable();
    let mut apart = 0_u64;
    let mut end = None;
    for (first, last) in written {
        if end.is_none_or(|end: u32| first > end.saturating_add(1)) {
            apart = apart.saturating_add(1);
        }
        end = end.max(Some(last));
    }
    named.saturating_add(apart).max(1)
}

fn collect(set: &ClassSet, written: &mut Vec<(u32, u32)>) -> u64 {
    match set {
        ClassSet::Item(item) => collect_item(item, written),
        ClassSet::BinaryOp(op) => {
            collect(&op.lhs, written).saturating_add(collect(&op.rhs, written))
        }
    }
}

fn collect_item(item: &ClassSetItem, written: &mut Vec<(u32, u32)>) -> u64 {
    match item {
        ClassSetItem::Empty(_) => 0,
        ClassSetItem::Literal(it) => {
            written.push((it.c.into(), it.c.into()));
            0
        }
        ClassSetItem::Range(range) => {
            written.push((range.start.c.into(), range.end.c.into()));
            0
        }
        ClassSetItem::Ascii(_) | ClassSetItem::Perl(_) => NAMED_CLASS + 1,
        ClassSetItem::Unicode(_) => UNICODE_CLASS,
        ClassSetItem::Bracketed(class) => ranges(&class.kind).saturating_add(1),
        ClassSetItem::Union(union) => {
            sum(union.items.iter().map(|item| collect_item(item, written)))
        }
    }
}

fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Returns the literal path segments that every matching path starts with. If an expression is too
/// expensive, requests with this prefix are rejected instead of falling through to another route.
pub fn fixed_path(pattern: &str) -> &str {
    // Alternatives may start differently, and a flag may make the expression case-insensitive.
    if pattern.contains('|') || pattern.contains("(?") {
        return "";
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    let end = pattern.find(|c| !is_plain(c)).unwrap_or(pattern.len());
    let (plain, rest) = pattern.split_at(end);
    // The last character may be optional or repeated, so drop it.
    let plain = if rest.starts_with(['?', '*', '{']) {
        plain.get(..end.saturating_sub(1)).unwrap_or_default()
    } else {
        plain
    };
    let whole = plain.rfind('/').and_then(|end| plain.get(..end));
    whole
        .filter(|path| path.starts_with('/'))
        .unwrap_or_default()
}

/// Kind of response, which determines how often Envoy evaluates a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// From a backend.
    Forwarded,
    /// Redirect. Requests with and without a port need separate routes.
    Redirected,
    /// From the proxy itself.
    Direct,
}

impl Answer {
    /// Returns how often a match is evaluated. The proxy's own responses need separate routes for
    /// preflights and other origins.
    pub fn evaluations(self, cors: bool) -> u64 {
        match (self, cors) {
            (Self::Forwarded | Self::Direct, false) => 1,
            (Self::Forwarded, true) | (Self::Redirected, false) => 2,
            (Self::Direct, true) => 3,
            (Self::Redirected, true) => 5,
        }
    }
}

/// Returns true if the pattern is literal text with at most one repetition. RE2 can cache all
/// states of such an expression, so totals exclude it.
pub fn is_of_origins(pattern: &str) -> bool {
    let open = pattern
        .bytes()
        .filter(|byte| matches!(byte, b'+' | b'*'))
        .count();
    open <= 1 && !pattern.contains(['(', ')', '{', '?', '|'])
}

fn cost(pattern: &str) -> u64 {
    instructions(pattern).unwrap_or(u64::MAX)
}

/// Returns the size of a single expression that matches all these origins.
pub fn of_origins(origins: &[CorsOrigin]) -> u64 {
    let sizes = origins.iter().map(|CorsOrigin { kind }| match kind {
        Some(cors_origin::Kind::Exact(origin)) => count(origin.len()),
        Some(cors_origin::Kind::Regex(pattern)) => cost(pattern),
        None => 0,
    });
    sum(sizes.map(|size| size.saturating_add(1))).saturating_add(ALWAYS)
}

/// Quotes literal text for RE2.
pub fn quote(literal: &str) -> String {
    let mut quoted = String::with_capacity(literal.len() + 8);
    for c in literal.chars() {
        if c.is_ascii_punctuation() && c != '/' && c != '_' {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

/// Returns the total size of a route's expressions, or `u64::MAX` if it cannot be computed.
pub fn of_route(route: &Route) -> u64 {
    let path = match route.path.as_ref().and_then(|path| path.kind.as_ref()) {
        Some(path_match::Kind::Regex(pattern)) => cost(pattern),
        _ => 0,
    };
    let values = route.headers.iter().chain(&route.query_params);
    let values = values.map(|StringMatch { name: _, kind }| match kind {
        Some(string_match::Kind::Regex(pattern)) => cost(pattern),
        _ => 0,
    });
    let own = path.saturating_add(sum(values));
    let answer = match &route.action {
        Some(Action::Forward(_)) => Answer::Forwarded,
        Some(Action::Redirect(_)) => Answer::Redirected,
        Some(Action::DirectResponse(_)) | None => Answer::Direct,
    };
    answer.evaluations(route.cors.is_some()).saturating_mul(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_counts_once_per_iteration() {
        for (pattern, expected) in [
            ("a", 6),
            ("abc", 8),
            ("[ab]*a[ab]{900}c", 912),
            ("(a{100}){10}", 1025),
            ("((a{10}){10}){10}", 1225),
            ("(?i)[ab]", 9),
            ("[^a-z0-9_]", 9),
            (r"[\w.]", 11),
            ("é", 9),
        ] {
            assert_eq!(instructions(pattern), Some(expected), "{pattern}");
        }
        assert!(instructions("(((a{1000}){1000}){1000}){1000}").is_some_and(|n| n > 1 << 39));
        assert_eq!(instructions("("), None);
        assert_eq!(instructions(&"a".repeat(MAX_BYTES + 1)), None);
    }

    #[test]
    fn fixed_path_is_prefix_of_all_matches() {
        for (pattern, expected) in [
            ("/api/v[0-9]+/.*", "/api"),
            ("/api/v1/.*", "/api/v1"),
            ("/api/?", ""),
            ("/a/b*", "/a"),
            ("/a/b{2}", "/a"),
            ("/a/b+", "/a"),
            ("/a", ""),
            ("/a/b|/c", ""),
            ("(?i)/a/b", ""),
            (".*/a/b", ""),
            ("a/b/c", ""),
            ("//a/b", "//a"),
            ("", ""),
        ] {
            let path = fixed_path(pattern);
            assert_eq!(path, expected, "{pattern}");
        }
    }

    #[test]
    fn origins_are_text_with_one_open_part() {
        for good in [
            ".*",
            r"^https://[^:/]+\.a\.com:8443$",
            r"https://.*\.a\.com",
            "^http://[^:/]+$",
        ] {
            assert!(is_of_origins(good), "{good}");
        }
        for bad in ["[ab]*a+", "a{900}", "(a|b)+", "a+b+", "a?", "a|b"] {
            assert!(!is_of_origins(bad), "{bad}");
        }
    }

    #[test]
    fn uncountable_expression_exceeds_every_limit() {
        let unknown = Route {
            path: Some(crate::schema::PathMatch {
                kind: Some(path_match::Kind::Regex("(".to_owned())),
            }),
            ..Route::default()
        };
        assert_eq!(of_route(&unknown), u64::MAX);
    }
}
