//! Stores accounts, attempts and issued certificates. Files are sealed, and have mode 0600.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sesame_acme::{HeldCertificate, IssuedFacts, MAX_CHAIN_BYTES};
use sesame_files::open::{self, OpenError, Rule};
use sesame_host::durable::{create_directory, rename, write_file};
use sesame_host::entries;
use sesame_kinds::api::NamespacedName;
use sesame_proto::digest::sha256;

use crate::seal::SealingKeys;

/// Twice the largest chain, because sealed texts and JSON are longer.
const MAX_FILE_BYTES: u64 = 2 * MAX_CHAIN_BYTES as u64;
const CERTIFICATE: &str = "certificate-";
const RECORD: &str = "record-";

/// An issued certificate and its key.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredPair {
    #[serde(with = "name")]
    pub(super) secret: NamespacedName,
    pub(super) directory: String,
    pub(super) chain: String,
    pub(super) key: String,
}

mod name {
    use serde::{Deserialize as _, Deserializer, Serializer, de};
    use sesame_kinds::api::NamespacedName;

    pub(super) fn serialize<S: Serializer>(
        name: &NamespacedName,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<NamespacedName, D::Error> {
        let text = String::deserialize(from)?;
        let parts = text.split_once('/');
        let parts = parts.ok_or_else(|| de::Error::custom("expected namespace/name"))?;
        Ok(NamespacedName::new(parts.0, parts.1))
    }
}

pub(super) struct AcmeFiles {
    directory: PathBuf,
    sealing: Arc<SealingKeys>,
    held: Mutex<BTreeMap<NamespacedName, HeldCertificate>>,
}

impl AcmeFiles {
    pub(super) fn new(directory: PathBuf, sealing: Arc<SealingKeys>) -> Self {
        Self {
            directory,
            sealing,
            held: Mutex::default(),
        }
    }

    /// Skips damaged files, whose certificates are ordered again.
    pub(super) fn load(&self) -> BTreeMap<NamespacedName, StoredPair> {
        let mut found = BTreeMap::new();
        let listed = entries(&self.directory).unwrap_or_else(|error| {
            let path = self.directory.display();
            tracing::warn!(%path, %error, "cannot list issued certificates");
            Vec::new()
        });
        for path in listed {
            let file = path.file_name().and_then(|name| name.to_str());
            let Some(file) = file.filter(|file| file.starts_with(CERTIFICATE)) else {
                continue;
            };
            let pair = self.read(file).and_then(|text| {
                let text = text.ok_or("it has vanished")?;
                // The error must not quote the key.
                serde_json::from_str::<StoredPair>(&text).map_err(|_| "it is damaged".to_owned())
            });
            match pair {
                Ok(pair) if file == certificate_file(&pair.secret) => {
                    self.remember(&pair);
                    found.insert(pair.secret.clone(), pair);
                }
                Ok(_) => tracing::warn!(path = %path.display(), "ignoring a renamed certificate"),
                Err(why) => {
                    tracing::warn!(path = %path.display(), why, "cannot read a certificate");
                }
            }
        }
        found
    }

    pub(super) fn find(&self, secret: &NamespacedName) -> HeldCertificate {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(secret)
            .cloned()
            .unwrap_or(HeldCertificate::Missing)
    }

    pub(super) fn save(&self, pair: &StoredPair) -> Result<(), String> {
        let text = serde_json::to_string(pair);
        let text = text.map_err(|_| "the certificate cannot be stored".to_owned())?;
        self.write(&certificate_file(&pair.secret), &text)?;
        self.remember(pair);
        Ok(())
    }

    fn remember(&self, pair: &StoredPair) {
        let held = match IssuedFacts::read(pair.chain.as_bytes()) {
            Ok(facts) => HeldCertificate::Issued {
                facts,
                directory: pair.directory.clone(),
            },
            Err(_) => HeldCertificate::Missing,
        };
        let mut known = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(pair.secret.clone(), held);
    }

    pub(super) fn read_record(&self, name: &str) -> Result<Option<String>, String> {
        self.read(&record_file(name))
    }

    pub(super) fn write_record(&self, name: &str, text: &str) -> Result<(), String> {
        self.write(&record_file(name), text)
    }

    fn read(&self, file: &str) -> Result<Option<String>, String> {
        let path = self.directory.join(file);
        // An error must not look like a missing account, which would be created again.
        let exists = path.try_exists();
        if !exists.map_err(|error| format!("{}: {error}", path.display()))? {
            return Ok(None);
        }
        let stored = open::read(&path, Rule::Own, MAX_FILE_BYTES);
        let stored = stored.map_err(|error: OpenError| error.to_string())?;
        let opened = self.sealing.try_open_text(stored, Path::new(file));
        let (text, is_current) = opened.map_err(|error| format!("{}: {error}", path.display()))?;
        if !is_current && let Err(error) = self.write(file, &text) {
            tracing::warn!(path = %path.display(), error, "cannot reseal a file");
        }
        Ok(Some(text))
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.directory.join(file);
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let sealed = self
            .sealing
            .seal_text(text, Path::new(file))
            .map_err(|it| at(&it))?;
        create_directory(&self.directory).map_err(|error| at(&error))?;
        let staged = self.directory.join(format!(".{file}"));
        let written = write_file(&staged, &sealed).and_then(|()| rename(&staged, &path));
        written.map_err(|error| at(&error))
    }
}

fn certificate_file(secret: &NamespacedName) -> String {
    let digest = sha256(secret.to_string().as_bytes());
    format!("{CERTIFICATE}{digest}")
}

fn record_file(name: &str) -> String {
    format!("{RECORD}{name}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use sesame_host::durable::{DiskStep, STEPS};
    use sesame_proto::at_rest::SealingKey;

    use super::*;

    #[test]
    fn stored_certificates_are_sealed_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("acme");
        let key = SealingKey::from_random([7; 32]);
        let sealing = Arc::new(SealingKeys::with(key, "a test"));
        let files = AcmeFiles::new(directory.clone(), Arc::clone(&sealing));
        let pair = StoredPair {
            secret: NamespacedName::new("shop", "tls"),
            directory: "https://ca.test".to_owned(),
            chain: "chain".to_owned(),
            key: "PRIVATE".to_owned(),
        };
        files.save(&pair).unwrap();
        files.write_record("account", "PRIVATE").unwrap();
        for path in entries(&directory).unwrap() {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let stored = fs::read(&path).unwrap();
            assert!(!stored.windows(7).any(|part| part == b"PRIVATE"));
        }
        fs::write(directory.join("certificate-0"), b"{").unwrap();
        let again = AcmeFiles::new(directory, sealing);
        let loaded = again.load();
        assert_eq!(loaded.len(), 1);
        assert_eq!(loaded[&NamespacedName::new("shop", "tls")].key, "PRIVATE");
        assert_eq!(again.read_record("account"), Ok(Some("PRIVATE".to_owned())));
        assert_eq!(again.read_record("none"), Ok(None));
    }

    #[test]
    fn inaccessible_records_are_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("acme");
        fs::write(&file, b"").unwrap();
        let files = AcmeFiles::new(file, Arc::default());
        let why = files.read_record("account").unwrap_err();
        assert!(why.contains("record-account: "), "{why}");
    }

    #[test]
    fn writes_are_durable_before_rename() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("acme");
        let files = AcmeFiles::new(directory.clone(), Arc::default());
        STEPS.set(Some(Vec::new()));
        files.write_record("account", "text").unwrap();
        let steps = STEPS.take().unwrap();
        let staged = directory.join(".record-account");
        let written = DiskStep::SyncFile(staged.clone());
        let renamed = DiskStep::Rename(staged, directory.join("record-account"));
        let listed = DiskStep::SyncDirectory(directory);
        assert!(steps.ends_with(&[written, renamed, listed]), "{steps:?}");
    }
}
