//! Finds and kills a test's processes, which have its temporary directory in their command line.
//! Never signals other processes.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running process.
#[derive(Clone, Debug)]
pub struct Process {
    /// The process ID.
    pub pid: i32,
    /// The arguments, starting with the program.
    pub arguments: Vec<String>,
}

impl Process {
    /// Returns true if the program's file name starts with `name`.
    pub fn is(&self, name: &str) -> bool {
        self.arguments
            .first()
            .and_then(|program| Path::new(program).file_name())
            .is_some_and(|file| file.to_string_lossy().starts_with(name))
    }
}

/// Returns all running processes whose command line contains `directory`.
pub fn below(directory: &Path) -> Vec<Process> {
    let needle = directory.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    let mut found: Vec<Process> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| u32::try_from(*pid) != Ok(std::process::id()))
        .filter_map(|pid: i32| {
            // `/proc/PID/cmdline` is empty for a zombie, and missing if the process has just
            // exited.
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

/// Sends SIGKILL. Ignores processes that have already exited.
pub fn kill9(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Kills processes with `directory` in the command line until none is left, for up to 10 seconds.
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
            // A second panic in `drop` would abort.
            eprintln!("still alive after SIGKILL: {left:?}");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the current and peak resident memory in MiB, or 0 after exit.
pub fn memory_mib(pid: u32) -> (f64, f64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mib = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|kib| kib.parse::<f64>().ok())
            .map_or(0.0, |kib| kib / 1024.0)
    };
    (mib("VmRSS:"), mib("VmHWM:"))
}

/// Returns the CPU time in seconds, or 0 after exit.
pub fn cpu_seconds(pid: u32) -> f64 {
    seconds_in(&format!("/proc/{pid}/stat"))
}

/// Returns the CPU time of all running threads in seconds, precise enough for single requests.
pub fn thread_seconds(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}

/// Returns the bytes written to sockets and files, or 0 after exit.
pub fn written_bytes(pid: u32) -> f64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    written.and_then(|bytes| bytes.parse().ok()).unwrap_or(0.0)
}

/// Returns the main thread's CPU time in seconds. Envoy applies configuration on this thread.
pub fn main_thread_seconds(pid: u32) -> f64 {
    seconds_in(&format!("/proc/{pid}/task/{pid}/stat"))
}

fn seconds_in(stat: &str) -> f64 {
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = |index: usize| {
        let field = fields.split(' ').nth(index);
        field
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    // USER_HZ is 100 on every architecture that Envoy supports.
    (ticks(11) + ticks(12)) / 100.0
}
