//! Parses the pages of the documentation: blocks, links and headings.

use std::path::{Path, PathBuf};

use sesame_tests::envoy::workspace;

pub(crate) struct Page {
    /// Relative to the workspace root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) language: String,
    /// Starts at 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Includes pages in the root that link to `docs/`.
pub(crate) fn all() -> Vec<Page> {
    let mut paths = Vec::new();
    collect(&workspace().join("docs"), &mut paths);
    paths.extend(
        [
            "README.md",
            "CONTRIBUTING.md",
            "ARCHITECTURE.md",
            "DECISIONS.md",
        ]
        .map(|name| workspace().join(name)),
    );
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

pub(crate) fn below(directory: &str) -> Vec<Page> {
    let mut pages = all();
    pages.retain(|page| page.path.starts_with(directory));
    pages
}

pub(crate) fn page(path: &str) -> Page {
    read(&workspace().join(path))
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|end| end == "md") {
            paths.push(path);
        }
    }
}

fn read(path: &Path) -> Page {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let path = path
        .strip_prefix(workspace())
        .expect("a page of the workspace");
    Page {
        path: path.to_owned(),
        text,
    }
}

impl Page {
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for (number, line) in self.text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (Some(_), Some("")) => blocks.extend(open.take().map(|(_, block)| block)),
                (Some((indent, block)), _) => {
                    block.text.push_str(line.get(*indent..).unwrap_or_default());
                    block.text.push('\n');
                }
                (None, Some(language)) => {
                    let block = Block {
                        language: language.to_owned(),
                        line: number + 1,
                        text: String::new(),
                    };
                    open = Some((indent, block));
                }
                (None, None) => {}
            }
        }
        let path = self.path.display();
        assert!(open.is_none(), "{path}: the last code block is not closed");
        blocks
    }

    /// Excludes code blocks. Line numbers start at 1.
    pub(crate) fn prose(&self) -> Vec<(usize, &str)> {
        let mut inside = false;
        let mut found = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if !inside {
                found.push((number + 1, line));
            }
        }
        found
    }

    pub(crate) fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in self.prose() {
            let mut rest = without_code(line);
            while let Some((_, after)) = rest.split_once("](") {
                let (target, tail) = after.split_once(')').expect("the link is closed");
                found.push((number, target.to_owned()));
                rest = tail.to_owned();
            }
        }
        found
    }

    /// Returns the anchors that GitHub and mdBook generate.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let headings = self.prose().into_iter().filter_map(|(_, line)| {
            let title = line.trim_start_matches('#');
            (title.len() < line.len())
                .then(|| title.strip_prefix(' '))
                .flatten()
        });
        headings.map(anchor).collect()
    }
}

fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts
        .filter_map(|(place, part)| (place % 2 == 0).then_some(part))
        .collect()
}

fn anchor(title: &str) -> String {
    let lower = title.trim().to_lowercase();
    let kept = lower
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
