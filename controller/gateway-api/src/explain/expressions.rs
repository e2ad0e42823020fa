//! Regular expressions, as RE2 reads them in Envoy: over bytes, and always matching the whole
//! value.

use std::collections::BTreeMap;

use regex::bytes::{Regex, RegexBuilder};

/// Maximum size of a compiled expression in bytes.
const MOST_BYTES: usize = 8 << 20;

/// Compiled expressions; `None` for one that does not compile.
#[derive(Debug, Default)]
pub(super) struct Expressions(BTreeMap<String, Option<Regex>>);

impl Expressions {
    /// Returns true if the expression matches the whole text.
    pub(super) fn matches(&mut self, pattern: &str, text: &str) -> bool {
        if !self.0.contains_key(pattern) {
            self.0.insert(pattern.to_owned(), compile(pattern));
        }
        let compiled = self.0.get(pattern).and_then(Option::as_ref);
        compiled.is_some_and(|regex| regex.is_match(text.as_bytes()))
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    let whole = format!(r"\A(?:{pattern})\z");
    let build = |unicode: bool| {
        let mut builder = RegexBuilder::new(&whole);
        builder.unicode(unicode).size_limit(MOST_BYTES).build().ok()
    };
    // First as bytes, as resolution does.
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
}
