//! Rejects regular expressions that RE2 rejects, or that RE2 and Rust's `regex` crate interpret
//! differently.
//!
//! If RE2 rejects one expression, Envoy rejects the whole route table. Envoy passes Latin-1 bytes,
//! so RE2 treats a non-ASCII character as several characters. `tests/tests/routes/regexes.rs`
//! compares these checks with Envoy.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassSetItem, ClassUnicode, ClassUnicodeKind, Flag, FlagsItemKind,
    GroupKind, HexLiteralKind, Literal, LiteralKind, Repetition, RepetitionKind, RepetitionRange,
    Visitor, visit,
};

/// Maximum product of the counts of nested repetitions.
const MAX_REPETITIONS: u32 = 1000;

/// General categories and common scripts that RE2 supports as `\p{...}`.
const UNICODE_CLASSES: &[&str] = &[
    "Any",
    "C",
    "Cc",
    "Cf",
    "Co",
    "L",
    "Ll",
    "Lm",
    "Lo",
    "Lt",
    "Lu",
    "M",
    "Mc",
    "Me",
    "Mn",
    "N",
    "Nd",
    "Nl",
    "No",
    "P",
    "Pc",
    "Pd",
    "Pe",
    "Pf",
    "Pi",
    "Po",
    "Ps",
    "S",
    "Sc",
    "Sk",
    "Sm",
    "So",
    "Z",
    "Zl",
    "Zp",
    "Zs",
    "Arabic",
    "Armenian",
    "Bengali",
    "Common",
    "Cyrillic",
    "Devanagari",
    "Ethiopic",
    "Georgian",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hebrew",
    "Hiragana",
    "Inherited",
    "Kannada",
    "Katakana",
    "Khmer",
    "Lao",
    "Latin",
    "Malayalam",
    "Mongolian",
    "Myanmar",
    "Oriya",
    "Sinhala",
    "Tamil",
    "Telugu",
    "Thai",
    "Tibetan",
];

/// Ignores parse errors, because compiling the pattern reports them.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    match Parser::new().parse(pattern) {
        Ok(ast) => visit(
            &ast,
            Differences {
                pattern,
                left: vec![MAX_REPETITIONS],
            },
        ),
        Err(_) => Ok(()),
    }
}

struct Differences<'p> {
    pattern: &'p str,
    /// Remaining repetitions at each nesting level.
    left: Vec<u32>,
}

impl Differences<'_> {
    fn repetition(&mut self, repetition: &Repetition) -> Result<(), String> {
        let Repetition {
            span: _,
            op,
            greedy: _,
            ast,
        } = repetition;
        let written = self.pattern.get(op.span.start.offset..op.span.end.offset);
        let written = written.unwrap_or_default();
        match &**ast {
            Ast::Repetition(_) => {
                return Err(format!(
                    "repeats a repetition with {written:?}; put the repeated part in a group"
                ));
            }
            Ast::Literal(literal) if !literal.c.is_ascii() && is_verbatim(literal) => {
                return Err(format!(
                    "repeats the multi-byte character {:?}; put it in a group",
                    literal.c
                ));
            }
            _ => {}
        }
        let times = match &op.kind {
            RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => 1,
            RepetitionKind::Range(range) => {
                // RE2 matches `{,5}` and `{ 5 }` literally.
                if written.starts_with("{,") || written.contains(char::is_whitespace) {
                    return Err(format!(
                        "has the repetition {written:?}; expected a value such as {{0,5}}"
                    ));
                }
                match range {
                    RepetitionRange::Exactly(times)
                    | RepetitionRange::AtLeast(times)
                    | RepetitionRange::Bounded(_, times) => *times,
                }
            }
        };
        let left = self.left.last().copied().unwrap_or_default() / times.max(1);
        if left == 0 {
            return Err(format!(
                "repeats more than {MAX_REPETITIONS} times, which RE2 rejects"
            ));
        }
        self.left.push(left);
        Ok(())
    }
}

impl Visitor for Differences<'_> {
    type Output = ();
    type Err = String;

    fn finish(self) -> Result<(), String> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            Ast::Flags(set) => flags(&set.flags.items),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(set) => flags(&set.items),
                GroupKind::CaptureName { name, .. } => capture_name(&name.name),
                GroupKind::CaptureIndex(_) => Ok(()),
            },
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText
                | AssertionKind::WordBoundary
                | AssertionKind::NotWordBoundary => Ok(()),
                AssertionKind::WordBoundaryStart
                | AssertionKind::WordBoundaryEnd
                | AssertionKind::WordBoundaryStartAngle
                | AssertionKind::WordBoundaryEndAngle
                | AssertionKind::WordBoundaryStartHalf
                | AssertionKind::WordBoundaryEndHalf => Err(
                    r"has a word-start or word-end assertion, which RE2 does not support; expected \b"
                        .to_owned(),
                ),
            },
            Ast::Literal(it) => literal(it),
            Ast::ClassUnicode(class) => unicode_class(class),
            Ast::Repetition(it) => self.repetition(it),
            Ast::Empty(_)
            | Ast::Dot(_)
            | Ast::ClassPerl(_)
            | Ast::ClassBracketed(_)
            | Ast::Alternation(_)
            | Ast::Concat(_) => Ok(()),
        }
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), String> {
        if matches!(ast, Ast::Repetition(_)) {
            self.left.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), String> {
        match item {
            ClassSetItem::Literal(it) => class_literal(it),
            ClassSetItem::Range(range) => {
                class_literal(&range.start).and_then(|()| class_literal(&range.end))
            }
            ClassSetItem::Unicode(class) => unicode_class(class),
            ClassSetItem::Bracketed(_) => {
                Err("has a nested character class, which RE2 does not support".to_owned())
            }
            ClassSetItem::Empty(_)
            | ClassSetItem::Ascii(_)
            | ClassSetItem::Perl(_)
            | ClassSetItem::Union(_) => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(
        &mut self,
        _: &regex_syntax::ast::ClassSetBinaryOp,
    ) -> Result<(), String> {
        Err("combines classes with &&, -- or ~~, which RE2 does not support".to_owned())
    }
}

fn unicode_class(class: &ClassUnicode) -> Result<(), String> {
    let name = match &class.kind {
        ClassUnicodeKind::OneLetter(letter) => letter.to_string(),
        ClassUnicodeKind::Named(name) => name.clone(),
        ClassUnicodeKind::NamedValue { name, value, .. } => format!("{name}={value}"),
    };
    if UNICODE_CLASSES.contains(&name.as_str()) {
        Ok(())
    } else {
        Err(format!(
            "has the character class {name:?}; expected a general category or a script, for instance Lu or Greek"
        ))
    }
}

fn flags(items: &[regex_syntax::ast::FlagsItem]) -> Result<(), String> {
    for item in items {
        let flag = match item.kind {
            FlagsItemKind::Negation
            | FlagsItemKind::Flag(
                Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed,
            ) => continue,
            FlagsItemKind::Flag(Flag::Unicode) => 'u',
            FlagsItemKind::Flag(Flag::CRLF) => 'R',
            FlagsItemKind::Flag(Flag::IgnoreWhitespace) => 'x',
        };
        return Err(format!(
            "has the flag {flag}, which RE2 does not support; expected i, m, s or U"
        ));
    }
    Ok(())
}

fn capture_name(name: &str) -> Result<(), String> {
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        Ok(())
    } else {
        Err(format!(
            "has a group {name:?}; expected a name of letters, digits and '_'"
        ))
    }
}

fn literal(character: &Literal) -> Result<(), String> {
    match &character.kind {
        LiteralKind::HexFixed(kind) | LiteralKind::HexBrace(kind) => match kind {
            HexLiteralKind::X if u32::from(character.c) <= 0xff => Ok(()),
            HexLiteralKind::X => {
                Err(r"has \x with more than one byte; write the character itself".to_owned())
            }
            HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong => Err(
                r"has \u or \U, which RE2 does not support; write the character itself".to_owned(),
            ),
        },
        LiteralKind::Verbatim
        | LiteralKind::Meta
        | LiteralKind::Superfluous
        | LiteralKind::Octal
        | LiteralKind::Special(_) => Ok(()),
    }
}

/// RE2 would match a multi-byte character byte by byte.
fn class_literal(character: &Literal) -> Result<(), String> {
    if !character.c.is_ascii() && is_verbatim(character) {
        return Err(format!(
            "has the multi-byte character {:?} in a class; use alternatives: (a|b)",
            character.c
        ));
    }
    literal(character)
}

fn is_verbatim(character: &Literal) -> bool {
    matches!(character.kind, LiteralKind::Verbatim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_multiply() {
        for good in [
            "a{1000}",
            "(a{100}){10}",
            "(a*){1000}",
            "(a{3}|b{900})",
            "(a{0}){1000}",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "a{1001}",
            "(a{100}){11}",
            "(a{0,500}){0,3}",
            "((a{11}){10}){10}",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_no_characters() {
        for good in ["é", "(?:é)+", "a(é|ü)b"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["é+", "[éü]", "[a-é]", r"\x{100}"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
