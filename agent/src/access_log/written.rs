//! Keeps a handle to the file that Envoy writes to. Envoy keeps writing to that file even if
//! another program renames or deletes it, so the handle can recover lines from a deleted file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sesame_files::open::{self, Rule};

/// The current log file at the time of a check.
#[derive(Debug)]
pub(super) struct WrittenFile {
    file: File,
    /// Device and inode number of the file.
    id: (u64, u64),
    bytes: u64,
}

impl WrittenFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (file, meta) = open::open(path, Rule::Own)?;
        Ok(Self {
            file,
            id: (meta.dev(), meta.ino()),
            bytes: meta.len(),
        })
    }

    /// Returns true if both checks found the same file.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Returns true if the file has been deleted since it was opened.
    pub(super) fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    /// Appends to the file at `path` the bytes written to this file since it was opened. Copies at
    /// most `most` bytes.
    pub(super) fn rescue(mut self, path: &Path, most: u64) -> io::Result<u64> {
        let (mut into, _) = open::open_with(OpenOptions::new().append(true), path, Rule::Own)?;
        self.file.seek(SeekFrom::Start(self.bytes))?;
        io::copy(&mut self.file.take(most), &mut into)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn deleted_file_gives_its_new_lines_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        fs::write(&path, "old\n").unwrap();
        let before = WrittenFile::open(&path).unwrap();
        let mut envoy = OpenOptions::new().append(true).open(&path).unwrap();
        assert!(before.is(&WrittenFile::open(&path).unwrap()) && !before.is_deleted());

        fs::rename(&path, directory.path().join("mine")).unwrap();
        fs::write(&path, "").unwrap();
        assert!(!before.is(&WrittenFile::open(&path).unwrap()) && !before.is_deleted());

        fs::remove_file(directory.path().join("mine")).unwrap();
        envoy.write_all(b"new\n").unwrap();
        assert!(before.is_deleted());
        assert_eq!(before.rescue(&path, 100).unwrap(), 4);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
    }
}
