//! Shards: a snapshot split into pieces that are small enough to store, and joined again.
//!
//! Configuration shards are content-addressed: the name ends in the digest of the stored bytes, so a shard
//! never changes and an edit rewrites only the piece it falls into (a virtual host and a backend go to a
//! piece by the hash of their name). A piece that is too large is stored in parts, and a virtual host may span several;
//! readers join them in the order of the manifest. Endpoint shards keep their name and change in place. Every shard is a
//! zstd-compressed partial `Snapshot`. Nothing is trusted on the way back: sizes are bounded before anything is
//! decompressed, digests are compared and what the values will take is bounded before anything is decoded.

mod config;
mod delta;
mod join;
mod live;
mod parts;
mod splitter;

use std::fmt;

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::bounds;
use crate::schema::{Manifest, Snapshot};

pub use self::delta::{MAX_CHANGED_SHARDS, ShardDelta, delta};
pub use self::join::{
    Endpoints, Joined, check, check_digest, endpoint_sets, join, join_config, set_endpoints,
};
pub use self::splitter::{RefreshedShards, Splitter, split};

/// Version of the schema's meaning that this code writes and reads.
pub const FORMAT: u32 = 1;
/// Bytes of a stored shard at most: a ConfigMap holds 1 MiB with its metadata.
pub const MAX_STORED_BYTES: usize = 900 * 1024;
/// Bytes of a decompressed shard at most.
pub const MAX_SHARD_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes of memory that the values of one shard may take at most.
pub const MAX_DECODED_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum memory in bytes of the values of all configuration shards, and separately of all
/// endpoint shards.
pub const MAX_SNAPSHOT_BYTES: u64 = 512 * 1024 * 1024;
/// Number of shards that one manifest may name at most.
pub const MAX_SHARDS: usize = 1024;

/// A shard as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The name: lower-case letters, digits and `-`, 63 characters at most.
    pub name: String,
    /// The content, compressed with zstd.
    pub bytes: Bytes,
}

/// A snapshot that is split into shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharded {
    /// The manifest, which names the shards.
    pub manifest: Manifest,
    /// All shards, configuration first.
    pub shards: Vec<Shard>,
}

/// Reasons for which shards cannot be made or joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// A single item exceeds the limits of a shard, or the snapshot exceeds the limits of readers.
    #[error("{what} would take {size} bytes {form}; at most {limit} are allowed{remedy}")]
    TooLarge {
        /// Its name.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The form in which it has this size.
        form: Form,
        /// The limit in bytes.
        limit: u64,
        /// What to do, to be appended to the message.
        remedy: String,
    },
    /// The manifest is of a version that this code does not know.
    #[error("manifest format {found}, expected {FORMAT}; upgrade the reader")]
    Format {
        /// The version that it has.
        found: u32,
    },
    /// There are more shards than a manifest may name.
    #[error("{found} shards, more than the {MAX_SHARDS} that a manifest may name")]
    TooMany {
        /// Their number.
        found: usize,
    },
    /// A shard has a name that no writer gives.
    #[error("shard name {name:?} is not a plain name of letters, digits and \"-\"")]
    Name {
        /// The name.
        name: String,
    },
    /// A named shard is missing.
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
        /// The digest that the manifest names.
        expected: String,
        /// The digest of the bytes.
        found: String,
    },
    /// A shard cannot be decompressed or decoded, or is larger than it may be.
    #[error("shard {name}: {reason}")]
    Malformed {
        /// The shard.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The shards do not make the revision that the manifest names.
    #[error("the shards make revision {found}, the manifest says {expected}")]
    Revision {
        /// The revision that the manifest names.
        expected: String,
        /// The revision of the shards.
        found: String,
    },
}

/// Form in which a size is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Encoded and compressed.
    Stored,
    /// Encoded.
    Encoded,
    /// Values in memory.
    Decoded,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stored => "compressed",
            Self::Encoded => "encoded",
            Self::Decoded => "of memory once decoded",
        })
    }
}

/// Returns the endpoint shard `new` with the sets that only `old` has, for the time in which readers may hold either the
/// manifest of `old` or the next.
pub fn unite_endpoints(name: &str, old: &[u8], new: &[u8]) -> Result<Bytes, ShardError> {
    let mut both = Snapshot::default();
    // The first of a name counts.
    let mut sets = endpoint_sets(name, new)?.sets;
    sets.extend(endpoint_sets(name, old)?.sets);
    set_endpoints(&mut both, sets);
    Ok(pack(name, &both.encode_to_vec())?.bytes)
}

/// Returns the number of buckets that hold `size` bytes, of about `target` each, at most `most`: a power of two, so that
/// growth moves half of the names and an edit moves none.
fn bucket_count(size: usize, target: usize, most: usize) -> usize {
    size.div_ceil(target).max(1).next_power_of_two().min(most)
}

fn bucket(name: &str, count: usize) -> usize {
    let digest = Sha256::digest(name.as_bytes());
    let mut head = [0; 4];
    head.copy_from_slice(&digest[..4]);
    usize::try_from(u32::from_be_bytes(head)).unwrap_or(0) % count
}

/// A shard's content as it is stored.
struct Packed {
    bytes: Bytes,
    /// Bytes of memory that its values take.
    decoded: u64,
}

/// Packs the content of a shard, if readers take it. `name` is for errors.
fn pack(name: &str, plain: &[u8]) -> Result<Packed, ShardError> {
    let too_large = |size: u64, form, limit| ShardError::TooLarge {
        what: name.to_owned(),
        size,
        form,
        limit,
        remedy: String::new(),
    };
    let malformed = |reason: String| ShardError::Malformed {
        name: name.to_owned(),
        reason,
    };
    let size = plain.len() as u64;
    if size > MAX_SHARD_BYTES {
        return Err(too_large(size, Form::Encoded, MAX_SHARD_BYTES));
    }
    let decoded =
        bounds::size_of_snapshot(plain, u64::MAX).map_err(|error| malformed(error.to_string()))?;
    if decoded > MAX_DECODED_BYTES {
        return Err(too_large(decoded, Form::Decoded, MAX_DECODED_BYTES));
    }
    let bytes = zstd::bulk::compress(plain, 3)
        .map_err(|error| malformed(format!("cannot be compressed: {error}")))?;
    if bytes.len() > MAX_STORED_BYTES {
        let (size, limit) = (bytes.len() as u64, MAX_STORED_BYTES as u64);
        return Err(too_large(size, Form::Stored, limit));
    }
    Ok(Packed {
        bytes: bytes.into(),
        decoded,
    })
}
