//! Finds the symbolic links in a file's path, each of which may redirect the path.

use std::path::{Component, Path, PathBuf};

const MAX_LINKS: usize = 40;

/// No parent of a returned path is a symbolic link.
pub(super) fn names(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match first_link(&path) {
            Ok((link, target)) => {
                found.push(link);
                path = target;
            }
            Err(end) => {
                found.push(end);
                break;
            }
        }
    }
    found
}

/// Returns the first link, and the path with that link resolved. If no part is a link, returns the
/// path as `Err`.
fn first_link(path: &Path) -> Result<(PathBuf, PathBuf), PathBuf> {
    let mut walked = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        if part == Component::ParentDir {
            walked.pop();
            continue;
        }
        walked.push(part);
        if let Ok(target) = std::fs::read_link(&walked) {
            let parent = walked.parent().unwrap_or(&walked);
            let next = parent.join(target).join(parts.as_path());
            return Ok((walked, next));
        }
    }
    Err(walked)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_is_found_in_turn() {
        let directory = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir_all(top.join("releases/1/manifests")).unwrap();
        symlink("releases/./1", top.join("current")).unwrap();
        symlink("../top/../current", top.join("releases/link")).unwrap();
        let found = names(&top.join("releases/link/manifests"));
        let expected = ["releases/link", "current", "releases/1/manifests"];
        assert_eq!(found, expected.map(|name| top.join(name)));
        assert_eq!(names(&top.join("not/there")), [top.join("not/there")]);
        symlink("loop", top.join("loop")).unwrap();
        assert_eq!(names(&top.join("loop")).len(), MAX_LINKS);
    }
}
