//! Cutting snapshots into shards, one after the other: what a change leaves alone is not cut, compressed or digested
//! again. The outcome is the same as without memory.

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::live::Live;
use super::{FORMAT, MAX_SHARDS, Shard, ShardError, Sharded, bucket, buckets, pack};
use crate::digest::{canonicalize, revision_of_canonical, sha256};
use crate::schema::{EndpointSet, Manifest, RouteTable, ShardRef, Snapshot};

/// How much configuration one shard is meant to hold, before compression. An edit rewrites one shard; a reader that
/// knows nothing fetches all of them.
const TARGET_BYTES: usize = 64 * 1024;
/// The most configuration shards besides the first; beyond, each holds more.
const MOST: usize = 512;

/// Cuts the snapshots of one Gateway.
#[derive(Debug, Default)]
pub struct Splitter {
    /// Of the last snapshot.
    revision: String,
    config: Vec<Piece>,
    live: Live,
}

/// A configuration shard.
#[derive(Debug)]
struct Piece {
    /// Of its content before compression.
    content: [u8; 32],
    reference: ShardRef,
    shard: Shard,
}

/// What came of a change of endpoints alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// These shards have other bytes now; the manifest is the same.
    Shards(Vec<Shard>),
    /// They need more shards, or fewer: the whole snapshot is to be split again.
    Whole,
}

/// Cuts a snapshot into shards.
pub fn split(snapshot: &Snapshot) -> Result<Sharded, ShardError> {
    Splitter::default().split(snapshot.clone())
}

impl Splitter {
    /// Cuts the next snapshot.
    pub fn split(&mut self, mut snapshot: Snapshot) -> Result<Sharded, ShardError> {
        // What cannot be cut leaves nothing to go on from.
        let before = std::mem::take(self);
        canonicalize(&mut snapshot);
        let endpoints = std::mem::take(&mut snapshot.endpoints);
        let gateway = snapshot.gateway.clone();
        let revision = revision_of_canonical(&snapshot);
        let config = if before.revision == revision {
            before.config
        } else {
            cut(snapshot, before.config)?
        };
        let live = before.live.after(endpoints)?;
        let found = config.len() + live.references().count();
        if found > MAX_SHARDS {
            return Err(ShardError::TooMany { found });
        }
        let sharded = Sharded {
            manifest: Manifest {
                format: FORMAT,
                gateway,
                revision: revision.clone(),
                config: config.iter().map(|p| p.reference.clone()).collect(),
                endpoints: live.references().collect(),
            },
            shards: config
                .iter()
                .map(|piece| &piece.shard)
                .chain(live.shards())
                .cloned()
                .collect(),
        };
        *self = Self {
            revision,
            config,
            live,
        };
        Ok(sharded)
    }

    /// Replaces endpoint sets of the last snapshot, as if it had been split with these. Sets that it has not are left
    /// out. After an error, too, the whole is to be split again.
    pub fn refresh(&mut self, sets: &[EndpointSet]) -> Result<Refreshed, ShardError> {
        let refreshed = self.live.refresh(sets);
        if !matches!(refreshed, Ok(Refreshed::Shards(_))) {
            self.live = Live::default();
        }
        refreshed
    }
}

/// Cuts a canonical configuration; takes over what is the same.
fn cut(config: Snapshot, before: Vec<Piece>) -> Result<Vec<Piece>, ShardError> {
    let Snapshot {
        gateway,
        addresses,
        ports,
        route_tables,
        backends,
        endpoints: _,
        keys,
        trust_bundles,
    } = config;
    let of_tables: usize = route_tables.iter().map(RouteTable::encoded_len).sum();
    let of_backends: usize = backends.iter().map(prost::Message::encoded_len).sum();
    let count = buckets(of_tables + of_backends, TARGET_BYTES, MOST);
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
        gateway,
        addresses,
        ports,
        keys,
        trust_bundles,
        ..Snapshot::default()
    };
    let mut known: HashMap<[u8; 32], Piece> = before
        .into_iter()
        .map(|piece| (piece.content, piece))
        .collect();
    std::iter::once(head)
        .chain(pieces.into_values())
        .map(|piece| {
            let plain = piece.encode_to_vec();
            let content = Sha256::digest(&plain).into();
            match known.remove(&content) {
                Some(piece) => Ok(piece),
                None => Piece::new(content, &plain),
            }
        })
        .collect()
}

impl Piece {
    fn new(content: [u8; 32], plain: &[u8]) -> Result<Self, ShardError> {
        let bytes = pack("config", plain)?;
        let digest = sha256(&bytes);
        let name = format!("config-{}", digest.get(..20).unwrap_or(&digest));
        Ok(Self {
            content,
            reference: ShardRef {
                name: name.clone(),
                sha256: digest,
                size: plain.len() as u64,
            },
            shard: Shard { name, bytes },
        })
    }
}
