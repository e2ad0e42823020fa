//! Storage of an agent under test.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use super::AgentUnderTest;
use crate::processes::Process;

/// Returns a command prefix that mounts a small file system on each directory.
pub(super) fn on_small_ones(directories: &[PathBuf]) -> Vec<String> {
    let list: Vec<String> = directories
        .iter()
        .map(|directory| directory.display().to_string())
        .collect();
    let script = format!(
        r#"for d in {}; do mount -t tmpfs -o size=1m,mode=700 tmpfs $d || exit 1; done; exec "$0" "$@""#,
        list.join(" ")
    );
    let unshare = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
    ];
    let mut command: Vec<String> = unshare.iter().map(ToString::to_string).collect();
    command.push(script);
    command
}

/// Returns the path of an Envoy's shared memory, or `None` without hot restart.
pub fn shared_memory(envoy: &Process) -> Option<String> {
    let value = |name: &str| {
        let mut arguments = envoy.arguments.iter();
        arguments.find(|argument| *argument == name)?;
        arguments.next().cloned()
    };
    let written = || std::fs::read_to_string(value("--base-id-path")?).ok();
    let base_id: u64 = value("--base-id").or_else(written)?.trim().parse().ok()?;
    Some(format!("/dev/shm/envoy_shared_memory_{}", base_id * 10))
}

pub(super) fn forget(envoys: &[Process]) {
    for path in envoys.iter().filter_map(shared_memory) {
        let _ = std::fs::remove_file(path);
    }
}

impl AgentUnderTest {
    /// Converts a path in the agent's mount namespace to one that the test can open.
    pub fn visible(&self, path: &Path) -> PathBuf {
        match &self.child {
            Some(child) if self.setup.small_disks => {
                PathBuf::from(format!("/proc/{}/root{}", child.id(), path.display()))
            }
            _ => path.to_owned(),
        }
    }

    /// Runs a command in the agent's mount namespace.
    pub fn beside(&self, command: &[&str]) -> ExitStatus {
        let pid = self.child.as_ref().expect("the agent runs").id();
        Command::new("nsenter")
            .args(["--user", "--mount", "--target", &pid.to_string()])
            .args(command)
            .status()
            .expect("nsenter runs")
    }
}
