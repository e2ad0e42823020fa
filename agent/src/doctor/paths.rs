//! Finds Sesame's files and directories whose owner or mode gives other users access.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::facts::PathFacts;

const MAX_ENTRIES: usize = 100_000;
const MAX_FAULTS: usize = 1_000;
/// Most permissive modes allowed.
const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// The directory's mode also protects the socket.
const SOCKET: u32 = 0o770;
/// Log collectors in the file's group may read the logs.
const LOG_DIRECTORY: u32 = 0o750;
const LOG: u32 = 0o640;
/// Certificate requests and issued certificates contain no keys, and users copy them.
const CARRIED: u32 = 0o664;

pub(super) fn judge(directories: &[&Path], user: u32) -> (Vec<(PathBuf, u32)>, Vec<PathFacts>) {
    let (mut missing, mut misplaced) = (Vec::new(), Vec::new());
    let mut left = MAX_ENTRIES;
    for directory in directories {
        match fs::metadata(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                missing.push(((*directory).to_owned(), user));
            }
            // Another check reports unreadable directories.
            Err(_) => {}
            // Resolve symbolic links here, because the configured directory may be a link.
            Ok(_) => walk(
                &fs::canonicalize(directory).unwrap_or_else(|_| (*directory).to_owned()),
                user,
                &mut left,
                &mut misplaced,
            ),
        }
    }
    (missing, misplaced)
}

/// Matches, for example, `requests/NAMESPACE/NAME/request.pem`.
fn is_carried(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    let root = path.ancestors().nth(3).and_then(Path::file_name);
    matches!(name, Some("request.pem" | "certificate.pem")) && root == Some(OsStr::new("requests"))
}

fn is_access_log(path: &Path) -> bool {
    path.ancestors()
        .take(3)
        .any(|above| above.file_name() == Some(OsStr::new("access-logs")))
}

fn walk(path: &Path, user: u32, left: &mut usize, misplaced: &mut Vec<PathFacts>) {
    if *left == 0 || misplaced.len() >= MAX_FAULTS {
        return;
    }
    *left -= 1;
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    let kind = meta.file_type();
    // The permission bits of a symbolic link have no effect.
    if kind.is_symlink() {
        return;
    }
    let wanted_mode = match () {
        () if kind.is_dir() && is_access_log(path) => LOG_DIRECTORY,
        () if kind.is_dir() => DIRECTORY,
        () if kind.is_socket() => SOCKET,
        () if is_carried(path) => CARRIED,
        () if is_access_log(path) => LOG,
        () => FILE,
    };
    let mode = meta.mode() & 0o7777;
    // Root may own a path, because root has access to everything anyway.
    let foreign = meta.uid() != user && meta.uid() != 0;
    if foreign || mode & 0o777 & !wanted_mode & 0o077 != 0 {
        misplaced.push(PathFacts {
            path: path.to_owned(),
            owner: meta.uid(),
            wanted_owner: if foreign { user } else { meta.uid() },
            mode,
            wanted_mode,
        });
    }
    if kind.is_dir() {
        let mut entries: Vec<PathBuf> = fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        for entry in entries {
            walk(&entry, user, left, misplaced);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_exposed_or_missing_paths_are_found() {
        let root = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(root.path(), 0o700);
        let (good, bad, missing) = (
            root.path().join("good"),
            root.path().join("bad"),
            root.path().join("missing"),
        );
        for (path, wanted) in [(&good, 0o600), (&bad, 0o644)] {
            fs::write(path, "").unwrap();
            mode(path, wanted);
        }
        std::os::unix::fs::symlink(&bad, root.path().join("link")).unwrap();
        let (absent, misplaced) = judge(&[root.path(), &missing], own);
        assert_eq!(absent, [(missing, own)]);
        let found: Vec<(&Path, u32)> = misplaced
            .iter()
            .map(|p| (p.path.as_path(), p.mode))
            .collect();
        let bad = bad.canonicalize().unwrap();
        assert_eq!(found, [(bad.as_path(), 0o644)]);
    }
}
