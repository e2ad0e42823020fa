//! Evaluates regular expressions as Envoy does with RE2: on bytes, and against whole values.

use std::collections::BTreeMap;

use regex::bytes::{Captures, Regex, RegexBuilder};
use sesame_proto::schema::RegexSubstitution;

const MAX_BYTES: usize = 8 << 20;

/// Compiled expressions. `None` if an expression does not compile.
#[derive(Debug, Default)]
pub(super) struct Expressions(BTreeMap<String, Option<Regex>>);

impl Expressions {
    pub(super) fn matches(&mut self, pattern: &str, text: &str) -> bool {
        if !self.0.contains_key(pattern) {
            self.0.insert(pattern.to_owned(), compile_whole(pattern));
        }
        let compiled = self.0.get(pattern).and_then(Option::as_ref);
        compiled.is_some_and(|regex| regex.is_match(text.as_bytes()))
    }
}

/// Returns `None` if the pattern does not compile. Callers must validate `regex` first.
pub(super) fn substituted(regex: &RegexSubstitution, path: &str) -> Option<String> {
    let RegexSubstitution {
        pattern,
        substitution,
    } = regex;
    let replacement = |groups: &Captures<'_>| {
        let mut text = Vec::new();
        let mut rest = substitution.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'\\' => {
                    let group = rest.next().map_or(0, |digit| usize::from(digit & 0xf));
                    if let Some(group) = groups.get(group) {
                        text.extend_from_slice(group.as_bytes());
                    }
                }
                byte => text.push(byte),
            }
        }
        text
    };
    let replaced = compile(pattern)?.replace(path.as_bytes(), replacement);
    Some(String::from_utf8_lossy(&replaced).into_owned())
}

fn compile_whole(pattern: &str) -> Option<Regex> {
    compile(&format!(r"\A(?:{pattern})\z"))
}

fn compile(pattern: &str) -> Option<Regex> {
    let build = |unicode: bool| {
        let mut builder = RegexBuilder::new(pattern);
        builder.unicode(unicode).size_limit(MAX_BYTES).build().ok()
    };
    // Try without Unicode first, as resolution does.
    build(false).or_else(|| build(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_matches_the_whole_text() {
        let mut expressions = Expressions::default();
        for (pattern, text, expected) in [
            ("a|ab", "ab", true),
            ("a|b", "ab", false),
            ("(?i)abc", "ABC", true),
            ("v[0-9]+", "v1", true),
            ("v[0-9]+", "v1.2", false),
            (r"\d+", "1", true),
            (r"\p{Lu}+", "AB", true),
            ("(", "(", false),
        ] {
            assert_eq!(
                expressions.matches(pattern, text),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn substitution_joins_groups_and_text() {
        let regex = RegexSubstitution {
            pattern: r"^/users/(\d+)(/.*)?".to_owned(),
            substitution: r"/u\2/\1".to_owned(),
        };
        for (path, expected) in [
            ("/users/7/mail", "/u/mail/7"),
            ("/users/7", "/u/7"),
            ("/users/x", "/users/x"),
        ] {
            assert_eq!(substituted(&regex, path).as_deref(), Some(expected));
        }
    }
}
