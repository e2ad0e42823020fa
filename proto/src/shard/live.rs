//! Endpoint shards, which keep their names and change in place, independently of the manifest.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use super::splitter::RefreshedShards;
use super::{Form, MAX_SNAPSHOT_BYTES, Packed, Shard, ShardError, bucket, bucket_count, pack};
use crate::delta::EndpointDelta;
use crate::digest::canonicalize_endpoints;
use crate::schema::{EndpointSet, ShardRef, Snapshot};

/// Target size of a shard in bytes before compression. Each change rewrites a whole shard.
const TARGET_BYTES: usize = 16 * 1024;
/// Maximum number of endpoint shards. Beyond it, more endpoints make the shards larger.
const MAX_ENDPOINT_SHARDS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct LiveShards {
    count: usize,
    /// Encoded size of all sets, in bytes.
    size: usize,
    /// By bucket. Empty buckets have no shard.
    shards: BTreeMap<usize, LiveShard>,
}

#[derive(Debug)]
struct LiveShard {
    /// Sorted by name.
    sets: Vec<EndpointSet>,
    shard: Shard,
    /// Size in memory after decoding, in bytes.
    decoded: u64,
}

impl LiveShards {
    /// Sets must be canonical. Reuses earlier shards with the same contents.
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
            let shard = if let Some(held) = same {
                held
            } else {
                let mut shard = LiveShard::empty(count, index);
                shard.sets = sets;
                shard.pack()?;
                shard
            };
            shards.insert(index, shard);
        }
        Ok(Self {
            count,
            size,
            shards,
        })
    }

    /// Works even if the number of shards changes. Ignores sets with unknown names.
    pub(super) fn replace(self, sets: Vec<EndpointSet>) -> Result<Self, ShardError> {
        let mut new: BTreeMap<String, EndpointSet> = sets
            .into_iter()
            .map(|set| (set.name.clone(), set))
            .collect();
        let held = self.shards.values().flat_map(|shard| &shard.sets);
        let sets = held.map(|held| new.remove(&held.name).unwrap_or_else(|| held.clone()));
        let sets = sets.collect();
        self.after(sets)
    }

    /// Fails if the total size exceeds the readers' limit.
    pub(super) fn check(&self) -> Result<(), ShardError> {
        let decoded = self.shards.values().map(|shard| shard.decoded);
        let size = decoded.fold(0, u64::saturating_add);
        if size <= MAX_SNAPSHOT_BYTES {
            return Ok(());
        }
        Err(ShardError::TooLarge {
            what: "the endpoints of all backends".to_owned(),
            size,
            form: Form::Decoded,
            limit: MAX_SNAPSHOT_BYTES,
            remedy: "; split the Gateway's routes across several Gateways".to_owned(),
        })
    }

    /// Ignores sets with unknown names. Returns [`RefreshedShards::Whole`] if the number of shards
    /// would change.
    pub(super) fn refresh(&mut self, sets: &[EndpointSet]) -> Result<RefreshedShards, ShardError> {
        let mut touched = BTreeSet::new();
        for set in sets {
            let index = bucket(&set.name, self.count.max(1));
            let held = self.shards.get_mut(&index).and_then(|shard| {
                let place = shard.place(&set.name).ok()?;
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

    /// Returns false if the delta does not apply, or if the number of shards would change. Discard
    /// the shards in that case.
    pub(super) fn change(&mut self, delta: &EndpointDelta) -> Result<bool, ShardError> {
        let EndpointDelta { added, removed } = delta;
        let mut touched = BTreeSet::new();
        for name in removed {
            let index = bucket(name, self.count.max(1));
            let held = self.shards.get_mut(&index);
            let taken = held.and_then(|shard| {
                let place = shard.place(name).ok()?;
                Some(shard.sets.remove(place))
            });
            let Some(set) = taken else { return Ok(false) };
            self.size -= set.encoded_len();
            touched.insert(index);
        }
        for set in added {
            let index = bucket(&set.name, self.count.max(1));
            let shard = self.shards.entry(index);
            let shard = shard.or_insert_with(|| LiveShard::empty(self.count, index));
            let Err(place) = shard.place(&set.name) else {
                return Ok(false);
            };
            let mut set = set.clone();
            canonicalize_endpoints(&mut set);
            self.size += set.encoded_len();
            shard.sets.insert(place, set);
            touched.insert(index);
        }
        if count(self.size) != self.count && !touched.is_empty() {
            return Ok(false);
        }
        for index in touched {
            match self.shards.get_mut(&index) {
                Some(shard) if !shard.sets.is_empty() => shard.pack()?,
                _ => drop(self.shards.remove(&index)),
            }
        }
        Ok(true)
    }

    /// The references contain no digests or sizes, because the shards change in place.
    pub(super) fn references(&self) -> impl Iterator<Item = ShardRef> + '_ {
        self.shards().map(|shard| ShardRef {
            name: shard.name.clone(),
            sha256: String::new(),
            size: 0,
        })
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.values().map(|live| &live.shard)
    }
}

impl LiveShard {
    fn empty(count: usize, index: usize) -> Self {
        let name = format!("endpoints-{count}-{index}");
        let bytes = bytes::Bytes::new();
        Self {
            sets: Vec::new(),
            shard: Shard { name, bytes },
            decoded: 0,
        }
    }

    /// `Err` contains the position for inserting the set.
    fn place(&self, name: &str) -> Result<usize, usize> {
        let place = |held: &EndpointSet| held.name.as_str().cmp(name);
        self.sets.binary_search_by(place)
    }

    fn pack(&mut self) -> Result<(), ShardError> {
        let content = Snapshot {
            endpoints: std::mem::take(&mut self.sets),
            ..Snapshot::default()
        };
        let largest = content.endpoints.iter().max_by_key(|it| it.endpoints.len());
        let what = largest.map_or_else(
            || self.shard.name.clone(),
            |set| format!("the endpoints of {} and others", set.name),
        );
        let packed = pack(&what, &content.encode_to_vec());
        self.sets = content.endpoints;
        let Packed { bytes, decoded } = packed?;
        self.shard.bytes = bytes;
        self.decoded = decoded;
        Ok(())
    }
}

fn count(size: usize) -> usize {
    bucket_count(size, TARGET_BYTES, MAX_ENDPOINT_SHARDS)
}
