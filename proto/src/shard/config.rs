//! Configuration shards, whose names contain a digest of their contents.

use prost::Message as _;

use super::{Form, MAX_SNAPSHOT_BYTES, NameHashes, Packed, Shard, ShardError, pack, parts};
use crate::digest::sha256;
use crate::encoded::EncodedSnapshot;
use crate::schema::{ShardRef, Snapshot};

/// Number of hex digits of the digest in a shard's name. With 80 bits, accidental collisions are
/// implausible.
const NAME_DIGITS: usize = 20;

#[derive(Clone, Debug)]
pub(super) struct ConfigShard {
    /// Size in memory after decoding, in bytes.
    decoded: u64,
    pub(super) reference: ShardRef,
    pub(super) shard: Shard,
}

/// The shards of one piece, usually a single one.
#[derive(Debug)]
pub(super) struct ConfigPiece {
    /// `None` for contents without a bucket.
    bucket: Option<usize>,
    piece: EncodedSnapshot,
    pub(super) shards: Vec<ConfigShard>,
}

/// Reuses earlier shards with the same contents.
pub(super) fn split_config(
    config: &EncodedSnapshot,
    count: usize,
    before: &[ConfigPiece],
    hashes: &mut NameHashes,
) -> Result<Vec<ConfigPiece>, ShardError> {
    let mut pieces = Vec::new();
    for (bucket, piece) in config.divide(|name| hashes.bucket(name, count)) {
        let held = before.binary_search_by_key(&bucket, |held| held.bucket);
        let shards = match held.ok().and_then(|place| before.get(place)) {
            Some(held) if held.piece == piece => held.shards.clone(),
            _ => pack_piece(&piece)?,
        };
        pieces.push(ConfigPiece {
            bucket,
            piece,
            shards,
        });
    }
    let sizes = pieces.iter().flat_map(|piece| &piece.shards);
    let size = sizes
        .map(|shard| shard.decoded)
        .fold(0, u64::saturating_add);
    if size > MAX_SNAPSHOT_BYTES {
        return Err(ShardError::TooLarge {
            what: "the Gateway's configuration".to_owned(),
            size,
            form: Form::Decoded,
            limit: MAX_SNAPSHOT_BYTES,
            remedy: parts::largest_host(&config.snapshot()),
        });
    }
    Ok(pieces)
}

fn pack_piece(piece: &EncodedSnapshot) -> Result<Vec<ConfigShard>, ShardError> {
    match ConfigShard::new(&piece.canonical_config()) {
        Ok(shard) => Ok(vec![shard]),
        Err(error) => halve(error, piece.snapshot()),
    }
}

/// Packs a piece that exceeds a shard's limits into several shards.
fn halve(error: ShardError, piece: Snapshot) -> Result<Vec<ConfigShard>, ShardError> {
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
    let mut shards = Vec::new();
    for half in [first, second] {
        match ConfigShard::new(&half.encode_to_vec()) {
            Ok(shard) => shards.push(shard),
            Err(error) => shards.extend(halve(error, half)?),
        }
    }
    Ok(shards)
}

impl ConfigShard {
    fn new(plain: &[u8]) -> Result<Self, ShardError> {
        let Packed { bytes, decoded } = pack(|| "config".to_owned(), plain)?;
        let digest = sha256(&bytes);
        let name = format!("config-{}", digest.get(..NAME_DIGITS).unwrap_or(&digest));
        Ok(Self {
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
