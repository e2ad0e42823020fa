//! Shared memory of a line of Envoys, as far as a supervisor must understand it.
//!
//! A second Envoy sets the INITIALIZING bit when it attaches and clears it when it has taken over. One that
//! fails in between leaves it set, and Envoy then refuses every later hot restart. Whoever knows that no restart is
//! under way may clear it. A layout that is not the known one is never written to.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use sesame_files::open::{self, Rule};

use super::lineage::Lineage;
use crate::host::PathError;

/// Layout that is known: size, version, two mutexes, flags.
const SIZE: u64 = 104;
const VERSION: u64 = 11;
const FLAGS_AT: u64 = 96;
const INITIALIZING: u64 = 1;

/// Fault of the shared memory of a line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SharedMemoryError {
    /// File that does not exist, or cannot be opened.
    #[error(transparent)]
    Io(#[from] PathError),
    /// File that belongs to another user.
    #[error("{path}: belongs to user {owner}, and this agent runs as {user}")]
    Owner {
        /// Path of the file.
        path: String,
        /// User who owns it.
        owner: u32,
        /// User as whom this agent runs.
        user: u32,
    },
    /// File with another layout.
    #[error(
        "{path}: size {size} and version {version} are not known (expected {SIZE} and {VERSION})"
    )]
    Layout {
        /// Path of the file.
        path: String,
        /// Size in bytes.
        size: u64,
        /// Version in the file.
        version: u64,
    },
}

/// Tells whether a restart is under way, or was interrupted.
pub(crate) fn is_initializing(line: Lineage) -> Result<bool, SharedMemoryError> {
    Ok(flags(&line.shared_memory(), false)? & INITIALIZING != 0)
}

/// Clears the mark that an interrupted restart left. No second Envoy may run.
pub(crate) fn repair(line: Lineage) -> Result<(), SharedMemoryError> {
    let path = line.shared_memory();
    let left = flags(&path, true)? & !INITIALIZING;
    let written = open::open_with(OpenOptions::new().write(true), &path, Rule::Own)
        .map_err(io::Error::from)
        .and_then(|(file, _)| file.write_all_at(&left.to_ne_bytes(), FLAGS_AT));
    Ok(written.map_err(PathError::at(&path))?)
}

/// Checks that a new line could be made.
pub(crate) fn is_usable() -> Result<(), SharedMemoryError> {
    let path = Lineage::fresh().shared_memory();
    let made = OpenOptions::new().write(true).create_new(true).open(&path);
    let removed = made.and_then(|_| fs::remove_file(&path));
    Ok(removed.map_err(PathError::at(&path))?)
}

fn flags(path: &Path, write: bool) -> Result<u64, SharedMemoryError> {
    // Anybody may make a file, or a link, in this directory.
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
    use super::*;

    fn image(version: u64, flags: u64) -> Vec<u8> {
        let mut bytes = vec![0; 104];
        bytes[..8].copy_from_slice(&SIZE.to_ne_bytes());
        bytes[8..16].copy_from_slice(&version.to_ne_bytes());
        bytes[96..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn the_bit_is_cleared_and_an_unknown_layout_is_left_alone() {
        let line = Lineage::fresh();
        assert!(is_initializing(line).is_err(), "there is none yet");
        fs::write(line.shared_memory(), image(VERSION, 3)).unwrap();
        assert!(is_initializing(line).unwrap());
        repair(line).unwrap();
        assert!(!is_initializing(line).unwrap());
        assert_eq!(
            fs::read(line.shared_memory()).unwrap(),
            image(VERSION, 2),
            "nothing else is touched"
        );
        fs::write(line.shared_memory(), image(VERSION + 1, 1)).unwrap();
        assert!(repair(line).is_err());
        assert_eq!(
            fs::read(line.shared_memory()).unwrap(),
            image(VERSION + 1, 1)
        );
        line.remove(Path::new(""));
        assert!(!line.shared_memory().exists());
    }
}
