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

use crate::bounds;
use crate::keys::{self, KeyPair};
use crate::open::{self, OpenError, Rule};
use crate::schema::{Manifest, Snapshot};
use crate::shard::{self, MAX_STORED_BYTES, ShardError, Sharded};

/// The manifest's file name.
pub const MANIFEST: &str = "manifest.pb";
/// The file of key pairs, where they travel with the snapshot at all. Not part of it: it is left alone.
pub const KEYS: &str = "keys.pb";
const SHARD_SUFFIX: &str = ".pb.zst";
const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;

/// Why a snapshot directory could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file is not to be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The pieces do not fit together.
    #[error("{path}: {source}")]
    Shard {
        /// The directory.
        path: PathBuf,
        /// Which, and why.
        source: ShardError,
    },
    /// The manifest is not one.
    #[error("{path}: {reason}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Writes the snapshot into `dir`, which is created if needed; returns its manifest.
pub fn write(dir: &Path, snapshot: &Snapshot) -> Result<Manifest, DirectoryError> {
    let Sharded { manifest, shards } =
        shard::split(snapshot).map_err(|source| DirectoryError::Shard {
            path: dir.to_owned(),
            source,
        })?;
    fs::create_dir_all(dir).map_err(at(dir))?;
    let mut named = BTreeSet::from([MANIFEST.to_owned()]);
    for shard in &shards {
        let file = shard_file(&shard.name);
        replace(dir, &file, &shard.bytes)?;
        named.insert(file);
    }
    replace(dir, MANIFEST, &manifest.encode_to_vec())?;
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

/// Reads what `dir` is meant to hold; its shards may be missing.
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
    let manifest = read_manifest(dir)?;
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
    let snapshot = shard::join(&manifest, &shards).map_err(at_dir)?;
    Ok((manifest, snapshot))
}

/// The file name of a shard.
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
