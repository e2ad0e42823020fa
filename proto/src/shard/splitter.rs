//! Splits successive snapshots of one Gateway into shards.
//!
//! Pieces with the same contents keep their shards. The result always equals the result of a new
//! splitter.

use super::config::{ConfigPiece, split_config};
use super::endpoints::{EndpointShard, split_endpoints};
use super::{FORMAT, MAX_SHARDS, NameHashes, ShardError, Sharded, bucket_count};
use crate::digest::canonicalize;
use crate::encoded::EncodedSnapshot;
use crate::schema::{Manifest, ShardRef, Snapshot};

/// Target size of a shard in bytes before compression. Smaller shards make edits cheaper; larger
/// shards help readers that fetch all shards.
const TARGET_BYTES: usize = 64 * 1024;
/// Maximum number of configuration shards. Beyond it, a larger configuration makes the shards
/// larger.
const MAX_CONFIG_SHARDS: usize = 512;

/// Splits one Gateway's snapshots.
#[derive(Debug, Default)]
pub struct Splitter {
    /// Last snapshot that could be stored.
    snapshot: EncodedSnapshot,
    revision: String,
    /// The piece without a bucket comes first.
    config: Vec<ConfigPiece>,
    endpoints: Vec<EndpointShard>,
    hashes: NameHashes,
}

/// Splits a snapshot into shards.
pub fn split(snapshot: &Snapshot) -> Result<Sharded, ShardError> {
    let mut snapshot = snapshot.clone();
    canonicalize(&mut snapshot);
    Splitter::default().split(&EncodedSnapshot::new(&snapshot, Vec::new()))
}

impl Splitter {
    /// Splits the next snapshot, which must be canonical. If it cannot be stored, keeps the last
    /// configuration, but with the new endpoints if they can be stored; see [`last`](Self::last).
    pub fn split(&mut self, snapshot: &EncodedSnapshot) -> Result<Sharded, ShardError> {
        let is_same = !self.config.is_empty() && snapshot.has_config_of(&self.snapshot);
        if let Err(error) = self.replace(snapshot, is_same) {
            if !is_same {
                self.replace_endpoints(snapshot)?;
            }
            return Err(error);
        }
        Ok(self.sharded())
    }

    /// Changes only the hashes if it fails.
    fn replace(&mut self, next: &EncodedSnapshot, same_config: bool) -> Result<(), ShardError> {
        let hashes = &mut self.hashes;
        let changed = if same_config {
            None
        } else {
            Some(split_config(next, count(next), &self.config, hashes)?)
        };
        let endpoints = split_endpoints(next, &self.endpoints, hashes)?;
        let config = changed.as_ref().unwrap_or(&self.config).iter();
        let found = config.map(|piece| piece.shards.len()).sum::<usize>() + endpoints.len();
        if found > MAX_SHARDS {
            return Err(ShardError::TooMany { found });
        }
        if let Some(config) = changed {
            self.revision = next.config_digest();
            self.config = config;
        }
        self.endpoints = endpoints;
        self.snapshot = next.clone();
        self.hashes.tidy(next.number_of_entries());
        Ok(())
    }

    /// Replaces only the last snapshot's endpoints, for callers that cannot publish the next
    /// configuration.
    pub fn replace_endpoints(&mut self, next: &EncodedSnapshot) -> Result<(), ShardError> {
        if !self.config.is_empty() {
            let sets = next.endpoint_entries();
            self.split(&self.snapshot.with_changed_endpoints(sets))?;
        }
        Ok(())
    }

    /// Returns the last snapshot that could be stored.
    pub fn snapshot(&self) -> &EncodedSnapshot {
        &self.snapshot
    }

    /// Returns the last storable configuration with the current endpoints.
    pub fn last(&self) -> Option<Sharded> {
        (!self.config.is_empty()).then(|| self.sharded())
    }

    fn config(&self) -> impl Iterator<Item = &super::config::ConfigShard> {
        self.config.iter().flat_map(|piece| &piece.shards)
    }

    fn sharded(&self) -> Sharded {
        let config = self.config().map(|config| &config.shard);
        let endpoints = self.endpoints.iter().map(|live| &live.shard);
        // These references contain no digests or sizes, because the shards change in place.
        let references = endpoints.clone().map(|shard| ShardRef {
            name: shard.name.clone(),
            sha256: String::new(),
            size: 0,
        });
        Sharded {
            manifest: Manifest {
                format: FORMAT,
                gateway: self.snapshot.gateway().to_owned(),
                revision: self.revision.clone(),
                config: self.config().map(|it| it.reference.clone()).collect(),
                endpoints: references.collect(),
                rollout: None,
            },
            shards: config.chain(endpoints).cloned().collect(),
        }
    }
}

fn count(config: &EncodedSnapshot) -> usize {
    bucket_count(
        config.size_of_route_tables() + config.size_of_backends(),
        TARGET_BYTES,
        MAX_CONFIG_SHARDS,
    )
}
