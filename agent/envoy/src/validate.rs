//! Validates a configuration with `envoy --mode validate`.
//!
//! In this mode, Envoy reads no dynamic files, so all resources must be static. It silently ignores
//! everything after a malformed part of a `.pb` file, so only encoded messages can be validated.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::log;
use sesame_host::create_directory;

/// Time limit for a validation. With 5,000 clusters and routes, it takes 1.5 s on one core, but the
/// host may be busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// Envoy's verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Envoy accepts the configuration.
    Valid,
    /// Envoy rejects the configuration.
    Invalid {
        /// Envoy's error message.
        envoy_words: String,
    },
}

/// Why a configuration could not be validated.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// Cannot run the program or write its input.
    #[error("cannot run `{binary} --mode validate`: {source}")]
    Io {
        /// Path of the program.
        binary: String,
        /// Operating system error.
        source: io::Error,
    },
    /// Envoy did not finish in time.
    #[error("`envoy --mode validate` did not finish within {} s", DEADLINE.as_secs())]
    Timeout,
    /// A signal killed Envoy.
    #[error("`envoy --mode validate` was killed by a signal: {envoy_words}")]
    Killed {
        /// Envoy's last log lines.
        envoy_words: String,
    },
}

/// Validates an encoded bootstrap, using a private temporary file in `directory`.
pub async fn validate(
    binary: &Path,
    directory: &Path,
    bootstrap: &[u8],
) -> Result<Validity, ValidateError> {
    let failed = |source| ValidateError::Io {
        binary: binary.display().to_string(),
        source,
    };
    create_directory(directory).map_err(failed)?;
    // `tempfile` creates the file with mode 0600, and removes it on drop.
    let mut file = tempfile::Builder::new()
        .prefix("validate")
        .suffix(".pb")
        .tempfile_in(directory)
        .map_err(failed)?;
    io::Write::write_all(&mut file, bootstrap).map_err(failed)?;
    let run = Command::new(binary)
        .args(["--mode", "validate", "--disable-hot-restart"])
        .args(["--concurrency", "1", "--log-level", "warning"])
        .args(["--log-format", log::FORMAT])
        .arg("--config-path")
        .arg(file.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(DEADLINE, run)
        .await
        .map_err(|_| ValidateError::Timeout)?
        .map_err(failed)?;
    if output.status.success() {
        return Ok(Validity::Valid);
    }
    let envoy_words = log::worst(&String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(_) => Ok(Validity::Invalid { envoy_words }),
        None => Err(ValidateError::Killed { envoy_words }),
    }
}
