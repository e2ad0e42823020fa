//! Whether a regular expression is one that RE2 would take, and of bounded size.
//!
//! The proxy has the last word; this is to tell the author early and to keep out what would stall it. What all
//! expressions of a route may cost together, and those of a virtual host, is bounded where these are put together.

use std::collections::HashMap;

use regex_syntax::ParserBuilder;
use sesame_proto::expressions::{self, MOST_INSTRUCTIONS};

use super::re2;

/// What was checked before, for a Resolver that is used again. Pure memory.
#[derive(Debug, Default)]
pub(crate) struct Regexes {
    known: HashMap<String, (Result<u64, String>, u64)>,
    round: u64,
}

impl Regexes {
    /// Checks an expression, and counts its instructions; the error completes the sentence "value x ...".
    pub(crate) fn check(&mut self, pattern: &str) -> Result<u64, String> {
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
    pub(crate) fn finish(&mut self) {
        let round = self.round;
        self.known.retain(|_, (_, used)| *used == round);
        self.round += 1;
    }
}

fn check(pattern: &str) -> Result<u64, String> {
    if pattern.is_empty() {
        return Err("is empty; expected a regular expression".to_owned());
    }
    let size = expressions::instructions(pattern);
    if let Some(size) = size.filter(|size| *size > MOST_INSTRUCTIONS) {
        return Err(format!(
            "has {size} instructions once compiled; at most {MOST_INSTRUCTIONS} are allowed, because every request is \
             compared with it: repeat less"
        ));
    }
    // Byte classes first: closer to RE2, whose \d and \w are ASCII.
    let parse = |unicode| {
        ParserBuilder::new()
            .unicode(unicode)
            .utf8(false)
            .build()
            .parse(pattern)
            .map(drop)
            .map_err(|why| why.to_string())
    };
    parse(false).or_else(|_| parse(true)).map_err(|text| {
        // The last line is what is wrong; those before draw the expression.
        let last = text.lines().last().unwrap_or_default().trim();
        format!("is not a regular expression that is supported (RE2): {last}")
    })?;
    re2::check(pattern)?;
    // What is taken was parsed.
    Ok(size.unwrap_or(MOST_INSTRUCTIONS))
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
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "(",
            r"(a)\1",
            "(?=a)",
            "a{1001}",
            "(((a{900}){900}){900})",
            "[ab]*a[ab]{900}c[ab]{900}",
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
