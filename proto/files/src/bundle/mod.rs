//! Creates, reads and writes bundle files.

#[cfg(feature = "arguments")]
pub mod arguments;
mod keys;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sesame_proto::bundle::sealed::{self, HostKey, SealError};
use sesame_proto::bundle::{self, BundleError, BundleLabel, MAX_BYTES};
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::Snapshot;
use sesame_proto::shard;
use sesame_proto::signature::SigningKeys;

pub use self::keys::{RecipientsError, SigningKeyError, read_recipients, read_signing_keys};
use crate::open::{self, OpenError, Rule};
use crate::random;

/// Suffix of bundle file names. Other files in a bundle directory are ignored.
pub const SUFFIX: &str = ".bundle";

/// Inputs of a bundle.
#[derive(Debug)]
pub struct BundleInputs<'a> {
    /// Label, which must name the snapshot's Gateway.
    pub label: BundleLabel,
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// The snapshot's key pairs, used only if `hosts` is not empty.
    pub pairs: &'a [KeyPair],
    /// Hosts to encrypt private keys for. If empty, the bundle omits the keys.
    pub hosts: &'a [HostKey],
    /// Keys to sign with.
    pub signing: &'a SigningKeys,
}

/// Error when creating a bundle.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The content does not fit into a bundle.
    #[error("the bundle {0}")]
    Bundle(#[from] BundleError),
    /// The keys cannot be encrypted.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The kernel returned no random bytes.
    #[error("no random numbers: {0}")]
    Random(io::Error),
}

/// Creates a bundle. Without encrypted keys, the same input always produces the same bytes.
pub fn make(inputs: &BundleInputs<'_>) -> Result<Vec<u8>, MakeError> {
    let BundleInputs {
        label,
        snapshot,
        pairs,
        hosts,
        signing,
    } = inputs;
    let sharded = shard::split(snapshot).map_err(BundleError::from)?;
    let keys = if hosts.is_empty() || pairs.is_empty() {
        None
    } else {
        let mut failed = None;
        let mut random = |bytes: &mut [u8]| {
            if let Err(error) = random::fill(bytes) {
                failed.get_or_insert(error);
            }
        };
        let sealed = sealed::seal(pairs, hosts, &label.gateway, label.sequence, &mut random)?;
        match failed {
            Some(error) => return Err(MakeError::Random(error)),
            None => Some(sealed),
        }
    };
    Ok(bundle::write(label, &sharded, keys.as_deref(), signing)?)
}

/// Reads a bundle. The caller must verify its signatures.
pub fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    open::read(path, Rule::Vouched, MAX_BYTES)
}

/// Writes a file atomically through a temporary file whose name starts with a dot.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(".part");
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let part = parent.join(part);
    // Remove a leftover temporary file, because it might belong to another user.
    let _ = fs::remove_file(&part);
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&part)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written?;
    File::open(&parent)?.sync_all()
}
