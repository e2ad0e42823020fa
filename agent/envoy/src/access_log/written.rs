//! Keeps a handle to Envoy's log file, to recover lines after another program deletes it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sesame_files::open::{self, Rule};

#[derive(Debug)]
pub(super) struct WrittenFile {
    file: File,
    /// Device and inode number.
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

    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    /// Appends to the file at `path` what Envoy has written since this file was opened.
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
