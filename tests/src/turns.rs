//! Limits the number of concurrent agents under test on this machine. Envoy needs one inotify
//! instance per watched file, and the kernel allows 128 per user by default.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of inotify instances that an agent and its Envoy processes use.
const INSTANCES_PER_AGENT: usize = 128;

/// Shared by all users, because a test in a user namespace does not know its real user.
const DIRECTORY: &str = "/tmp/sesame-tests-turns";

static ALONE: Mutex<()> = Mutex::new(());

/// Permission to run an agent, until dropped or the process exits.
pub(crate) struct Turn {
    _lock: File,
    _alone: MutexGuard<'static, ()>,
}

impl Turn {
    /// Waits for a turn, in the order of arrival.
    pub(crate) fn acquire() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = Path::new(DIRECTORY);
        if std::fs::create_dir(directory).is_ok() {
            let all = Permissions::from_mode(0o1777);
            std::fs::set_permissions(directory, all).expect("our own directory");
        }
        let queue = open(&directory.join("queue"));
        queue.lock().expect("a lock on a file of /tmp");
        loop {
            if let Some(lock) = free(directory, turns()) {
                return Self {
                    _lock: lock,
                    _alone: alone,
                };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns `None` if all turns are taken.
fn free(directory: &Path, turns: usize) -> Option<File> {
    (0..turns).find_map(|turn| {
        let lock = open(&directory.join(format!("turn-{turn}")));
        lock.try_lock().is_ok().then_some(lock)
    })
}

fn turns() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances");
    let limit = limit.ok().and_then(|text| text.trim().parse().ok());
    (limit.unwrap_or(INSTANCES_PER_AGENT) / INSTANCES_PER_AGENT).max(1)
}

fn open(path: &Path) -> File {
    File::open(path)
        .or_else(|_| OpenOptions::new().create(true).append(true).open(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn turns_are_as_many_as_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let free = || super::free(directory.path(), 2);
        let first = free();
        let second = free();
        assert!(first.is_some() && second.is_some());
        assert!(free().is_none());
        drop(first);
        assert!(free().is_some());
    }
}
