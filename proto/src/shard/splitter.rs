//! Splits successive snapshots of one Gateway into shards.
//!
//! Unaffected shards are reused. The result must always equal the result of a new splitter.

use std::collections::BTreeMap;

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::config::{ConfigShard, decoded, split_config};
use super::join::unpack;
use super::live::LiveShards;
use super::{
    FORMAT, MAX_SHARDS, MAX_SNAPSHOT_BYTES, Shard, ShardError, Sharded, bucket, bucket_count,
};
use crate::delta::{BackendDelta, ChangedHost, GatewayDelta, RouteTableDelta};
use crate::digest::{canonicalize, canonicalize_endpoints};
use crate::encoded::EncodedSnapshot;
use crate::schema::{EndpointSet, Manifest, Snapshot};

/// Target size of a shard in bytes before compression. Smaller shards make edits cheaper; larger
/// shards help readers that fetch all shards.
const TARGET_BYTES: usize = 64 * 1024;
/// Maximum number of configuration shards. Beyond it, a larger configuration makes the shards
/// larger.
const MAX_CONFIG_SHARDS: usize = 512;

/// Splits one Gateway's snapshots.
#[derive(Debug, Default)]
pub struct Splitter {
    /// Last snapshot in canonical form, without endpoints.
    snapshot: EncodedSnapshot,
    revision: String,
    count: usize,
    /// Shards without a bucket come first. A bucket usually has one shard.
    config: Vec<ConfigShard>,
    live: LiveShards,
}

/// Result of changing only endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefreshedShards {
    /// Changed endpoint shards. The manifest is unchanged.
    Changed(Vec<Shard>),
    /// The number of shards would change, so split the complete snapshot.
    Whole,
}

/// Splits a snapshot into shards.
pub fn split(snapshot: &Snapshot) -> Result<Sharded, ShardError> {
    Splitter::default().split(&mut snapshot.clone())
}

impl Splitter {
    /// Splits the next snapshot. Makes `snapshot` canonical, and moves its endpoints out of it. On
    /// error, keeps the last configuration, but with the new endpoints; see [`last`](Self::last).
    pub fn split(&mut self, snapshot: &mut Snapshot) -> Result<Sharded, ShardError> {
        let mut before = std::mem::take(self);
        canonicalize(snapshot);
        let endpoints = std::mem::take(&mut snapshot.endpoints);
        let encoded = EncodedSnapshot::new(snapshot, Vec::new());
        let revision = encoded.config_digest();
        if before.revision != revision {
            let count = count(&encoded);
            let config = match split_config(snapshot, count, &before.config) {
                Ok(config) => config,
                Err(error) => {
                    *self = before;
                    self.replace_endpoints(endpoints)?;
                    return Err(error);
                }
            };
            before.count = count;
            before.config = config;
            before.revision = revision;
            before.snapshot = encoded;
        }
        before.live = before.live.after(endpoints)?;
        before.check()?;
        *self = before;
        Ok(self.sharded())
    }

    /// Replaces only the last snapshot's endpoints, for callers that cannot publish the next
    /// configuration.
    pub fn replace_endpoints(&mut self, mut endpoints: Vec<EndpointSet>) -> Result<(), ShardError> {
        let mut before = std::mem::take(self);
        endpoints.iter_mut().for_each(canonicalize_endpoints);
        before.live = before.live.replace(endpoints)?;
        before.check()?;
        *self = before;
        Ok(())
    }

    /// Returns the last storable configuration with the current endpoints.
    pub fn last(&self) -> Option<Sharded> {
        (!self.config.is_empty()).then(|| self.sharded())
    }

    /// Fails if readers would reject the number or total size of the shards.
    fn check(&self) -> Result<(), ShardError> {
        let found = self.config.len() + self.live.references().count();
        if found > MAX_SHARDS {
            return Err(ShardError::TooMany { found });
        }
        self.live.check()
    }

    /// Applies a delta, with the same result as splitting the changed snapshot. If this fails or
    /// returns `None`, split the complete snapshot.
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
        if before.check().is_err() || decoded(&before.config) > MAX_SNAPSHOT_BYTES {
            return Ok(None);
        }
        before.revision = snapshot.config_digest();
        before.snapshot = snapshot;
        *self = before;
        Ok(Some(self.sharded()))
    }

    /// Returns false if the delta does not match, or if the bucket needs more than one shard.
    fn change_bucket(&mut self, bucket: usize, delta: BucketDelta) -> Result<bool, ShardError> {
        let BucketDelta { hosts, backends } = delta;
        let config = &mut self.config;
        let place = config.binary_search_by_key(&Some(bucket), |shard| shard.bucket);
        let parts = config.iter().filter(|shard| shard.bucket == Some(bucket));
        if parts.count() > 1 {
            return Ok(false);
        }
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
            plain => match ConfigShard::new(Some(bucket), Sha256::digest(plain).into(), plain) {
                // The bucket no longer fits into a single shard.
                Err(ShardError::TooLarge { .. }) => return Ok(false),
                shard => Some(shard?),
            },
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

    /// Replaces endpoint sets by name, with the same result as splitting the changed snapshot.
    /// After an error, split the complete snapshot.
    pub fn refresh(&mut self, sets: &[EndpointSet]) -> Result<RefreshedShards, ShardError> {
        let refreshed = self.live.refresh(sets);
        if !matches!(refreshed, Ok(RefreshedShards::Changed(_))) {
            self.live = LiveShards::default();
        }
        refreshed
    }
}

fn count(config: &EncodedSnapshot) -> usize {
    bucket_count(
        config.size_of_route_tables() + config.size_of_backends(),
        TARGET_BYTES,
        MAX_CONFIG_SHARDS,
    )
}

#[derive(Default)]
struct BucketDelta {
    hosts: Vec<ChangedHost>,
    backends: BackendDelta,
}

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
