//! Keeps access log files within their limits, and reads them.
//!
//! Envoy opens a symbolic link in its runtime directory. The link points to a file in the log
//! directory. If Envoy cannot write to that file, the link points to `/dev/null`, because Envoy
//! would reject a whole listener if it could not open the log. The link's target may change at any
//! time without a change to any listener.
//!
//! Access logs must never prevent Envoy from serving, or fill the disk that Envoy and the agent
//! need.

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

pub(crate) use self::entry::{LogEntry, LogFilter, ObjectPattern, StatusPattern};
pub(crate) use self::lines::{LogReader, current_of};
pub(crate) use self::readable::Readability;
pub(crate) use self::rotator::LogRotator;

/// Name of the symbolic link in an Envoy's runtime directory, and of the current log file.
pub(crate) const ACCESS_LOG: &str = "access.log";

/// Destination of the access logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AccessLogTo {
    /// One file per Gateway.
    #[default]
    File,
    /// The standard output of the agent, or of the launcher if there is one.
    Stdout,
    /// Access logs are off.
    Off,
}

/// Settings for access logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Destination of the access logs.
    pub to: AccessLogTo,
    /// Directory that contains the log files.
    pub directory: PathBuf,
    /// Limits on each Gateway's files.
    pub bounds: LogBounds,
}

/// Limits on one Gateway's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Size in bytes at which the current file is rotated.
    pub file_bytes: u64,
    /// Maximum number of files, including the current one.
    pub files: usize,
    /// Age at which the current file is rotated.
    pub period: Duration,
    /// Number of bytes to keep free on the disk, or a tenth of the disk if that is less.
    pub free_bytes: u64,
}
