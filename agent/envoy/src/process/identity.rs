//! Recognizes Envoy processes left by an earlier agent.
//!
//! The kernel reuses PIDs, but a PID and a start time together are unique.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sesame_files::open;
use sesame_proto::digest::sha256;
use sesame_render::connection_ids::IdMark;

use super::launch::{LAUNCH, ORPHAN_OF};
use super::{CommandLine, DRAIN_TIME, Lineage, Process, connection_ids};
use crate::settings::DEFAULT_DRAIN_TIME;
use sesame_host::processes::{arguments, is_alive, start_time};
use sesame_host::{durable, written_by_agent};

/// PID file in an Envoy's runtime directory.
pub const PID_FILE: &str = "envoy.pid.json";
/// PID file of a second Envoy during a takeover.
pub const NEXT_PID_FILE: &str = "envoy.next.json";
const MAX_PID_FILE: u64 = 64 << 10;

/// Identifies an executable file, to detect a replaced Envoy binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executable {
    /// Path from which the process was started.
    pub path: PathBuf,
    /// Device number of the file.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// Modification time in nanoseconds, because file systems reuse inode numbers.
    #[serde(default)]
    pub modified: i128,
}

impl Executable {
    /// Identifies the file that is now at this path.
    pub fn at(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: meta.dev(),
            inode: meta.ino(),
            modified: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        })
    }

    /// Compares everything but the paths.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.device, self.inode, self.modified) == (other.device, other.inode, other.modified)
    }
}

/// Content of a PID file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process ID.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
    /// Executable file, or `None` if unreadable.
    pub executable: Option<Executable>,
    /// SHA-256 of the bootstrap in hexadecimal.
    pub bootstrap_digest: String,
    /// Arguments after the program name, without the lineage arguments.
    pub arguments: Vec<String>,
    /// Place in the lineage, or `None` if Envoy cannot be hot-restarted.
    pub lineage: Option<Lineage>,
    /// True if Envoy is stopping. A drain cannot be undone, so no agent adopts this Envoy.
    #[serde(default)]
    pub stopping: bool,
    /// Number of the Envoy's [`IdMark`], or `None` if unknown.
    #[serde(default)]
    pub id_mark: Option<u8>,
}

impl Identity {
    /// Returns the identity of a newly started process.
    pub fn of(process: &Process, command: &CommandLine, bootstrap: &[u8]) -> Self {
        Self {
            pid: process.pid(),
            start_time: process.start_time(),
            // The process may not have executed Envoy yet, so `/proc/<pid>/exe` may be another
            // file.
            executable: Executable::at(&command.binary).ok(),
            bootstrap_digest: sha256(bootstrap),
            arguments: settings(command),
            lineage: command.lineage,
            stopping: false,
            id_mark: Some(command.id_mark.number()),
        }
    }

    /// Returns why this Envoy must be replaced, or `None` if it is up to date. Ignores the
    /// executable.
    pub fn outdated(&self, command: &CommandLine, bootstrap: &[u8]) -> Option<&'static str> {
        if self.bootstrap_digest != sha256(bootstrap) {
            Some("it has a different bootstrap")
        } else if self.arguments != settings(command) || self.id_mark.is_none() {
            Some("it has a different command line")
        } else {
            None
        }
    }

    /// Returns the drain time, which also applies to the Envoy that this Envoy replaced.
    pub(crate) fn drain_time(&self) -> Duration {
        let mut arguments = self.arguments.iter();
        let value = arguments.find(|argument| *argument == DRAIN_TIME);
        let seconds = value.and_then(|_| arguments.next()?.parse().ok());
        seconds.map_or(DEFAULT_DRAIN_TIME, Duration::from_secs)
    }

    /// Returns true if this process was started from the file now at this path.
    pub fn is_from(&self, binary: &Path) -> bool {
        match (&self.executable, Executable::at(binary)) {
            (Some(then), Ok(now)) => then.is_same(&now),
            _ => false,
        }
    }

    /// Call only after the process has executed Envoy.
    pub(crate) fn refresh(&mut self, directory: &Path) {
        self.executable = executable(self.pid);
        self.lineage = self.lineage.map(|line| line.resolve(directory));
    }

    /// Reads a PID file. Returns `None` if it is missing or invalid.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&open::read(path, written_by_agent(), MAX_PID_FILE).ok()?).ok()
    }

    /// Atomically replaces the PID file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        durable::replace_file(path, &text)
    }
}

/// A running Envoy.
#[derive(Clone, Debug)]
pub struct RunningEnvoy {
    /// Identity of the Envoy.
    pub identity: Identity,
    /// Process handle that stays valid after the PID is reused.
    pub process: Process,
}

impl RunningEnvoy {
    /// Call only after the Envoy has exited.
    pub(crate) fn forget(&self, directory: &Path) {
        if let Some(line) = self.identity.lineage {
            line.remove(directory);
        }
    }
}

/// Finds a runtime directory's Envoy processes, oldest first. There may be two if the agent died
/// during a replacement. Finds processes without a PID file by their bootstrap path.
pub fn find_running(directory: &Path, command: &CommandLine) -> io::Result<Vec<RunningEnvoy>> {
    let mut found = Vec::new();
    let noted = [PID_FILE, NEXT_PID_FILE]
        .iter()
        .filter_map(|name| Identity::read(&directory.join(name)));
    let noted: Vec<Identity> = noted.collect();
    let unknown = find_by_bootstrap(command, &noted)?;
    for identity in noted.into_iter().chain(unknown) {
        if !is_alive(identity.pid) {
            continue;
        }
        if let Some(process) = Process::adopt(identity.pid, identity.start_time)? {
            found.push(RunningEnvoy { identity, process });
        }
    }
    found.sort_by_key(|running| (running.identity.start_time, running.identity.pid));
    found.dedup_by_key(|running| running.identity.pid);
    Ok(found)
}

/// Skips `--mode validate` runs.
fn find_by_bootstrap(command: &CommandLine, noted: &[Identity]) -> io::Result<Vec<Identity>> {
    let bootstrap = command.bootstrap.to_string_lossy();
    let user = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        if entry.metadata().map_or(true, |meta| meta.uid() != user) || !is_alive(pid) {
            continue;
        }
        let Some(mut arguments) = arguments(pid) else {
            continue;
        };
        let is_ours = arguments
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a == "--config-path" && *b == bootstrap))
            && !arguments.iter().any(|a| a == "--mode");
        let Some(start_time) = start_time(pid).filter(|_| is_ours) else {
            continue;
        };
        if noted
            .iter()
            .any(|n| (n.pid, n.start_time) == (pid, start_time))
        {
            continue;
        }
        if arguments.first().is_some_and(|first| first == LAUNCH) {
            if !arguments.iter().any(|argument| argument == ORPHAN_OF) {
                continue;
            }
            // Skip the arguments of a launcher that is about to become Envoy.
            if let Some(end) = arguments.iter().position(|argument| argument == "--") {
                arguments.drain(..(end + 2).min(arguments.len()));
            }
        }
        // The bootstrap is written only immediately before a start, so the running process has read
        // the current file.
        let digest = fs::read(&command.bootstrap).map_or_else(|_| String::new(), |b| sha256(&b));
        let id_mark = connection_ids::mark_in(&arguments).map(IdMark::number);
        let (arguments, lineage) = Lineage::split(&arguments);
        found.push(Identity {
            pid,
            start_time,
            executable: executable(pid),
            bootstrap_digest: digest,
            arguments,
            lineage,
            stopping: false,
            id_mark,
        });
    }
    Ok(found)
}

fn executable(pid: u32) -> Option<Executable> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    Some(Executable {
        path: fs::read_link(&link).ok()?,
        ..Executable::at(&link).ok()?
    })
}

fn settings(command: &CommandLine) -> Vec<String> {
    let settings = command.settings();
    let lossy = settings.iter().map(|a| a.to_string_lossy().into_owned());
    lossy.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_process_id_is_not_adopted() {
        let own = std::process::id();
        let start = start_time(own).unwrap();
        assert!(Process::adopt(own, start + 1).unwrap().is_none());
    }
}
