//! Log files of the processes that tests start.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn log_to(command: &mut Command, path: &Path) {
    let log = OpenOptions::new().create(true).append(true).open(path);
    let log = log.expect("open the log");
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("share the log"))
        .stderr(log);
}

/// Returns the last lines, or an empty string if the file does not exist.
pub(crate) fn tail(path: &Path, count: usize) -> String {
    let log = std::fs::read(path).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
