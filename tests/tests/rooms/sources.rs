//! The source files of the workspace, and the room of each file.

use std::fs;
use std::path::Path;

use crate::workspace;

/// The crate and the top-level module, or `tests`.
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

/// Relative to the workspace.
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
