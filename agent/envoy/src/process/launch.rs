//! Starts Envoy processes that outlive the agent.
//!
//! With hot restart, Envoy exits when its parent thread exits. The agent therefore starts a
//! *launcher* process, which starts a second launcher, waits until the agent has recorded the
//! second launcher's PID, and exits. The second launcher then executes Envoy.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{CommandLine, Process, launcher};
use crate::log::EnvoyLog;

/// Subcommand of the agent's binary that launches Envoy.
pub const LAUNCH: &str = "launch-envoy";
/// Argument with the PID of the parent that must exit first.
pub const ORPHAN_OF: &str = "--orphan-of";
/// How long to wait for the parent to exit. It normally exits within microseconds.
const ORPHANED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_micros(200);

/// Launches an Envoy that outlives the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Program with the [`LAUNCH`] subcommand, usually the agent.
    Program(PathBuf),
    /// Socket of an independent launcher service.
    Socket(PathBuf),
}

/// A process that waits for its release before it executes Envoy. Dropping this value releases the
/// process, so it never waits for a crashed agent.
#[derive(Debug)]
pub(crate) struct WaitingEnvoy {
    process: Process,
    gate: Gate,
}

#[derive(Debug)]
enum Gate {
    None,
    Own(Child, UnixStream),
    Remote(launcher::StartSignal),
}

impl WaitingEnvoy {
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn release(self) -> io::Result<Process> {
        match self.gate {
            Gate::None => {}
            Gate::Own(mut launcher, gate) => {
                drop(gate);
                let status = launcher.wait()?;
                if !status.success() {
                    return Err(io::Error::other(format!(
                        "the launcher ended with {status}"
                    )));
                }
            }
            Gate::Remote(gate) => gate.send()?,
        }
        Ok(self.process)
    }
}

/// Without a launcher, Envoy starts immediately as a child of the agent.
pub(crate) fn launch(
    launcher: Option<&Launcher>,
    command: &CommandLine,
    log: &EnvoyLog,
) -> io::Result<WaitingEnvoy> {
    match launcher {
        None => Ok(WaitingEnvoy {
            process: Process::spawn(command, log)?,
            gate: Gate::None,
        }),
        Some(Launcher::Program(program)) => {
            let stdout = stdout(command.has_stdout);
            own(program, &command.binary, &command.arguments(), log, stdout)
        }
        Some(Launcher::Socket(socket)) => {
            let (process, gate) = launcher::ask(socket, &command.arguments(), log)?;
            Ok(WaitingEnvoy {
                process,
                gate: Gate::Remote(gate),
            })
        }
    }
}

pub(super) fn stdout(shared: bool) -> Stdio {
    if shared {
        Stdio::inherit()
    } else {
        Stdio::null()
    }
}

pub(super) fn own(
    launcher: &Path,
    binary: &Path,
    arguments: &[OsString],
    log: &EnvoyLog,
    stdout: Stdio,
) -> io::Result<WaitingEnvoy> {
    // Envoy needs standard output, so the launcher communicates through a socket on standard input.
    let (gate, theirs) = UnixStream::pair()?;
    let mut child = Command::new(launcher)
        .arg(LAUNCH)
        .arg("--")
        .arg(binary)
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(stdout)
        .stderr(log.open_for_envoy()?)
        .process_group(0)
        .spawn()?;
    let mut line = String::new();
    BufReader::new((&gate).take(32)).read_line(&mut line)?;
    let Ok(pid) = line.trim().parse() else {
        let status = child.wait()?;
        return Err(io::Error::other(format!(
            "the launcher {} did not start Envoy: {status}",
            launcher.display()
        )));
    };
    // The PID is valid, because the second launcher does not exit before the first.
    Ok(WaitingEnvoy {
        process: Process::hold(pid)?,
        gate: Gate::Own(child, gate),
    })
}

/// Runs the first launcher, which returns after `program` is released. With `orphan_of`, runs the
/// second, which executes `program`.
pub fn run(orphan_of: Option<u32>, program: &[OsString]) -> io::Result<()> {
    let [binary, arguments @ ..] = program else {
        return Err(io::Error::other("no program to launch"));
    };
    let Some(parent) = orphan_of else {
        let child = Command::new(own_binary())
            .args([LAUNCH, ORPHAN_OF])
            .arg(std::process::id().to_string())
            .arg("--")
            .args(program)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut gate = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // Ignore errors: the agent may already be gone, but Envoy must start anyway.
        let _ = writeln!(gate, "{}", child.id());
        let _ = gate.read(&mut [0]);
        return Ok(());
    };
    let start = Instant::now();
    while std::os::unix::process::parent_id() == parent {
        if start.elapsed() > ORPHANED {
            return Err(io::Error::other("the first launcher process did not end"));
        }
        thread::sleep(POLL);
    }
    // `exec` returns only on failure.
    Err(Command::new(binary).args(arguments).exec())
}

/// Returns a path to this program that stays valid if the file is replaced or removed.
pub fn own_binary() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}
