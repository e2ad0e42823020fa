//! Endpoint shards, which keep their names and change in place, independently of the manifest.

use super::{Form, MAX_SNAPSHOT_BYTES, NameHashes, Packed, Shard, ShardError, bucket_count, pack};
use crate::encoded::{EncodedSnapshot, Entry};
use crate::schema::EndpointSet;

/// Target size of a shard in bytes before compression. Each change rewrites a whole shard.
const TARGET_BYTES: usize = 16 * 1024;
/// Maximum number of endpoint shards. Beyond it, more endpoints make the shards larger.
const MAX_ENDPOINT_SHARDS: usize = 256;

#[derive(Debug)]
pub(super) struct EndpointShard {
    /// Number of buckets, and the shard's bucket.
    place: (usize, usize),
    sets: Vec<Entry>,
    pub(super) shard: Shard,
    /// Size in memory after decoding, in bytes.
    decoded: u64,
}

/// Reuses earlier shards with the same contents. Empty buckets have no shard.
pub(super) fn split_endpoints(
    snapshot: &EncodedSnapshot,
    before: &[EndpointShard],
    hashes: &mut NameHashes,
) -> Result<Vec<EndpointShard>, ShardError> {
    let sizes = snapshot.endpoint_entries().iter();
    let size = sizes.map(|set| set.bytes().len()).sum();
    let count = bucket_count(size, TARGET_BYTES, MAX_ENDPOINT_SHARDS);
    let mut shards = Vec::new();
    let buckets = snapshot.divide_endpoints(|name| hashes.bucket(name, count));
    for (index, sets) in buckets {
        let place = (count, index);
        let held = before.binary_search_by_key(&place, |held| held.place);
        shards.push(match held.ok().and_then(|place| before.get(place)) {
            Some(held) if held.sets == sets => EndpointShard {
                place,
                sets,
                shard: held.shard.clone(),
                decoded: held.decoded,
            },
            _ => EndpointShard::new(place, sets)?,
        });
    }
    let decoded = shards.iter().map(|shard| shard.decoded);
    let size = decoded.fold(0, u64::saturating_add);
    if size > MAX_SNAPSHOT_BYTES {
        return Err(ShardError::TooLarge {
            what: "the endpoints of all backends".to_owned(),
            size,
            form: Form::Decoded,
            limit: MAX_SNAPSHOT_BYTES,
            remedy: "; split the Gateway's routes across several Gateways".to_owned(),
        });
    }
    Ok(shards)
}

impl EndpointShard {
    fn new(place: (usize, usize), sets: Vec<Entry>) -> Result<Self, ShardError> {
        let (count, index) = place;
        let name = format!("endpoints-{count}-{index}");
        let piece = EncodedSnapshot::default().with_endpoints(sets.clone());
        let largest = || {
            let sets = piece.endpoints().into_iter();
            let largest = sets.max_by_key(|set: &EndpointSet| set.endpoints.len());
            largest.map_or_else(
                || name.clone(),
                |set| format!("the endpoints of {} and others", set.name),
            )
        };
        let Packed { bytes, decoded } = pack(largest, &piece.bytes())?;
        Ok(Self {
            place,
            sets,
            shard: Shard { name, bytes },
            decoded,
        })
    }
}
