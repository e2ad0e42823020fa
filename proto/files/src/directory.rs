//! Stores a snapshot as a directory with a manifest and one file per shard.
//!
//! The manifest is written last and renamed into place, so a reader sees either the old or the new
//! snapshot, even after a crash. Names in a manifest are validated before they become file names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use prost::Message as _;

use crate::open::{self, OpenError, Rule};
use sesame_proto::bounds::{self, BoundsError};
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::schema::{Manifest, ShardRef, Snapshot};
use sesame_proto::shard::{self, MAX_STORED_BYTES, ShardError, Sharded};
use sesame_proto::signature::{
    self, SignatureError, SignedPiece, SigningKeys, Statement, TrustedKeys,
};

/// File name of the manifest.
pub const MANIFEST: &str = "manifest.pb";
/// File name of the key pairs, which are not part of the snapshot.
pub const KEYS: &str = "keys.pb";
const SHARD_SUFFIX: &str = ".pb.zst";
const SIGNATURE_SUFFIX: &str = ".sig";
const MAX_SIGNATURE_BYTES: u64 = 4096;
/// A snapshot directory is not part of a fleet, and stores its keys in one file.
const MANIFEST_PIECE: SignedPiece<'_> = SignedPiece::Manifest {
    fleet: "",
    key_secrets: 0,
};
const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;

/// Error when writing or reading a snapshot directory.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A file is untrusted or unreadable.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An unusable file or directory.
    #[error("{path}: {fault}")]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        fault: DirectoryFault,
    },
}

/// Why a file or directory is unusable.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum DirectoryFault {
    /// I/O error.
    Io(#[from] io::Error),
    /// No trusted key has signed the file.
    Signature(#[from] SignatureError),
    /// The shards are inconsistent.
    Shard(#[from] ShardError),
    /// The manifest cannot be decoded.
    Manifest(#[from] BoundsError),
}

/// Writes the snapshot to `dir`, creating it if necessary.
pub fn write(dir: &Path, snapshot: &Snapshot) -> Result<Manifest, DirectoryError> {
    write_signed(dir, snapshot, None)
}

/// Like [`write()`], but signs the snapshot. The stamp must be greater than all earlier stamps.
pub fn write_signed(
    dir: &Path,
    snapshot: &Snapshot,
    signing: Option<(&SigningKeys, u64)>,
) -> Result<Manifest, DirectoryError> {
    let Sharded { manifest, shards } = shard::split(snapshot).map_err(at(dir))?;
    fs::create_dir_all(dir).map_err(at(dir))?;
    let mut named = BTreeSet::from([MANIFEST.to_owned()]);
    let gateway = manifest.gateway.as_str();
    let mut sign = |file: &str, piece: SignedPiece<'_>, content: &[u8]| {
        let Some((keys, stamp)) = signing else {
            return Ok::<_, DirectoryError>(());
        };
        let statement = Statement {
            gateway,
            piece,
            content,
        };
        let file = signature_file(file);
        replace(dir, &file, &keys.sign(&statement, stamp))?;
        named.insert(file);
        Ok(())
    };
    for (index, shard) in shards.iter().enumerate() {
        let file = shard_file(&shard.name);
        replace(dir, &file, &shard.bytes)?;
        if index >= manifest.config.len() {
            sign(
                &file,
                SignedPiece::Endpoints { name: &shard.name },
                &shard.bytes,
            )?;
        }
    }
    let bytes = manifest.encode_to_vec();
    sign(MANIFEST, MANIFEST_PIECE, &bytes)?;
    replace(dir, MANIFEST, &bytes)?;
    named.extend(shards.iter().map(|shard| shard_file(&shard.name)));
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(at(dir))?;
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let name = entry.file_name();
        let kept = |name: &str| name == KEYS || named.contains(name);
        if !name.to_str().is_some_and(kept) {
            // Ignore errors, because a leftover file is harmless.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(manifest)
}

/// Writes private key pairs to `dir`. Call this before writing a snapshot that refers to them.
pub fn write_keys(dir: &Path, pairs: &[KeyPair]) -> Result<(), DirectoryError> {
    fs::create_dir_all(dir).map_err(at(dir))?;
    replace(dir, KEYS, &keys::encode(pairs))
}

/// Reads only the manifest in `dir`. Shards may be missing.
pub fn read_manifest(dir: &Path) -> Result<Manifest, DirectoryError> {
    Ok(manifest_with_bytes(&dir.join(MANIFEST))?.0)
}

fn manifest_with_bytes(path: &Path) -> Result<(Manifest, Vec<u8>), DirectoryError> {
    let bytes = open::read(path, Rule::Given, MAX_MANIFEST_BYTES)?;
    Ok((bounds::manifest(&bytes).map_err(at(path))?, bytes))
}

/// Reads the snapshot in `dir` and verifies all digests.
pub fn read(dir: &Path) -> Result<(Manifest, Snapshot), DirectoryError> {
    let read = read_trusted(dir, None)?;
    Ok((read.manifest, read.snapshot))
}

/// Contents of a snapshot directory.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSnapshot {
    /// The manifest.
    pub manifest: Manifest,
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Stamp of the manifest's signature, if verified.
    pub stamp: Option<u64>,
}

/// Like [`read`], but requires signatures if `trusted` is set.
pub fn read_trusted(
    dir: &Path,
    trusted: Option<&TrustedKeys>,
) -> Result<StoredSnapshot, DirectoryError> {
    let path = dir.join(MANIFEST);
    let (manifest, bytes) = manifest_with_bytes(&path)?;
    let verify = |path: &Path, piece: SignedPiece<'_>, content: &[u8]| {
        let Some(trusted) = trusted else {
            return Ok(None);
        };
        let mut file = path.as_os_str().to_owned();
        file.push(SIGNATURE_SUFFIX);
        let signature = match open::read(Path::new(&file), Rule::Given, MAX_SIGNATURE_BYTES) {
            Err(error) if error.is_not_found() => None,
            read => Some(read?),
        };
        let statement = Statement {
            gateway: &manifest.gateway,
            piece,
            content,
        };
        let stamp = trusted.verify(&statement, signature.as_deref());
        stamp.map(Some).map_err(at(path))
    };
    let stamp = verify(&path, MANIFEST_PIECE, &bytes)?;
    shard::check(&manifest).map_err(at(dir))?;
    let mut shards = BTreeMap::new();
    for reference in manifest.config.iter().chain(&manifest.endpoints) {
        let file = dir.join(shard_file(&reference.name));
        shards.insert(
            reference.name.clone(),
            open::read(&file, Rule::Given, MAX_STORED_BYTES as u64)?,
        );
    }
    for ShardRef { name, .. } in &manifest.endpoints {
        let content = shards.get(name).map(Vec::as_slice).unwrap_or_default();
        let path = dir.join(shard_file(name));
        let shard_stamp = verify(&path, SignedPiece::Endpoints { name }, content)?;
        // An older stamp means that another writer restored an earlier version of the shard.
        if let (Some(found), Some(known)) = (shard_stamp, stamp) {
            signature::follows(found, Some(known)).map_err(at(&path))?;
        }
    }
    let snapshot = shard::join(&manifest, &shards).map_err(at(dir))?;
    Ok(StoredSnapshot {
        manifest,
        snapshot,
        stamp,
    })
}

/// Returns true if a file with this name can belong to a snapshot.
pub fn is_piece(name: &str) -> bool {
    let signed = name.strip_suffix(SIGNATURE_SUFFIX).unwrap_or(name);
    name == KEYS || signed == MANIFEST || signed.ends_with(SHARD_SUFFIX)
}

fn signature_file(file: &str) -> String {
    format!("{file}{SIGNATURE_SUFFIX}")
}

/// Returns the file name of a shard.
pub fn shard_file(name: &str) -> String {
    format!("{name}{SHARD_SUFFIX}")
}

fn replace(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), DirectoryError> {
    let staged = dir.join(format!(".{name}.new"));
    let path = dir.join(name);
    // Remove a leftover temporary file, because its mode might differ.
    let _ = fs::remove_file(&staged);
    let mode = if name == KEYS { 0o600 } else { 0o644 };
    File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&staged)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&staged, &path))
        .map_err(at(&path))
}

fn at<E: Into<DirectoryFault>>(path: &Path) -> impl FnOnce(E) -> DirectoryError {
    let path = path.to_owned();
    move |error| DirectoryError::Unusable {
        path,
        fault: error.into(),
    }
}
