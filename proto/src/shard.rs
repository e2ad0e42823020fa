//! Shards: a snapshot in pieces small enough to store, and back.
//!
//! Configuration shards are content-addressed: the name ends in the digest of the stored bytes, so a shard
//! never changes and an edit rewrites only the piece it falls into (a virtual host and a backend go to a
//! piece by the hash of their name). Endpoint shards keep their name and change in place. Every shard is a
//! zstd-compressed partial `Snapshot`. Nothing is trusted on the way back: sizes are bounded before anything is
//! decompressed, digests are compared and what the values will take is bounded before anything is decoded.

mod changed;
mod join;
mod live;
mod splitter;

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::bounds;
use crate::digest::canonicalize;
use crate::schema::{Manifest, Snapshot};

pub use self::changed::{Changed, MAX_CHANGED_SHARDS, changed_hosts};
pub use self::join::{
    Endpoints, Joined, check, check_digest, endpoint_sets, join, join_config, set_endpoints,
};
pub use self::splitter::{Refreshed, Splitter, split};

/// The version of the schema's meaning that this code writes and reads.
pub const FORMAT: u32 = 1;
/// The most that one shard may take where it is stored: a ConfigMap holds 1 MiB with its metadata.
pub const MAX_STORED_BYTES: usize = 900 * 1024;
/// The most that one shard may take once decompressed.
pub const MAX_SHARD_BYTES: u64 = 16 * 1024 * 1024;
/// The most memory that the values of one shard may take.
pub const MAX_DECODED_BYTES: u64 = 256 * 1024 * 1024;
/// The most memory that the values of all shards of a configuration may take, and those of all endpoint shards.
pub const MAX_SNAPSHOT_BYTES: u64 = 512 * 1024 * 1024;
/// The most shards that one manifest may name.
pub const MAX_SHARDS: usize = 1024;

/// A shard as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Lower-case letters, digits and `-`; 63 characters at most.
    pub name: String,
    /// zstd-compressed.
    pub bytes: Bytes,
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

/// The endpoint shard `new` with what only `old` has: for the time in which readers may hold either the manifest of
/// `old` or the next.
pub fn unite_endpoints(name: &str, old: &[u8], new: &[u8]) -> Result<Bytes, ShardError> {
    let mut both = Snapshot {
        endpoints: endpoint_sets(name, new)?.sets,
        ..Snapshot::default()
    };
    both.endpoints.extend(endpoint_sets(name, old)?.sets);
    // The first of a name counts, and sorting keeps it first.
    both.endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    both.endpoints.dedup_by(|a, b| a.name == b.name);
    canonicalize(&mut both);
    pack(name, &both.encode_to_vec())
}

/// How many shards hold so many bytes, of `target` each and `most` in all: a power of two, so that growth moves half of
/// the names and an edit moves none.
fn buckets(size: usize, target: usize, most: usize) -> usize {
    size.div_ceil(target).max(1).next_power_of_two().min(most)
}

fn bucket(name: &str, count: usize) -> usize {
    let digest = Sha256::digest(name.as_bytes());
    let mut head = [0; 4];
    head.copy_from_slice(&digest[..4]);
    usize::try_from(u32::from_be_bytes(head)).unwrap_or(0) % count
}

/// The stored bytes of a shard with this content.
fn pack(name: &str, plain: &[u8]) -> Result<Bytes, ShardError> {
    let bytes = zstd::bulk::compress(plain, 3).map_err(|error| ShardError::Malformed {
        name: name.to_owned(),
        reason: format!("cannot be compressed: {error}"),
    })?;
    // No reader would take it.
    let readable = plain.len() as u64 <= MAX_SHARD_BYTES
        && bounds::size_of_snapshot(plain, MAX_DECODED_BYTES).is_ok();
    if bytes.len() > MAX_STORED_BYTES || !readable {
        return Err(ShardError::TooLarge {
            name: name.to_owned(),
            size: bytes.len(),
            limit: MAX_STORED_BYTES,
        });
    }
    Ok(bytes.into())
}
