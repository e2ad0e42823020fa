//! Finding and ending the processes that belong to one test.
//!
//! A process belongs to a test when the test's own directory stands in its command line; nothing else is
//! ever signalled.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process with the arguments it was started with.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// Its arguments, the program first.
    pub arguments: Vec<String>,
}

impl Process {
    /// Whether the program's file name starts with `name`.
    pub fn is(&self, name: &str) -> bool {
        self.arguments
            .first()
            .and_then(|program| Path::new(program).file_name())
            .is_some_and(|file| file.to_string_lossy().starts_with(name))
    }
}

/// Every living process that has `directory` in its command line.
pub fn below(directory: &Path) -> Vec<Process> {
    let needle = directory.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").expect("/proc is there");
    let mut found: Vec<Process> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| u32::try_from(*pid) != Ok(std::process::id()))
        .filter_map(|pid: i32| {
            // Empty for a zombie, gone for a process that just ended.
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let arguments: Vec<String> = line
                .split(|byte| *byte == 0)
                .map(|argument| String::from_utf8_lossy(argument).into_owned())
                .collect();
            let ours = arguments.iter().any(|argument| argument.contains(&needle));
            ours.then_some(Process { pid, arguments })
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// SIGKILL; a process that is already gone is fine.
pub fn kill9(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Kills everything below `directory`, and what it may start meanwhile, until nothing is left.
pub fn kill_below(directory: &Path) {
    let start = Instant::now();
    loop {
        let left = below(directory);
        if left.is_empty() {
            return;
        }
        for process in &left {
            kill9(process.pid);
        }
        if start.elapsed() > Duration::from_secs(10) {
            // In `drop` a second panic would abort; what is left is at least named.
            eprintln!("still alive after SIGKILL: {left:?}");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
