//! The vocabulary: names that have left do not come back, and documentation is sentences.
//!
//! `words.txt` has the names that left, and what to say instead. `allowance.txt` has what there still is, by room: it may
//! only go down. `SESAME_SET_WORDS=1` writes it anew; a commit in which a number goes up needs a reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenTree};

use crate::modules::tokens;
use crate::workspace;

/// Words that questions begin with, and no sentence of documentation.
const QUESTIONS: [&str; 10] = [
    "What", "Whether", "Which", "Who", "Whom", "Whose", "Where", "Why", "How", "When",
];
/// Keywords before the name that an item gets.
const ITEMS: [&str; 9] = [
    "struct", "enum", "trait", "type", "fn", "mod", "const", "static", "union",
];

const WORDS: &str = "tests/tests/rooms/words.txt";
const ALLOWANCE: &str = "tests/tests/rooms/allowance.txt";

/// Holds the numbers of one room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    questions: usize,
    names: usize,
}

/// Holds a name that left.
struct Word {
    /// Its words in lower case, or the whole name if that is `exact`.
    text: String,
    exact: bool,
    instead: String,
    /// Beginning of the paths that it left; empty for all.
    below: String,
}

#[test]
fn names_that_left_stay_away_and_documentation_is_sentences() {
    let words = words();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources() {
        let room = room(&file);
        let count = counts.entry(room.clone()).or_default();
        let found = found.entry(room).or_default();
        for Finding {
            line,
            text,
            is_name,
        } in findings(&file, &words)
        {
            *(if is_name {
                &mut count.names
            } else {
                &mut count.questions
            }) += 1;
            found.push(format!("  {file}:{line}: {text}"));
        }
    }
    counts.retain(|_, count| *count != Count::default());
    if std::env::var_os("SESAME_SET_WORDS").is_some() {
        fs::write(workspace().join(ALLOWANCE), written(&counts)).unwrap();
        return;
    }
    let allowed = allowed();
    let mut problems = Vec::new();
    for (room, count) in counts {
        let Count { questions, names } = allowed.get(&room).copied().unwrap_or_default();
        if count.questions > questions || count.names > names {
            problems.push(format!(
                "{room}: {} comments begin with a question word ({questions} are allowed), {} names have left ({names} are allowed)",
                count.questions, count.names
            ));
            problems.extend(found.remove(&room).unwrap_or_default());
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

struct Finding {
    line: usize,
    text: String,
    is_name: bool,
}

fn findings(file: &str, words: &[Word]) -> Vec<Finding> {
    let words: Vec<&Word> = words
        .iter()
        .filter(|word| file.starts_with(&word.below))
        .collect();
    let mut findings = Vec::new();
    scan(&tokens(&workspace().join(file)), &words, &mut findings);
    findings
}

fn scan(tokens: &[TokenTree], words: &[&Word], findings: &mut Vec<Finding>) {
    let mut after_documentation = false;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if let Some((text, length)) = documentation(&tokens[at..]) {
            let first = text
                .split(|c: char| !c.is_alphabetic())
                .find(|word| !word.is_empty());
            if !after_documentation && first.is_some_and(|word| QUESTIONS.contains(&word)) {
                findings.push(Finding {
                    line: token.span().start().line,
                    text: format!("`{}` is no sentence", text.trim()),
                    is_name: false,
                });
            }
            after_documentation = true;
            at += length;
            continue;
        }
        after_documentation = false;
        match (token, tokens.get(at + 1)) {
            (TokenTree::Group(group), _) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                scan(&inner, words, findings);
            }
            (TokenTree::Ident(item), Some(TokenTree::Ident(name)))
                if ITEMS.iter().any(|i| item == i) =>
            {
                let name = name.to_string();
                if let Some(word) = words.iter().find(|word| word.is_in(&name)) {
                    findings.push(Finding {
                        line: token.span().start().line,
                        text: format!("`{name}`: say {}", word.instead),
                        is_name: true,
                    });
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Returns the text of a line of documentation, and the number of tokens that it is.
fn documentation(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let [TokenTree::Punct(hash), rest @ ..] = tokens else {
        return None;
    };
    let inner =
        usize::from(matches!(rest.first(), Some(TokenTree::Punct(mark)) if mark.as_char() == '!'));
    let Some(TokenTree::Group(group)) = rest.get(inner) else {
        return None;
    };
    let attribute: Vec<TokenTree> = group.stream().into_iter().collect();
    let [
        TokenTree::Ident(name),
        TokenTree::Punct(_),
        TokenTree::Literal(text),
    ] = &attribute[..]
    else {
        return None;
    };
    let is_documentation =
        hash.as_char() == '#' && name == "doc" && group.delimiter() == Delimiter::Bracket;
    let text = text.to_string();
    let text = text
        .split_once('"')?
        .1
        .trim_end_matches(['"', '#'])
        .to_owned();
    is_documentation.then_some((text, inner + 2))
}

impl Word {
    fn is_in(&self, name: &str) -> bool {
        if self.exact {
            return name == self.text;
        }
        let parts = parts(name);
        // Names of tests are sentences.
        parts.split('_').count() < 5 && format!("_{parts}_").contains(&format!("_{}_", self.text))
    }
}

/// Returns a name's words in lower case with `_` between them.
fn parts(name: &str) -> String {
    let mut parts = String::new();
    let mut before = '_';
    for character in name.chars() {
        if character.is_uppercase() && before.is_lowercase() {
            parts.push('_');
        }
        parts.extend(character.to_lowercase());
        before = character;
    }
    parts
}

/// Returns the names that left: `name | what to say | where`, an exact name with `=` before it.
fn words() -> Vec<Word> {
    let text = fs::read_to_string(workspace().join(WORDS)).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut cells = line.split('|').map(str::trim);
            let name = cells.next().unwrap_or_default();
            Word {
                exact: name.starts_with('='),
                text: name.trim_start_matches('=').replace(' ', "_"),
                instead: cells.next().unwrap_or_default().to_owned(),
                below: cells.next().unwrap_or_default().to_owned(),
            }
        })
        .collect()
}

fn allowed() -> BTreeMap<String, Count> {
    let text = fs::read_to_string(workspace().join(ALLOWANCE)).unwrap_or_default();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| cells[index].parse().unwrap();
            (
                cells[0].to_owned(),
                Count {
                    questions: number(1),
                    names: number(2),
                },
            )
        })
        .collect()
}

fn written(counts: &BTreeMap<String, Count>) -> String {
    let mut text =
        "# room, comments that begin with a question word, names that have left\n".to_owned();
    for (room, Count { questions, names }) in counts {
        let _ = writeln!(text, "{room} {questions} {names}");
    }
    text
}

/// Returns the room of a file: its crate and the module, or the tests of the crate.
pub(crate) fn room(file: &str) -> String {
    let (package, inside) = file
        .split_once("/src/")
        .or_else(|| file.split_once("/tests/"))
        .unwrap_or((file, ""));
    let module = inside.split(['/', '.']).next().unwrap_or_default();
    let module = if file.contains("/src/") {
        module
    } else {
        "tests"
    };
    format!("{package}/{module}")
}

/// Returns all Rust sources of the workspace by their paths in it.
pub(crate) fn sources() -> Vec<String> {
    let mut sources = Vec::new();
    for directory in ["agent", "controller", "proto", "tests"] {
        collect(&workspace().join(directory), &mut sources);
    }
    let root = workspace();
    let mut names: Vec<String> = sources
        .iter()
        .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
        .collect();
    names.sort();
    names
}

fn collect(directory: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
