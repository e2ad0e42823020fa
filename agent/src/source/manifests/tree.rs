//! Lists the directories and manifests in a directory tree without opening any file.
//!
//! Symbolic links are followed, so that the `..data` layout of a mounted `ConfigMap` works. Links
//! that lead out of the directory are followed only if allowed. Each directory is entered only
//! once, so loops end. No file is opened, so a fifo cannot block the walk. World-writable
//! directories are not trusted.

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
use crate::source::problem::{Severity, SourceProblem};

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

    /// Returns true if the file changed so recently that another change might leave the stamp the
    /// same. File systems take timestamps from a kernel clock that advances every few milliseconds.
    pub(crate) fn is_fresh(&self) -> bool {
        let Ok(age) = SystemTime::now().duration_since(UNIX_EPOCH) else {
            return true;
        };
        let (seconds, nanoseconds) = self.ctime;
        let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        let age = i128::try_from(age.as_nanos()).map_or(0, |now| now - changed);
        // The clock of a file server may be slightly ahead. If the stamp is far in the future, the
        // local clock was set back, and the next change will get a different timestamp.
        (-60_000_000_000..50_000_000).contains(&age)
    }
}

/// Device and inode of a directory.
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

/// The content of a tree. All paths are relative to its root.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The directories; the root is the empty path.
    pub(crate) dirs: BTreeMap<PathBuf, Id>,
    /// The manifests, sorted by path because directory entries are visited in order of name.
    pub(crate) files: Vec<(Arc<Path>, Stamp)>,
    /// Files and directories that exist but could not be inspected.
    pub(crate) unreadable: Vec<PathBuf>,
    /// Problems with paths that were skipped.
    pub(crate) problems: Vec<SourceProblem>,
}

/// What exists at a path.
pub(crate) enum Found {
    File(Stamp),
    Dir(Id),
    /// Neither a manifest nor a directory; contains a name for the kind of file.
    Other(&'static str),
    /// The path does not exist.
    Gone,
    /// The path cannot be inspected, for example because it is a dangling link.
    Unreadable(io::Error),
}

/// Inspects a path. Follows links.
pub(crate) fn look(path: &Path) -> Found {
    match fs::metadata(path) {
        Ok(metadata) => found(&metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Gone,
            _ => Found::Unreadable(io::Error::new(
                io::ErrorKind::NotFound,
                "the link points to nothing",
            )),
        },
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Found::Gone,
        Err(error) => Found::Unreadable(error),
    }
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

/// Returns true if files with this name are manifests: `*.yaml`, `*.yml` and `*.json`.
pub(crate) fn is_manifest(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Returns true if the name is ignored because it starts with a dot. This includes `..data` and its
/// target directory, whose files are found through the links next to `..data`.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Walks the whole tree. Returns an error only if the root is not a readable directory.
pub(crate) fn walk(root: &Path, limits: &ReadLimits) -> io::Result<Tree> {
    start(root, limits, false)
}

/// Like [`walk`], but collects only the directories.
pub(crate) fn walk_dirs(root: &Path, limits: &ReadLimits) -> io::Result<BTreeMap<PathBuf, Id>> {
    start(root, limits, true).map(|tree| tree.dirs)
}

fn start(root: &Path, limits: &ReadLimits, dirs_only: bool) -> io::Result<Tree> {
    let id = match look(root) {
        Found::Dir(id) => id,
        Found::Gone => return Err(io::ErrorKind::NotFound.into()),
        Found::Unreadable(error) => return Err(error),
        Found::File(_) | Found::Other(_) => return Err(io::ErrorKind::NotADirectory.into()),
    };
    let within = (!limits.links_out).then(|| fs::canonicalize(root));
    let mut walk = Walk {
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

/// Returns the problem text for a link that is not followed.
pub(super) fn leads_out(real: &Path) -> String {
    format!(
        "is a link to {}, outside the manifest directory, and is not followed; put the file itself there, or allow links with --follow-links",
        real.display()
    )
}

struct Walk<'a> {
    root: &'a Path,
    /// The root with all links resolved; `None` if links may lead out of the root.
    within: Option<PathBuf>,
    limits: &'a ReadLimits,
    tree: Tree,
    seen: HashMap<Id, PathBuf>,
    /// True once the maximum number of files is reached.
    full: bool,
    /// True if only directories are collected.
    dirs_only: bool,
}

impl Walk<'_> {
    /// Walks a directory. Returns an error if the directory itself cannot be read. Errors inside it
    /// become problems of the tree.
    fn dir(&mut self, relative: &Path, id: Id, depth: usize) -> io::Result<()> {
        // An untrusted directory is watched, too, so that corrected permissions are noticed.
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
            // The directory entry contains the type, so no system call is needed for anything but
            // manifests, directories and links.
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
                _ => look(&entry.path()),
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

    /// Returns the link's target if it is outside the root.
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
        }
    }

    fn file(&mut self, path: PathBuf, stamp: Stamp) {
        if self.tree.files.len() < self.limits.files {
            self.tree.files.push((path.into(), stamp));
            return;
        }
        if !std::mem::replace(&mut self.full, true) {
            let message = format!(
                "comes after {} files; it and all later files are not read: use fewer, larger files",
                self.limits.files
            );
            self.problem(&path, Severity::Error, message);
        }
        self.tree.unreadable.push(path);
    }

    fn problem(&mut self, path: &Path, severity: Severity, message: String) {
        // Limit the number of problems, because a hostile tree could cause any number of them.
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
        let stamp = Stamp::of(&fs::metadata(directory.path()).expect("it is there"));
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
