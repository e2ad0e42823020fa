//! Forbids duplicate type names and long functions. `shape.txt` lists exceptions and may only
//! shrink. A comment with the words "function is long because" permits a long function.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proc_macro2::{Delimiter, TokenTree};
use sesame_tests::generated::is_requested;

use crate::modules::{is_cfg_test, is_mark, tokens};
use crate::sources::{room, sources};
use crate::workspace;

/// Maximum number of lines per function, excluding comments.
const MAX_LINES: usize = 68;
const KNOWN: &str = "tests/tests/rooms/shape.txt";
const TYPES: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

#[derive(Default)]
struct Shapes {
    types: BTreeSet<String>,
    /// Function names, with their first and last lines.
    long: Vec<(String, usize, usize)>,
}

impl Shapes {
    fn scan(&mut self, tokens: &[TokenTree]) {
        let mut rest = tokens;
        while let [token, after @ ..] = rest {
            rest = after;
            match (token, after) {
                (TokenTree::Punct(mark), [TokenTree::Group(group), ..])
                    if mark.as_char() == '#' && is_cfg_test(&group.stream()) =>
                {
                    let end = after.iter().position(is_end);
                    rest = &after[end.map_or(after.len(), |end| end + 1)..];
                }
                (TokenTree::Ident(word), _) if word == "pub" => self.declared(after),
                (TokenTree::Ident(word), [TokenTree::Ident(name), ..]) if word == "fn" => {
                    let body = after.iter().find(|token| is_end(token));
                    let end = body.map_or(0, |body| body.span().end().line);
                    let begin = word.span().start().line;
                    if end >= begin + MAX_LINES {
                        self.long.push((name.to_string(), begin, end));
                    }
                }
                (TokenTree::Group(group), _) => {
                    self.scan(&group.stream().into_iter().collect::<Vec<_>>());
                }
                _ => {}
            }
        }
    }

    fn declared(&mut self, after: &[TokenTree]) {
        let has_scope = matches!(after.first(), Some(TokenTree::Group(_)));
        let after = &after[usize::from(has_scope)..];
        if let [TokenTree::Ident(word), TokenTree::Ident(name), ..] = after
            && TYPES.iter().any(|keyword| word == keyword)
        {
            self.types.insert(name.to_string());
        }
    }
}

/// Returns true for a body in braces or a semicolon, either of which ends an item.
fn is_end(token: &TokenTree) -> bool {
    let is_brace =
        matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    is_brace || is_mark(Some(token), ';')
}

fn has_reason(lines: &[&str], line: usize) -> bool {
    let before = lines[..line - 1].iter().rev().map(|line| line.trim_start());
    let mut before = before.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    before.any(|line| line.contains("function is long because "))
}

#[test]
fn types_have_unique_names_and_functions_are_short() {
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    let is_test = |file: &String| file.contains("tests/") || file.ends_with("tests.rs");
    for file in sources().into_iter().filter(|file| !is_test(file)) {
        let mut shapes = Shapes::default();
        shapes.scan(&tokens(&workspace().join(&file)));
        for name in shapes.types {
            rooms.entry(name).or_default().insert(room(&file));
        }
        let text = fs::read_to_string(workspace().join(&file)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (name, begin, end) in shapes.long {
            let body = lines[begin - 1..end].iter();
            let code = body.filter(|line| !line.trim_start().starts_with("//"));
            if code.count() > MAX_LINES && !has_reason(&lines, begin) {
                found.insert(format!("function {name} in {file}"));
            }
        }
    }
    let twice = rooms.iter().filter(|(_, rooms)| rooms.len() > 1);
    found.extend(twice.map(|(name, _)| format!("type {name}")));
    let known = fs::read_to_string(workspace().join(KNOWN)).unwrap();
    let known: BTreeSet<String> = known.lines().map(str::to_owned).collect();
    if is_requested() {
        let left: String = known
            .intersection(&found)
            .fold(String::new(), |text, shape| text + shape + "\n");
        fs::write(workspace().join(KNOWN), left).unwrap();
    }
    let new: Vec<&String> = found.difference(&known).collect();
    assert!(
        new.is_empty(),
        "type names that two rooms share, and functions of more than {MAX_LINES} lines: {new:#?}"
    );
}
