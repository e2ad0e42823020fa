//! Reads and clears the shared memory flag that marks a hot restart in progress.
//!
//! If a takeover fails, the INITIALIZING bit remains set, and every later hot restart fails. Clear
//! it only if no restart is in progress. Never write to shared memory with an unknown layout.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use sesame_files::open::{self, Rule};

use super::lineage::{Lineage, SHARED_MEMORY};
use sesame_host::PathError;

/// Size in bytes of the only supported layout: size, version, two mutexes, flags.
const SIZE: u64 = 104;
const VERSION: u64 = 11;
const FLAGS_AT: u64 = 96;
const INITIALIZING: u64 = 1;

/// Error while accessing Envoy's shared memory.
#[derive(Debug, thiserror::Error)]
pub enum SharedMemoryError {
    /// I/O error, including a full or missing `/dev/shm`.
    #[error(transparent)]
    Io(#[from] PathError),
    /// Missing base ID, without which the file's path is unknown.
    #[error("the base id of the running Envoy is unknown")]
    Unknown,
    /// File that belongs to another user.
    #[error("{path}: belongs to user {owner}, but this agent runs as {user}")]
    Owner {
        /// Path of the file.
        path: String,
        /// User ID of the file's owner.
        owner: u32,
        /// User ID of this agent.
        user: u32,
    },
    /// File with an unknown layout, which must not be changed.
    #[error("{path}: unknown size {size} and version {version} (expected {SIZE} and {VERSION})")]
    Layout {
        /// Path of the file.
        path: String,
        /// Size in bytes, as stated in the file.
        size: u64,
        /// Version of the layout, as stated in the file.
        version: u64,
    },
}

pub(crate) fn is_initializing(line: Lineage) -> Result<bool, SharedMemoryError> {
    Ok(flags(&path(line)?, false)? & INITIALIZING != 0)
}

/// Never call this while a second Envoy is running.
pub(crate) fn repair(line: Lineage) -> Result<(), SharedMemoryError> {
    let path = path(line)?;
    let left = flags(&path, true)? & !INITIALIZING;
    let written = open::open_with(OpenOptions::new().write(true), &path, Rule::Own)
        .map_err(io::Error::from)
        .and_then(|(file, _)| file.write_all_at(&left.to_ne_bytes(), FLAGS_AT));
    Ok(written.map_err(PathError::at(&path))?)
}

/// Tests with an unnamed file whether Envoy could allocate its shared memory. Envoy crashes if it
/// can create the shared memory but not fill it.
pub fn is_usable() -> Result<(), SharedMemoryError> {
    let made = rustix::fs::open(SHARED_MEMORY, OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR);
    let filled = made
        .and_then(|file| fallocate(file, FallocateFlags::empty(), 0, SIZE))
        .map_err(io::Error::from);
    Ok(filled.map_err(PathError::at(Path::new(SHARED_MEMORY)))?)
}

fn path(line: Lineage) -> Result<PathBuf, SharedMemoryError> {
    line.shared_memory().ok_or(SharedMemoryError::Unknown)
}

fn flags(path: &Path, write: bool) -> Result<u64, SharedMemoryError> {
    // Use `open_with`, because any user may have created a file or link in this directory.
    let opened = open::open_with(OpenOptions::new().read(true).write(write), path, Rule::Own);
    let (file, meta) = opened
        .map_err(io::Error::from)
        .map_err(PathError::at(path))?;
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user {
        return Err(SharedMemoryError::Owner {
            path: path.display().to_string(),
            owner: meta.uid(),
            user,
        });
    }
    let mut word = [0; 8];
    let mut read = |offset| {
        file.read_exact_at(&mut word, offset)
            .map(|()| u64::from_ne_bytes(word))
            .map_err(PathError::at(path))
    };
    let (size, version) = (read(0)?, read(8)?);
    if meta.len() != SIZE || size != SIZE || version != VERSION {
        return Err(SharedMemoryError::Layout {
            path: path.display().to_string(),
            size,
            version,
        });
    }
    Ok(read(FLAGS_AT)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn image(version: u64, flags: u64) -> Vec<u8> {
        let mut bytes = vec![0; 104];
        bytes[..8].copy_from_slice(&SIZE.to_ne_bytes());
        bytes[8..16].copy_from_slice(&version.to_ne_bytes());
        bytes[96..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn repair_clears_only_flag_and_skips_unknown_layouts() {
        // Larger than any base ID that Envoy chooses.
        let line = Lineage {
            base_id: Some(300_000_000 + std::process::id()),
            epoch: 0,
        };
        let path = path(line).unwrap();
        assert!(
            is_initializing(line).is_err(),
            "the file does not exist yet"
        );
        fs::write(&path, image(VERSION, 3)).unwrap();
        assert!(is_initializing(line).unwrap());
        repair(line).unwrap();
        assert!(!is_initializing(line).unwrap());
        let image_now = fs::read(&path).unwrap();
        assert_eq!(image_now, image(VERSION, 2), "nothing else is changed");
        fs::write(&path, image(VERSION + 1, 1)).unwrap();
        assert!(repair(line).is_err());
        assert_eq!(fs::read(&path).unwrap(), image(VERSION + 1, 1));
        line.remove(Path::new(""));
        assert!(!path.exists());
        let unknown = Lineage {
            base_id: None,
            epoch: 0,
        };
        assert!(matches!(repair(unknown), Err(SharedMemoryError::Unknown)));
        is_usable().unwrap();
    }
}
