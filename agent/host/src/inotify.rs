//! Budget for inotify instances, which determines how many files Envoy may watch.
//!
//! Envoy uses one instance per watched file, and aborts if it would exceed the user's limit.
//! Compute the budget before rendering any file.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::reserve::SPARE;

const RESERVE: usize = 16;
/// The kernel's default limit on instances per user.
const DEFAULT_LIMIT: usize = 128;

/// Limit on inotify instances, and how many are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The smaller of `fs.inotify.max_user_instances` and `user.max_inotify_instances`.
    pub limit: usize,
    /// Instances held by this user's other visible processes.
    pub others: usize,
    /// Instances held by this agent's Envoy processes.
    pub own: usize,
    /// Placeholder instances for the next Envoy processes.
    pub held: usize,
}

impl Budget {
    /// Counts the instances in use. `own_envoys` contains process IDs.
    pub fn read(own_envoys: &[u32]) -> Self {
        Self::of(rustix::process::geteuid().as_raw(), own_envoys, None)
    }

    /// Requires root if `user` is another user. Counts the placeholders of process `agent` only in
    /// `held`.
    pub fn of(user: u32, own_envoys: &[u32], agent: Option<u32>) -> Self {
        let limit = |path| -> Option<usize> { fs::read_to_string(path).ok()?.trim().parse().ok() };
        let held = agent.map_or(0, placeholders_of);
        Self {
            // The kernel enforces both a limit per user and a limit per user namespace.
            limit: limit("/proc/sys/fs/inotify/max_user_instances")
                .unwrap_or(DEFAULT_LIMIT)
                .min(limit("/proc/sys/user/max_inotify_instances").unwrap_or(usize::MAX)),
            others: used_by_others(Path::new("/proc"), user, own_envoys).saturating_sub(held),
            own: own_envoys.iter().map(|pid| watched_by(*pid)).sum(),
            held,
        }
    }

    /// Like [`Self::subscriptions`], but assumes that other processes release all their instances.
    pub fn most(self, envoys: usize) -> usize {
        Self { others: 0, ..self }.subscriptions(envoys)
    }

    /// Returns how many subscriptions each of `envoys` processes may open. An Envoy that is being
    /// replaced counts twice. Never returns less than current use, because an agent that starts
    /// while few instances are free must not change listeners.
    pub fn subscriptions(self, envoys: usize) -> usize {
        let free = self.limit.saturating_sub(self.others);
        // If few instances are free, leave fewer for other processes, because listeners take
        // precedence.
        let fair = free.saturating_sub(RESERVE.min(free / 4 + SPARE)) / envoys.max(1);
        fair.max(self.own)
    }
}

fn used_by_others(proc: &Path, user: u32, own_envoys: &[u32]) -> usize {
    let Ok(processes) = fs::read_dir(proc) else {
        return 0;
    };
    processes
        .flatten()
        .filter(|process| {
            let pid: Option<u32> = process.file_name().to_str().and_then(|n| n.parse().ok());
            pid.is_some_and(|pid| !own_envoys.contains(&pid))
                && process.metadata().is_ok_and(|meta| meta.uid() == user)
        })
        .map(|process| instances(&process.path().join("fd")))
        .sum()
}

pub(crate) fn room() -> usize {
    let Budget { limit, others, .. } = Budget::read(&[]);
    limit.saturating_sub(others + RESERVE)
}

/// Returns how many inotify instances a process has, or zero if unreadable. Envoy has one per
/// watched file.
pub fn watched_by(pid: u32) -> usize {
    instances(Path::new(&format!("/proc/{pid}/fd")))
}

fn placeholders_of(pid: u32) -> usize {
    let process = PathBuf::from(format!("/proc/{pid}"));
    descriptors(&process.join("fd"))
        .filter(|descriptor| watches_nothing(&process.join("fdinfo").join(descriptor)))
        .count()
}

/// `facts` is the `fdinfo` file of an inotify instance.
fn watches_nothing(facts: &Path) -> bool {
    fs::read_to_string(facts).is_ok_and(|facts| !facts.contains("inotify wd:"))
}

fn instances(directory: &Path) -> usize {
    descriptors(directory).count()
}

fn descriptors(directory: &Path) -> impl Iterator<Item = OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|descriptor| {
            fs::read_link(descriptor.path())
                .is_ok_and(|target| target.as_os_str() == "anon_inode:inotify")
        })
        .map(|descriptor| descriptor.file_name())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::inotify;

    use super::*;

    #[test]
    fn subscriptions_exclude_others_and_reserve_without_underflow() {
        let budget = Budget {
            limit: 128,
            others: 12,
            own: 0,
            held: 0,
        };
        assert_eq!(budget.subscriptions(1), 100);
        assert_eq!(budget.subscriptions(2), 50);
        let full = Budget {
            limit: 20,
            others: 10,
            ..budget
        };
        assert_eq!(full.subscriptions(1), 6);
        let none = Budget {
            limit: 10,
            others: 12,
            ..budget
        };
        assert_eq!(none.subscriptions(1), 0);
        let crowded = Budget { own: 4, ..none };
        assert_eq!(crowded.subscriptions(2), 4);
    }

    #[test]
    fn an_instance_of_another_process_counts() {
        let own = std::process::id();
        let instance = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        // Other tests in this process may hold instances as well.
        assert!(Budget::read(&[]).others > Budget::read(&[own]).others);
        let facts = PathBuf::from(format!("/proc/self/fdinfo/{}", instance.as_raw_fd()));
        assert!(watches_nothing(&facts) && placeholders_of(own) > 0);
        inotify::add_watch(&instance, "/", inotify::WatchFlags::MODIFY).unwrap();
        assert!(!watches_nothing(&facts));
    }
}
