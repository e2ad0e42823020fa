//! Access logs in files: keeps what Envoys write within bounds, and lets people read it.
//!
//! Envoy opens a link in its runtime directory, which leads to a file in the directory of logs, or to `/dev/null` where there
//! is none that it can write to: a listener whose log cannot be opened is refused as a whole. So the way to the file may
//! change at any time, and no listener does.
//!
//! It must never be a reason not to serve, nor fill the disk that Envoy and the agent need.

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

/// Name of the link in an Envoy's runtime directory, and of the file that is written to.
pub(crate) const ACCESS_LOG: &str = "access.log";

/// Place to which Envoys write access logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AccessLogTo {
    /// A file for each Gateway.
    #[default]
    File,
    /// The standard output of the agent, or of the launcher where there is one.
    Stdout,
    /// Nowhere.
    Off,
}

/// Settings of access logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Place to which Envoys write them.
    pub to: AccessLogTo,
    /// Directory of the files.
    pub directory: PathBuf,
    /// Bounds of the files of each Gateway.
    pub bounds: LogBounds,
}

/// Bounds of the files of one Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Size in bytes at which the next file is begun.
    pub file_bytes: u64,
    /// Number of files, with the one that is written to.
    pub files: usize,
    /// Age at which the next file is begun.
    pub period: Duration,
    /// Bytes of the disk that stay free, unless a tenth of it is less.
    pub free_bytes: u64,
}
