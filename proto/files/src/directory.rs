//! A snapshot as a directory: a manifest and a file for each shard.
//!
//! Shards are written before the manifest that names them, and the manifest arrives by rename, so that a
//! reader (or a crash) sees the old snapshot or the new one. Shards that no manifest names are removed
//! last. Names from a manifest are checked before they become file names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use prost::Message as _;

use crate::open::{self, OpenError, Rule};
use sesame_proto::bounds;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::schema::{Manifest, ShardRef, Snapshot};
use sesame_proto::shard::{self, MAX_STORED_BYTES, ShardError, Sharded};
use sesame_proto::signature::{self, Piece, SignatureError, SigningKeys, Statement, TrustedKeys};

/// The manifest's file name.
pub const MANIFEST: &str = "manifest.pb";
/// The name of the file of key pairs, which may travel with the snapshot. It is no part of it and is left alone.
pub const KEYS: &str = "keys.pb";
const SHARD_SUFFIX: &str = ".pb.zst";
const SIGNATURE_SUFFIX: &str = ".sig";
const MAX_SIGNATURE_BYTES: u64 = 4096;
/// The piece that a manifest is in a directory, which is for every host that reads it, with its keys in one file.
const MANIFEST_PIECE: Piece<'_> = Piece::Manifest {
    fleet: "",
    key_secrets: 0,
};
const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;

/// Reasons for which a snapshot directory cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file must not be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No trusted key vouches for a file.
    #[error("{path}: {source}")]
    Signature {
        /// The file.
        path: PathBuf,
        /// The reason for which it is not believed.
        source: SignatureError,
    },
    /// The shards do not fit together.
    #[error("{path}: {source}")]
    Shard {
        /// The directory.
        path: PathBuf,
        /// The shard and the reason.
        source: ShardError,
    },
    /// The manifest cannot be decoded.
    #[error("{path}: {reason}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// Writes the snapshot into `dir`, which is created if needed; returns its manifest.
pub fn write(dir: &Path, snapshot: &Snapshot) -> Result<Manifest, DirectoryError> {
    write_signed(dir, snapshot, None)
}

/// Writes the snapshot as [`write()`] does, signed with these keys and this stamp, which has to be later than that of every
/// snapshot before it.
pub fn write_signed(
    dir: &Path,
    snapshot: &Snapshot,
    signing: Option<(&SigningKeys, u64)>,
) -> Result<Manifest, DirectoryError> {
    let Sharded { manifest, shards } =
        shard::split(snapshot).map_err(|source| DirectoryError::Shard {
            path: dir.to_owned(),
            source,
        })?;
    fs::create_dir_all(dir).map_err(at(dir))?;
    let mut named = BTreeSet::from([MANIFEST.to_owned()]);
    let gateway = manifest.gateway.as_str();
    let mut sign = |file: &str, piece: Piece<'_>, content: &[u8]| {
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
            sign(&file, Piece::Endpoints { name: &shard.name }, &shard.bytes)?;
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
            // A leftover harms nobody; failing over it would.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(manifest)
}

/// Writes key pairs into `dir`, for its owner only. They come before the snapshot that names them.
pub fn write_keys(dir: &Path, pairs: &[KeyPair]) -> Result<(), DirectoryError> {
    fs::create_dir_all(dir).map_err(at(dir))?;
    replace(dir, KEYS, &keys::encode(pairs))
}

/// Reads the manifest in `dir`; its shards may be missing.
pub fn read_manifest(dir: &Path) -> Result<Manifest, DirectoryError> {
    let path = dir.join(MANIFEST);
    let bytes = read_bounded(&path, MAX_MANIFEST_BYTES)?;
    bounds::manifest(&bytes).map_err(|error| DirectoryError::Manifest {
        path,
        reason: error.to_string(),
    })
}

/// Reads the snapshot in `dir`, checking every digest.
pub fn read(dir: &Path) -> Result<(Manifest, Snapshot), DirectoryError> {
    let read = read_trusted(dir, None)?;
    Ok((read.manifest, read.snapshot))
}

/// The content of a snapshot directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The manifest as it is stored.
    pub manifest: Manifest,
    /// The whole snapshot.
    pub snapshot: Snapshot,
    /// The stamp of the manifest's signature, if that was checked.
    pub stamp: Option<u64>,
}

/// Reads the snapshot in `dir` as [`read`] does; with trusted keys, only content that one of them has signed.
pub fn read_trusted(dir: &Path, trusted: Option<&TrustedKeys>) -> Result<Read, DirectoryError> {
    let path = dir.join(MANIFEST);
    let bytes = read_bounded(&path, MAX_MANIFEST_BYTES)?;
    let manifest = bounds::manifest(&bytes).map_err(|error| DirectoryError::Manifest {
        path: path.clone(),
        reason: error.to_string(),
    })?;
    let verify = |path: &Path, piece: Piece<'_>, content: &[u8]| {
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
        stamp.map(Some).map_err(|source| DirectoryError::Signature {
            path: path.to_owned(),
            source,
        })
    };
    let stamp = verify(&path, MANIFEST_PIECE, &bytes)?;
    let at_dir = |source| DirectoryError::Shard {
        path: dir.to_owned(),
        source,
    };
    shard::check(&manifest).map_err(at_dir)?;
    let mut shards = BTreeMap::new();
    for reference in manifest.config.iter().chain(&manifest.endpoints) {
        let file = dir.join(shard_file(&reference.name));
        shards.insert(
            reference.name.clone(),
            read_bounded(&file, MAX_STORED_BYTES as u64)?,
        );
    }
    for ShardRef { name, .. } in &manifest.endpoints {
        let content = shards.get(name).map(Vec::as_slice).unwrap_or_default();
        let of_shard = verify(
            &dir.join(shard_file(name)),
            Piece::Endpoints { name },
            content,
        )?;
        // All of a directory is written at once: older endpoints are somebody else's doing.
        if let (Some(found), Some(known)) = (of_shard, stamp) {
            signature::follows(found, Some(known)).map_err(|source| DirectoryError::Signature {
                path: dir.join(shard_file(name)),
                source,
            })?;
        }
    }
    let snapshot = shard::join(&manifest, &shards).map_err(at_dir)?;
    Ok(Read {
        manifest,
        snapshot,
        stamp,
    })
}

/// Returns true if a file of this name can belong to a snapshot.
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
    // One that was left there may have another mode.
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

fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, DirectoryError> {
    Ok(open::read(path, Rule::Given, limit)?)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::Io { path, source }
}
