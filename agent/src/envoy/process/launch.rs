//! Start of an Envoy that outlives the agent, hot restart and all.
//!
//! With hot restart enabled Envoy asks the kernel to end it together with the thread that is its parent. So its
//! parent must be gone before it begins: the agent starts a *launcher*, that starts a second one and ends, and the
//! second one becomes Envoy as soon as it is an orphan. The agent holds the launcher until it has written down
//! which process it is about to have.

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

/// Command of the agent's binary that launches.
pub const LAUNCH: &str = "launch-envoy";
/// Argument that makes it wait for the end of its parent.
pub const ORPHAN_OF: &str = "--orphan-of";
/// Limit for the end of the parent, which has nothing else to do and takes microseconds.
const ORPHANED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_micros(200);

/// Launcher of Envoys that outlive the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Program with the command of this module, usually the agent itself.
    Program(PathBuf),
    /// Socket of a launcher that stays.
    Socket(PathBuf),
}

/// Envoy that waits to begin. It begins too when this is dropped: an agent that dies leaves no half-made Envoy.
#[derive(Debug)]
pub(crate) struct WaitingEnvoy {
    process: Process,
    gate: Gate,
}

#[derive(Debug)]
enum Gate {
    /// It has begun.
    None,
    Own(Child, UnixStream),
    Remote(launcher::StartSignal),
}

impl WaitingEnvoy {
    /// Returns the process that will be Envoy.
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

/// Prepares an Envoy as `command` says: by `launcher` if there is one, else as a child of the agent, which begins at
/// once.
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

/// Returns the standard output of a child: shared with this process, or discarded.
pub(super) fn stdout(shared: bool) -> Stdio {
    if shared {
        Stdio::inherit()
    } else {
        Stdio::null()
    }
}

/// Prepares a program with these arguments and this standard output, by `launcher`.
pub(super) fn own(
    launcher: &Path,
    binary: &Path,
    arguments: &[OsString],
    log: &EnvoyLog,
    stdout: Stdio,
) -> io::Result<WaitingEnvoy> {
    // Both ways over its standard input, because its standard output is the program's.
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
    // It cannot end before its parent does, which waits for us.
    Ok(WaitingEnvoy {
        process: Process::hold(pid)?,
        gate: Gate::Own(child, gate),
    })
}

/// Runs the launcher: with no `orphan_of` the first, else the second, which becomes the program. Returns when it has
/// nothing more to do, or with why it could not.
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
        // The reader may be gone already; Envoy must run all the same.
        let _ = writeln!(gate, "{}", child.id());
        let _ = gate.read(&mut [0]);
        return Ok(());
    };
    let start = Instant::now();
    while std::os::unix::process::parent_id() == parent {
        if start.elapsed() > ORPHANED {
            return Err(io::Error::other("the first launcher does not end"));
        }
        thread::sleep(POLL);
    }
    // Returns only if it fails.
    Err(Command::new(binary).args(arguments).exec())
}

/// Returns a path of this program that is valid even when its file was replaced or removed.
pub fn own_binary() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}
