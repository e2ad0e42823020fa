//! Rotates and limits access log files.
//!
//! Envoy opens its access log through a symbolic link, which points to `/dev/null` if Envoy cannot
//! write to the file. Otherwise, Envoy would reject the whole listener. Access logs must never fill
//! the disk or prevent Envoy from serving.

mod directory;
mod entry;
mod lines;
mod plan;
mod readable;
mod rotator;
mod written;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

pub use self::entry::{LogEntry, LogFilter, ObjectPattern, StatusPattern};
pub use self::lines::{LogReader, current_of};
pub use self::readable::Readability;
pub use self::rotator::LogRotator;

/// File name of the current log, and of the link through which Envoy opens it.
pub const ACCESS_LOG: &str = "access.log";

/// Destination for the access logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AccessLogTo {
    /// One file per Gateway.
    #[default]
    File,
    /// The agent's standard output, or the launcher's if there is one.
    Stdout,
    /// Access logs are off.
    Off,
}

/// Settings for access logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Destination for the access logs.
    pub to: AccessLogTo,
    /// Directory that contains the log files.
    pub directory: PathBuf,
    /// Limits per Gateway.
    pub bounds: LogBounds,
}

/// Limits per Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Size in bytes at which the current file is rotated. Small disks have a lower limit.
    pub file_bytes: u64,
    /// Maximum number of files, including the current one.
    pub files: usize,
    /// Age at which the current file is rotated.
    pub period: Duration,
    /// Number of bytes to leave free on the disk, but at most a tenth of the disk.
    pub free_bytes: u64,
}
