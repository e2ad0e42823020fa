//! Limits on open files, memory, CPU cores and tasks, which Envoy inherits.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Linux's default for `fs.nr_open`.
const USUAL_MOST_FILES: u64 = 1 << 20;
/// Assumed memory in bytes if no limit is readable.
const USUAL_MEMORY: u64 = 1 << 30;

/// Uses the hard limit, because Envoy raises its soft limit itself.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or_else(|| {
        read_number(Path::new("/proc/sys/fs/nr_open")).unwrap_or(USUAL_MOST_FILES)
    })
}

/// Returns the smaller of the control group's limit and the host's memory, in bytes.
pub fn memory() -> u64 {
    memory_of("self")
}

/// Returns the memory limit in bytes. `process` is a process ID or `self`.
pub fn memory_of(process: &str) -> u64 {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let host = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total(&host)
        .into_iter()
        .chain(cgroup_limit(&groups, Path::new("/sys/fs/cgroup")))
        .min()
        .unwrap_or(USUAL_MEMORY)
}

/// Returns the number of CPU cores, with CPU affinity and the control group's quota applied.
pub fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// Returns the limit and the current number of tasks, or `None` if unlimited.
pub fn tasks_of(process: &str) -> Option<(u64, u64)> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            "pids" => "/sys/fs/cgroup/pids",
            _ => return None,
        };
        let group = Path::new(root).join(path.trim_start_matches('/'));
        let most = read_number(&group.join("pids.max"))?;
        Some((most, read_number(&group.join("pids.current"))?))
    })
}

/// Returns the soft limit and the number of open files, or `None` if unreadable.
/// `process` is a process ID or `self`.
pub fn files_of(process: &str) -> Option<(u64, u64)> {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let most = line.split_whitespace().next()?.parse().ok()?;
    let open = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count();
    Some((most, u64::try_from(open).ok()?))
}

/// Returns the host's memory in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// In a container, `/proc/self/cgroup` may show the host's paths, so try all ancestors up to the
/// mount point.
fn cgroup_limit(groups: &str, mount: &Path) -> Option<u64> {
    let mut smallest: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            (mount.to_owned(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let mut group = Path::new(path.trim_start_matches('/'));
        loop {
            // `max` means no limit, and does not parse as a number.
            let limit = read_number(&root.join(group).join(file));
            smallest = smallest.into_iter().chain(limit).min();
            match group.parent() {
                Some(parent) => group = parent,
                None => break,
            }
        }
    }
    smallest
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("system.slice/sesame.service");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        let groups = "0::/system.slice/sesame.service\n";
        assert_eq!(cgroup_limit(groups, mount.path()), None);
        fs::write(mount.path().join("system.slice/memory.max"), "536870912\n").unwrap();
        assert_eq!(cgroup_limit(groups, mount.path()), Some(512 << 20));
        fs::write(group.join("memory.max"), "268435456\n").unwrap();
        assert_eq!(cgroup_limit(groups, mount.path()), Some(256 << 20));
        fs::write(mount.path().join("memory.max"), "1048576\n").unwrap();
        assert_eq!(
            cgroup_limit("0::/kubepods/x\n", mount.path()),
            Some(1 << 20)
        );
    }

    #[test]
    fn version_1_has_a_tree_of_its_own() {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("memory/docker/abc");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.limit_in_bytes"), "134217728\n").unwrap();
        let groups = "11:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n";
        assert_eq!(cgroup_limit(groups, mount.path()), Some(128 << 20));
        assert_eq!(cgroup_limit("nonsense\n", mount.path()), None);
    }

    #[test]
    fn the_files_of_a_process_are_counted() {
        let (most, before) = files_of("self").unwrap();
        let held: Vec<fs::File> = (0..50)
            .map(|_| fs::File::open("/proc/self/status").unwrap())
            .collect();
        let (_, now) = files_of("self").unwrap();
        assert!(before < now && now <= most, "{before} {now} {most}");
        drop(held);
        assert_eq!(files_of("no-process"), None);
    }

    #[test]
    fn the_host_has_some() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:  2048 kB\n"), Some(2 << 20));
        assert!(memory() > 1 << 20);
        assert!(open_files() > 0);
    }
}
