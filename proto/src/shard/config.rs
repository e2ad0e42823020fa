//! Configuration shards, whose names contain a digest of their contents.

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::{Form, MAX_SNAPSHOT_BYTES, Packed, Shard, ShardError, bucket, pack, parts};
use crate::digest::sha256;
use crate::schema::{Backend, RouteTable, ShardRef, Snapshot, VirtualHost};

/// Number of hex digits of the digest in a shard's name. With 80 bits, accidental collisions are
/// implausible.
const NAME_DIGITS: usize = 20;

#[derive(Clone, Debug)]
pub(super) struct ConfigShard {
    /// `None` for contents without a bucket.
    pub(super) bucket: Option<usize>,
    pub(super) content: [u8; 32],
    /// Size in memory after decoding, in bytes.
    pub(super) decoded: u64,
    pub(super) reference: ShardRef,
    pub(super) shard: Shard,
}

/// Borrows one bucket's contents, because copies of all buckets would take as much memory as the
/// snapshot.
#[derive(Default)]
struct Piece<'s> {
    hosts: Vec<(&'s str, &'s VirtualHost)>,
    backends: Vec<&'s Backend>,
}

impl Piece<'_> {
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

/// Reuses earlier shards with the same contents.
pub(super) fn split_config(
    config: &Snapshot,
    count: usize,
    before: &[ConfigShard],
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
        rate_limits,
        shared_filters,
        filters,
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
        rate_limits: rate_limits.clone(),
        shared_filters: shared_filters.clone(),
        filters: filters.clone(),
        ..Snapshot::default()
    };
    let known: HashMap<[u8; 32], &ConfigShard> =
        before.iter().map(|shard| (shard.content, shard)).collect();
    let rest = pieces(route_tables, backends, count)
        .into_iter()
        .map(|(bucket, piece)| (Some(bucket), piece.snapshot()));
    let mut shards = Vec::new();
    for (bucket, piece) in std::iter::once((None, head)).chain(rest) {
        add_parts(bucket, piece, &known, &mut shards)?;
    }
    let size = decoded(&shards);
    if size > MAX_SNAPSHOT_BYTES {
        return Err(ShardError::TooLarge {
            what: "the Gateway's configuration".to_owned(),
            size,
            form: Form::Decoded,
            limit: MAX_SNAPSHOT_BYTES,
            remedy: parts::largest_host(config),
        });
    }
    Ok(shards)
}

/// Adds several shards if the piece exceeds a shard's limits.
fn add_parts(
    bucket: Option<usize>,
    piece: Snapshot,
    known: &HashMap<[u8; 32], &ConfigShard>,
    shards: &mut Vec<ConfigShard>,
) -> Result<(), ShardError> {
    let plain = piece.encode_to_vec();
    let content = Sha256::digest(&plain).into();
    if let Some(shard) = known.get(&content) {
        shards.push(ConfigShard {
            bucket,
            ..(*shard).clone()
        });
        return Ok(());
    }
    let error = match ConfigShard::new(bucket, content, &plain) {
        Ok(shard) => {
            shards.push(shard);
            return Ok(());
        }
        Err(error) => error,
    };
    drop(plain);
    let ShardError::TooLarge {
        size, form, limit, ..
    } = error
    else {
        return Err(error);
    };
    let what = parts::name(&piece);
    let Some((first, second)) = parts::halves(piece) else {
        let remedy = String::new();
        return Err(ShardError::TooLarge {
            what,
            size,
            form,
            limit,
            remedy,
        });
    };
    add_parts(bucket, first, known, shards)?;
    add_parts(bucket, second, known, shards)
}

/// Returns the shards' total size in memory after decoding, in bytes.
pub(super) fn decoded(shards: &[ConfigShard]) -> u64 {
    let sizes = shards.iter().map(|shard| shard.decoded);
    sizes.fold(0, u64::saturating_add)
}

impl ConfigShard {
    pub(super) fn new(
        bucket: Option<usize>,
        content: [u8; 32],
        plain: &[u8],
    ) -> Result<Self, ShardError> {
        let Packed { bytes, decoded } = pack("config", plain)?;
        let digest = sha256(&bytes);
        let name = format!("config-{}", digest.get(..NAME_DIGITS).unwrap_or(&digest));
        Ok(Self {
            bucket,
            content,
            decoded,
            reference: ShardRef {
                name: name.clone(),
                sha256: digest,
                size: plain.len() as u64,
            },
            shard: Shard { name, bytes },
        })
    }
}
