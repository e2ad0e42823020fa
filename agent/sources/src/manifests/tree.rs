//! Lists the directories and manifests in a tree without opening any file.
//!
//! Follows symbolic links, as in a mounted `ConfigMap`, but not out of the directory unless
//! allowed. Enters each directory once, so loops are harmless. A fifo cannot block the walk, and
//! world-writable directories are not trusted.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sesame_files::open::{self, Rule};

use super::ReadLimits;
use crate::problem::{Severity, SourceProblem};

/// Identifies one version of a file's content, without reading the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) id: Id,
    pub(crate) size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            id: Id::of(metadata),
            size: metadata.size(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns true if another change might leave the stamp the same, because kernel timestamps
    /// advance only every few milliseconds.
    pub(crate) fn is_fresh(&self) -> bool {
        let Ok(age) = SystemTime::now().duration_since(UNIX_EPOCH) else {
            return true;
        };
        let (seconds, nanoseconds) = self.ctime;
        let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        let age = i128::try_from(age.as_nanos()).map_or(0, |now| now - changed);
        // A file server's clock may be slightly ahead. A stamp far in the future means that the
        // local clock was set back.
        (-60_000_000_000..50_000_000).contains(&age)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    device: u64,
    inode: u64,
}

impl Id {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// All paths are relative to the root.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The root is the empty path.
    pub(crate) dirs: BTreeMap<PathBuf, Id>,
    /// Sorted by path.
    pub(crate) files: Vec<(Arc<Path>, Stamp)>,
    /// Paths that exist, but could not be inspected.
    pub(crate) unreadable: Vec<PathBuf>,
    /// A repeated walk may succeed, although nothing has changed.
    pub(crate) retry: bool,
    pub(crate) problems: Vec<SourceProblem>,
}

pub(crate) enum Found {
    File(Stamp),
    Dir(Id),
    /// A special file, described in text such as `a fifo`.
    Other(&'static str),
    Gone,
    Unreadable(io::Error),
}

pub(crate) fn inspect(path: &Path) -> Found {
    match fs::metadata(path) {
        Ok(metadata) => found(&metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Gone,
            _ => Found::Unreadable(io::Error::new(
                io::ErrorKind::NotFound,
                "the link is dangling",
            )),
        },
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Found::Gone,
        Err(error) => Found::Unreadable(error),
    }
}

/// Returns true if no event announces the end of the error, such as a lack of descriptors.
pub(super) fn may_pass(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    !matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn found(metadata: &Metadata) -> Found {
    let kind = metadata.file_type();
    if kind.is_file() {
        Found::File(Stamp::of(metadata))
    } else if kind.is_dir() {
        Found::Dir(Id::of(metadata))
    } else if kind.is_fifo() {
        Found::Other("a fifo")
    } else if kind.is_socket() {
        Found::Other("a socket")
    } else {
        Found::Other("a device")
    }
}

/// Returns true if the extension is `yaml`, `yml` or `json` in lower case.
pub fn is_manifest(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Includes `..data` and its target directory, whose files are found through the links next to
/// `..data`.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Returns an error only if the root is not a readable directory.
pub(crate) fn walk(root: &Path, limits: &ReadLimits) -> io::Result<Tree> {
    start(root, limits, false)
}

pub(crate) fn walk_dirs(root: &Path, limits: &ReadLimits) -> io::Result<BTreeMap<PathBuf, Id>> {
    start(root, limits, true).map(|tree| tree.dirs)
}

fn start(root: &Path, limits: &ReadLimits, dirs_only: bool) -> io::Result<Tree> {
    let id = match inspect(root) {
        Found::Dir(id) => id,
        Found::Gone => return Err(io::ErrorKind::NotFound.into()),
        Found::Unreadable(error) => return Err(error),
        Found::File(_) | Found::Other(_) => return Err(io::ErrorKind::NotADirectory.into()),
    };
    let within = (!limits.links_out).then(|| fs::canonicalize(root));
    let mut walk = Walker {
        root,
        within: within.transpose()?,
        limits,
        tree: Tree::default(),
        seen: HashMap::new(),
        full: false,
        dirs_only,
    };
    walk.dir(Path::new(""), id, 0)?;
    Ok(walk.tree)
}

pub(super) fn leads_out(real: &Path) -> String {
    format!(
        "is a link to {}, outside the manifest directory, and is not followed; replace it with its target, or allow links with --follow-links",
        real.display()
    )
}

struct Walker<'a> {
    root: &'a Path,
    /// The resolved root, or `None` if links may point outside it.
    within: Option<PathBuf>,
    limits: &'a ReadLimits,
    tree: Tree,
    seen: HashMap<Id, PathBuf>,
    full: bool,
    dirs_only: bool,
}

impl Walker<'_> {
    /// Returns an error if the directory itself cannot be read. Errors inside it become problems.
    fn dir(&mut self, relative: &Path, id: Id, depth: usize) -> io::Result<()> {
        // Watch untrusted directories, too, to notice corrected permissions.
        if !self.dirs_only {
            open::check_directory(&self.root.join(relative), Rule::GivenByLink)?;
        }
        let mut entries: Vec<_> =
            fs::read_dir(self.root.join(relative))?.collect::<io::Result<_>>()?;
        entries.retain(|entry| !is_hidden(&entry.file_name()));
        entries.sort_by_cached_key(fs::DirEntry::file_name);
        self.seen.insert(id, relative.to_owned());
        self.tree.dirs.insert(relative.to_owned(), id);
        for entry in entries {
            let name = entry.file_name();
            let path = relative.join(&name);
            let manifest = is_manifest(&name);
            // The directory entry contains the type, so other files need no system call.
            let kind = entry.file_type();
            let plain = kind.as_ref().is_ok_and(fs::FileType::is_file);
            if plain && (self.dirs_only || !manifest) {
                continue;
            }
            if kind.is_ok_and(|kind| kind.is_symlink())
                && let Some(outside) = self.outside(&entry.path())
            {
                if manifest || outside.is_dir() {
                    self.problem(&path, Severity::Error, leads_out(&outside));
                    self.tree.unreadable.push(path);
                }
                continue;
            }
            let found = match (plain, entry.metadata()) {
                (true, Ok(metadata)) => found(&metadata),
                _ => inspect(&entry.path()),
            };
            match found {
                Found::Dir(id) => self.subdir(path, id, depth + 1),
                Found::File(stamp) if manifest => self.file(path, stamp),
                Found::Other(what) if manifest => {
                    let message = format!("is {what}, not a regular file; it is skipped");
                    self.problem(&path, Severity::Warning, message);
                }
                Found::Unreadable(error) if manifest => {
                    let message =
                        format!("cannot be read: {error}; its previous objects remain in use");
                    self.problem(&path, Severity::Error, message);
                    self.tree.unreadable.push(path);
                }
                Found::File(_) | Found::Other(_) | Found::Unreadable(_) | Found::Gone => {}
            }
        }
        Ok(())
    }

    fn outside(&self, link: &Path) -> Option<PathBuf> {
        let within = self.within.as_ref()?;
        let real = fs::canonicalize(link).ok()?;
        (!real.starts_with(within)).then_some(real)
    }

    fn subdir(&mut self, path: PathBuf, id: Id, depth: usize) {
        if let Some(first) = self.seen.get(&id) {
            let first = if first.as_os_str().is_empty() {
                Path::new(".")
            } else {
                first
            };
            let message = format!(
                "links to the directory {} again; it is read once",
                first.display()
            );
            return self.problem(&path, Severity::Warning, message);
        }
        if depth > self.limits.depth {
            let message = format!(
                "is more than {} directories deep; it is skipped",
                self.limits.depth
            );
            return self.problem(&path, Severity::Error, message);
        }
        if let Err(error) = self.dir(&path, id, depth)
            && error.kind() != io::ErrorKind::NotFound
        {
            let message = format!("cannot be read: {error}; its previous objects remain in use");
            self.problem(&path, Severity::Error, message);
            self.tree.unreadable.push(path);
            self.tree.retry |= may_pass(&error);
        }
    }

    fn file(&mut self, path: PathBuf, stamp: Stamp) {
        if self.tree.files.len() < self.limits.files {
            self.tree.files.push((path.into(), stamp));
            return;
        }
        if !std::mem::replace(&mut self.full, true) {
            let message = format!(
                "exceeds the limit of {} files; neither it nor any later file is read: use fewer, \
                 larger files",
                self.limits.files
            );
            self.problem(&path, Severity::Error, message);
        }
        self.tree.unreadable.push(path);
    }

    fn problem(&mut self, path: &Path, severity: Severity, message: String) {
        // Limit the number of problems that a hostile tree can cause.
        if self.tree.problems.len() < 1000 {
            let problem = SourceProblem::of_file(severity, path.to_string_lossy(), message);
            self.tree.problems.push(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_fresh_only_near_current_time() {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time");
        let now = i64::try_from(now.as_secs()).expect("a time");
        let directory = tempfile::tempdir().expect("a directory");
        let stamp = Stamp::of(&fs::metadata(directory.path()).expect("metadata"));
        for (seconds, fresh) in [
            (1, true),
            (-1, false),
            (365 * 24 * 3600, false),
            (-now - 1, false),
        ] {
            let ctime = (now + seconds, 0);
            assert_eq!(Stamp { ctime, ..stamp }.is_fresh(), fresh, "{seconds}");
        }
    }
}
