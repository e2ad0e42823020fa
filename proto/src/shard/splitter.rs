//! Splitting the snapshots of a Gateway into shards, one after the other.
//!
//! An unchanged shard is not built, compressed or digested again. The result must equal a
//! splitter's without memory.

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::join::unpack;
use super::live::LiveShards;
use super::{FORMAT, MAX_SHARDS, Shard, ShardError, Sharded, bucket, bucket_count, pack};
use crate::delta::{BackendDelta, ChangedHost, GatewayDelta, RouteTableDelta};
use crate::digest::{canonicalize, sha256};
use crate::encoded::EncodedSnapshot;
use crate::schema::{Backend, EndpointSet, Manifest, RouteTable, ShardRef, Snapshot, VirtualHost};

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
        // After a failed split there is nothing to continue from.
        let before = std::mem::take(self);
        canonicalize(snapshot);
        let endpoints = std::mem::take(&mut snapshot.endpoints);
        let encoded = EncodedSnapshot::new(snapshot, Vec::new());
        let revision = encoded.config_digest();
        let (count, config) = if before.revision == revision {
            (before.count, before.config)
        } else {
            let count = count(&encoded);
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
            count,
            config,
            live,
        };
        Ok(self.sharded())
    }

    /// Changes the last snapshot and its split. Returns `None` if the whole snapshot must be split
    /// again, which is also needed after an error.
    pub fn change(&mut self, delta: &GatewayDelta) -> Result<Option<Sharded>, ShardError> {
        let GatewayDelta {
            route_tables,
            backends,
            endpoints,
        } = delta;
        let mut before = std::mem::take(self);
        let snapshot = before.snapshot.with_changed_hosts(route_tables);
        let Some(snapshot) = snapshot.and_then(|it| it.with_changed_backends(backends)) else {
            return Ok(None);
        };
        if count(&snapshot) != before.count || !before.live.change(endpoints)? {
            return Ok(None);
        }
        for (bucket, delta) in by_bucket(route_tables, backends, before.count) {
            if !before.change_bucket(bucket, delta)? {
                return Ok(None);
            }
        }
        if before.config.len() + before.live.references().count() > MAX_SHARDS {
            return Ok(None);
        }
        before.revision = snapshot.config_digest();
        before.snapshot = snapshot;
        *self = before;
        Ok(Some(self.sharded()))
    }

    /// Changes the shard of a bucket; false if it is not as it was before the changes.
    fn change_bucket(&mut self, bucket: usize, delta: BucketDelta) -> Result<bool, ShardError> {
        let BucketDelta { hosts, backends } = delta;
        let config = &mut self.config;
        // The first shard, which is of no bucket, is in front.
        let place = config.binary_search_by_key(&Some(bucket), |shard| shard.bucket);
        let mut content = match place.ok().and_then(|place| config.get(place)) {
            Some(shard) => unpack(&shard.shard.name, 0, &shard.shard.bytes)?.0,
            None => Snapshot::default(),
        };
        let hosts: RouteTableDelta = hosts.into_iter().collect();
        let hosts = hosts.apply(&mut content.route_tables);
        if hosts.and(backends.apply(&mut content.backends)).is_none() {
            return Ok(false);
        }
        let plain = content.encode_to_vec();
        let changed = match plain.as_slice() {
            [] => None,
            plain => Some(ConfigShard::new(
                Some(bucket),
                Sha256::digest(plain).into(),
                plain,
            )?),
        };
        let (Ok(start) | Err(start)) = place;
        let end = start + usize::from(place.is_ok());
        config.splice(start..end, changed);
        Ok(true)
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

/// Returns the number of buckets that the virtual hosts and backends are shared out among.
fn count(config: &EncodedSnapshot) -> usize {
    bucket_count(
        config.size_of_route_tables() + config.size_of_backends(),
        TARGET_BYTES,
        MAX_CONFIG_SHARDS,
    )
}

/// Changes of what one bucket holds.
#[derive(Default)]
struct BucketDelta {
    hosts: Vec<ChangedHost>,
    backends: BackendDelta,
}

/// Returns the changes by bucket.
fn by_bucket(
    route_tables: &RouteTableDelta,
    backends: &BackendDelta,
    count: usize,
) -> BTreeMap<usize, BucketDelta> {
    let BackendDelta { added, removed } = backends;
    let mut buckets: BTreeMap<usize, BucketDelta> = BTreeMap::new();
    let bucket = |name: &str| bucket(name, count);
    for host in route_tables.hosts() {
        let changes = buckets.entry(bucket(&host.before.domain)).or_default();
        changes.hosts.push(host.clone());
    }
    for backend in added {
        let changes = buckets.entry(bucket(&backend.name)).or_default();
        changes.backends.added.push(backend.clone());
    }
    for name in removed {
        let changes = buckets.entry(bucket(name)).or_default();
        changes.backends.removed.push(name.clone());
    }
    buckets
}

/// The part of a snapshot that one bucket holds. Copies of all pieces at once would take as much memory as the snapshot.
#[derive(Default)]
struct Piece<'s> {
    /// Virtual hosts with the names of their tables, in the order of the snapshot.
    hosts: Vec<(&'s str, &'s VirtualHost)>,
    backends: Vec<&'s Backend>,
}

impl Piece<'_> {
    /// Returns a copy of it.
    fn snapshot(&self) -> Snapshot {
        let mut route_tables: Vec<RouteTable> = Vec::new();
        for (table, host) in &self.hosts {
            match route_tables.last_mut() {
                Some(last) if last.name == *table => last.virtual_hosts.push((*host).clone()),
                _ => route_tables.push(RouteTable {
                    name: (*table).to_owned(),
                    virtual_hosts: vec![(*host).clone()],
                }),
            }
        }
        Snapshot {
            route_tables,
            backends: self.backends.iter().copied().cloned().collect(),
            ..Snapshot::default()
        }
    }
}

/// Returns the pieces that are spread over shards, by bucket.
fn pieces<'s>(
    route_tables: &'s [RouteTable],
    backends: &'s [Backend],
    count: usize,
) -> BTreeMap<usize, Piece<'s>> {
    let mut pieces: BTreeMap<usize, Piece<'s>> = BTreeMap::new();
    for table in route_tables {
        for host in &table.virtual_hosts {
            let piece = pieces.entry(bucket(&host.domain, count)).or_default();
            piece.hosts.push((&table.name, host));
        }
    }
    for backend in backends {
        let piece = pieces.entry(bucket(&backend.name, count)).or_default();
        piece.backends.push(backend);
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
        .map(|(bucket, piece)| (Some(bucket), piece.snapshot()));
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
