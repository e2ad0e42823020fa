//! Locates the Envoy binary and reads its version.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// The package installs Envoy here. Only the systemd units have this directory in their `PATH`.
const PACKAGED: &str = "/usr/lib/sesame";

/// Error while locating Envoy.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// The configured path is not an executable file.
    #[error("{origin}: {path} is not an executable file; set it to the path of an Envoy binary", path = .path.display())]
    NotExecutable {
        /// Option or environment variable that sets the path.
        origin: &'static str,
        /// The configured path.
        path: PathBuf,
    },
    /// No path is configured, and no `envoy` was found.
    #[error(
        "Envoy not found: no path is set, $ENVOY is unset, and PATH contains no `envoy`; install Envoy or set its path"
    )]
    NotFound,
    /// The version could not be determined.
    #[error("{path} {argument}: {reason}", path = .path.display())]
    Version {
        /// Path of the binary.
        path: PathBuf,
        /// Argument that prints the version.
        argument: &'static str,
        /// The reason.
        reason: String,
    },
}

/// Envoy version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Version number, such as `1.40.0`.
    pub number: (u32, u32, u32),
    /// Complete version, such as `commit/1.40.0/Clean/RELEASE/BoringSSL`.
    pub build: String,
}

impl Version {
    /// Parses a complete version, as in [`Self::build`].
    /// Returns `None` if its second part is not `MAJOR.MINOR.PATCH`.
    pub fn of_build(build: &str) -> Option<Self> {
        let mut parts = build.split('/').nth(1)?.split(['.', '-']);
        let mut part = || parts.next()?.parse().ok();
        Some(Self {
            number: (part()?, part()?, part()?),
            build: build.to_owned(),
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor, patch) = self.number;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Returns the configured path, `$ENVOY`, or the first `envoy` in `PATH` or the package's
/// directory.
pub fn locate(given: Option<&Path>) -> Result<PathBuf, LocateError> {
    let env = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = env("PATH").unwrap_or_default();
    let search = std::env::split_paths(&path).chain([PathBuf::from(PACKAGED)]);
    find(given, env("ENVOY").as_deref(), search)
}

fn find(
    given: Option<&Path>,
    variable: Option<&OsStr>,
    search: impl IntoIterator<Item = PathBuf>,
) -> Result<PathBuf, LocateError> {
    let named = [
        ("the given path", given),
        ("$ENVOY", variable.map(Path::new)),
    ];
    for (origin, path) in named {
        if let Some(path) = path {
            return if is_executable(path) {
                Ok(path.to_owned())
            } else {
                Err(LocateError::NotExecutable {
                    origin,
                    path: path.to_owned(),
                })
            };
        }
    }
    search
        .into_iter()
        .map(|directory| directory.join("envoy"))
        .find(|path| is_executable(path))
        .ok_or(LocateError::NotFound)
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Runs the binary to read its version.
pub async fn version(path: &Path) -> Result<Version, LocateError> {
    ask(path, "--version", "`version: commit/x.y.z/…`", |output| {
        parse_version(&String::from_utf8_lossy(&output.stdout))
    })
    .await
}

pub(super) async fn ask<T>(
    path: &Path,
    argument: &'static str,
    expected: &str,
    read: impl FnOnce(&Output) -> Option<T>,
) -> Result<T, LocateError> {
    let fail = |reason: String| LocateError::Version {
        path: path.to_owned(),
        argument,
        reason,
    };
    let output = Command::new(path)
        .arg(argument)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(VERSION_TIMEOUT, output)
        .await
        .map_err(|_| {
            fail(format!(
                "no response within {} s",
                VERSION_TIMEOUT.as_secs()
            ))
        })?
        .map_err(|error| fail(error.to_string()))?;
    read(&output).ok_or_else(|| {
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        let start: String = printed.trim().chars().take(100).collect();
        fail(format!("expected {expected}, got `{start}`; is it Envoy?"))
    })
}

fn parse_version(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once("version: ")?;
    Version::of_build(rest.split_whitespace().next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read() {
        let build = "9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL";
        let text = format!("\nenvoy  version: {build}\n\n");
        let version = parse_version(&text).unwrap();
        assert_eq!(version.number, (1, 40, 0));
        assert_eq!(version.build, build);
        assert_eq!(
            parse_version("version: c/1.41.2-dev/x").unwrap().number,
            (1, 41, 2)
        );
        assert_eq!(parse_version("nginx version: nginx"), None);
    }

    #[test]
    fn named_binary_is_not_replaced_from_path() {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("envoy");
        std::fs::write(&binary, "").unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        let search = || [directory.path().to_owned()];
        assert_eq!(find(None, None, search()).unwrap(), binary);
        let missing = directory.path().join("missing");
        assert!(find(Some(&missing), None, search()).is_err());
        assert!(find(None, Some(missing.as_os_str()), search()).is_err());
        assert!(matches!(find(None, None, []), Err(LocateError::NotFound)));
    }
}
