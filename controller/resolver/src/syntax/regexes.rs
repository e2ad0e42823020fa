//! Reports invalid regular expressions early, and rejects expressions that would stall Envoy.
//! `routes::rules` and `tables::candidates` limit their total cost per route and virtual host.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{HirKind, Literal};
use sesame_proto::canonical_path::never_escaped;
use sesame_proto::expressions::{self, MAX_INSTRUCTIONS};

use super::parsed::Parsed;
use super::re2;

/// Instruction counts, keyed by expression.
#[derive(Debug, Default)]
pub(crate) struct Regexes(Parsed<u64>);

impl Regexes {
    /// Returns the number of instructions. Errors continue a sentence that starts with the pattern.
    pub(crate) fn check(&mut self, pattern: &str) -> Result<u64, String> {
        self.0.get(pattern, check)
    }

    /// Evicts expressions that the resolution did not use.
    pub(crate) fn finish(&mut self) {
        self.0.finish();
    }
}

pub(crate) fn check(pattern: &str) -> Result<u64, String> {
    if pattern.is_empty() {
        return Err("is empty; expected a regular expression".to_owned());
    }
    let size = expressions::instructions(pattern);
    if let Some(size) = size.filter(|size| *size > MAX_INSTRUCTIONS) {
        return Err(format!(
            "has {size} instructions once compiled; at most {MAX_INSTRUCTIONS} are allowed, \
            because every request is compared with it; use fewer repetitions"
        ));
    }
    // Parse without Unicode first: in RE2, \d and \w match only ASCII.
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
        // The last line is the message; the other lines quote the expression.
        let last = text.lines().last().unwrap_or_default().trim();
        format!("is not a supported regular expression (RE2): {last}")
    })?;
    re2::check(pattern)?;
    // Valid expressions always have a size.
    Ok(size.unwrap_or(MAX_INSTRUCTIONS))
}

/// Returns an escape that every matching path must contain, but no normalized path contains.
pub(crate) fn impossible_escape(pattern: &str) -> Option<String> {
    if !pattern.contains('%') {
        return None;
    }
    let parse = |unicode| {
        let mut parser = ParserBuilder::new().unicode(unicode).utf8(false).build();
        parser.parse(pattern).ok()
    };
    let expression = parse(false).or_else(|| parse(true))?;
    let mut parts = vec![&expression];
    while let Some(part) = parts.pop() {
        match part.kind() {
            HirKind::Literal(Literal(bytes)) => {
                let text = String::from_utf8_lossy(bytes);
                if let Some(escape) = never_escaped(&text) {
                    return Some(escape.to_owned());
                }
            }
            HirKind::Concat(all) => parts.extend(all),
            HirKind::Capture(capture) => parts.push(&capture.sub),
            HirKind::Repetition(repetition) if repetition.min > 0 => parts.push(&repetition.sub),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_accepted_or_refused() {
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
    fn required_but_impossible_escapes_are_found() {
        for (pattern, escape) in [
            ("/%7Euser/.*", Some("%7E")),
            ("/(a%2Db)+/[0-9]", Some("%2D")),
            ("/(%7E|~)user", None),
            ("/(%7E)?user", None),
            ("/caf%C3%A9/.*", None),
            ("/[%7E]", None),
        ] {
            assert_eq!(impossible_escape(pattern).as_deref(), escape, "{pattern}");
        }
    }
}
