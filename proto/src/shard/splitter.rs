//! Splitting the snapshots of a Gateway into shards, one after the other.
//!
//! A shard that a change leaves alone is not made, compressed or digested again. The outcome must never differ from that of
//! a splitter without memory.

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::join::unpack;
use super::live::LiveShards;
use super::{FORMAT, MAX_SHARDS, Shard, ShardError, Sharded, bucket, bucket_count, pack};
use crate::delta::{ChangedHost, RouteTableDelta};
use crate::digest::{canonicalize, sha256};
use crate::encoded::EncodedSnapshot;
use crate::schema::{Backend, EndpointSet, Manifest, RouteTable, ShardRef, Snapshot};

/// Bytes of configuration that one shard is meant to hold, before compression. An edit rewrites one shard; a reader that
/// starts fetches all of them.
const TARGET_BYTES: usize = 64 * 1024;
/// Number of configuration shards at most, besides the first; with more configuration, each holds more.
const MAX_CONFIG_SHARDS: usize = 512;
/// Hex digits of a configuration shard's digest that are in its name: 80 bits, so that no two shards share one by chance.
const NAME_DIGITS: usize = 20;

/// Splits the snapshots of one Gateway.
#[derive(Debug, Default)]
pub struct Splitter {
    /// The last snapshot, canonical, without its endpoints.
    snapshot: EncodedSnapshot,
    revision: String,
    /// Bytes of its backends, encoded.
    backends: usize,
    /// Number of buckets that its virtual hosts and backends are shared out among.
    count: usize,
    /// The first shard, then one for each bucket that is not empty.
    config: Vec<ConfigShard>,
    live: LiveShards,
}

/// A configuration shard.
#[derive(Debug)]
struct ConfigShard {
    /// The bucket that it holds; none for the first.
    bucket: Option<usize>,
    /// SHA-256 of its content before compression.
    content: [u8; 32],
    reference: ShardRef,
    shard: Shard,
}

/// The outcome of a change of endpoints alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefreshedShards {
    /// These shards have changed; the manifest is the same.
    Changed(Vec<Shard>),
    /// The number of shards changes: the whole snapshot is to be split again.
    Whole,
}

/// Splits a snapshot into shards.
pub fn split(snapshot: &Snapshot) -> Result<Sharded, ShardError> {
    Splitter::default().split(&mut snapshot.clone())
}

impl Splitter {
    /// Splits the next snapshot, which is canonical and without its endpoints after that.
    pub fn split(&mut self, snapshot: &mut Snapshot) -> Result<Sharded, ShardError> {
        // A snapshot that cannot be split leaves nothing to go on from.
        let before = std::mem::take(self);
        canonicalize(snapshot);
        let endpoints = std::mem::take(&mut snapshot.endpoints);
        let encoded = EncodedSnapshot::new(snapshot, Vec::new());
        let revision = encoded.config_digest();
        let backends = snapshot.backends.iter().map(Backend::encoded_len).sum();
        let (count, config) = if before.revision == revision {
            (before.count, before.config)
        } else {
            let count = count(&encoded, backends);
            (count, split_config(snapshot, count, before.config)?)
        };
        let live = before.live.after(endpoints)?;
        let found = config.len() + live.references().count();
        if found > MAX_SHARDS {
            return Err(ShardError::TooMany { found });
        }
        *self = Self {
            snapshot: encoded,
            revision,
            backends,
            count,
            config,
            live,
        };
        Ok(self.sharded())
    }

    /// Changes virtual hosts of the last snapshot, with the outcome of splitting the changed one. None if only the whole
    /// snapshot tells the outcome; it is to be split again after that, and after an error.
    pub fn change_hosts(&mut self, delta: &RouteTableDelta) -> Result<Option<Sharded>, ShardError> {
        let mut before = std::mem::take(self);
        let Some(snapshot) = before.snapshot.with_changed_hosts(delta) else {
            return Ok(None);
        };
        if count(&snapshot, before.backends) != before.count {
            return Ok(None);
        }
        let mut buckets: BTreeMap<usize, Vec<ChangedHost>> = BTreeMap::new();
        for host in delta.hosts() {
            let bucket = bucket(&host.before.domain, before.count);
            buckets.entry(bucket).or_default().push(host.clone());
        }
        for (bucket, hosts) in buckets {
            let held = |shard: &&mut ConfigShard| shard.bucket == Some(bucket);
            let Some(shard) = before.config.iter_mut().find(held) else {
                return Ok(None);
            };
            let (mut content, _) = unpack(&shard.shard.name, 0, &shard.shard.bytes)?;
            let delta: RouteTableDelta = hosts.into_iter().collect();
            if delta.apply(&mut content.route_tables).is_none() {
                return Ok(None);
            }
            let plain = content.encode_to_vec();
            *shard = ConfigShard::new(Some(bucket), Sha256::digest(&plain).into(), &plain)?;
        }
        before.revision = snapshot.config_digest();
        before.snapshot = snapshot;
        *self = before;
        Ok(Some(self.sharded()))
    }

    fn sharded(&self) -> Sharded {
        let Self {
            snapshot,
            revision,
            backends: _,
            count: _,
            config,
            live,
        } = self;
        Sharded {
            manifest: Manifest {
                format: FORMAT,
                gateway: snapshot.gateway().to_owned(),
                revision: revision.clone(),
                config: config.iter().map(|shard| shard.reference.clone()).collect(),
                endpoints: live.references().collect(),
            },
            shards: config
                .iter()
                .map(|config| &config.shard)
                .chain(live.shards())
                .cloned()
                .collect(),
        }
    }

    /// Replaces endpoint sets of the last snapshot, with the outcome of splitting the changed one. Sets that it does not have
    /// are left out. After an error, too, the whole is to be split again.
    pub fn refresh(&mut self, sets: &[EndpointSet]) -> Result<RefreshedShards, ShardError> {
        let refreshed = self.live.refresh(sets);
        if !matches!(refreshed, Ok(RefreshedShards::Changed(_))) {
            self.live = LiveShards::default();
        }
        refreshed
    }
}

/// Returns the number of buckets that the virtual hosts are shared out among, and the backends, which take this many bytes.
fn count(config: &EncodedSnapshot, backends: usize) -> usize {
    bucket_count(
        config.size_of_route_tables() + backends,
        TARGET_BYTES,
        MAX_CONFIG_SHARDS,
    )
}

/// Returns the pieces of what is spread over shards, by bucket.
fn pieces(
    route_tables: &[RouteTable],
    backends: &[Backend],
    count: usize,
) -> BTreeMap<usize, Snapshot> {
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
    pieces
}

/// Splits a canonical configuration; shards of the same content are taken over.
fn split_config(
    config: &Snapshot,
    count: usize,
    before: Vec<ConfigShard>,
) -> Result<Vec<ConfigShard>, ShardError> {
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
        rotation,
        tracing,
        log_output,
        measured_routes,
    } = config;
    let head = Snapshot {
        gateway: gateway.clone(),
        addresses: addresses.clone(),
        ports: ports.clone(),
        keys: keys.clone(),
        trust_bundles: trust_bundles.clone(),
        edge: *edge,
        rotation: *rotation,
        tracing: tracing.clone(),
        log_output: log_output.clone(),
        measured_routes: measured_routes.clone(),
        ..Snapshot::default()
    };
    let mut known: HashMap<[u8; 32], ConfigShard> = before
        .into_iter()
        .map(|shard| (shard.content, shard))
        .collect();
    let rest = pieces(route_tables, backends, count)
        .into_iter()
        .map(|(bucket, piece)| (Some(bucket), piece));
    std::iter::once((None, head))
        .chain(rest)
        .map(|(bucket, piece)| {
            let plain = piece.encode_to_vec();
            let content = Sha256::digest(&plain).into();
            match known.remove(&content) {
                Some(shard) => Ok(ConfigShard { bucket, ..shard }),
                None => ConfigShard::new(bucket, content, &plain),
            }
        })
        .collect()
}

impl ConfigShard {
    fn new(bucket: Option<usize>, content: [u8; 32], plain: &[u8]) -> Result<Self, ShardError> {
        let bytes = pack("config", plain)?;
        let digest = sha256(&bytes);
        let name = format!("config-{}", digest.get(..NAME_DIGITS).unwrap_or(&digest));
        Ok(Self {
            bucket,
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
