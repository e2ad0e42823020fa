//! Reads a crate's modules and their imports from its sources, without compiling or expanding
//! macros. Skips test code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The crate's name without `sesame-`, then the nested modules.
pub(crate) type ModulePath = Vec<String>;

#[derive(Debug, Default)]
pub(crate) struct Module {
    /// Paths that start with a crate of this workspace.
    pub(crate) imports: BTreeSet<ModulePath>,
    /// Keyed by name in this module.
    pub(crate) exports: BTreeMap<String, ModulePath>,
    /// Excludes test modules.
    children: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Modules(pub(crate) BTreeMap<ModulePath, Module>);

impl Modules {
    pub(crate) fn read(&mut self, name: &str, source: &Path) {
        for root in ["lib.rs", "main.rs"] {
            let file = source.join(root);
            if file.exists() {
                self.read_file(&[name.to_owned()], &file, source);
            }
        }
    }

    /// Returns `None` if the path leaves the workspace.
    pub(crate) fn target(&self, path: &[String]) -> Option<ModulePath> {
        let mut at = vec![path.first()?.clone()];
        let mut module = self.0.get(&at)?;
        for (index, segment) in path.iter().enumerate().skip(1) {
            at.push(segment.clone());
            if let Some(child) = self.0.get(&at) {
                module = child;
                continue;
            }
            at.pop();
            let Some(export) = module.exports.get(segment) else {
                break;
            };
            let rest = &path[index + 1..];
            return self.target(&export.iter().chain(rest).cloned().collect::<ModulePath>());
        }
        Some(at)
    }

    pub(crate) fn has_children(&self, path: &[String]) -> bool {
        self.0.get(path).is_some_and(|m| !m.children.is_empty())
    }

    fn read_file(&mut self, path: &[String], file: &Path, children: &Path) {
        let tokens = tokens(file);
        self.scan(&tokens, path, children);
    }

    fn scan(&mut self, tokens: &[TokenTree], path: &[String], directory: &Path) {
        let mut reader = Reader {
            path,
            directory,
            modules: self,
            tokens,
            at: 0,
        };
        reader.declare();
        reader.run();
    }
}

/// Drops comments, and turns doc comments into attributes.
pub(crate) fn tokens(file: &Path) -> Vec<TokenTree> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let stream: TokenStream = text
        .parse()
        .unwrap_or_else(|error| panic!("{} is not valid Rust: {error}", file.display()));
    stream.into_iter().collect()
}

struct Reader<'a> {
    path: &'a [String],
    directory: &'a Path,
    modules: &'a mut Modules,
    tokens: &'a [TokenTree],
    at: usize,
}

impl Reader<'_> {
    /// Paths may use a child module before its declaration.
    fn declare(&mut self) {
        let path = self.path.to_vec();
        let children = &mut self.modules.0.entry(path).or_default().children;
        for (index, window) in self.tokens.windows(2).enumerate() {
            let tested = index >= 2 && is_test_only(&self.tokens[..index]);
            if let ([TokenTree::Ident(word), TokenTree::Ident(name)], false) = (window, tested)
                && word == "mod"
            {
                children.insert(name.to_string());
            }
        }
    }

    fn run(&mut self) {
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => self.attribute(),
                TokenTree::Ident(word) if word == "mod" => self.module(),
                TokenTree::Ident(word) if word == "use" => self.import(),
                TokenTree::Ident(word) if word == "pub" => {
                    self.at += 1;
                    if is_group(self.tokens.get(self.at), Delimiter::Parenthesis) {
                        self.at += 1;
                    }
                }
                TokenTree::Ident(_) => self.path(),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    let mut reader = Reader {
                        path: self.path,
                        directory: self.directory,
                        modules: self.modules,
                        tokens: &inner,
                        at: 0,
                    };
                    reader.run();
                    self.at += 1;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.at += 1,
            }
        }
    }

    /// Also skips the item if it is compiled only for tests.
    fn attribute(&mut self) {
        self.at += 1;
        let Some(TokenTree::Group(group)) = self.tokens.get(self.at) else {
            return;
        };
        self.at += 1;
        if !is_cfg_test(&group.stream()) {
            return;
        }
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
                TokenTree::Punct(mark) if matches!(mark.as_char(), ';' | ',') => return,
                _ => {}
            }
        }
    }

    fn module(&mut self) {
        self.at += 1;
        let Some(TokenTree::Ident(name)) = self.tokens.get(self.at) else {
            return;
        };
        let name = name.to_string();
        let path: ModulePath = self.path.iter().chain([&name]).cloned().collect();
        let children = self.directory.join(&name);
        self.at += 1;
        if let Some(TokenTree::Group(group)) = self.tokens.get(self.at) {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            self.modules.scan(&inner, &path, &children);
        } else {
            let beside = self.directory.join(format!("{name}.rs"));
            let file: PathBuf = if beside.exists() {
                beside
            } else {
                children.join("mod.rs")
            };
            self.modules.read_file(&path, &file, &children);
        }
        self.at += 1;
    }

    fn import(&mut self) {
        let public = self.at > 0
            && match &self.tokens[self.at - 1] {
                TokenTree::Ident(word) => word == "pub",
                token => is_group(Some(token), Delimiter::Parenthesis),
            };
        let start = self.at + 1;
        while !is_mark(self.tokens.get(self.at), ';') && self.at < self.tokens.len() {
            self.at += 1;
        }
        for (path, name) in tree(&self.tokens[start..self.at]) {
            if let Some(path) = self.absolute(&path) {
                let module = self.modules.0.entry(self.path.to_vec()).or_default();
                if public {
                    module.exports.insert(name, path);
                } else {
                    module.imports.insert(path);
                }
            }
        }
    }

    fn path(&mut self) {
        let start = self.at;
        let (path, end) = segments(&self.tokens[start..]);
        self.at += end.max(1);
        let continues = start > 0
            && (is_mark(self.tokens.get(start - 1), ':')
                && start > 1
                && is_mark(self.tokens.get(start - 2), ':')
                || is_mark(self.tokens.get(start - 1), '.'));
        if path.len() > 1
            && !continues
            && let Some(path) = self.absolute(&path)
        {
            self.modules
                .0
                .entry(self.path.to_vec())
                .or_default()
                .imports
                .insert(path);
        }
    }

    /// Returns `None` if the path starts outside the workspace.
    fn absolute(&self, path: &[String]) -> Option<ModulePath> {
        let first = path.first()?.as_str();
        let mut base = self.path.to_vec();
        let rest = match first {
            "crate" => {
                base.truncate(1);
                &path[1..]
            }
            "self" => &path[1..],
            "super" => {
                let ups = path
                    .iter()
                    .take_while(|segment| *segment == "super")
                    .count();
                base.truncate(base.len().saturating_sub(ups).max(1));
                &path[ups..]
            }
            _ => {
                if let Some(name) = first.strip_prefix("sesame_") {
                    base = vec![name.replace('_', "-")];
                    &path[1..]
                } else {
                    self.modules.0.get(self.path)?.children.get(first)?;
                    path
                }
            }
        };
        base.extend_from_slice(rest);
        Some(base)
    }
}

/// Returns the imported paths, with the names that they bring into scope.
fn tree(tokens: &[TokenTree]) -> Vec<(ModulePath, String)> {
    let (prefix, end) = segments(tokens);
    if let Some(TokenTree::Group(group)) = tokens.get(end) {
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        return inner
            .split(|token| is_mark(Some(token), ','))
            .filter(|part| !part.is_empty())
            .flat_map(tree)
            .map(|(mut path, name)| {
                // `use a::{self}` imports `a`.
                let name = if path == ["self"] {
                    path.clear();
                    prefix.last().cloned().unwrap_or_default()
                } else {
                    name
                };
                (prefix.iter().cloned().chain(path).collect(), name)
            })
            .collect();
    }
    let name = match tokens.get(end + 1) {
        Some(TokenTree::Ident(alias)) => alias.to_string(),
        _ => prefix.last().cloned().unwrap_or_default(),
    };
    vec![(prefix, name)]
}

/// Also returns the number of tokens, including each `::`.
fn segments(tokens: &[TokenTree]) -> (ModulePath, usize) {
    let mut path = ModulePath::new();
    let mut at = 0;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        path.push(name.to_string());
        at += 1;
        if !(is_mark(tokens.get(at), ':') && is_mark(tokens.get(at + 1), ':')) {
            break;
        }
        at += 2;
    }
    (path, at)
}

fn is_test_only(before: &[TokenTree]) -> bool {
    let mut rest = before;
    loop {
        rest = match rest {
            [head @ .., TokenTree::Punct(mark), TokenTree::Group(group)]
                if mark.as_char() == '#' =>
            {
                if is_cfg_test(&group.stream()) {
                    return true;
                }
                head
            }
            [head @ .., TokenTree::Ident(word)] if word == "pub" => head,
            [head @ .., TokenTree::Ident(word), TokenTree::Group(_)] if word == "pub" => head,
            _ => return false,
        };
    }
}

pub(crate) fn is_cfg_test(attribute: &TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text.starts_with("cfg(") && text.contains("test") && !text.contains("not(test)")
}

pub(crate) fn is_mark(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn is_group(token: Option<&TokenTree>, delimiter: Delimiter) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == delimiter)
}
