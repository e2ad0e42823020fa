//! Writes private files that other processes may be reading. Use `durable` for writes that must
//! survive a power cut.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sesame_files::open::{self, Rule};

/// Mode of directories. Envoy runs as the same user, so no other user needs access.
pub(super) const DIRECTORY_MODE: u32 = 0o700;
/// Mode of files. Even listener and cluster files are private, because they may contain inline
/// keys.
pub(super) const FILE_MODE: u32 = 0o600;

/// Files must belong to this user, unless this user is root.
pub fn written_by_agent() -> Rule {
    if rustix::process::geteuid().is_root() {
        Rule::Given
    } else {
        Rule::Own
    }
}

/// Creates missing parents too. An existing directory must belong to this user.
pub fn create_directory(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(open::check_directory(path, Rule::Own)?);
    }
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
}

/// Does nothing if the new owner already owns the directory.
pub fn give_directory(path: &Path, user: u32, group: u32) -> io::Result<()> {
    // Open the directory first, because an unprivileged user could not open it afterwards.
    let meta = fs::symlink_metadata(path)?;
    if meta.is_dir() && meta.uid() == user {
        return Ok(());
    }
    open::check_directory(path, Rule::Own)?;
    let no_link = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(no_link.bits().cast_signed())
        .open(path)?;
    directory.set_permissions(fs::Permissions::from_mode(DIRECTORY_MODE))?;
    std::os::unix::fs::fchown(&directory, Some(user), Some(group))
}

/// Concurrent readers may see a partial file.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    remove_if_exists(path)?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?
        .write_all(bytes)
}

/// Both paths must be on the same file system.
pub fn replace_file(path: &Path, staged: &Path, bytes: &[u8]) -> io::Result<()> {
    write_file(staged, bytes)?;
    fs::rename(staged, path)
}

/// `TMPFS_MAGIC` and `RAMFS_MAGIC`.
const IN_MEMORY: [i128; 2] = [0x0102_1994, 0x8584_58f6];

/// Returns true for tmpfs and ramfs, or false if the file system cannot be determined.
pub fn is_in_memory(directory: &Path) -> bool {
    let kind = rustix::fs::statfs(directory).map_or(0, |stat| i128::from(stat.f_type));
    IN_MEMORY.contains(&kind)
}

/// Removes the file. A missing file is not an error.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    gone(fs::remove_file(path))
}

/// Removes the directory and its content. A missing directory is not an error.
pub fn remove_directory_if_exists(path: &Path) -> io::Result<()> {
    gone(fs::remove_dir_all(path))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Returns the entries sorted by name, or none if the directory is missing.
pub fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let listing = match fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = listing
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
