//! Starts Envoys that outlive the agent, including Envoys that take over in a hot restart.
//!
//! With hot restart enabled, Envoy makes the kernel kill it when its parent thread exits. The
//! parent must therefore be gone before Envoy begins. The agent starts a *launcher*, which starts a
//! second launcher and exits. The second launcher becomes Envoy once it is an orphan. The agent
//! holds back the first launcher until it has recorded the process.

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
use crate::envoy::log::EnvoyLog;

/// Subcommand with which the agent's binary launches Envoy.
pub const LAUNCH: &str = "launch-envoy";
/// Argument that makes the launcher wait until its parent has exited.
pub const ORPHAN_OF: &str = "--orphan-of";
/// Maximum time to wait for the parent to exit, which normally takes microseconds.
const ORPHANED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_micros(200);

/// Ways to launch Envoys that outlive the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Path of a program with this module's subcommand, usually the agent.
    Program(PathBuf),
    /// Socket of a long-lived launcher process.
    Socket(PathBuf),
}

/// A launched Envoy that has not begun yet. Dropping this value lets it begin, too, so that an
/// agent crash does not leave a half-started Envoy behind.
#[derive(Debug)]
pub(crate) struct WaitingEnvoy {
    process: Process,
    gate: Gate,
}

#[derive(Debug)]
enum Gate {
    /// Envoy has already begun.
    None,
    Own(Child, UnixStream),
    Remote(launcher::StartSignal),
}

impl WaitingEnvoy {
    /// Returns the process that will become Envoy.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Lets Envoy begin.
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

/// Prepares the Envoy that `command` describes, using `launcher`. Without a launcher, Envoy is a
/// child of the agent and begins immediately.
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

/// Returns the standard output for a child: shared with this process, or discarded.
pub(super) fn stdout(shared: bool) -> Stdio {
    if shared {
        Stdio::inherit()
    } else {
        Stdio::null()
    }
}

/// Prepares a program with these arguments and this standard output, using the program `launcher`.
pub(super) fn own(
    launcher: &Path,
    binary: &Path,
    arguments: &[OsString],
    log: &EnvoyLog,
    stdout: Stdio,
) -> io::Result<WaitingEnvoy> {
    // Standard input carries both directions, because standard output belongs to the program.
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
    // The process cannot exit before its parent, and the parent is waiting for this process.
    Ok(WaitingEnvoy {
        process: Process::hold(pid)?,
        gate: Gate::Own(child, gate),
    })
}

/// Runs one stage of the launcher: the first without `orphan_of`, otherwise the second, which
/// becomes the program. Returns when the first stage is done, or if the stage fails.
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
        // The reader may already be gone, but Envoy must start anyway.
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
    // Returns only on failure.
    Err(Command::new(binary).args(arguments).exec())
}

/// Returns a path to this program that remains valid after its file is replaced or removed.
pub fn own_binary() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}
