//! The language of Traefik's rules: `Host(…) && (PathPrefix(…) || Path(…))`.
//!
//! Rules are returned as alternatives of matchers that must all match. Length, depth and number of
//! alternatives are limited.

const MAX_LENGTH: usize = 8192;
const MAX_DEPTH: usize = 16;
const MAX_ALTERNATIVES: usize = 64;

/// A matcher with its arguments, one of which must match.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matcher {
    pub(super) name: String,
    pub(super) args: Vec<String>,
}

/// Matchers that must all match.
pub(super) type Alternative = Vec<Matcher>;

/// Parses a rule. Errors name the unsupported part.
pub(super) fn parse(text: &str) -> Result<Vec<Alternative>, String> {
    parse_all(text, false)
}

/// Like [`parse`], but negated parts become alternatives without matchers, which match everything.
pub(super) fn parse_loosely(text: &str) -> Result<Vec<Alternative>, String> {
    parse_all(text, true)
}

fn parse_all(text: &str, is_loose: bool) -> Result<Vec<Alternative>, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("the rule has more than {MAX_LENGTH} bytes"));
    }
    let mut parser = Parser {
        rest: text,
        is_loose,
    };
    let alternatives = parser.either(0)?;
    match parser.peek() {
        None => Ok(alternatives),
        Some(other) => Err(format!("unexpected {other:?} in the rule")),
    }
}

struct Parser<'t> {
    rest: &'t str,
    is_loose: bool,
}

impl<'t> Parser<'t> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn skip(&mut self, token: &str) -> bool {
        self.peek();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        let found = self.skip(token);
        found
            .then_some(())
            .ok_or_else(|| format!("expected {token:?} in the rule"))
    }

    fn either(&mut self, depth: usize) -> Result<Vec<Alternative>, String> {
        let mut all = self.both(depth)?;
        while self.skip("||") {
            all.extend(self.both(depth)?);
            limit(all.len())?;
        }
        Ok(all)
    }

    fn both(&mut self, depth: usize) -> Result<Vec<Alternative>, String> {
        let mut all = self.single(depth)?;
        while self.skip("&&") {
            let next = self.single(depth)?;
            limit(all.len() * next.len())?;
            let pairs = all.iter().flat_map(|a| next.iter().map(move |b| (a, b)));
            all = pairs
                .map(|(a, b)| a.iter().chain(b).cloned().collect())
                .collect();
        }
        Ok(all)
    }

    fn single(&mut self, depth: usize) -> Result<Vec<Alternative>, String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} nested parentheses"));
        }
        if self.skip("!") {
            if self.is_loose {
                self.single(depth + 1)?;
                return Ok(vec![Vec::new()]);
            }
            return Err("a match cannot exclude requests with !".to_owned());
        }
        if self.skip("(") {
            let all = self.either(depth + 1)?;
            self.expect(")")?;
            return Ok(all);
        }
        self.peek();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric());
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if name.is_empty() {
            return Err("expected the name of a matcher in the rule".to_owned());
        }
        self.rest = rest;
        self.expect("(")?;
        let mut args = Vec::new();
        while !self.skip(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            args.push(self.text()?.to_owned());
        }
        let name = name.to_owned();
        Ok(vec![vec![Matcher { name, args }]])
    }

    /// Returns a text in backticks, or in quotes without escapes.
    fn text(&mut self) -> Result<&'t str, String> {
        for quote in ["`", "\""] {
            if self.skip(quote) {
                let (text, rest) = self.rest.split_once(quote).ok_or("a text has no end")?;
                if quote == "\"" && text.contains('\\') {
                    return Err("a text has escapes; use backticks".to_owned());
                }
                self.rest = rest;
                return Ok(text);
            }
        }
        Err("expected a text in backticks".to_owned())
    }
}

fn limit(count: usize) -> Result<(), String> {
    let fits = count <= MAX_ALTERNATIVES;
    fits.then_some(())
        .ok_or_else(|| format!("the rule has more than {MAX_ALTERNATIVES} alternatives"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, String> {
        let all = parse(text)?.into_iter();
        let all = all.map(|it| {
            let each = it
                .iter()
                .map(|it| format!("{}({})", it.name, it.args.join(",")));
            each.collect::<Vec<_>>().join("&")
        });
        Ok(all.collect())
    }

    #[test]
    fn rule_becomes_alternatives() {
        for (text, expected) in [
            ("Host(`a`)", &["Host(a)"][..]),
            ("Host(`a`, \"b\")", &["Host(a,b)"]),
            ("Host(`a`)||Path(`/b`)", &["Host(a)", "Path(/b)"]),
            (
                "Host(`a`) && (Path(`/b`) || Path(`/c)`))",
                &["Host(a)&Path(/b)", "Host(a)&Path(/c))"],
            ),
            ("(((Host(`a`))))", &["Host(a)"]),
        ] {
            let expected: Vec<String> = expected.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(shown(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn hostile_rule_is_an_error() {
        let deep = "(".repeat(1000) + "Host(`a`)" + &")".repeat(1000);
        let wide = vec!["(Host(`a`)||Host(`b`))"; 20].join("&&");
        let long = "Host(`".to_owned() + &"a".repeat(10_000) + "`)";
        for text in [
            "",
            "!Host(`a`)",
            "Host(`a`",
            "Host(`a",
            "Host(a)",
            "Host(`a`) &&",
            "Host(`a`) Host(`b`)",
            "&& Host(`a`)",
            "Host(`a` `b`)",
            "Host(\"\\n\")",
            "||",
            "()",
            &deep,
            &wide,
            &long,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
