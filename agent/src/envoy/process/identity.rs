//! Recognising an Envoy that an earlier agent left running.
//!
//! A process number alone is not an identity: numbers are used again. With the start time it is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sesame_files::open::{self, Rule};
use sesame_proto::digest::sha256;

use super::launch::{LAUNCH, ORPHAN_OF};
use super::{CommandLine, Lineage, Process, shared_memory};
use crate::host::durable;
use crate::host::processes::{arguments, is_alive, start_time};

/// The name of the pid file in an Envoy's runtime directory.
pub const PID_FILE: &str = "envoy.pid.json";
/// The same of the Envoy that is to take over.
pub const NEXT_PID_FILE: &str = "envoy.next.json";
/// A pid file is small; anything else is not one.
const MAX_PID_FILE: u64 = 64 << 10;

/// Which file a process was started from; differs after an upgrade in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executable {
    /// Its path when it was started.
    pub path: PathBuf,
    /// Device and inode.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// When it was changed last, in nanoseconds: a file may get the number of one that is gone.
    #[serde(default)]
    pub modified: i128,
}

impl Executable {
    /// The file that is at this path now.
    pub fn at(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: meta.dev(),
            inode: meta.ino(),
            modified: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        })
    }

    /// Whether both are the same file, wherever it is.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.device, self.inode, self.modified) == (other.device, other.inode, other.modified)
    }
}

/// The pid file: which Envoy was started, from what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process number.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`, clock ticks since boot.
    pub start_time: u64,
    /// The binary; absent if it could not be read.
    pub executable: Option<Executable>,
    /// Hex SHA-256 of the bootstrap.
    pub bootstrap_digest: String,
    /// The arguments after the program's name, without those of its lineage.
    pub arguments: Vec<String>,
    /// Its place in a line of Envoys; none if it cannot be hot-restarted.
    #[serde(default)]
    pub lineage: Option<Lineage>,
    /// Draining cannot be taken back: an Envoy that was asked to is not adopted.
    #[serde(default)]
    pub stopping: bool,
}

impl Identity {
    /// Of a process that was just started.
    pub fn of(process: &Process, command: &CommandLine, bootstrap: &[u8]) -> Self {
        Self {
            pid: process.pid(),
            start_time: process.start_time(),
            // The process may not be Envoy yet.
            executable: Executable::at(&command.binary).ok(),
            bootstrap_digest: sha256(bootstrap),
            arguments: settings(command),
            lineage: command.lineage,
            stopping: false,
        }
    }

    /// What of it is not as wanted, so that it is to be replaced; `None` if all is. The binary is not looked at.
    pub fn outdated(&self, command: &CommandLine, bootstrap: &[u8]) -> Option<&'static str> {
        if self.bootstrap_digest != sha256(bootstrap) {
            Some("it has another bootstrap")
        } else if self.arguments != settings(command) {
            Some("it has another command line")
        } else {
            None
        }
    }

    /// Whether the process was started from the file that is now at this path.
    pub fn is_from(&self, binary: &Path) -> bool {
        match (&self.executable, Executable::at(binary)) {
            (Some(then), Ok(now)) => then.is_same(&now),
            _ => false,
        }
    }

    /// Looks again which file it was started from; to be called when it is known to be Envoy.
    pub(crate) fn refresh(&mut self) {
        self.executable = executable(self.pid);
    }

    /// Reads a pid file; none if there is none that makes sense.
    pub fn read(path: &Path) -> Option<Self> {
        read_pid_file(path)
    }

    /// Writes the pid file by rename.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        durable::replace_file(path, &text)
    }
}

/// An Envoy that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// What it is.
    pub identity: Identity,
    /// The process, held so that its number cannot be taken by another.
    pub process: Process,
}

impl Running {
    /// Removes what it leaves in its directory now that it has ended, unless its line goes on.
    pub(crate) fn forget(&self, directory: &Path) {
        if let Some(line) = self.identity.lineage {
            shared_memory::remove(line);
            for socket in line.sockets(directory) {
                let _ = fs::remove_file(socket);
            }
        }
    }
}

/// Finds the Envoys that run in a directory, the newest last: one, or two if the agent died while one replaced the
/// other. What they are is known from the pid files; without a usable one, from a process that runs with exactly
/// this bootstrap path, because the agent may have died between start and note.
pub fn find_running(directory: &Path, command: &CommandLine) -> io::Result<Vec<Running>> {
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
            found.push(Running { identity, process });
        }
    }
    found.sort_by_key(|running| (running.identity.start_time, running.identity.pid));
    found.dedup_by_key(|running| running.identity.pid);
    Ok(found)
}

fn read_pid_file(path: &Path) -> Option<Identity> {
    serde_json::from_slice(&open::read(path, Rule::Own, MAX_PID_FILE).ok()?).ok()
}

/// Looks for processes of this user with `--config-path <bootstrap>` among their arguments that are not noted.
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
            // It will be Envoy in a moment.
            if let Some(end) = arguments.iter().position(|argument| argument == "--") {
                arguments.drain(..(end + 2).min(arguments.len()));
            }
        }
        // The bootstrap is only ever written right before a start, so what is on disk is what runs.
        let digest = fs::read(&command.bootstrap).map_or_else(|_| String::new(), |b| sha256(&b));
        let (arguments, lineage) = Lineage::split(&arguments);
        found.push(Identity {
            pid,
            start_time,
            executable: executable(pid),
            bootstrap_digest: digest,
            arguments,
            lineage,
            stopping: false,
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
    fn a_number_that_another_process_has_now_is_not_adopted() {
        let own = std::process::id();
        let start = start_time(own).unwrap();
        assert!(Process::adopt(own, start + 1).unwrap().is_none());
    }
}
