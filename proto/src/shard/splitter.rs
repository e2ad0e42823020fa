//! Cutting snapshots into shards, one after the other: what a change leaves alone is not cut, compressed or digested
//! again. The outcome is the same as without memory.

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::join::unpack;
use super::live::Live;
use super::{FORMAT, MAX_SHARDS, Shard, ShardError, Sharded, bucket, buckets, pack};
use crate::digest::{canonicalize, domain_order, revision_of_canonical, sha256};
use crate::schema::{EndpointSet, Manifest, RouteTable, ShardRef, Snapshot, VirtualHost};

/// How much configuration one shard is meant to hold, before compression. An edit rewrites one shard; a reader that
/// knows nothing fetches all of them.
const TARGET_BYTES: usize = 64 * 1024;
/// The most configuration shards besides the first; beyond, each holds more.
const MOST: usize = 512;

/// Cuts the snapshots of one Gateway.
#[derive(Debug, Default)]
pub struct Splitter {
    /// The last snapshot, canonical, without its endpoints.
    snapshot: Snapshot,
    revision: String,
    /// Among how many its tables and backends were shared out.
    count: usize,
    /// The first, then those that are not empty.
    config: Vec<Piece>,
    live: Live,
}

/// A configuration shard.
#[derive(Debug)]
struct Piece {
    /// Which of all; none for the first.
    index: Option<usize>,
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
        let revision = revision_of_canonical(&snapshot);
        let (count, config) = if before.revision == revision {
            (before.count, before.config)
        } else {
            let count = count(&snapshot);
            (count, cut(&snapshot, count, before.config)?)
        };
        let live = before.live.after(endpoints)?;
        let found = config.len() + live.references().count();
        if found > MAX_SHARDS {
            return Err(ShardError::TooMany { found });
        }
        *self = Self {
            snapshot,
            revision,
            count,
            config,
            live,
        };
        Ok(self.sharded())
    }

    /// The last snapshot, canonical, without its endpoints.
    pub fn config(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Replaces virtual hosts of the last snapshot, each in the table of this name, as if it had been split with these.
    /// None if it cannot be told without the rest of the snapshot; after that, and after an error, the whole is to be
    /// split again.
    pub fn reroute(
        &mut self,
        hosts: Vec<(String, VirtualHost)>,
    ) -> Result<Option<Sharded>, ShardError> {
        let mut before = std::mem::take(self);
        let mut touched: BTreeMap<usize, Vec<(String, VirtualHost)>> = BTreeMap::new();
        for (table, host) in hosts {
            let Some(held) = held(&mut before.snapshot, &table, &host.domain) else {
                return Ok(None);
            };
            held.clone_from(&host);
            let index = bucket(&host.domain, before.count);
            touched.entry(index).or_default().push((table, host));
        }
        if count(&before.snapshot) != before.count {
            return Ok(None);
        }
        for (index, hosts) in touched {
            let place = before.config.iter().position(|p| p.index == Some(index));
            let Some(piece) = place.and_then(|place| before.config.get_mut(place)) else {
                return Ok(None);
            };
            let (mut content, _) = unpack(&piece.shard.name, &piece.shard.bytes)?;
            for (table, host) in hosts {
                let Some(held) = held(&mut content, &table, &host.domain) else {
                    return Ok(None);
                };
                *held = host;
            }
            let plain = content.encode_to_vec();
            *piece = Piece::new(Some(index), Sha256::digest(&plain).into(), &plain)?;
        }
        before.revision = revision_of_canonical(&before.snapshot);
        *self = before;
        Ok(Some(self.sharded()))
    }

    fn sharded(&self) -> Sharded {
        let Self {
            snapshot,
            revision,
            count: _,
            config,
            live,
        } = self;
        Sharded {
            manifest: Manifest {
                format: FORMAT,
                gateway: snapshot.gateway.clone(),
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
        }
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

/// The virtual host of this domain in this table of a canonical configuration.
fn held<'s>(snapshot: &'s mut Snapshot, table: &str, domain: &str) -> Option<&'s mut VirtualHost> {
    let tables = &mut snapshot.route_tables;
    let place = tables.binary_search_by(|held| held.name.as_str().cmp(table));
    let hosts = &mut tables.get_mut(place.ok()?)?.virtual_hosts;
    let order = |host: &VirtualHost| domain_order(&host.domain).cmp(&domain_order(domain));
    let place = hosts.binary_search_by(order);
    hosts.get_mut(place.ok()?)
}

/// Among how many shards the tables and backends are shared out.
fn count(config: &Snapshot) -> usize {
    let tables: usize = config
        .route_tables
        .iter()
        .map(RouteTable::encoded_len)
        .sum();
    let backends: usize = config
        .backends
        .iter()
        .map(prost::Message::encoded_len)
        .sum();
    buckets(tables + backends, TARGET_BYTES, MOST)
}

/// Cuts a canonical configuration; takes over what is the same.
fn cut(config: &Snapshot, count: usize, before: Vec<Piece>) -> Result<Vec<Piece>, ShardError> {
    let Snapshot {
        gateway,
        addresses,
        ports,
        route_tables,
        backends,
        endpoints: _,
        keys,
        trust_bundles,
        edge,
    } = config;
    let mut pieces: BTreeMap<usize, Snapshot> = BTreeMap::new();
    for table in route_tables {
        for host in &table.virtual_hosts {
            let piece = pieces.entry(bucket(&host.domain, count)).or_default();
            match piece.route_tables.last_mut() {
                Some(last) if last.name == table.name => last.virtual_hosts.push(host.clone()),
                _ => piece.route_tables.push(RouteTable {
                    name: table.name.clone(),
                    virtual_hosts: vec![host.clone()],
                }),
            }
        }
    }
    for backend in backends {
        let piece = pieces.entry(bucket(&backend.name, count)).or_default();
        piece.backends.push(backend.clone());
    }
    let head = Snapshot {
        gateway: gateway.clone(),
        addresses: addresses.clone(),
        ports: ports.clone(),
        keys: keys.clone(),
        trust_bundles: trust_bundles.clone(),
        edge: *edge,
        ..Snapshot::default()
    };
    let mut known: HashMap<[u8; 32], Piece> = before
        .into_iter()
        .map(|piece| (piece.content, piece))
        .collect();
    let rest = pieces
        .into_iter()
        .map(|(index, piece)| (Some(index), piece));
    std::iter::once((None, head))
        .chain(rest)
        .map(|(index, piece)| {
            let plain = piece.encode_to_vec();
            let content = Sha256::digest(&plain).into();
            match known.remove(&content) {
                Some(piece) => Ok(Piece { index, ..piece }),
                None => Piece::new(index, content, &plain),
            }
        })
        .collect()
}

impl Piece {
    fn new(index: Option<usize>, content: [u8; 32], plain: &[u8]) -> Result<Self, ShardError> {
        let bytes = pack("config", plain)?;
        let digest = sha256(&bytes);
        let name = format!("config-{}", digest.get(..20).unwrap_or(&digest));
        Ok(Self {
            index,
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
