//! One Gateway's log files, and the symbolic link through which Envoy opens the current file.
//!
//! Never follow another user's link, and never make a log readable outside its group.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sesame_files::open::{self, Rule};

use super::ACCESS_LOG;
use super::plan::LogFacts;
use sesame_host::{create_directory, entries, remove_if_exists};

pub(super) const DEV_NULL: &str = "/dev/null";
/// Mode of log files, readable by the file's group for log collectors.
const LOG_MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;

#[derive(Clone, Debug)]
pub(super) struct LogDirectory {
    directory: PathBuf,
    link: PathBuf,
}

impl LogDirectory {
    pub(super) fn new(directory: PathBuf, link: PathBuf) -> Self {
        Self { directory, link }
    }

    pub(super) fn current(&self) -> PathBuf {
        self.directory.join(ACCESS_LOG)
    }

    /// Fails if this user cannot append to the file.
    pub(super) fn prepare(&self) -> io::Result<()> {
        for directory in self
            .directory
            .parent()
            .into_iter()
            .chain([&*self.directory])
        {
            if fs::symlink_metadata(directory).is_err() {
                create_directory(directory)?;
                fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))?;
            }
        }
        // Anyone who can write to these directories could replace a log file with a link.
        if let Some(all) = self.directory.parent() {
            open::check_directory(all, Rule::Named)?;
        }
        open::check_directory(&self.directory, Rule::Own)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(LOG_MODE);
        let (file, _) = open::open_with(&mut options, &self.current(), Rule::Own)?;
        // Set the mode explicitly, because the umask may have cleared bits at creation.
        file.set_permissions(Permissions::from_mode(LOG_MODE))
    }

    /// Returns true if the target changed.
    pub(super) fn lead(&self, to_file: bool) -> io::Result<bool> {
        let current = self.current();
        let target = if to_file {
            &current
        } else {
            Path::new(DEV_NULL)
        };
        if fs::read_link(&self.link).is_ok_and(|before| before == target) {
            return Ok(false);
        }
        let staged = self.link.with_extension("new");
        remove_if_exists(&staged)?;
        symlink(target, &staged)?;
        fs::rename(&staged, &self.link)?;
        Ok(true)
    }

    pub(super) fn leads_to_file(&self) -> bool {
        fs::read_link(&self.link).is_ok_and(|target| target == self.current())
    }

    pub(super) fn facts(&self) -> io::Result<LogFacts> {
        let current = fs::symlink_metadata(self.current())?;
        // Some file systems do not record creation times.
        let begun = current.created().unwrap_or_else(|_| SystemTime::now());
        let disk = rustix::fs::statvfs(&self.directory)?;
        Ok(LogFacts {
            // The elapsed time is negative if the clock was set back.
            current: (current.len(), begun.elapsed().unwrap_or(Duration::ZERO)),
            older: self.older()?,
            written: self.leads_to_file(),
            disk: (
                disk.f_bavail.saturating_mul(disk.f_frsize),
                disk.f_blocks.saturating_mul(disk.f_frsize),
            ),
        })
    }

    /// Returns the number and size in bytes of each older file, oldest first.
    fn older(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut older = Vec::new();
        for path in entries(&self.directory)? {
            if let Some(number) = number_of(&path) {
                older.push((number, fs::symlink_metadata(&path)?.len()));
            }
        }
        older.sort_unstable();
        Ok(older)
    }

    /// Envoy keeps writing to the renamed file.
    pub(super) fn rotate(&self) -> io::Result<()> {
        let last = self.older()?.last().map_or(0, |(number, _)| *number);
        fs::rename(self.current(), self.numbered(last.saturating_add(1)))?;
        self.prepare()
    }

    pub(super) fn remove(&self, number: u64) -> io::Result<()> {
        remove_if_exists(&self.numbered(number))
    }

    fn numbered(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{ACCESS_LOG}.{number}"))
    }

    pub(super) fn files_beside(current: &Path) -> io::Result<Vec<PathBuf>> {
        let directory = current.parent().unwrap_or(Path::new("/"));
        let mut older: Vec<(u64, PathBuf)> = entries(directory)?
            .into_iter()
            .filter_map(|path| Some((number_of(&path)?, path)))
            .collect();
        older.sort_unstable();
        let older = older.into_iter().map(|(_, path)| path);
        Ok(older.chain([current.to_owned()]).collect())
    }
}

/// Fails if the file does not belong to this user, unless this user is root.
pub(super) fn open_log(path: &Path) -> io::Result<File> {
    Ok(open::open(path, sesame_host::written_by_agent())?.0)
}

fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(ACCESS_LOG)?
        .strip_prefix('.')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (tempfile::TempDir, LogDirectory) {
        let root = tempfile::tempdir().unwrap();
        let log = LogDirectory::new(root.path().join("logs/gateway"), root.path().join("link"));
        (root, log)
    }

    #[test]
    fn log_files_are_numbered_in_order_and_private() {
        let (_root, log) = log();
        log.prepare().unwrap();
        for text in ["first", "second"] {
            fs::write(log.current(), text).unwrap();
            log.rotate().unwrap();
        }
        let files = LogDirectory::files_beside(&log.current()).unwrap();
        let texts: Vec<String> = files
            .iter()
            .map(|file| fs::read_to_string(file).unwrap())
            .collect();
        assert_eq!(texts, ["first", "second", ""]);
        for file in &files {
            let mode = fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777 & !LOG_MODE, 0, "{mode:o}");
        }
        log.remove(1).unwrap();
        log.rotate().unwrap();
        assert_eq!(log.facts().unwrap().older, [(2, 6), (3, 0)]);
    }

    #[test]
    fn link_points_to_log_file_or_dev_null() {
        let (root, log) = log();
        log.prepare().unwrap();
        assert!(log.lead(true).unwrap());
        assert!(!log.lead(true).unwrap());
        fs::write(root.path().join("link"), "line").unwrap();
        assert_eq!(fs::read_to_string(log.current()).unwrap(), "line");
        assert!(log.lead(false).unwrap());
        fs::write(root.path().join("link"), "lost").unwrap();
        assert_eq!(fs::read_to_string(log.current()).unwrap(), "line");
        assert!(!log.facts().unwrap().written);
    }

    #[test]
    fn prepare_refuses_symlink_in_place_of_log() {
        let (root, log) = log();
        log.prepare().unwrap();
        let other = root.path().join("other");
        fs::write(&other, "").unwrap();
        fs::remove_file(log.current()).unwrap();
        symlink(&other, log.current()).unwrap();
        assert!(log.prepare().is_err());
    }
}
