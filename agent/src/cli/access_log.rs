//! Access log options.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use sesame_envoy::access_log::{AccessLogSettings, AccessLogTo, LogBounds};

/// Set by systemd to the unit's log directories.
const LOGS_DIRECTORY: &str = "LOGS_DIRECTORY";

#[derive(Debug, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "fields are named after command-line options"
)]
#[command(next_help_heading = "Access logs")]
pub(crate) struct AccessLogArgs {
    /// Destination for the access logs, one JSON object per line: a file per Gateway (`sesame-agent
    /// logs`), the agent's or its launcher's standard output, or none.
    #[arg(
        long,
        env = "SESAME_ACCESS_LOG",
        value_enum,
        default_value_t,
        value_name = "PLACE"
    )]
    access_log: AccessLogTo,
    /// Directory for the access log files, writable by Envoy; by default the unit's log directory,
    /// else `access-logs` in the state directory.
    #[arg(long, env = "SESAME_ACCESS_LOG_DIR", value_name = "DIR")]
    access_log_dir: Option<PathBuf>,
    /// Size at which an access log file is rotated.
    #[arg(
        long,
        env = "SESAME_ACCESS_LOG_MIB",
        default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20),
        value_name = "MIB"
    )]
    access_log_mib: u64,
    /// Number of access log files to keep for each Gateway; the oldest are removed.
    #[arg(
        long,
        env = "SESAME_ACCESS_LOG_FILES",
        default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(2..=1000),
        value_name = "N"
    )]
    access_log_files: u32,
    /// Age at which an access log file is rotated.
    #[arg(
        long,
        env = "SESAME_ACCESS_LOG_HOURS",
        default_value_t = 24,
        value_parser = clap::value_parser!(u64).range(1..=8760),
        value_name = "HOURS"
    )]
    access_log_hours: u64,
    /// Disk space to leave free, but at most a tenth of the disk. If space runs short, old files
    /// are removed first, then logging pauses.
    #[arg(
        long,
        env = "SESAME_ACCESS_LOG_FREE_MIB",
        default_value_t = 512,
        value_parser = clap::value_parser!(u64).range(0..=1 << 20),
        value_name = "MIB"
    )]
    access_log_free_mib: u64,
}

impl AccessLogArgs {
    pub(super) fn settings(self, state_dir: &Path) -> AccessLogSettings {
        let Self {
            access_log,
            access_log_dir,
            access_log_mib,
            access_log_files,
            access_log_hours,
            access_log_free_mib,
        } = self;
        let directory = access_log_dir
            .or_else(logs_directory)
            .unwrap_or_else(|| state_dir.join("access-logs"));
        AccessLogSettings {
            to: access_log,
            // Make the path absolute, because Envoy opens the file through a symbolic link in
            // another directory.
            directory: std::path::absolute(&directory).unwrap_or(directory),
            bounds: LogBounds {
                file_bytes: access_log_mib << 20,
                files: access_log_files as usize,
                period: Duration::from_secs(access_log_hours * 3600),
                free_bytes: access_log_free_mib << 20,
            },
        }
    }
}

fn logs_directory() -> Option<PathBuf> {
    let all = std::env::var_os(LOGS_DIRECTORY)?;
    std::env::split_paths(&all)
        .next()
        .filter(|first| first.is_absolute())
}
