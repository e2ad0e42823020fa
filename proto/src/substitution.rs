//! Checks path rewrites with regular expressions: Envoy must accept them, and every result must be
//! a path.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Capture, Hir, HirKind, Look};

use crate::expressions::{self, MAX_INSTRUCTIONS};
use crate::schema::RegexSubstitution;

impl RegexSubstitution {
    /// Maximum length of the pattern, and maximum length of the substitution, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Returns the substitution without group references. Errors start with the name of the invalid
    /// part.
    ///
    /// The result must start with `/`, or a redirect could lead to another host: `https://a.test`
    /// and `.evil.test` would form `https://a.test.evil.test`. The pattern must therefore match
    /// only at the start of a path.
    pub fn literal(&self) -> Result<String, String> {
        let Self {
            pattern,
            substitution,
        } = self;
        let most = Self::MAX_BYTES;
        for (part, text) in [("pattern", pattern), ("substitution", substitution)] {
            if text.len() > most {
                let length = text.len();
                return Err(format!(
                    "{part} has {length} bytes; at most {most} are allowed"
                ));
            }
        }
        if expressions::instructions(pattern).is_none_or(|size| size > MAX_INSTRUCTIONS) {
            return Err(format!(
                "pattern {pattern:?} is invalid or has more than {MAX_INSTRUCTIONS} instructions"
            ));
        }
        let invalid = || format!("pattern {pattern:?} is not a regular expression");
        let expression = parse(pattern).ok_or_else(invalid)?;
        let properties = expression.properties();
        if !properties.look_set_prefix().contains(Look::Start) {
            return Err(format!(
                "pattern {pattern:?} may match in the middle of a path; expected `^` at its start"
            ));
        }
        let groups = properties.explicit_captures_len();
        let (literal, first) = without_groups(substitution, groups)?;
        let starts_with_slash = match first {
            Some(group) => group == 1 && first_group_starts_with_slash(&expression),
            None => literal.starts_with('/'),
        };
        if !starts_with_slash {
            return Err(format!(
                "substitution {substitution:?} must start with `/`, or with `\\1` if the pattern starts with `^(/`"
            ));
        }
        Ok(literal)
    }
}

fn parse(pattern: &str) -> Option<Hir> {
    // In RE2, `\d` and `\w` match only ASCII, so try ASCII mode first. Expressions that contain
    // other characters need Unicode mode.
    let parse = |unicode| {
        let mut builder = ParserBuilder::new();
        let mut parser = builder.unicode(unicode).utf8(false).build();
        parser.parse(pattern).ok()
    };
    parse(false).or_else(|| parse(true))
}

/// Also returns the number of the group reference at the start, if any.
fn without_groups(text: &str, groups: usize) -> Result<(String, Option<usize>), String> {
    let mut literal = String::with_capacity(text.len());
    let mut first = None;
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            literal.push(character);
            continue;
        }
        let group = rest.next().and_then(|digit| digit.to_digit(10));
        let group = group.and_then(|group| usize::try_from(group).ok());
        match group {
            Some(group) if (1..=groups).contains(&group) => {
                if literal.is_empty() {
                    first.get_or_insert(group);
                }
            }
            _ => {
                return Err(format!(
                    "substitution {text:?}: expected `\\1` to `\\9` for a group of the pattern, which has {groups}"
                ));
            }
        }
    }
    Ok((literal, first))
}

/// Expects an anchor, followed by a first group that starts with `/`.
fn first_group_starts_with_slash(expression: &Hir) -> bool {
    let HirKind::Concat(parts) = expression.kind() else {
        return false;
    };
    let Some([start, group]) = parts.get(..2) else {
        return false;
    };
    let (HirKind::Look(Look::Start), HirKind::Capture(Capture { index: 1, sub, .. })) =
        (start.kind(), group.kind())
    else {
        return false;
    };
    let first = match sub.kind() {
        HirKind::Concat(parts) => parts.first().map(Hir::kind),
        other => Some(other),
    };
    matches!(first, Some(HirKind::Literal(text)) if text.0.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(pattern: &str, substitution: &str) -> Result<String, String> {
        let substitution = RegexSubstitution {
            pattern: pattern.to_owned(),
            substitution: substitution.to_owned(),
        };
        substitution.literal()
    }

    #[test]
    fn substitution_accepts_paths_that_stay_rooted() {
        for (pattern, substitution, expected) in [
            ("^/a/(.*)$", r"/b/\1", "/b/"),
            ("^(/.*)\\.php$", r"\1", ""),
            ("^(/a/)(.*)", r"\1x/\2", "x/"),
            ("^/old|^/older", "/new", "/new"),
            ("^(?:/a|/b)(/.*)?$", r"/c\1", "/c"),
        ] {
            assert_eq!(literal(pattern, substitution).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn substitution_refuses_other_hosts_and_groups() {
        for (pattern, substitution, why) in [
            ("/a", "/b", "middle of a path"),
            ("(?m)^/a", "/b", "middle of a path"),
            ("^/a|b", "/b", "middle of a path"),
            ("^/a", "b", "must start with `/`"),
            ("^/a(.*)", r"\1", "must start with `/`"),
            ("^(/a)|^/b", r"\1", "must start with `/`"),
            ("^(/a)?", r"\1", "must start with `/`"),
            ("^(a*)(/b)", r"\1\2", "must start with `/`"),
            ("^/a", r"/\1", "which has 0"),
            ("^/(a)", r"/\0", "which has 1"),
            ("^/(a)", r"/\\", "which has 1"),
            ("^/(a)", r"/\", "which has 1"),
            ("^/(", "/", "is invalid"),
            ("", "/", "middle of a path"),
        ] {
            let error = literal(pattern, substitution).expect_err(pattern);
            assert!(error.contains(why), "{pattern} {substitution}: {error}");
        }
    }
}
