//! I/O errors with paths.

use std::io;
use std::path::{Path, PathBuf};

/// I/O error with the affected path.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = .path.display())]
pub struct PathError {
    /// The file or directory.
    pub path: PathBuf,
    /// The I/O error.
    pub source: io::Error,
}

impl PathError {
    /// Returns a function for `map_err` that adds `path` to an I/O error.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { path, source }
    }
}
