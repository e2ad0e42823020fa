//! Whether a regular expression is one that RE2 would take, and of bounded size.
//!
//! The proxy has the last word; this is to tell the author early and to keep obvious poison out.

use std::collections::HashMap;

use regex::bytes::RegexBuilder;

use super::re2;

/// Bytes that a compiled expression may take; bounds the time to compile it too.
const SIZE_LIMIT: usize = 256 * 1024;

/// What was checked before, for a Resolver that is used again. Pure memory.
#[derive(Debug, Default)]
pub(super) struct Regexes {
    known: HashMap<String, (Result<(), String>, u64)>,
    round: u64,
}

impl Regexes {
    /// Checks an expression; the error completes the sentence "value x ...".
    pub(super) fn check(&mut self, pattern: &str) -> Result<(), String> {
        if let Some((verdict, round)) = self.known.get_mut(pattern) {
            *round = self.round;
            return verdict.clone();
        }
        let verdict = check(pattern);
        self.known
            .insert(pattern.to_owned(), (verdict.clone(), self.round));
        verdict
    }

    /// Ends a resolution: what it did not use is forgotten.
    pub(super) fn finish(&mut self) {
        let round = self.round;
        self.known.retain(|_, (_, used)| *used == round);
        self.round += 1;
    }
}

fn check(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("is empty; expected a regular expression".to_owned());
    }
    // Byte classes first: smaller, and closer to RE2, whose \d and \w are ASCII.
    let build = |unicode| {
        RegexBuilder::new(pattern)
            .unicode(unicode)
            .size_limit(SIZE_LIMIT)
            .build()
    };
    build(false)
        .or_else(|_| build(true))
        .map_err(|why| match why {
            regex::Error::CompiledTooBig(_) => "is too large once compiled; simplify it".to_owned(),
            // The last line is what is wrong; those before draw the expression.
            other => {
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default().trim();
                format!("is not a regular expression that is supported (RE2): {last}")
            }
        })?;
    re2::check(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken() {
        for good in [
            "/a/[0-9]+",
            ".*",
            "^/v(1|2)$",
            r"\d{3}",
            r"\p{Greek}",
            "(?i)abc",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "(",
            r"(a)\1",
            "(?=a)",
            "a{1001}",
            "(((a{900}){900}){900})",
            "[z-a]",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_what_was_used_is_remembered() {
        let mut regexes = Regexes::default();
        let _ = regexes.check("a");
        regexes.finish();
        let _ = regexes.check("b");
        regexes.finish();
        assert_eq!(regexes.known.keys().collect::<Vec<_>>(), ["b"]);
    }
}
