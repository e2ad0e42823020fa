//! The way back: a snapshot from a manifest and stored shards. Everything read is hostile until its digest fits.

use std::collections::BTreeMap;
use std::io::Read as _;

use prost::Message as _;

use super::{
    FORMAT, MAX_SHARD_BYTES, MAX_SHARDS, MAX_SNAPSHOT_BYTES, MAX_STORED_BYTES, ShardError,
};
use crate::digest::{canonicalize, canonicalize_endpoints, sha256};
use crate::schema::{EndpointSet, Manifest, RouteTable, ShardRef, Snapshot};

/// A configuration that is the one its manifest names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    /// Canonical, without endpoints.
    pub config: Snapshot,
    /// How many bytes its shards took once decompressed.
    pub size: u64,
}

/// Puts a snapshot together from a manifest and its shards' stored bytes by name.
pub fn join<B: AsRef<[u8]>>(
    manifest: &Manifest,
    shards: &BTreeMap<String, B>,
) -> Result<Snapshot, ShardError> {
    let mut snapshot = join_config(manifest, shards)?.config;
    let mut sets = Vec::new();
    for reference in &manifest.endpoints {
        sets.extend(endpoint_sets(&reference.name, stored(reference, shards)?)?);
    }
    set_endpoints(&mut snapshot, sets);
    Ok(snapshot)
}

/// Whether a manifest can be followed at all: its version, how many shards it names, and what it calls them.
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
        .find(|reference| !is_plain(&reference.name));
    match strange {
        Some(ShardRef { name, .. }) => Err(ShardError::Name { name: name.clone() }),
        None => Ok(()),
    }
}

/// As [`join`], without the endpoints: what the revision is taken over.
pub fn join_config<B: AsRef<[u8]>>(
    manifest: &Manifest,
    shards: &BTreeMap<String, B>,
) -> Result<Joined, ShardError> {
    check(manifest)?;
    let mut snapshot = Snapshot::default();
    let mut tables: BTreeMap<String, RouteTable> = BTreeMap::new();
    let mut left = MAX_SNAPSHOT_BYTES;
    for reference in &manifest.config {
        let bytes = stored(reference, shards)?;
        check_digest(reference, bytes)?;
        let (mut piece, size) = unpack(&reference.name, bytes)?;
        left = left
            .checked_sub(size)
            .ok_or_else(|| ShardError::Malformed {
                name: reference.name.clone(),
                reason: format!(
                    "it and those before it take more than {MAX_SNAPSHOT_BYTES} bytes once decompressed"
                ),
            })?;
        for table in piece.route_tables.drain(..) {
            match tables.entry(table.name.clone()) {
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(table);
                }
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    entry.get_mut().virtual_hosts.extend(table.virtual_hosts);
                }
            }
        }
        let Snapshot {
            gateway,
            addresses,
            ports,
            route_tables: _,
            backends,
            // Not part of the revision: nobody has vouched for them.
            endpoints: _,
            keys,
            trust_bundles,
            edge,
        } = piece;
        if !gateway.is_empty() {
            snapshot.gateway = gateway;
        }
        snapshot.addresses.extend(addresses);
        snapshot.ports.extend(ports);
        snapshot.backends.extend(backends);
        snapshot.keys.extend(keys);
        snapshot.trust_bundles.extend(trust_bundles);
        snapshot.edge = snapshot.edge.or(edge);
    }
    snapshot.route_tables = tables.into_values().collect();
    canonicalize(&mut snapshot);
    // It is canonical and has no endpoints: this is its revision, without a copy of all of it.
    let found = sha256(&snapshot.encode_to_vec());
    if found != manifest.revision || snapshot.gateway != manifest.gateway {
        return Err(ShardError::Revision {
            expected: manifest.revision.clone(),
            found,
        });
    }
    Ok(Joined {
        config: snapshot,
        size: MAX_SNAPSHOT_BYTES - left,
    })
}

/// What a live shard holds. It must hold nothing but endpoints: its digest is nowhere.
pub fn endpoint_sets(name: &str, bytes: &[u8]) -> Result<Vec<EndpointSet>, ShardError> {
    let (mut piece, _) = unpack(name, bytes)?;
    let endpoints = std::mem::take(&mut piece.endpoints);
    if piece == Snapshot::default() {
        Ok(endpoints)
    } else {
        Err(ShardError::Malformed {
            name: name.to_owned(),
            reason: "holds more than endpoints".to_owned(),
        })
    }
}

/// Gives a configuration its endpoints, in canonical order. The first set of a name counts.
pub fn set_endpoints(snapshot: &mut Snapshot, mut sets: Vec<EndpointSet>) {
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    sets.dedup_by(|a, b| a.name == b.name);
    sets.iter_mut().for_each(canonicalize_endpoints);
    snapshot.endpoints = sets;
}

/// Whether the stored bytes are those that the manifest names.
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
    match shards.get(&reference.name) {
        Some(bytes) => Ok(bytes.as_ref()),
        None => Err(ShardError::Missing {
            name: reference.name.clone(),
        }),
    }
}

/// Whether a shard's name can be part of a file's or an object's name.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The content, and how many bytes it takes.
pub(super) fn unpack(name: &str, bytes: &[u8]) -> Result<(Snapshot, u64), ShardError> {
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
    // A live shard may have grown since the manifest was written: its own limit is what bounds it.
    let mut plain = Vec::new();
    zstd::stream::read::Decoder::new(bytes)
        .and_then(|decoder| decoder.take(MAX_SHARD_BYTES + 1).read_to_end(&mut plain))
        .map_err(|error| malformed(format!("cannot be decompressed: {error}")))?;
    let size = plain.len() as u64;
    if size > MAX_SHARD_BYTES {
        return Err(malformed(format!(
            "more than {MAX_SHARD_BYTES} bytes once decompressed"
        )));
    }
    let piece = Snapshot::decode(plain.as_slice())
        .map_err(|error| malformed(format!("cannot be decoded: {error}")))?;
    Ok((piece, size))
}
