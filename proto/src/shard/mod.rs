//! Splits a snapshot into shards that are small enough to store, and joins them again.
//!
//! Configuration shards are content-addressed and never change. A hash of the name assigns each
//! virtual host and backend to a shard, so an edit rewrites only one shard. Endpoint shards keep
//! their names and change in place.
//!
//! Stored data is not trusted: sizes are limited before decompression, and the digest and the size
//! in memory are checked before decoding.

mod config;
mod endpoints;
mod join;
mod parts;
mod splitter;

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::bounds;
use crate::schema::{Manifest, Snapshot};

pub use self::join::{
    ConfigPiece, Endpoints, check, check_digest, endpoint_sets, join, join_config, join_pieces,
    set_endpoints,
};
pub use self::splitter::{Splitter, split};

/// Supported manifest format version.
pub const FORMAT: u32 = 1;
/// Maximum size of a stored shard in bytes. A ConfigMap is limited to 1 MiB including metadata.
pub const MAX_STORED_BYTES: usize = 900 * 1024;
/// Maximum size of a decompressed shard in bytes.
pub const MAX_SHARD_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum size of a decoded shard in memory, in bytes.
pub const MAX_DECODED_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum size in memory of all configuration shards, in bytes. All endpoint shards together have
/// the same limit.
pub const MAX_SNAPSHOT_BYTES: u64 = 512 * 1024 * 1024;
/// Maximum number of shards in a manifest.
pub const MAX_SHARDS: usize = 1024;

/// A stored shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// At most 63 lower-case letters, digits and `-`.
    pub name: String,
    /// Contents, compressed with zstd.
    pub bytes: Bytes,
}

/// A snapshot, split into shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharded {
    /// Manifest, which refers to the shards.
    pub manifest: Manifest,
    /// Configuration shards, then endpoint shards.
    pub shards: Vec<Shard>,
}

/// Error when creating or joining shards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// An item does not fit into a shard, or readers would reject the snapshot.
    #[error("{what} would need {size} bytes {form}; at most {limit} are allowed{remedy}")]
    TooLarge {
        /// Item name.
        what: String,
        /// Size in bytes.
        size: u64,
        /// Form in which the size is measured.
        form: Form,
        /// Limit in bytes.
        limit: u64,
        /// Remedy to append to the message, if any.
        remedy: String,
    },
    /// Unsupported manifest version.
    #[error("manifest format {found}, expected {FORMAT}; upgrade the reader")]
    Format {
        /// Actual version.
        found: u32,
    },
    /// Too many shards for a manifest.
    #[error("{found} shards exceed the limit of {MAX_SHARDS} per manifest")]
    TooMany {
        /// Number of shards.
        found: usize,
    },
    /// Invalid shard name.
    #[error("shard name {name:?} is not a plain name of letters, digits and \"-\"")]
    Name {
        /// Name.
        name: String,
    },
    /// A manifest refers to a shard twice.
    #[error("the manifest refers to shard {name} or its contents twice")]
    Repeated {
        /// Shard name.
        name: String,
    },
    /// A shard in the manifest is missing.
    #[error("shard {name} is missing")]
    Missing {
        /// Shard name.
        name: String,
    },
    /// A shard's digest differs from the manifest.
    #[error("shard {name} has SHA-256 {found}, expected {expected}")]
    Digest {
        /// Shard name.
        name: String,
        /// Digest in the manifest.
        expected: String,
        /// Actual digest.
        found: String,
    },
    /// A shard is malformed or exceeds a limit.
    #[error("shard {name}: {reason}")]
    Malformed {
        /// Shard name.
        name: String,
        /// Reason.
        reason: String,
    },
    /// The shards have a different revision than the manifest.
    #[error("the shards have revision {found}, but the manifest has {expected}")]
    Revision {
        /// Revision in the manifest.
        expected: String,
        /// Actual revision.
        found: String,
    },
}

/// Form in which a size is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Compressed bytes.
    Stored,
    /// Encoded bytes.
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

/// Adds to `new` the endpoint sets that only `old` contains, for readers that still have the old
/// manifest.
pub fn unite_endpoints(name: &str, old: &[u8], new: &[u8]) -> Result<Bytes, ShardError> {
    let mut both = Snapshot::default();
    // `set_endpoints` keeps the first set with each name, so put the new sets first.
    let mut sets = endpoint_sets(name, new)?.sets;
    sets.extend(endpoint_sets(name, old)?.sets);
    set_endpoints(&mut both, sets);
    Ok(pack(|| name.to_owned(), &both.encode_to_vec())?.bytes)
}

/// Returns a power of two: doubling the count moves only half of the names, and most edits do not
/// change the count.
fn bucket_count(size: usize, target: usize, most: usize) -> usize {
    size.div_ceil(target).max(1).next_power_of_two().min(most)
}

/// Hashes of names. Remembered, because most names stay from one snapshot to the next.
#[derive(Debug, Default)]
struct NameHashes(HashMap<String, u32>);

impl NameHashes {
    fn bucket(&mut self, name: &str, count: usize) -> usize {
        let hash = self.0.get(name).copied().unwrap_or_else(|| {
            let digest = Sha256::digest(name.as_bytes());
            let mut head = [0; 4];
            head.copy_from_slice(&digest[..4]);
            let hash = u32::from_be_bytes(head);
            self.0.insert(name.to_owned(), hash);
            hash
        });
        usize::try_from(hash).unwrap_or(0) % count
    }

    /// Forgets all names once most of them may be gone.
    fn tidy(&mut self, names: usize) {
        if self.0.len() > 2 * names {
            self.0.clear();
        }
    }
}

struct Packed {
    bytes: Bytes,
    /// Size in memory after decoding, in bytes.
    decoded: u64,
}

/// `name` identifies the shard in errors.
fn pack(name: impl Fn() -> String, plain: &[u8]) -> Result<Packed, ShardError> {
    let too_large = |size: u64, form, limit| ShardError::TooLarge {
        what: name(),
        size,
        form,
        limit,
        remedy: String::new(),
    };
    let malformed = |reason: String| ShardError::Malformed {
        name: name(),
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
