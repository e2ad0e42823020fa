//! Namespaces and control groups for a whole cluster. The kernel removes the namespaces when this
//! process exits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use sesame_tests::cluster::Guard;
use tokio::signal::unix::{SignalKind, signal};

use crate::tools;

const POLL: Duration = Duration::from_millis(50);
const END_TIMEOUT: Duration = Duration::from_secs(30);
const CGROUPS: &str = "/sys/fs/cgroup";
const GROUP: &str = "sesame-nodes";

/// Runs the scenarios in new namespaces, and cleans up afterwards.
pub(crate) async fn run(scenarios: &[String]) -> ExitCode {
    clear();
    for group in groups() {
        fs::create_dir_all(&group).unwrap_or_else(|error| panic!("{}: {error}", group.display()));
    }
    let guard = Guard::start(&tools::directory());
    let own = std::env::current_exe().expect("this program has a path");
    // unshare blocks SIGTERM while it waits.
    let mut inner = guard.spawn(
        Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--ipc", "--uts"])
            .args(["--fork", "--kill-child", "--propagation", "private", "--"])
            .arg(own)
            .arg("--inside")
            .args(scenarios),
    );
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be caught");
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be caught");
    let ended: Option<ExitStatus> = loop {
        tokio::select! {
            _ = interrupt.recv() => break None,
            _ = terminate.recv() => break None,
            () = tokio::time::sleep(POLL) => {}
        }
        if let Some(status) = inner.try_wait().expect("a child process") {
            break Some(status);
        }
    };
    let _ = inner.kill();
    let _ = inner.wait();
    drop(guard);
    clear();
    match ended {
        Some(status) if status.success() => ExitCode::SUCCESS,
        Some(_) => {
            eprintln!("nodes: FAILED; logs are in {}", tools::logs().display());
            ExitCode::FAILURE
        }
        None => ExitCode::from(130),
    }
}

pub(crate) fn group_of(node: &str) -> String {
    format!("/{GROUP}/{node}")
}

pub(crate) fn make_groups(node: &str) {
    for group in groups() {
        let group = group.join(node);
        fs::create_dir_all(&group).unwrap_or_else(|error| panic!("{}: {error}", group.display()));
    }
}

/// A real machine has no old control groups after a reboot.
pub(crate) fn remove_groups(node: &str) {
    for group in groups() {
        remove(&group.join(node));
    }
}

fn remove(group: &Path) {
    let begun = Instant::now();
    remove_group(group);
    while group.exists() {
        assert!(
            begun.elapsed() < END_TIMEOUT,
            "{} is in use: is this program already running?",
            group.display()
        );
        std::thread::sleep(POLL);
        remove_group(group);
    }
}

/// Removes an earlier run's control groups and files. Panics if that run is still active.
fn clear() {
    for group in groups().into_iter().chain([unified()]) {
        remove(&group);
    }
    for part in ["control-plane", "node1", "node2"] {
        let part = tools::directory().join(part);
        if let Err(error) = fs::remove_dir_all(&part)
            && part.exists()
        {
            panic!("{}: {error}", part.display());
        }
    }
}

/// Returns a control group for each hierarchy: several in cgroup version 1, one in version 2.
fn groups() -> Vec<PathBuf> {
    let root = Path::new(CGROUPS);
    if root.join("cgroup.controllers").exists() {
        return vec![root.join(GROUP)];
    }
    let entries = fs::read_dir(root).unwrap_or_else(|error| panic!("{CGROUPS}: {error}"));
    entries
        .flatten()
        .map(|entry| entry.path())
        // Symbolic links are aliases of combined hierarchies such as `cpu,cpuacct`.
        .filter(|path| !path.is_symlink() && path.join("cgroup.procs").exists())
        .filter(|path| !path.join("cgroup.controllers").exists())
        .map(|path| path.join(GROUP))
        .collect()
}

/// Container runtimes create this group in addition to version 1 groups.
fn unified() -> PathBuf {
    Path::new(CGROUPS).join("unified").join(GROUP)
}

fn remove_group(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_group(&entry.path());
        }
    }
    // A control group that is in use cannot be removed yet.
    let _ = fs::remove_dir(group);
}
