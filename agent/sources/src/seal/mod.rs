//! Seals the private keys that the agent stores on disk.
//!
//! The agent can open data with any of the host's sealing keys, and seals new data with the
//! preferred key. Never print a key. Never overwrite an unreadable key file, because its key may
//! still be needed.

mod key_file;
mod systemd_creds;

use std::path::{Path, PathBuf};

use sesame_files::random;
use sesame_proto::at_rest::{self, AtRestError, SealingKey, StoredPair};
use sesame_proto::keys::KeyPair;

pub use self::systemd_creds::make_credential;

/// Name of the systemd credential that contains the sealing key.
pub const CREDENTIAL: &str = "sesame-seal-key";

/// How private keys at rest are sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SealMethod {
    /// With `systemd-creds` if it works, else with a key file.
    #[default]
    Auto,
    /// With a key that `systemd-creds` encrypts for this host; if that fails, private keys are
    /// not stored.
    SystemdCreds,
    /// With a key in a separate file of mode 0600.
    KeyFile,
    /// No sealing: private keys are stored in plaintext, in files with mode 0600.
    Off,
}

/// Settings for sealing.
#[derive(Clone, Debug)]
pub struct SealSettings {
    /// Source of the sealing key.
    pub method: SealMethod,
    /// Directory of the key file.
    pub directory: PathBuf,
}

/// Why data could not be sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealingError {
    /// No key is usable, but plaintext is forbidden.
    #[error("cannot seal private keys, and storing them in plaintext is not allowed: {0}")]
    NoKey(String),
    /// The kernel returned no random bytes.
    #[error("cannot get random numbers from the kernel: {0}")]
    Random(String),
    /// The sealed data cannot be opened.
    #[error(transparent)]
    AtRest(#[from] AtRestError),
}

/// The host's sealing keys.
#[derive(Clone, Debug)]
pub struct SealingKeys {
    /// `None` if sealing is off. `Err` explains why no key is usable.
    current: Result<Option<SealingKey>, String>,
    known: Vec<SealingKey>,
    place: String,
    problems: Vec<String>,
}

impl Default for SealingKeys {
    fn default() -> Self {
        Self::clear()
    }
}

impl SealingKeys {
    /// Creates an instance without keys, so data is stored in plaintext.
    pub fn clear() -> Self {
        Self {
            current: Ok(None),
            known: Vec::new(),
            place: "off".to_owned(),
            problems: Vec::new(),
        }
    }

    /// Creates an instance with one key. `place` is the key's location, shown to users.
    pub fn with(key: SealingKey, place: &str) -> Self {
        Self {
            current: Ok(Some(key.clone())),
            known: vec![key],
            place: place.to_owned(),
            problems: Vec::new(),
        }
    }

    /// Reads the host's keys. If sealing is on and no key exists, creates one.
    pub async fn prepare(settings: &SealSettings) -> Self {
        let SealSettings { method, directory } = settings;
        let mut keys = Self::clear();
        let handed = keys.add_found(systemd_creds::handed_over().transpose());
        let credential = keys.add_found(systemd_creds::read(directory).await.transpose());
        let lost = directory.join(systemd_creds::FILE).exists() && credential.is_none();
        let file = keys.add_found(key_file::read(directory).transpose());
        let by_systemd = handed.or(credential);
        let made = match method {
            SealMethod::Off => return keys,
            SealMethod::Auto | SealMethod::SystemdCreds if by_systemd.is_some() => Ok(by_systemd),
            // Keep the file: without its key, existing sealed data would become unreadable.
            SealMethod::SystemdCreds if lost => Err(format!(
                "{} cannot be read; fix it, or remove it to create a new one",
                directory.join(systemd_creds::FILE).display()
            )),
            SealMethod::SystemdCreds => systemd_creds::create(directory).await.map(Some),
            SealMethod::Auto if lost || file.is_some() => Ok(None),
            SealMethod::Auto => Ok(systemd_creds::create(directory).await.ok()),
            SealMethod::KeyFile => Ok(None),
        };
        let found = match (made, file) {
            (Ok(Some(found)), _) => Ok(found),
            (Ok(None), Some(file)) => Ok(file),
            (Ok(None), None) => key_file::create(directory),
            (Err(why), _) => Err(why),
        };
        match found {
            Ok((key, place)) => {
                if !keys.known.contains(&key) {
                    keys.known.push(key.clone());
                }
                keys.current = Ok(Some(key));
                keys.place = place;
            }
            Err(why) => {
                "nowhere".clone_into(&mut keys.place);
                keys.problems.push(format!(
                    "private keys are not stored for the next start, because they cannot be sealed: {why}"
                ));
                keys.current = Err(why);
            }
        }
        keys
    }

    /// Reads the host's keys only to open sealed data. Creates no key; new data is stored in
    /// plaintext.
    pub async fn found(settings: &SealSettings) -> Self {
        let directory = &settings.directory;
        let mut keys = Self::clear();
        keys.add_found(systemd_creds::handed_over().transpose());
        keys.add_found(systemd_creds::read(directory).await.transpose());
        keys.add_found(key_file::read(directory).transpose());
        keys
    }

    #[cfg(test)]
    pub(crate) fn without_sealing(self) -> Self {
        Self {
            current: Ok(None),
            ..self
        }
    }

    fn add_found(&mut self, found: Option<Result<Found, String>>) -> Option<Found> {
        match found? {
            Ok(found) => {
                self.known.push(found.0.clone());
                Some(found)
            }
            Err(why) => {
                self.problems
                    .push(format!("cannot read a sealing key of this host: {why}"));
                None
            }
        }
    }

    /// Returns the current key's location, shown to users.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns problems with the keys, one sentence each.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    fn key(&self) -> Result<Option<&SealingKey>, SealingError> {
        let current = self.current.as_ref();
        current
            .map(Option::as_ref)
            .map_err(|why| SealingError::NoKey(why.clone()))
    }

    /// Seals a key pair for storage, unless sealing is off.
    pub fn seal_pair(&self, pair: &KeyPair) -> Result<StoredPair, SealingError> {
        match self.key()? {
            Some(key) => Ok(StoredPair::sealed(pair, key, salt()?)?),
            None => Ok(StoredPair::clear(pair.clone())),
        }
    }

    /// Opens a stored key pair.
    pub fn open_pair(&self, stored: &StoredPair) -> Result<KeyPair, SealingError> {
        Ok(stored.open(&self.known)?)
    }

    /// Returns false if the pair should be resealed with the current key.
    pub fn is_current(&self, stored: &StoredPair) -> bool {
        match &self.current {
            Ok(key) => stored.is_sealed_with(key.as_ref()),
            // Without a usable key, the pair cannot be resealed.
            Err(_) => true,
        }
    }

    /// Seals a string for this path, unless sealing is off.
    pub fn seal_text(&self, text: &str, place: &Path) -> Result<Vec<u8>, SealingError> {
        let place = place.as_os_str().as_encoded_bytes();
        match self.key()? {
            Some(key) => Ok(key.seal(text.as_bytes(), place, salt()?)?),
            None => Ok(text.as_bytes().to_vec()),
        }
    }

    /// Opens a string that was sealed for this path. The boolean is false if the string should be
    /// resealed.
    pub fn open_text(&self, stored: Vec<u8>, place: &Path) -> Option<(String, bool)> {
        self.try_open_text(stored, place).ok()
    }

    /// Like [`Self::open_text`], but returns the error.
    pub fn try_open_text(
        &self,
        stored: Vec<u8>,
        place: &Path,
    ) -> Result<(String, bool), SealingError> {
        let text = |bytes| String::from_utf8(bytes).map_err(|_| AtRestError::Damaged);
        if !at_rest::is_sealed(&stored) {
            return Ok((text(stored)?, self.current == Ok(None)));
        }
        let current = match &self.current {
            Ok(Some(key)) => at_rest::is_sealed_with(&stored, key),
            Ok(None) => false,
            Err(_) => true,
        };
        let place = place.as_os_str().as_encoded_bytes();
        let opened = at_rest::open(&stored, place, &self.known)?;
        Ok((text(opened)?, current))
    }
}

type Found = (SealingKey, String);

fn salt() -> Result<[u8; 32], SealingError> {
    let mut salt = [0; 32];
    random::fill(&mut salt).map_err(|error| SealingError::Random(error.to_string()))?;
    Ok(salt)
}

fn new_key() -> Result<SealingKey, String> {
    let bytes = salt().map_err(|error| error.to_string())?;
    Ok(SealingKey::from_random(bytes))
}

#[cfg(test)]
mod tests;
