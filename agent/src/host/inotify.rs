//! Budget of inotify instances: the number of files that Envoys may watch.
//!
//! Each watched file is one instance, the kernel limits them per user, and an Envoy that asks for one too many
//! aborts. So the number is known before anything is rendered, with room for others.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::inotify;

/// Number of instances that are left for processes that start later.
const RESERVE: usize = 16;
/// Limit where the kernel does not tell one: its own default.
const DEFAULT_LIMIT: usize = 128;

/// Inotify instances that the kernel allows this user, and those that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The smaller of `fs.inotify.max_user_instances` and `user.max_inotify_instances`.
    pub limit: usize,
    /// Instances of this user's other processes, as far as they can be seen: those of other containers that
    /// share the user cannot.
    pub others: usize,
    /// Instances that the Envoys of this agent have already.
    pub own: usize,
}

impl Budget {
    /// Reads the limit and counts what others use; the Envoys of this agent are not others.
    pub fn read(own_envoys: &[u32]) -> Self {
        Self::of(rustix::process::geteuid().as_raw(), own_envoys)
    }

    /// Reads them for another user, as root may.
    pub(crate) fn of(user: u32, own_envoys: &[u32]) -> Self {
        let limit = |path| -> Option<usize> { fs::read_to_string(path).ok()?.trim().parse().ok() };
        Self {
            // Two limits count: that of the user, and that of the user namespace.
            limit: limit("/proc/sys/fs/inotify/max_user_instances")
                .unwrap_or(DEFAULT_LIMIT)
                .min(limit("/proc/sys/user/max_inotify_instances").unwrap_or(usize::MAX)),
            others: used_by_others(Path::new("/proc"), user, own_envoys),
            own: own_envoys.iter().map(|pid| watched_by(*pid)).sum(),
        }
    }

    /// Returns the number of subscriptions that each of `envoys` processes may open that run at the same time: those of all
    /// Gateways on the host, twice while one is being replaced. It is never less than they have: an agent that starts when
    /// little is left changes no listener for it.
    pub fn subscriptions(self, envoys: usize) -> usize {
        let free = self.limit.saturating_sub(self.others);
        // Where little is left, a share for others must not take what the listeners themselves need.
        let fair = (free - RESERVE.min(free / 2)) / envoys.max(1);
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

/// Asks the kernel whether so many more files could be watched now: other processes may have started since, and
/// an Envoy that asks for one too many is gone.
pub(crate) fn room_for(more: usize) -> io::Result<()> {
    let instances = (0..more).map(|_| inotify::init(inotify::CreateFlags::CLOEXEC));
    let held: Result<Vec<_>, _> = instances.collect();
    held.map(drop).map_err(io::Error::from)
}

/// Returns the number of files that a process watches; zero if its descriptors cannot be read.
pub fn watched_by(pid: u32) -> usize {
    instances(Path::new(&format!("/proc/{pid}/fd")))
}

fn instances(descriptors: &Path) -> usize {
    fs::read_dir(descriptors)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|descriptor| {
            fs::read_link(descriptor.path())
                .is_ok_and(|target| target.as_os_str() == "anon_inode:inotify")
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_and_a_reserve_are_left_out_and_never_below_zero() {
        let budget = Budget {
            limit: 128,
            others: 12,
            own: 0,
        };
        assert_eq!(budget.subscriptions(1), 100);
        assert_eq!(budget.subscriptions(2), 50);
        let full = Budget {
            limit: 20,
            others: 10,
            own: 0,
        };
        assert_eq!(full.subscriptions(1), 5);
        let none = Budget {
            limit: 10,
            others: 12,
            own: 0,
        };
        assert_eq!(none.subscriptions(1), 0);
        let crowded = Budget { own: 4, ..none };
        assert_eq!(crowded.subscriptions(2), 4);
    }

    #[test]
    fn an_instance_of_another_process_counts() {
        let own = std::process::id();
        let _instance = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        // Other tests of this process may hold instances too.
        assert!(Budget::read(&[]).others > Budget::read(&[own]).others);
    }
}
