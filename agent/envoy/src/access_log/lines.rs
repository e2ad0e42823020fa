//! Reads a log's existing and new lines while Envoy is writing to the log.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::ACCESS_LOG;
use super::directory::{DEV_NULL, LogDirectory, open_log};

/// Maximum line length in bytes. Longer lines are split. Envoy truncates client-controlled fields,
/// so real lines are far shorter.
const MAX_BYTES: u64 = 1 << 20;
/// Time after a rotation during which Envoy may still write to the old file.
const LATE: Duration = Duration::from_secs(3);

/// Returns `None` if logging to files is off.
pub fn current_of(runtime: &Path) -> Option<PathBuf> {
    let target = fs::read_link(runtime.join(ACCESS_LOG)).ok()?;
    (target != Path::new(DEV_NULL)).then_some(target)
}

/// Reads a log's lines across rotations, from the oldest file to the current one.
#[derive(Debug)]
pub struct LogReader {
    current: PathBuf,
    /// Files still to be opened, oldest first. The current file comes last.
    files: VecDeque<PathBuf>,
    open: Option<OpenLog>,
}

#[derive(Debug)]
struct OpenLog {
    reader: BufReader<File>,
    /// Device and inode number.
    id: (u64, u64),
    /// Last line, if Envoy has not completed it yet.
    begun: Vec<u8>,
    /// When the reader noticed the rotation.
    aside: Option<Instant>,
}

impl LogReader {
    /// Lists the log's files without opening them. Fails if the directory is unreadable.
    pub fn open(current: &Path) -> io::Result<Self> {
        Ok(Self {
            current: current.to_owned(),
            files: LogDirectory::files_beside(current)?.into(),
            open: None,
        })
    }

    /// Skips older files that were last modified before `since`.
    pub fn open_since(current: &Path, since: SystemTime) -> io::Result<Self> {
        let mut log = Self::open(current)?;
        log.files.retain(|file| {
            let written = fs::symlink_metadata(file).and_then(|meta| meta.modified());
            file == current || written.is_ok_and(|written| written >= since)
        });
        Ok(log)
    }

    /// Returns the next complete line, or `None` until Envoy writes another.
    pub fn next_line(&mut self) -> io::Result<Option<String>> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(path) = self.files.pop_front() else {
                    return Ok(None);
                };
                match OpenLog::open(&path) {
                    Ok(open) => self.open = Some(open),
                    // The rotator removed the file after this reader listed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
                continue;
            };
            if let Some(line) = open.next_line()? {
                return Ok(Some(line));
            }
            if self.files.is_empty() {
                if !open.is_over(&self.current) {
                    return Ok(None);
                }
                self.files.push_back(self.current.clone());
            }
            self.open = None;
        }
    }
}

impl OpenLog {
    fn open(path: &Path) -> io::Result<Self> {
        let file = open_log(path)?;
        let meta = file.metadata()?;
        Ok(Self {
            reader: BufReader::new(file),
            id: (meta.dev(), meta.ino()),
            begun: Vec::new(),
            aside: None,
        })
    }

    fn next_line(&mut self) -> io::Result<Option<String>> {
        let room = MAX_BYTES.saturating_sub(self.begun.len() as u64);
        (&mut self.reader)
            .take(room)
            .read_until(b'\n', &mut self.begun)?;
        let is_whole = self.begun.last() == Some(&b'\n');
        if !is_whole && (self.begun.len() as u64) < MAX_BYTES {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.begun);
        Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
    }

    fn is_over(&mut self, current: &Path) -> bool {
        let same = fs::symlink_metadata(current).is_ok_and(|now| (now.dev(), now.ino()) == self.id);
        if same {
            return false;
        }
        let aside = self.aside.get_or_insert_with(Instant::now);
        aside.elapsed() >= LATE
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn reader_returns_whole_lines_oldest_file_first() {
        let root = tempfile::tempdir().unwrap();
        let current = root.path().join(ACCESS_LOG);
        for (name, text) in [(".9", "1\n2\n"), (".10", "3\ncut"), ("", "4\n5")] {
            fs::write(root.path().join(format!("{ACCESS_LOG}{name}")), text).unwrap();
        }
        let mut log = LogReader::open(&current).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = log.next_line().unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["1", "2", "3", "4"]);
        let mut file = fs::OpenOptions::new().append(true).open(&current).unwrap();
        file.write_all(b"5\n").unwrap();
        assert_eq!(log.next_line().unwrap().as_deref(), Some("55"));
        assert_eq!(log.next_line().unwrap(), None);
    }
}
