//! Endpoint shards, which keep their names and change in place, each by itself.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use super::splitter::RefreshedShards;
use super::{Shard, ShardError, bucket, bucket_count, pack};
use crate::digest::canonicalize_endpoints;
use crate::schema::{EndpointSet, ShardRef, Snapshot};

/// Bytes of endpoints that one shard is meant to hold, before compression: a change writes, sends and reads a whole shard.
const TARGET_BYTES: usize = 16 * 1024;
/// Number of endpoint shards at most; with more endpoints, each holds more.
const MAX_ENDPOINT_SHARDS: usize = 256;

/// The endpoint sets of a snapshot, in shards.
#[derive(Debug, Default)]
pub(super) struct LiveShards {
    /// Number of buckets that the sets are shared out among.
    count: usize,
    /// Bytes of all sets, encoded.
    size: usize,
    /// The shards by their bucket; an empty bucket has none.
    shards: BTreeMap<usize, LiveShard>,
}

#[derive(Debug)]
struct LiveShard {
    /// The sets, by name.
    sets: Vec<EndpointSet>,
    shard: Shard,
}

impl LiveShards {
    /// Splits these sets, which are canonical; shards of the same content are taken over.
    pub(super) fn after(mut self, sets: Vec<EndpointSet>) -> Result<Self, ShardError> {
        let size = sets.iter().map(EndpointSet::encoded_len).sum();
        let count = count(size);
        let mut split: BTreeMap<usize, Vec<EndpointSet>> = BTreeMap::new();
        for set in sets {
            split.entry(bucket(&set.name, count)).or_default().push(set);
        }
        let mut shards = BTreeMap::new();
        for (index, sets) in split {
            let same = self
                .shards
                .remove(&index)
                .filter(|held| self.count == count && held.sets == sets);
            let shard = match same {
                Some(held) => held,
                None => LiveShard::new(format!("endpoints-{count}-{index}"), sets)?,
            };
            shards.insert(index, shard);
        }
        Ok(Self {
            count,
            size,
            shards,
        })
    }

    /// Replaces sets; those that no shard has are left out.
    pub(super) fn refresh(&mut self, sets: &[EndpointSet]) -> Result<RefreshedShards, ShardError> {
        let mut touched = BTreeSet::new();
        for set in sets {
            let index = bucket(&set.name, self.count.max(1));
            let held = self.shards.get_mut(&index).and_then(|shard| {
                let name = |held: &EndpointSet| held.name.cmp(&set.name);
                let place = shard.sets.binary_search_by(name).ok()?;
                shard.sets.get_mut(place)
            });
            let Some(held) = held else { continue };
            let mut set = set.clone();
            canonicalize_endpoints(&mut set);
            if *held != set {
                self.size = self.size - held.encoded_len() + set.encoded_len();
                *held = set;
                touched.insert(index);
            }
        }
        if count(self.size) != self.count && !touched.is_empty() {
            return Ok(RefreshedShards::Whole);
        }
        let mut changed = Vec::with_capacity(touched.len());
        for index in touched {
            if let Some(shard) = self.shards.get_mut(&index) {
                shard.pack()?;
                changed.push(shard.shard.clone());
            }
        }
        Ok(RefreshedShards::Changed(changed))
    }

    /// Returns the references for a manifest, which say nothing that changes in place.
    pub(super) fn references(&self) -> impl Iterator<Item = ShardRef> + '_ {
        self.shards().map(|shard| ShardRef {
            name: shard.name.clone(),
            sha256: String::new(),
            size: 0,
        })
    }

    /// Returns the shards, in the order of their buckets.
    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.values().map(|live| &live.shard)
    }
}

impl LiveShard {
    fn new(name: String, sets: Vec<EndpointSet>) -> Result<Self, ShardError> {
        let bytes = bytes::Bytes::new();
        let shard = Shard { name, bytes };
        let mut packed = Self { sets, shard };
        packed.pack()?;
        Ok(packed)
    }

    fn pack(&mut self) -> Result<(), ShardError> {
        let content = Snapshot {
            endpoints: std::mem::take(&mut self.sets),
            ..Snapshot::default()
        };
        let packed = pack(&self.shard.name, &content.encode_to_vec());
        self.sets = content.endpoints;
        self.shard.bytes = packed?;
        Ok(())
    }
}

fn count(size: usize) -> usize {
    bucket_count(size, TARGET_BYTES, MAX_ENDPOINT_SHARDS)
}
