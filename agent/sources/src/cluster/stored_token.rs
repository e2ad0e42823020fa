//! Stores the token with which a joined host authenticates to its cluster.
//!
//! The token is sealed on disk; a plaintext copy exists only in the runtime directory. The sealed
//! file is written before the copy, so a host can recreate the copy after a crash. Never print or
//! log a token, and never leave it on disk in plaintext unless sealing is off.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Config;
use kube::config::AuthInfo;
use serde_json::json;
use sesame_files::open::{self, Rule};
use sesame_proto::at_rest;
use sesame_published::credential::MAX_CREDENTIAL_BYTES;

use crate::seal::SealingKeys;
use sesame_host::durable::replace_file;
use sesame_host::remove_if_exists;

const COPY: &str = "cluster-token";
const PLACE: &str = "cluster/token";
const MAX_BYTES: u64 = 2 * MAX_CREDENTIAL_BYTES;

/// Accesses the host's stored token. The agent's handle also maintains the plaintext copy.
#[derive(Clone, Debug)]
pub struct StoredToken {
    copy: PathBuf,
    sealing: Arc<SealingKeys>,
    /// True for the agent, which maintains the copy. Commands only read it.
    copies: bool,
}

impl StoredToken {
    /// Creates the agent's handle, which maintains the plaintext copy.
    pub fn of_agent(runtime_dir: &Path, sealing: Arc<SealingKeys>) -> Self {
        Self {
            copies: true,
            ..Self::of_command(runtime_dir, sealing)
        }
    }

    /// Creates a handle for a command, which never writes the plaintext copy.
    pub fn of_command(runtime_dir: &Path, sealing: Arc<SealingKeys>) -> Self {
        Self {
            copy: Self::copy_below(runtime_dir),
            sealing,
            copies: false,
        }
    }

    /// Returns the path of the plaintext copy.
    pub fn copy_below(runtime_dir: &Path) -> PathBuf {
        runtime_dir.join(COPY)
    }

    /// Returns an error if tokens cannot be sealed. Call before requesting a token.
    pub fn check(&self) -> Result<(), String> {
        let sealed = self.sealing.seal_text("", Path::new(PLACE));
        sealed.map(drop).map_err(|error| error.to_string())
    }

    /// Returns the unsealed token, or `None` if the file does not exist.
    /// Fails if the file is not trusted or cannot be unsealed.
    pub fn read(&self, path: &Path) -> Result<Option<String>, String> {
        // Commands may run as root, so accept a file that the agent's user owns.
        let rule = if self.copies {
            Rule::Named
        } else {
            Rule::Given
        };
        let stored = match open::read(path, rule, MAX_BYTES) {
            Ok(stored) => stored,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        self.open(stored, path).map(|(text, _)| Some(text))
    }

    /// The agent also updates the copy, which existing clients reread.
    pub fn store(&self, path: &Path, token: &str) -> Result<(), String> {
        let at = |why: String| format!("{}: {why}", path.display());
        let sealed = self.sealing.seal_text(token, Path::new(PLACE));
        let sealed = sealed.map_err(|error| at(error.to_string()))?;
        replace_file(path, &sealed).map_err(|error| at(error.to_string()))?;
        if self.copies {
            self.copy(&sealed, token)?;
        }
        Ok(())
    }

    /// Converts the stored token to the configured form: sealed, or plaintext if sealing is off.
    pub fn reseal(&self, path: &Path) -> Result<(), String> {
        let stored = open::read(path, Rule::Named, MAX_BYTES).map_err(|error| error.to_string())?;
        match self.open(stored, path)? {
            (_, true) => Ok(()),
            (token, false) => self.store(path, &token),
        }
    }

    /// Updates the copy, in case another `join` has replaced the token.
    pub fn settle(&self, path: &Path) -> Result<(), String> {
        let stored = open::read(path, Rule::Named, MAX_BYTES).map_err(|error| error.to_string())?;
        let (token, _) = self.open(stored.clone(), path)?;
        self.copy(&stored, &token)
    }

    /// Makes the client read the copy, or the token file itself if that is plaintext.
    pub(crate) fn lead(&self, config: &mut Config) -> Result<(), String> {
        let Some(path) = config.auth_info.token_file.clone().map(PathBuf::from) else {
            return Ok(());
        };
        let stored =
            open::read(&path, Rule::Named, MAX_BYTES).map_err(|error| error.to_string())?;
        if !at_rest::is_sealed(&stored) {
            return Ok(());
        }
        match self.open(stored.clone(), &path) {
            Ok((token, _)) if self.copies => self.copy(&stored, &token)?,
            Ok((token, _)) => {
                let user: Result<AuthInfo, _> = serde_json::from_value(json!({"token": token}));
                config.auth_info = user.map_err(|_| format!("{}: not a token", path.display()))?;
                return Ok(());
            }
            // Fall back to the copy written by an agent with the sealing keys.
            Err(_) if self.copy.exists() => {}
            Err(error) => return Err(error),
        }
        config.auth_info.token_file = Some(self.copy.to_string_lossy().into_owned());
        Ok(())
    }

    /// Removes the copy if the stored token is in plaintext.
    fn copy(&self, stored: &[u8], token: &str) -> Result<(), String> {
        let at = |error: std::io::Error| format!("{}: {error}", self.copy.display());
        if !at_rest::is_sealed(stored) {
            return remove_if_exists(&self.copy).map_err(at);
        }
        let now = open::read_text(&self.copy, Rule::Own, MAX_CREDENTIAL_BYTES);
        if now.is_ok_and(|now| now == token) {
            return Ok(());
        }
        replace_file(&self.copy, token.as_bytes()).map_err(at)
    }

    fn open(&self, stored: Vec<u8>, path: &Path) -> Result<(String, bool), String> {
        let opened = self.sealing.try_open_text(stored, Path::new(PLACE));
        opened.map_err(|error| {
            format!(
                "{}: the credential of this host {error}; restore the sealing key, or join again with a new token (`sesame-agent join --replace`)",
                path.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use sesame_proto::at_rest::SealingKey;

    use super::*;

    fn with(byte: u8) -> Arc<SealingKeys> {
        let key = SealingKey::from_random([byte; 32]);
        Arc::new(SealingKeys::with(key, "a test"))
    }

    fn client(path: &Path) -> Config {
        let mut config = Config::new("https://127.0.0.1".parse().unwrap());
        config.auth_info.token_file = Some(path.to_string_lossy().into_owned());
        config
    }

    #[test]
    fn cleartext_token_is_sealed_and_clients_get_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let copy = StoredToken::copy_below(dir.path());
        fs::write(&path, "secret-token").unwrap();
        let agent = StoredToken::of_agent(dir.path(), with(1));
        for _ in 0..2 {
            agent.reseal(&path).unwrap();
            let stored = fs::read(&path).unwrap();
            assert!(at_rest::is_sealed(&stored));
            assert!(!stored.windows(6).any(|part| part == b"secret"));
            assert_eq!(agent.read(&path).unwrap().unwrap(), "secret-token");
        }
        let modes = || [&path, &copy].map(|it| fs::metadata(it).unwrap().permissions().mode());
        // The agent rewrites a missing or outdated copy.
        for before in [None, Some("older-token")] {
            match before {
                None => fs::remove_file(&copy).unwrap(),
                Some(before) => fs::write(&copy, before).unwrap(),
            }
            let mut config = client(&path);
            agent.lead(&mut config).unwrap();
            assert_eq!(config.auth_info.token_file.as_deref(), copy.to_str());
            assert_eq!(fs::read_to_string(&copy).unwrap(), "secret-token");
            assert_eq!(modes().map(|mode| mode & 0o777), [0o600, 0o600]);
        }

        let mut config = client(&path);
        StoredToken::of_command(dir.path(), with(1))
            .lead(&mut config)
            .unwrap();
        assert!(config.auth_info.token.is_some());
        let other = StoredToken::of_command(dir.path(), with(2));
        let mut config = client(&path);
        other.lead(&mut config).unwrap();
        assert_eq!(config.auth_info.token_file.as_deref(), copy.to_str());
        fs::remove_file(&copy).unwrap();
        let error = other.lead(&mut client(&path)).unwrap_err();
        assert!(
            error.contains("join again") && !error.contains("secret"),
            "{error}"
        );

        let off = SealingKeys::with(SealingKey::from_random([1; 32]), "a test").without_sealing();
        let off = StoredToken::of_agent(dir.path(), Arc::new(off));
        off.reseal(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret-token");
        let mut config = client(&path);
        off.lead(&mut config).unwrap();
        assert_eq!(config.auth_info.token_file.as_deref(), path.to_str());
        assert!(!copy.exists());
    }
}
