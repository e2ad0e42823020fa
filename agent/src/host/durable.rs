//! Durable writes: after a power cut, a file has either its old or its new content. Unless
//! documented otherwise, a write is on disk when its function returns.
//!
//! Tests record each step, so that they can simulate a power cut between any two steps.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sesame_files::open::{self, Rule};

use super::files::{DIRECTORY_MODE, FILE_MODE};

/// One step of a write, as it reaches the disk. A step is certain to survive a power cut only if
/// its file or directory is synced afterwards.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskStep {
    MakeDirectory(PathBuf),
    Write(PathBuf, Vec<u8>),
    SyncFile(PathBuf),
    SyncDirectory(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[cfg(test)]
thread_local! {
    /// Steps recorded by this thread.
    pub(crate) static STEPS: std::cell::RefCell<Vec<DiskStep>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(test)]
fn note(step: DiskStep) {
    STEPS.with_borrow_mut(|steps| steps.push(step));
}

/// Creates a directory with mode 0700, and any missing parents.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.is_dir()).collect();
    if missing.is_empty() {
        return Ok(open::check_directory(path, Rule::Own)?);
    }
    for directory in missing.into_iter().rev() {
        DirBuilder::new().mode(DIRECTORY_MODE).create(directory)?;
        #[cfg(test)]
        note(DiskStep::MakeDirectory(directory.to_owned()));
        sync_parent(directory)?;
    }
    Ok(())
}

/// Writes and syncs a file that only this user can read. The file name becomes durable only when
/// the directory is synced.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE);
    let (mut file, _) = open::open_with(&mut options, path, Rule::Own)?;
    file.set_len(0)?;
    #[cfg(test)]
    note(DiskStep::Write(path.to_owned(), bytes.to_vec()));
    file.write_all(bytes)?;
    file.sync_all()?;
    #[cfg(test)]
    note(DiskStep::SyncFile(path.to_owned()));
    Ok(())
}

/// Renames a file within a directory and syncs the directory.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    #[cfg(test)]
    note(DiskStep::Rename(from.to_owned(), to.to_owned()));
    sync_parent(to)
}

/// Removes a directory with all its content. Does not sync the parent directory.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)?;
    #[cfg(test)]
    note(DiskStep::Remove(path.to_owned()));
    Ok(())
}

/// Syncs a directory, which makes the names in it durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    #[cfg(test)]
    note(DiskStep::SyncDirectory(path.to_owned()));
    Ok(())
}

/// Atomically creates or replaces a small file. After a crash, either the old or the new file
/// exists.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
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
