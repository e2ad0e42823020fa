//! Endpoint shards: they keep their names and change in place, each by itself.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use super::splitter::Refreshed;
use super::{Shard, ShardError, bucket, buckets, pack};
use crate::digest::canonicalize_endpoints;
use crate::schema::{EndpointSet, ShardRef, Snapshot};

/// How many endpoints one shard is meant to hold, in bytes before compression: a change writes, sends and reads a whole
/// shard.
const TARGET_BYTES: usize = 16 * 1024;
/// The most shards; beyond, each holds more.
const MOST: usize = 256;

/// The endpoint sets of a snapshot, in shards.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// How many shards there may be.
    count: usize,
    /// What all sets take, encoded.
    size: usize,
    /// By index.
    pieces: BTreeMap<usize, Piece>,
}

#[derive(Debug)]
struct Piece {
    /// By name.
    sets: Vec<EndpointSet>,
    shard: Shard,
}

impl Live {
    /// These sets, which are canonical, in shards; takes over what is the same.
    pub(super) fn after(mut self, sets: Vec<EndpointSet>) -> Result<Self, ShardError> {
        let size = sets.iter().map(EndpointSet::encoded_len).sum();
        let count = count(size);
        let mut split: BTreeMap<usize, Vec<EndpointSet>> = BTreeMap::new();
        for set in sets {
            split.entry(bucket(&set.name, count)).or_default().push(set);
        }
        let mut pieces = BTreeMap::new();
        for (index, sets) in split {
            let same = self
                .pieces
                .remove(&index)
                .filter(|held| self.count == count && held.sets == sets);
            let piece = match same {
                Some(held) => held,
                None => Piece::new(format!("endpoints-{count}-{index}"), sets)?,
            };
            pieces.insert(index, piece);
        }
        Ok(Self {
            count,
            size,
            pieces,
        })
    }

    /// Replaces sets that there are.
    pub(super) fn refresh(&mut self, sets: &[EndpointSet]) -> Result<Refreshed, ShardError> {
        let mut touched = BTreeSet::new();
        for set in sets {
            let index = bucket(&set.name, self.count.max(1));
            let held = self.pieces.get_mut(&index).and_then(|piece| {
                let name = |held: &EndpointSet| held.name.cmp(&set.name);
                let place = piece.sets.binary_search_by(name).ok()?;
                piece.sets.get_mut(place)
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
            return Ok(Refreshed::Whole);
        }
        let mut changed = Vec::with_capacity(touched.len());
        for index in touched {
            if let Some(piece) = self.pieces.get_mut(&index) {
                piece.pack()?;
                changed.push(piece.shard.clone());
            }
        }
        Ok(Refreshed::Shards(changed))
    }

    /// What a manifest says of them: nothing of what changes in place.
    pub(super) fn references(&self) -> impl Iterator<Item = ShardRef> + '_ {
        self.shards().map(|shard| ShardRef {
            name: shard.name.clone(),
            sha256: String::new(),
            size: 0,
        })
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.pieces.values().map(|piece| &piece.shard)
    }
}

impl Piece {
    fn new(name: String, sets: Vec<EndpointSet>) -> Result<Self, ShardError> {
        let bytes = bytes::Bytes::new();
        let shard = Shard { name, bytes };
        let mut piece = Self { sets, shard };
        piece.pack()?;
        Ok(piece)
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
    buckets(size, TARGET_BYTES, MOST)
}
