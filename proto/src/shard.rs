//! Shards: a snapshot in pieces small enough to store, and back.
//!
//! Configuration shards are content-addressed: the name ends in the digest of the stored bytes, so a shard
//! never changes and an edit rewrites only the piece it falls into (a virtual host and a backend go to a
//! piece by the hash of their name). Endpoint shards keep their name and change in place. Every shard is a
//! zstd-compressed partial `Snapshot`. Nothing is trusted on the way back: sizes are bounded before
//! anything is decompressed, and digests are compared before anything is decoded.

mod join;

use std::collections::BTreeMap;

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::digest::{canonicalize, revision_of_canonical, sha256};
use crate::schema::{Manifest, RouteTable, ShardRef, Snapshot};

pub use self::join::{check, check_digest, endpoint_sets, join, join_config, set_endpoints};

/// The version of the schema's meaning that this code writes and reads.
pub const FORMAT: u32 = 1;
/// The most that one shard may take where it is stored: a ConfigMap holds 1 MiB with its metadata.
pub const MAX_STORED_BYTES: usize = 900 * 1024;
/// The most that one shard may take once decompressed.
pub const MAX_SHARD_BYTES: u64 = 16 * 1024 * 1024;
/// The most that all shards of a configuration may take once decompressed.
pub const MAX_SNAPSHOT_BYTES: u64 = 512 * 1024 * 1024;
/// The most shards that one manifest may name.
pub const MAX_SHARDS: usize = 1024;
/// How much configuration one shard is meant to hold, before compression.
const TARGET_BYTES: usize = 256 * 1024;

/// A shard as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Lower-case letters, digits and `-`; 63 characters at most.
    pub name: String,
    /// zstd-compressed.
    pub bytes: Vec<u8>,
}

/// A snapshot in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharded {
    /// Names the pieces.
    pub manifest: Manifest,
    /// All pieces, those of the configuration first.
    pub shards: Vec<Shard>,
}

/// Why shards could not be made or put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// A piece does not fit even alone.
    #[error(
        "shard {name} takes {size} bytes, more than the {limit} that can be stored; split the Gateway's routes over several Gateways"
    )]
    TooLarge {
        /// The shard.
        name: String,
        /// Its size.
        size: usize,
        /// What fits.
        limit: usize,
    },
    /// The manifest is of a version that this code does not know.
    #[error("manifest format {found}, expected {FORMAT}; upgrade the reader")]
    Format {
        /// What it says.
        found: u32,
    },
    /// There are more shards than a manifest may name.
    #[error("{found} shards, more than the {MAX_SHARDS} that a manifest may name")]
    TooMany {
        /// How many.
        found: usize,
    },
    /// A shard is called what no writer would call it.
    #[error("shard name {name:?} is not a plain name of letters, digits and \"-\"")]
    Name {
        /// The name.
        name: String,
    },
    /// A named shard is not there.
    #[error("shard {name} is missing")]
    Missing {
        /// The shard.
        name: String,
    },
    /// A shard's bytes are not those that the manifest names.
    #[error("shard {name} has SHA-256 {found}, expected {expected}")]
    Digest {
        /// The shard.
        name: String,
        /// From the manifest.
        expected: String,
        /// Of the bytes.
        found: String,
    },
    /// A shard cannot be decompressed or decoded, or is larger than it may be.
    #[error("shard {name}: {reason}")]
    Malformed {
        /// The shard.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The pieces do not make the revision that the manifest names.
    #[error("the shards make revision {found}, the manifest says {expected}")]
    Revision {
        /// From the manifest.
        expected: String,
        /// Of the pieces.
        found: String,
    },
}

/// Cuts a snapshot into shards.
pub fn split(snapshot: &Snapshot) -> Result<Sharded, ShardError> {
    let mut snapshot = snapshot.clone();
    canonicalize(&mut snapshot);
    let endpoints = std::mem::take(&mut snapshot.endpoints);
    let revision = revision_of_canonical(&snapshot);
    let Snapshot {
        gateway,
        addresses,
        ports,
        route_tables,
        backends,
        endpoints: _,
        keys,
        trust_bundles,
    } = snapshot;

    let size = route_tables
        .iter()
        .map(prost::Message::encoded_len)
        .sum::<usize>()
        + backends
            .iter()
            .map(prost::Message::encoded_len)
            .sum::<usize>();
    let count = buckets(size);
    let mut pieces: BTreeMap<usize, Snapshot> = BTreeMap::new();
    for table in route_tables {
        for host in table.virtual_hosts {
            let piece = pieces.entry(bucket(&host.domain, count)).or_default();
            match piece.route_tables.last_mut() {
                Some(last) if last.name == table.name => last.virtual_hosts.push(host),
                _ => piece.route_tables.push(RouteTable {
                    name: table.name.clone(),
                    virtual_hosts: vec![host],
                }),
            }
        }
    }
    for backend in backends {
        let piece = pieces.entry(bucket(&backend.name, count)).or_default();
        piece.backends.push(backend);
    }
    let head = Snapshot {
        gateway: gateway.clone(),
        addresses,
        ports,
        keys,
        trust_bundles,
        ..Snapshot::default()
    };

    let mut shards = Vec::new();
    let mut config = Vec::new();
    for piece in std::iter::once(head).chain(pieces.into_values()) {
        let (bytes, size) = pack("config", &piece)?;
        let digest = sha256(&bytes);
        let name = format!("config-{}", digest.get(..20).unwrap_or(&digest));
        config.push(ShardRef {
            name: name.clone(),
            sha256: digest,
            size,
        });
        shards.push(Shard { name, bytes });
    }

    let count = buckets(endpoints.iter().map(prost::Message::encoded_len).sum());
    let mut pieces: BTreeMap<usize, Snapshot> = BTreeMap::new();
    for set in endpoints {
        let piece = pieces.entry(bucket(&set.name, count)).or_default();
        piece.endpoints.push(set);
    }
    let mut live = Vec::new();
    for (index, piece) in pieces {
        let name = format!("endpoints-{count}-{index}");
        let (bytes, _) = pack(&name, &piece)?;
        // Nothing of what changes in place: endpoints never change a manifest.
        live.push(ShardRef {
            name: name.clone(),
            sha256: String::new(),
            size: 0,
        });
        shards.push(Shard { name, bytes });
    }

    let found = config.len() + live.len();
    if found > MAX_SHARDS {
        return Err(ShardError::TooMany { found });
    }
    Ok(Sharded {
        manifest: Manifest {
            format: FORMAT,
            gateway,
            revision,
            config,
            endpoints: live,
        },
        shards,
    })
}

/// The endpoint shard `new` with what only `old` has: for the time in which readers may hold either the manifest of
/// `old` or the next.
pub fn unite_endpoints(name: &str, old: &[u8], new: &[u8]) -> Result<Vec<u8>, ShardError> {
    let mut both = Snapshot {
        endpoints: endpoint_sets(name, new)?,
        ..Snapshot::default()
    };
    both.endpoints.extend(endpoint_sets(name, old)?);
    // The first of a name counts, and sorting keeps it first.
    both.endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    both.endpoints.dedup_by(|a, b| a.name == b.name);
    canonicalize(&mut both);
    pack(name, &both).map(|(bytes, _)| bytes)
}

/// A power of two, so that growth moves half of the names and an edit moves none.
fn buckets(size: usize) -> usize {
    size.div_ceil(TARGET_BYTES).max(1).next_power_of_two()
}

fn bucket(name: &str, count: usize) -> usize {
    let digest = Sha256::digest(name.as_bytes());
    let mut head = [0; 4];
    head.copy_from_slice(&digest[..4]);
    usize::try_from(u32::from_be_bytes(head)).unwrap_or(0) % count
}

fn pack(name: &str, piece: &Snapshot) -> Result<(Vec<u8>, u64), ShardError> {
    let plain = piece.encode_to_vec();
    let bytes = zstd::bulk::compress(&plain, 3).map_err(|error| ShardError::Malformed {
        name: name.to_owned(),
        reason: format!("cannot be compressed: {error}"),
    })?;
    if bytes.len() > MAX_STORED_BYTES || plain.len() as u64 > MAX_SHARD_BYTES {
        return Err(ShardError::TooLarge {
            name: name.to_owned(),
            size: bytes.len(),
            limit: MAX_STORED_BYTES,
        });
    }
    Ok((bytes, plain.len() as u64))
}
