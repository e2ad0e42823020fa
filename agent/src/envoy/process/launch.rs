//! Starting an Envoy that outlives the agent, hot restart and all.
//!
//! With hot restart enabled Envoy asks the kernel to end it together with the thread that is its parent. So its
//! parent must be gone before it begins: the agent starts a *launcher*, that starts a second one and ends, and the
//! second one becomes Envoy as soon as it is an orphan. The agent holds the launcher until it has written down
//! which process it is about to have.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{CommandLine, Process, launcher};
use crate::envoy::log::EnvoyLog;

/// The command of the agent's binary that launches.
pub const LAUNCH: &str = "launch-envoy";
/// The argument that makes it wait for the end of its parent.
pub const ORPHAN_OF: &str = "--orphan-of";
/// A parent that has nothing else to do than to end does so within microseconds.
const ORPHANED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_micros(200);

/// Who starts Envoys that outlive the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// A program as this module is one, usually the agent itself.
    Program(PathBuf),
    /// One that stays, at its socket.
    Socket(PathBuf),
}

/// An Envoy that waits to begin. Dropped, it begins too: an agent that dies leaves no half-made Envoy.
#[derive(Debug)]
pub(crate) struct Held {
    process: Process,
    gate: Gate,
}

#[derive(Debug)]
enum Gate {
    /// It has begun.
    None,
    Own(Child, ChildStdin),
    Elsewhere(launcher::Gate),
}

impl Held {
    /// The process that will be Envoy.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Lets it begin.
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
            Gate::Elsewhere(gate) => gate.open()?,
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
) -> io::Result<Held> {
    match launcher {
        None => Ok(Held {
            process: Process::spawn(command, log)?,
            gate: Gate::None,
        }),
        Some(Launcher::Program(program)) => {
            own(program, &command.binary, &command.arguments(), log)
        }
        Some(Launcher::Socket(socket)) => {
            let (process, gate) = launcher::ask(socket, &command.arguments(), log)?;
            Ok(Held {
                process,
                gate: Gate::Elsewhere(gate),
            })
        }
    }
}

/// Prepares a program with these arguments, by `launcher`.
pub(super) fn own(
    launcher: &Path,
    binary: &Path,
    arguments: &[OsString],
    log: &EnvoyLog,
) -> io::Result<Held> {
    let mut child = Command::new(launcher)
        .arg(LAUNCH)
        .arg("--")
        .arg(binary)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log.open_for_envoy()?)
        .process_group(0)
        .spawn()?;
    let (Some(gate), Some(answer)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("the launcher has no pipes"));
    };
    let mut line = String::new();
    BufReader::new(answer.take(32)).read_line(&mut line)?;
    let Ok(pid) = line.trim().parse() else {
        let status = child.wait()?;
        return Err(io::Error::other(format!(
            "the launcher {} did not start Envoy: {status}",
            launcher.display()
        )));
    };
    // It cannot end before its parent does, which waits for us.
    Ok(Held {
        process: Process::hold(pid)?,
        gate: Gate::Own(child, gate),
    })
}

/// The launcher itself: with no `orphan_of` the first, else the second, which becomes the program. Returns when it has
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
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut out = io::stdout();
        // Nobody may be listening any more; Envoy is to run all the same.
        let _ = writeln!(out, "{}", child.id()).and_then(|()| out.flush());
        let _ = io::stdin().read(&mut [0]);
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

/// This program, also when its file was replaced or removed since.
pub fn own_binary() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}
