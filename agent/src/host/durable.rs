//! Durable writes: after a power cut, a file has either its old or its new content.
//!
//! Unless documented otherwise, each function returns only after its changes are on disk. Tests
//! record each step to simulate power cuts.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sesame_files::open::{self, Rule};

use super::files::{DIRECTORY_MODE, FILE_MODE};

/// A write survives a power cut only after its file is synced. A new, renamed or removed name
/// survives only after its directory is synced.
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
    pub(crate) static STEPS: std::cell::RefCell<Vec<DiskStep>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(test)]
fn record(step: DiskStep) {
    STEPS.with_borrow_mut(|steps| steps.push(step));
}

/// Creates missing parents too. An existing directory must belong to this user.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.is_dir()).collect();
    if missing.is_empty() {
        return Ok(open::check_directory(path, Rule::Own)?);
    }
    for directory in missing.into_iter().rev() {
        DirBuilder::new().mode(DIRECTORY_MODE).create(directory)?;
        #[cfg(test)]
        record(DiskStep::MakeDirectory(directory.to_owned()));
        sync_parent(directory)?;
    }
    Ok(())
}

/// The name is not durable until the directory is synced.
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
    record(DiskStep::Write(path.to_owned(), bytes.to_vec()));
    file.write_all(bytes)?;
    file.sync_all()?;
    #[cfg(test)]
    record(DiskStep::SyncFile(path.to_owned()));
    Ok(())
}

/// Syncs the directory that contains the new name.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    #[cfg(test)]
    record(DiskStep::Rename(from.to_owned(), to.to_owned()));
    sync_parent(to)
}

/// Does not sync the parent directory.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)?;
    #[cfg(test)]
    record(DiskStep::Remove(path.to_owned()));
    Ok(())
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    #[cfg(test)]
    record(DiskStep::SyncDirectory(path.to_owned()));
    Ok(())
}

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
