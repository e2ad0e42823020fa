//! Trusted keys, host identity and applied bundles: the state that decides which bundles are
//! accepted.
//!
//! | in `bundles/` | content |
//! |---|---|
//! | `trusted/ID.pem` | a public key that may sign bundles |
//! | `identity` | this host's private key, sealed, mode 0600, never printed or exported |
//! | `identity.pub` | its public key, readable without a sealing key |
//! | `taken/HASH.json` | the last bundle applied for a Gateway |
//! | `allowed/DIGEST.allow` | marks a bundle that may be applied even if it is older |

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sesame_files::open::{self, OpenError, Rule};
use sesame_files::random;
use sesame_kinds::api::NamespacedName;
use sesame_proto::at_rest;
use sesame_proto::bundle::sealed::HostIdentity;
use sesame_proto::digest::sha256;
use sesame_proto::signature::TrustedKeys;

use crate::seal::SealingKeys;
use sesame_host::durable::{self, create_directory};

const MAX_FILE_BYTES: u64 = 64 << 10;
const KEY_SUFFIX: &str = ".pem";
const ALLOWANCE_SUFFIX: &str = ".allow";
const IDENTITY: &str = "identity";
const PUBLIC: &str = "identity.pub";
const PLACE: &str = "bundles/identity";

/// Why this state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleStateError {
    /// System error.
    #[error("{path}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
    /// Reading a file would be unsafe.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Unexpected content.
    #[error("{path}: {reason}")]
    Content {
        /// File.
        path: PathBuf,
        /// Reason and remedy.
        reason: String,
    },
}

/// The last bundle applied for a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TakenBundle {
    /// Name of the Gateway, for humans who read the file.
    pub gateway: String,
    /// Highest sequence number ever applied.
    pub highest: u64,
    /// Last sequence number. Lower than `highest` if an older bundle was allowed.
    pub sequence: u64,
    /// Digest of the last bundle.
    pub digest: String,
}

/// Bundle state in a state directory.
#[derive(Clone, Debug)]
pub struct BundleState {
    root: PathBuf,
    sealing: Arc<SealingKeys>,
}

/// Returns true if a change to this file may affect which bundles are accepted.
pub fn is_state(name: &std::ffi::OsStr) -> bool {
    let name = name.to_str().unwrap_or_default();
    name == IDENTITY || name.ends_with(KEY_SUFFIX) || name.ends_with(ALLOWANCE_SUFFIX)
}

impl BundleState {
    /// Opens or creates the state directory. It must belong to the current user, because the agent
    /// cannot read files that another user writes there.
    pub fn open(state_dir: &Path) -> Result<Self, BundleStateError> {
        let this = rustix::process::geteuid().as_raw();
        if let Ok(metadata) = fs::metadata(state_dir)
            && metadata.uid() != this
        {
            let owner = metadata.uid();
            return Err(BundleStateError::Content {
                path: state_dir.to_owned(),
                reason: format!(
                    "belongs to user {owner}, who runs the agent; run this command as that user: `sudo -u '#{owner}' sesame-agent …`"
                ),
            });
        }
        let root = state_dir.join("bundles");
        for path in [
            root.clone(),
            root.join("trusted"),
            root.join("taken"),
            root.join("allowed"),
        ] {
            create_directory(&path).map_err(at(&path))?;
        }
        Ok(Self {
            root,
            sealing: Arc::default(),
        })
    }

    /// Sets the keys that seal the identity.
    #[must_use]
    pub fn sealed_with(mut self, sealing: Arc<SealingKeys>) -> Self {
        self.sealing = sealing;
        self
    }

    /// Returns the path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the keys that may sign bundles.
    pub fn trusted(&self) -> Result<TrustedKeys, BundleStateError> {
        let mut keys = TrustedKeys::default();
        for path in self.files("trusted", KEY_SUFFIX)? {
            let pem = open::read(&path, Rule::Own, MAX_FILE_BYTES)?;
            keys.add_pem(&pem)
                .map_err(|error| BundleStateError::Content {
                    path,
                    reason: error.to_string(),
                })?;
        }
        Ok(keys)
    }

    /// Trusts additional keys.
    pub fn trust(&self, keys: &TrustedKeys) -> Result<(), BundleStateError> {
        for (id, pem) in keys.to_pem() {
            let path = self.root.join("trusted").join(format!("{id}{KEY_SUFFIX}"));
            durable::replace_file(&path, pem.as_bytes()).map_err(at(&path))?;
        }
        Ok(())
    }

    /// Returns false if the key was not trusted.
    pub fn distrust(&self, id: &str) -> Result<bool, BundleStateError> {
        // Compare with existing names, because an identifier must never be used as a path.
        let name = format!("{id}{KEY_SUFFIX}");
        for path in self.files("trusted", KEY_SUFFIX)? {
            if path.file_name().is_some_and(|found| *found == *name) {
                return remove(&path).map(|()| true);
            }
        }
        Ok(false)
    }

    /// Returns the identity of this host, if it has one.
    pub fn identity(&self) -> Result<Option<HostIdentity>, BundleStateError> {
        let path = self.root.join(IDENTITY);
        let stored = match open::read(&path, Rule::Own, MAX_FILE_BYTES) {
            Ok(stored) => stored,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let content = |reason| BundleStateError::Content {
            path: path.clone(),
            reason,
        };
        let opened = self.sealing.try_open_text(stored, Path::new(PLACE));
        let (text, is_current) = opened.map_err(|error| {
            content(format!(
                "{error}; restore the sealing key, or remove the file, create a new identity (`sesame-agent identity`) and seal bundles to it"
            ))
        })?;
        let identity = HostIdentity::parse(&text).map_err(|error| content(error.to_string()))?;
        if !is_current && let Err(error) = self.seal(&identity) {
            tracing::warn!("cannot seal the identity of this host: {error}");
        }
        Ok(Some(identity))
    }

    /// Stores the public key first. If sealing is off, stores the identity in plaintext.
    fn seal(&self, identity: &HostIdentity) -> Result<(), BundleStateError> {
        let path = self.root.join(PUBLIC);
        let public = format!("{}\n", identity.public());
        durable::replace_file(&path, public.as_bytes()).map_err(at(&path))?;
        let path = self.root.join(IDENTITY);
        let sealed = self
            .sealing
            .seal_text(&identity.stored(), Path::new(PLACE))
            .map_err(|error| BundleStateError::Content {
                path: path.clone(),
                reason: error.to_string(),
            })?;
        durable::replace_file(&path, &sealed).map_err(at(&path))
    }

    /// Returns the public key of a sealed identity, without needing the sealing key.
    pub fn sealed_identity(&self) -> Result<Option<String>, BundleStateError> {
        let sealed = open::read(&self.root.join(IDENTITY), Rule::Own, MAX_FILE_BYTES);
        if !sealed.is_ok_and(|stored| at_rest::is_sealed(&stored)) {
            return Ok(None);
        }
        let public = open::read_text(&self.root.join(PUBLIC), Rule::Own, MAX_FILE_BYTES)?;
        Ok(Some(public.trim_end().to_owned()))
    }

    /// Returns the identity, and true if it was just created.
    pub fn create_identity(&self) -> Result<(HostIdentity, bool), BundleStateError> {
        if let Some(identity) = self.identity()? {
            return Ok((identity, false));
        }
        let path = self.root.join(IDENTITY);
        let mut bytes = [0; 32];
        random::fill(&mut bytes).map_err(at(&path))?;
        let identity = HostIdentity::from_random(bytes);
        self.seal(&identity)?;
        Ok((identity, true))
    }

    /// Returns the last bundle applied for a Gateway.
    pub fn taken(&self, gateway: &NamespacedName) -> Result<Option<TakenBundle>, BundleStateError> {
        let path = self.taken_file(gateway);
        let bytes = match open::read(&path, Rule::Own, MAX_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let taken = serde_json::from_slice(&bytes);
        // If a damaged file were ignored, an older bundle could be accepted.
        taken.map(Some).map_err(|error| BundleStateError::Content {
            path,
            reason: format!("is damaged ({error}); remove it to accept any sequence number"),
        })
    }

    /// Records an applied bundle. The record is on disk when this returns.
    pub fn record_applied(
        &self,
        gateway: &NamespacedName,
        taken: &TakenBundle,
    ) -> Result<(), BundleStateError> {
        let path = self.taken_file(gateway);
        let bytes = serde_json::to_vec(taken).map_err(|error| at(&path)(error.into()))?;
        durable::replace_file(&path, &bytes).map_err(at(&path))
    }

    /// Returns the digests of bundles that may be applied even if they are older.
    pub fn allowed(&self) -> Result<BTreeSet<String>, BundleStateError> {
        let files = self.files("allowed", ALLOWANCE_SUFFIX)?;
        let names = files.iter().filter_map(|path| path.file_name()?.to_str());
        let digests = names.filter_map(|name| name.strip_suffix(ALLOWANCE_SUFFIX));
        Ok(digests.map(str::to_owned).collect())
    }

    /// Allows the bundle with this hex digest even if it is older.
    pub fn allow(&self, digest: &str) -> Result<(), BundleStateError> {
        let path = self.allowance(digest);
        durable::replace_file(&path, b"").map_err(at(&path))
    }

    /// Undoes [`Self::allow`].
    pub fn disallow(&self, digest: &str) -> Result<(), BundleStateError> {
        remove(&self.allowance(digest))
    }

    fn allowance(&self, digest: &str) -> PathBuf {
        let name = format!("{digest}{ALLOWANCE_SUFFIX}");
        self.root.join("allowed").join(name)
    }

    fn taken_file(&self, gateway: &NamespacedName) -> PathBuf {
        let mut name = sha256(gateway.to_string().as_bytes());
        name.truncate(16);
        self.root.join("taken").join(format!("{name}.json"))
    }

    fn files(&self, directory: &str, suffix: &str) -> Result<Vec<PathBuf>, BundleStateError> {
        let directory = self.root.join(directory);
        let mut files = sesame_host::entries(&directory).map_err(at(&directory))?;
        files.retain(|path| path.to_str().is_some_and(|path| path.ends_with(suffix)));
        Ok(files)
    }
}

fn remove(path: &Path) -> Result<(), BundleStateError> {
    sesame_host::remove_if_exists(path).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BundleStateError {
    let path = path.to_owned();
    move |source| BundleStateError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_identity_is_sealed_and_lost_key_reported() {
        let dir = tempfile::tempdir().unwrap();
        let open = || BundleState::open(dir.path()).unwrap();
        let with = |byte| {
            let key = at_rest::SealingKey::from_random([byte; 32]);
            open().sealed_with(Arc::new(SealingKeys::with(key, "a test")))
        };
        let (identity, _) = open().create_identity().unwrap();
        let public = identity.public().to_string();
        assert_eq!(open().sealed_identity().unwrap(), None);
        let stored = || fs::read(dir.path().join("bundles/identity")).unwrap();
        assert!(!at_rest::is_sealed(&stored()));
        for _ in 0..2 {
            let read = with(1).identity().unwrap().unwrap();
            assert!(read.public() == identity.public());
            assert!(at_rest::is_sealed(&stored()));
        }
        let sealed = stored();
        // Without the sealing key, a command can read the public key and does not replace the
        // identity.
        assert_eq!(open().sealed_identity().unwrap(), Some(public));
        let error = with(2).identity().unwrap_err().to_string();
        let words = "which this host does not have; restore the sealing key";
        assert!(error.contains(words), "{error}");
        assert_eq!(stored(), sealed);
    }

    #[test]
    fn stored_state_survives_and_damage_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let state = BundleState::open(dir.path()).unwrap();
        let (identity, new) = state.create_identity().unwrap();
        assert!(new);
        let (again, new) = BundleState::open(dir.path())
            .unwrap()
            .create_identity()
            .unwrap();
        assert!(!new && again.public() == identity.public());

        let gateway = NamespacedName::new("default", "edge");
        assert_eq!(state.taken(&gateway).unwrap(), None);
        let taken = TakenBundle {
            gateway: gateway.to_string(),
            highest: 9,
            sequence: 7,
            digest: "00".to_owned(),
        };
        state.record_applied(&gateway, &taken).unwrap();
        assert_eq!(state.taken(&gateway).unwrap(), Some(taken));
        fs::write(state.taken_file(&gateway), "{").unwrap();
        let error = state.taken(&gateway).unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");

        state.allow("abc").unwrap();
        assert_eq!(state.allowed().unwrap(), ["abc".to_owned()].into());
        state.disallow("abc").unwrap();
        assert!(state.allowed().unwrap().is_empty());
        assert!(!state.distrust("../identity").unwrap());
        assert!(state.trusted().unwrap().is_empty());
    }
}
