//! Joins a manifest and its stored shards into a snapshot.
//!
//! Never trust any input before its digest has been checked. Never decode anything before its size
//! in memory is known.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::{
    FORMAT, MAX_DECODED_BYTES, MAX_SHARD_BYTES, MAX_SHARDS, MAX_SNAPSHOT_BYTES, MAX_STORED_BYTES,
    ShardError,
};
use crate::bounds;
use crate::digest::{canonicalize_endpoints, sha256};
use crate::dns_name::is_dns_label;
use crate::encoded::{ConfigBuilder, EncodedSnapshot};
use crate::schema::{EndpointSet, Manifest, ShardRef, Snapshot};

/// A configuration with a verified revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// Canonical configuration without key pairs and endpoints.
    pub config: EncodedSnapshot,
    /// Size in memory after decoding, in bytes.
    pub size: u64,
}

/// Decoded endpoint shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    /// Sets in the shard's order.
    pub sets: Vec<EndpointSet>,
    /// Size in memory after decoding, in bytes.
    pub size: u64,
}

/// Joins a manifest's shards. `shards` contains the stored bytes by shard name.
pub fn join<B: AsRef<[u8]>>(
    manifest: &Manifest,
    shards: &BTreeMap<String, B>,
) -> Result<Snapshot, ShardError> {
    let mut snapshot = join_config(manifest, shards)?.config.snapshot();
    let mut sets = Vec::new();
    let mut left = MAX_SNAPSHOT_BYTES;
    for reference in &manifest.endpoints {
        let bytes = stored(reference, shards)?;
        let endpoints = endpoint_sets(&reference.name, bytes)?;
        left = left
            .checked_sub(endpoints.size)
            .ok_or_else(|| too_much(&reference.name))?;
        sets.extend(endpoints.sets);
    }
    set_endpoints(&mut snapshot, sets);
    Ok(snapshot)
}

/// Checks the manifest's format version, and the number and names of its shards.
pub fn check(manifest: &Manifest) -> Result<(), ShardError> {
    if manifest.format != FORMAT {
        return Err(ShardError::Format {
            found: manifest.format,
        });
    }
    let found = manifest.config.len() + manifest.endpoints.len();
    if found > MAX_SHARDS {
        return Err(ShardError::TooMany { found });
    }
    let strange = manifest
        .config
        .iter()
        .chain(&manifest.endpoints)
        .find(|reference| !is_dns_label(&reference.name));
    match strange {
        Some(ShardRef { name, .. }) => Err(ShardError::Name { name: name.clone() }),
        None => Ok(()),
    }
}

/// Joins the configuration without endpoints, and verifies its revision.
pub fn join_config<B: AsRef<[u8]>>(
    manifest: &Manifest,
    shards: &BTreeMap<String, B>,
) -> Result<Joined, ShardError> {
    check(manifest)?;
    let mut builder = ConfigBuilder::default();
    let mut left = MAX_SNAPSHOT_BYTES;
    for reference in &manifest.config {
        let bytes = stored(reference, shards)?;
        check_digest(reference, bytes)?;
        let (piece, size) = unpack(&reference.name, reference.size, bytes)?;
        left = left
            .checked_sub(size)
            .ok_or_else(|| too_much(&reference.name))?;
        builder.add(piece);
    }
    let config = builder.build();
    let found = config.config_digest();
    if found != manifest.revision || config.gateway() != manifest.gateway {
        return Err(ShardError::Revision {
            expected: manifest.revision.clone(),
            found,
        });
    }
    Ok(Joined {
        config,
        size: MAX_SNAPSHOT_BYTES - left,
    })
}

/// Decodes an endpoint shard. Rejects other content, because manifests contain no digests of
/// endpoint shards.
pub fn endpoint_sets(name: &str, bytes: &[u8]) -> Result<Endpoints, ShardError> {
    let (mut piece, size) = unpack(name, 0, bytes)?;
    let sets = std::mem::take(&mut piece.endpoints);
    if piece == Snapshot::default() {
        Ok(Endpoints { sets, size })
    } else {
        Err(ShardError::Malformed {
            name: name.to_owned(),
            reason: "contains more than endpoints".to_owned(),
        })
    }
}

/// Replaces the snapshot's endpoints with canonical sets. The first set with each name wins.
pub fn set_endpoints(snapshot: &mut Snapshot, mut sets: Vec<EndpointSet>) {
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    sets.dedup_by(|a, b| a.name == b.name);
    sets.iter_mut().for_each(canonicalize_endpoints);
    snapshot.endpoints = sets;
}

/// Compares the stored bytes with the digest in the manifest.
pub fn check_digest(reference: &ShardRef, bytes: &[u8]) -> Result<(), ShardError> {
    let found = sha256(bytes);
    if found == reference.sha256 {
        Ok(())
    } else {
        Err(ShardError::Digest {
            name: reference.name.clone(),
            expected: reference.sha256.clone(),
            found,
        })
    }
}

fn stored<'a, B: AsRef<[u8]>>(
    reference: &ShardRef,
    shards: &'a BTreeMap<String, B>,
) -> Result<&'a [u8], ShardError> {
    let bytes = shards.get(&reference.name).map(AsRef::as_ref);
    bytes.ok_or_else(|| ShardError::Missing {
        name: reference.name.clone(),
    })
}

fn too_much(name: &str) -> ShardError {
    ShardError::Malformed {
        name: name.to_owned(),
        reason: format!(
            "it and the previous shards would take more than {MAX_SNAPSHOT_BYTES} bytes of memory \
            once decoded"
        ),
    }
}

/// `size` is the decompressed size in the manifest, or 0 for an endpoint shard, which might have
/// grown since.
pub(super) fn unpack(name: &str, size: u64, bytes: &[u8]) -> Result<(Snapshot, u64), ShardError> {
    let limit = match size {
        0 => MAX_SHARD_BYTES,
        size => size.min(MAX_SHARD_BYTES),
    };
    let malformed = |reason: String| ShardError::Malformed {
        name: name.to_owned(),
        reason,
    };
    if bytes.len() > MAX_STORED_BYTES {
        return Err(malformed(format!(
            "{} bytes stored, more than {MAX_STORED_BYTES}",
            bytes.len()
        )));
    }
    let mut plain = Vec::new();
    zstd::stream::read::Decoder::new(bytes)
        .and_then(|decoder| decoder.take(limit + 1).read_to_end(&mut plain))
        .map_err(|error| malformed(format!("cannot be decompressed: {error}")))?;
    if plain.len() as u64 > limit {
        return Err(malformed(format!(
            "more than {limit} bytes once decompressed"
        )));
    }
    bounds::snapshot(&plain, MAX_DECODED_BYTES).map_err(|error| malformed(error.to_string()))
}
