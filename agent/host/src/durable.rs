//! Durable writes: after a power cut, a file has either its old or its new content.
//!
//! Unless documented otherwise, each function returns only after its changes are on disk. Tests of
//! other crates record each step to simulate power cuts.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sesame_files::open::{self, Rule};

use super::files::{DIRECTORY_MODE, FILE_MODE};

/// One step of a change, for tests. A write survives a power cut only after its file is synced. A
/// new, renamed or removed name survives only after its directory is synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskStep {
    /// A new directory.
    MakeDirectory(PathBuf),
    /// A file's whole content.
    Write(PathBuf, Vec<u8>),
    /// A file whose content is on disk.
    SyncFile(PathBuf),
    /// A directory whose names are on disk.
    SyncDirectory(PathBuf),
    /// The old and the new name.
    Rename(PathBuf, PathBuf),
    /// A directory with its content.
    Remove(PathBuf),
}

thread_local! {
    /// The steps of this thread since a test set this to `Some`.
    pub static STEPS: RefCell<Option<Vec<DiskStep>>> = const { RefCell::new(None) };
}

fn record(step: impl FnOnce() -> DiskStep) {
    STEPS.with_borrow_mut(|steps| {
        if let Some(steps) = steps {
            steps.push(step());
        }
    });
}

/// Creates missing parents too. An existing directory must belong to this user.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.is_dir()).collect();
    if missing.is_empty() {
        return Ok(open::check_directory(path, Rule::Own)?);
    }
    for directory in missing.into_iter().rev() {
        DirBuilder::new().mode(DIRECTORY_MODE).create(directory)?;
        record(|| DiskStep::MakeDirectory(directory.to_owned()));
        sync_parent(directory)?;
    }
    Ok(())
}

/// The name is not durable until the directory is synced.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE);
    let (mut file, _) = open::open_with(&mut options, path, Rule::Own)?;
    file.set_len(0)?;
    record(|| DiskStep::Write(path.to_owned(), bytes.to_vec()));
    file.write_all(bytes)?;
    file.sync_all()?;
    record(|| DiskStep::SyncFile(path.to_owned()));
    Ok(())
}

/// Syncs the directory that contains the new name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    record(|| DiskStep::Rename(from.to_owned(), to.to_owned()));
    sync_parent(to)
}

/// Does not sync the parent directory.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)?;
    record(|| DiskStep::Remove(path.to_owned()));
    Ok(())
}

/// Makes created, renamed and removed names in the directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    record(|| DiskStep::SyncDirectory(path.to_owned()));
    Ok(())
}

/// Replaces the file's content atomically. Writes to a file with the suffix `.new` first.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut staged = path.as_os_str().to_owned();
    staged.push(".new");
    let staged = PathBuf::from(staged);
    write_file(&staged, bytes)?;
    rename(&staged, path)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_directory(Path::new(".")),
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}
