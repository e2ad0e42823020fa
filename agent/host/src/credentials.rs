//! Finds credentials that the service manager passes to this process.
//!
//! As in a systemd unit, `%d/` at the beginning of a path stands for the credentials directory.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";
const PREFIX: &str = "%d";

/// Error in a path that begins with `%d/`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    #[error(
        "{0}: this process has no credentials ($CREDENTIALS_DIRECTORY is not set); add LoadCredential={name}:FILE to its unit, or set the path of the file", name = .0.trim_start_matches("%d/")
    )]
    /// Missing credentials directory. Contains the configured path.
    None(String),
    /// The part after `%d/` is not a plain file name.
    #[error("{0}: expected the name of a credential after %d/")]
    Name(String),
}

/// Returns paths without `%d/` unchanged.
pub fn resolve(path: PathBuf) -> Result<PathBuf, CredentialError> {
    below(std::env::var_os(DIRECTORY).as_deref(), path)
}

fn below(directory: Option<&OsStr>, path: PathBuf) -> Result<PathBuf, CredentialError> {
    let Ok(name) = path.strip_prefix(PREFIX) else {
        return Ok(path);
    };
    let named = || path.display().to_string();
    let mut parts = name.components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else {
        return Err(CredentialError::Name(named()));
    };
    match directory {
        Some(directory) if !directory.is_empty() => Ok(Path::new(directory).join(name)),
        _ => Err(CredentialError::None(named())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(directory: Option<&str>, path: &str) -> Result<PathBuf, CredentialError> {
        below(directory.map(OsStr::new), path.into())
    }

    #[test]
    fn only_credential_prefix_resolves_to_directory() {
        let directory = Some("/run/credentials/x");
        let found = resolved(directory, "%d/token");
        assert_eq!(found, Ok("/run/credentials/x/token".into()));
        assert_eq!(resolved(directory, "/etc/%d/a"), Ok("/etc/%d/a".into()));
        assert_eq!(resolved(None, "%data"), Ok("%data".into()));
    }

    #[test]
    fn invalid_credential_names_are_refused() {
        for path in ["%d", "%d/", "%d/a/b", "%d/../shadow"] {
            let refused = resolved(Some("/run/credentials/x"), path);
            assert!(matches!(refused, Err(CredentialError::Name(_))), "{path}");
        }
        let error = resolved(None, "%d/token").unwrap_err().to_string();
        assert!(error.contains("LoadCredential=token:FILE"), "{error}");
    }
}
