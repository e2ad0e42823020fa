//! Directory lock that lets only one agent control each Envoy.
//!
//! The kernel releases the lock (`flock`) when the process exits. Envoy does not inherit it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use sesame_files::open::{self, Rule};

use super::{PathError, create_directory};

/// How long to wait for the lock. If an agent is killed while forking, its child may briefly hold
/// the lock.
const LOCK_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Why a directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent is using the directory.
    #[error("{directory} is in use by another agent (process {holder}); stop it first or use another directory", directory = .directory.display())]
    Held {
        /// The locked directory.
        directory: PathBuf,
        /// Process ID in the lock file, or `unknown`.
        holder: String,
    },
    /// The directory or its lock file is inaccessible.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// Lock on a directory, held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Locks a directory. Fails immediately if the holder is alive.
    pub fn acquire(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join("agent.lock");
        let at = || PathError::at(&path);
        create_directory(directory).map_err(at())?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let opened = open::open_with(options.mode(0o600), &path, Rule::Own);
        let (mut file, _) = opened.map_err(io::Error::from).map_err(at())?;
        let begun = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let holder = holder(&path);
                    if lives(&holder) || begun.elapsed() > LOCK_RELEASE_TIMEOUT {
                        return Err(LockError::Held {
                            directory: directory.to_owned(),
                            holder,
                        });
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(at()(error.into()).into()),
            }
        }
        file.set_len(0).map_err(at())?;
        writeln!(file, "{}", std::process::id()).map_err(at())?;
        Ok(Self { _file: file })
    }
}

fn holder(path: &Path) -> String {
    match open::read_text(path, Rule::Own, 32) {
        Ok(text) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// A holder with an unknown process ID counts as alive.
fn lives(holder: &str) -> bool {
    let Ok(process) = holder.parse::<u32>() else {
        return true;
    };
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    !std::fs::metadata(format!("/proc/{process}")).is_err_and(|error| gone(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_agent_is_refused_with_holder_process() {
        let directory = tempfile::tempdir().unwrap();
        let first = Lock::acquire(directory.path()).unwrap();
        let error = Lock::acquire(directory.path()).unwrap_err().to_string();
        let own = format!("(process {})", std::process::id());
        assert!(error.contains(&own), "{error}");
        drop(first);
        // Another test's forked child may hold a copy of the lock's descriptor until `execve`.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while let Err(error) = Lock::acquire(directory.path()) {
            assert!(std::time::Instant::now() < deadline, "{error}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn lock_inherited_from_dead_agent_is_awaited() {
        let directory = tempfile::tempdir().unwrap();
        let inherited = Lock::acquire(directory.path()).unwrap();
        // No process has this PID.
        std::fs::write(directory.path().join("agent.lock"), "4194305\n").unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Lock::acquire(directory.path()));
            drop(inherited);
            waiting.join().unwrap().unwrap();
        });
    }
}
