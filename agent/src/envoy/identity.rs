//! Recognising an Envoy that an earlier agent left running.
//!
//! A process number alone is not an identity: numbers are used again. With the start time it is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sesame_proto::digest::sha256;

use super::admin::{Admin, ServerInfo};
use super::process::{CommandLine, Process};

/// A pid file is small; anything else is not one.
/// The name of the pid file in an Envoy's runtime directory.
pub const PID_FILE: &str = "envoy.pid.json";
const MAX_PID_FILE: u64 = 64 << 10;
/// How long a running Envoy gets to answer: it may be loading its largest file.
const ANSWER: Duration = Duration::from_secs(5);

/// Which file a process was started from; differs after an upgrade in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executable {
    /// Its path when it was started.
    pub path: PathBuf,
    /// Device and inode.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
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
    /// The arguments after the program's name.
    pub arguments: Vec<String>,
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
            executable: executable(process.pid()),
            bootstrap_digest: sha256(bootstrap),
            arguments: arguments(command),
            stopping: false,
        }
    }

    /// Whether it runs with this bootstrap and these arguments. The binary may differ: replacing it is an
    /// upgrade, which is asked for, not a reason to drop connections.
    pub fn runs(&self, command: &CommandLine, bootstrap: &[u8]) -> bool {
        !self.stopping
            && self.bootstrap_digest == sha256(bootstrap)
            && self.arguments == arguments(command)
    }

    /// Whether the process was started from the file that is now at this path.
    pub fn is_from(&self, binary: &Path) -> bool {
        let now = fs::metadata(binary).map(|meta| (meta.dev(), meta.ino()));
        let then = self.executable.as_ref().map(|e| (e.device, e.inode));
        now.ok() == then
    }

    /// Reads a pid file; none if there is none that makes sense.
    pub fn read(path: &Path) -> Option<Self> {
        read_pid_file(path)
    }

    /// Writes the pid file by rename.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        replace_file(path, &text)
    }
}

/// An Envoy that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// What it is.
    pub identity: Identity,
    /// The process, held so that its number cannot be taken by another.
    pub process: Process,
    /// What it says of itself; `None` if it does not answer.
    pub info: Option<ServerInfo>,
}

/// Finds the Envoy of a pid file, if it still runs. Without a usable pid file, a process that runs with
/// exactly this bootstrap path: the agent may have died between start and note.
pub async fn find_running(
    pid_file: &Path,
    command: &CommandLine,
    admin: &Admin,
) -> io::Result<Option<Running>> {
    let noted = read_pid_file(pid_file);
    let found = match noted {
        Some(identity) => adopt(identity)?,
        None => None,
    };
    let found = match found {
        Some(found) => Some(found),
        None => match find_by_bootstrap(command)? {
            Some(identity) => adopt(identity)?,
            None => None,
        },
    };
    let Some((identity, process)) = found else {
        return Ok(None);
    };
    let info = admin.with_timeout(ANSWER).server_info().await.ok();
    Ok(Some(Running {
        identity,
        process,
        info,
    }))
}

fn adopt(identity: Identity) -> io::Result<Option<(Identity, Process)>> {
    if !is_alive(identity.pid) {
        return Ok(None);
    }
    let process = Process::adopt(identity.pid, identity.start_time)?;
    Ok(process.map(|process| (identity, process)))
}

fn read_pid_file(path: &Path) -> Option<Identity> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_PID_FILE {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Looks for a process of this user with `--config-path <bootstrap>` among its arguments.
fn find_by_bootstrap(command: &CommandLine) -> io::Result<Option<Identity>> {
    let bootstrap = command.bootstrap.to_string_lossy();
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        if entry.metadata().map_or(true, |meta| meta.uid() != user) || !is_alive(pid) {
            continue;
        }
        let Some(arguments) = command_line(pid) else {
            continue;
        };
        let is_ours = arguments
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a == "--config-path" && *b == bootstrap))
            && !arguments.iter().any(|a| a == "--mode");
        if let (true, Some(start_time)) = (is_ours, start_time(pid)) {
            // The bootstrap is only ever written right before a start, so what is on disk is what runs.
            let digest =
                fs::read(&command.bootstrap).map_or_else(|_| String::new(), |b| sha256(&b));
            return Ok(Some(Identity {
                pid,
                start_time,
                executable: executable(pid),
                bootstrap_digest: digest,
                arguments,
                stopping: false,
            }));
        }
    }
    Ok(None)
}

/// The arguments of a process after its name.
fn command_line(pid: u32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let parts = text.trim_end_matches('\0').split('\0').skip(1);
    Some(parts.map(str::to_owned).collect())
}

fn executable(pid: u32) -> Option<Executable> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let meta = fs::metadata(&link).ok()?;
    Some(Executable {
        path: fs::read_link(link).ok()?,
        device: meta.dev(),
        inode: meta.ino(),
    })
}

fn arguments(command: &CommandLine) -> Vec<String> {
    let arguments = command.arguments();
    let lossy = arguments.iter().map(|a| a.to_string_lossy().into_owned());
    lossy.collect()
}

/// The start time of a process in clock ticks since boot; `None` if there is no such process.
pub fn start_time(pid: u32) -> Option<u64> {
    // After the name, which is in parentheses and may contain anything, the state is field 3.
    stat(pid)?.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// Whether a process exists and is not a zombie.
fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !stat.trim_start().starts_with(['Z', 'X']))
}

fn stat(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.to_owned())
}

/// Writes a file of this user alone, by rename.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut staged = path.as_os_str().to_owned();
    staged.push(".new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&staged)?;
    file.write_all(bytes)?;
    fs::rename(staged, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_time_and_a_missing_one_has_none() {
        let own = std::process::id();
        assert!(start_time(own).is_some());
        assert!(is_alive(own));
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn a_number_that_another_process_has_now_is_not_adopted() {
        let own = std::process::id();
        let start = start_time(own).unwrap();
        assert!(Process::adopt(own, start + 1).unwrap().is_none());
    }
}
