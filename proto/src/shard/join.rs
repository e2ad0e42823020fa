//! Joins a manifest and its stored shards into a snapshot.
//!
//! Never trust any input before its digest has been checked. Never decode anything before its size
//! in memory is known.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;

use super::{
    FORMAT, MAX_DECODED_BYTES, MAX_SHARD_BYTES, MAX_SHARDS, MAX_SNAPSHOT_BYTES, MAX_STORED_BYTES,
    ShardError,
};
use crate::bounds;
use crate::digest::{canonicalize_endpoints, sha256};
use crate::dns_name::is_dns_label;
use crate::encoded::EncodedSnapshot;
use crate::schema::{EndpointSet, Manifest, ShardRef, Snapshot};

/// A verified configuration shard. Clones share its contents.
#[derive(Clone, Debug)]
pub struct ConfigPiece {
    piece: EncodedSnapshot,
    /// Size in memory after decoding, in bytes.
    size: u64,
}

impl ConfigPiece {
    /// Verifies and decodes a shard. Rejects repeated domains, because a virtual host has only one
    /// part in each shard.
    pub fn open(reference: &ShardRef, bytes: &[u8]) -> Result<Self, ShardError> {
        check_digest(reference, bytes)?;
        let (piece, size) = unpack(&reference.name, reference.size, bytes)?;
        let piece = EncodedSnapshot::new(&piece, Vec::new());
        if let Some((table, domain)) = piece.repeated_host() {
            return Err(ShardError::Malformed {
                name: reference.name.clone(),
                reason: format!("contains hostname {domain:?} twice in route table {table:?}"),
            });
        }
        Ok(Self { piece, size })
    }
}

/// Decoded endpoint shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    /// Sets in the shard's order.
    pub sets: Vec<EndpointSet>,
    /// Size in memory after decoding, in bytes.
    pub size: u64,
}

/// Joins a manifest's shards. `shards` contains the stored bytes by shard name.
pub fn join<B: AsRef<[u8]>>(
    manifest: &Manifest,
    shards: &BTreeMap<String, B>,
) -> Result<Snapshot, ShardError> {
    let mut snapshot = join_config(manifest, shards)?.snapshot();
    let mut sets = Vec::new();
    let mut left = MAX_SNAPSHOT_BYTES;
    for reference in &manifest.endpoints {
        let bytes = stored(reference, shards)?;
        let endpoints = endpoint_sets(&reference.name, bytes)?;
        left = left
            .checked_sub(endpoints.size)
            .ok_or_else(|| too_much(&reference.name))?;
        sets.extend(endpoints.sets);
    }
    set_endpoints(&mut snapshot, sets);
    Ok(snapshot)
}

/// Checks the manifest's format version, and the number and names of its shards. Rejects repeated
/// shards, because a small manifest must not refer to large contents.
pub fn check(manifest: &Manifest) -> Result<(), ShardError> {
    if manifest.format != FORMAT {
        return Err(ShardError::Format {
            found: manifest.format,
        });
    }
    let found = manifest.config.len() + manifest.endpoints.len();
    if found > MAX_SHARDS {
        return Err(ShardError::TooMany { found });
    }
    let mut names = HashSet::new();
    let mut digests = HashSet::new();
    for ShardRef { name, sha256, .. } in manifest.config.iter().chain(&manifest.endpoints) {
        let name = name.as_str();
        if !is_dns_label(name) {
            return Err(ShardError::Name { name: name.into() });
        }
        // References to endpoint shards contain no digests.
        if !names.insert(name) || !(sha256.is_empty() || digests.insert(sha256)) {
            return Err(ShardError::Repeated { name: name.into() });
        }
    }
    Ok(())
}

/// Joins the configuration without endpoints, and verifies its revision.
pub fn join_config<B: AsRef<[u8]>>(
    manifest: &Manifest,
    shards: &BTreeMap<String, B>,
) -> Result<EncodedSnapshot, ShardError> {
    check(manifest)?;
    join_pieces(manifest, |reference| {
        ConfigPiece::open(reference, stored(reference, shards)?)
    })
}

/// Joins the pieces of a checked manifest, and verifies the revision.
pub fn join_pieces(
    manifest: &Manifest,
    mut piece: impl FnMut(&ShardRef) -> Result<ConfigPiece, ShardError>,
) -> Result<EncodedSnapshot, ShardError> {
    let mut pieces = Vec::with_capacity(manifest.config.len());
    let mut left = MAX_SNAPSHOT_BYTES;
    for reference in &manifest.config {
        let ConfigPiece { piece, size } = piece(reference)?;
        left = left
            .checked_sub(size)
            .ok_or_else(|| too_much(&reference.name))?;
        pieces.push(piece);
    }
    let config = EncodedSnapshot::join(&pieces);
    let found = config.config_digest();
    if found == manifest.revision && config.gateway() == manifest.gateway {
        Ok(config)
    } else {
        Err(ShardError::Revision {
            expected: manifest.revision.clone(),
            found,
        })
    }
}

/// Decodes an endpoint shard. Rejects other content, because manifests contain no digests of
/// endpoint shards.
pub fn endpoint_sets(name: &str, bytes: &[u8]) -> Result<Endpoints, ShardError> {
    let (mut piece, size) = unpack(name, 0, bytes)?;
    let sets = std::mem::take(&mut piece.endpoints);
    if piece == Snapshot::default() {
        Ok(Endpoints { sets, size })
    } else {
        Err(ShardError::Malformed {
            name: name.to_owned(),
            reason: "contains more than endpoints".to_owned(),
        })
    }
}

/// Replaces the snapshot's endpoints with canonical sets. The first set with each name wins.
pub fn set_endpoints(snapshot: &mut Snapshot, mut sets: Vec<EndpointSet>) {
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    sets.dedup_by(|a, b| a.name == b.name);
    sets.iter_mut().for_each(canonicalize_endpoints);
    snapshot.endpoints = sets;
}

/// Compares the stored bytes with the digest in the manifest.
pub fn check_digest(reference: &ShardRef, bytes: &[u8]) -> Result<(), ShardError> {
    let found = sha256(bytes);
    if found == reference.sha256 {
        Ok(())
    } else {
        Err(ShardError::Digest {
            name: reference.name.clone(),
            expected: reference.sha256.clone(),
            found,
        })
    }
}

fn stored<'a, B: AsRef<[u8]>>(
    reference: &ShardRef,
    shards: &'a BTreeMap<String, B>,
) -> Result<&'a [u8], ShardError> {
    let bytes = shards.get(&reference.name).map(AsRef::as_ref);
    bytes.ok_or_else(|| ShardError::Missing {
        name: reference.name.clone(),
    })
}

fn too_much(name: &str) -> ShardError {
    ShardError::Malformed {
        name: name.to_owned(),
        reason: format!(
            "it and the previous shards would take more than {MAX_SNAPSHOT_BYTES} bytes of memory \
            once decoded"
        ),
    }
}

/// `size` is the decompressed size in the manifest, or 0 for an endpoint shard, which might have
/// grown since.
fn unpack(name: &str, size: u64, bytes: &[u8]) -> Result<(Snapshot, u64), ShardError> {
    let limit = match size {
        0 => MAX_SHARD_BYTES,
        size => size.min(MAX_SHARD_BYTES),
    };
    let malformed = |reason: String| ShardError::Malformed {
        name: name.to_owned(),
        reason,
    };
    if bytes.len() > MAX_STORED_BYTES {
        return Err(malformed(format!(
            "{} bytes stored, more than {MAX_STORED_BYTES}",
            bytes.len()
        )));
    }
    let mut plain = Vec::new();
    zstd::stream::read::Decoder::new(bytes)
        .and_then(|decoder| decoder.take(limit + 1).read_to_end(&mut plain))
        .map_err(|error| malformed(format!("cannot be decompressed: {error}")))?;
    if plain.len() as u64 > limit {
        return Err(malformed(format!(
            "more than {limit} bytes once decompressed"
        )));
    }
    bounds::snapshot(&plain, MAX_DECODED_BYTES).map_err(|error| malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::digest::revision;
    use crate::schema::{Route, RouteTable, VirtualHost};

    fn host(domain: &str, routes: &[Route]) -> VirtualHost {
        VirtualHost {
            domain: domain.to_owned(),
            routes: routes.to_vec(),
            ..VirtualHost::default()
        }
    }

    fn piece(hosts: &[VirtualHost]) -> Snapshot {
        Snapshot {
            route_tables: vec![RouteTable {
                name: "http/80".to_owned(),
                virtual_hosts: hosts.to_vec(),
            }],
            ..Snapshot::default()
        }
    }

    fn stored(name: &str, piece: &Snapshot) -> (ShardRef, Vec<u8>) {
        let plain = piece.encode_to_vec();
        let bytes = zstd::bulk::compress(&plain, 3).unwrap();
        let reference = ShardRef {
            name: name.to_owned(),
            sha256: sha256(&bytes),
            size: plain.len() as u64,
        };
        (reference, bytes)
    }

    #[test]
    fn virtual_host_in_many_parts_joins_equally() {
        let routes: Vec<Route> = (0..40)
            .map(|number| Route {
                name: format!("HTTPRoute/ns/r/rules/{number}/matches/0"),
                ..Route::default()
            })
            .collect();
        let other = host("b.test", &routes[..1]);
        let mut manifest = Manifest {
            format: FORMAT,
            revision: revision(&piece(&[host("a.test", &routes), other.clone()])),
            ..Manifest::default()
        };
        let mut shards = BTreeMap::new();
        for (number, route) in routes.iter().enumerate() {
            let mut hosts = vec![host("a.test", std::slice::from_ref(route))];
            if number == 39 {
                hosts.push(other.clone());
            }
            let (reference, bytes) = stored(&format!("config-{number}"), &piece(&hosts));
            shards.insert(reference.name.clone(), bytes);
            manifest.config.push(reference);
        }
        let expected = EncodedSnapshot::new(
            &piece(&[host("a.test", &routes), other.clone()]),
            Vec::new(),
        );
        assert_eq!(join_config(&manifest, &shards), Ok(expected));
        // The parts of a virtual host must be adjacent.
        manifest.config.swap(38, 39);
        let error = join_config(&manifest, &shards).unwrap_err();
        assert!(matches!(error, ShardError::Revision { .. }), "{error}");
    }

    #[test]
    fn domain_twice_in_one_shard_is_refused() {
        let (a, b) = (host("a.test", &[]), host("b.test", &[]));
        for hosts in [[&a, &a, &b], [&a, &b, &a]] {
            let hosts = hosts.map(Clone::clone);
            let mut apart = piece(&hosts[..2]);
            apart.route_tables.extend(piece(&hosts[2..]).route_tables);
            for piece in [piece(&hosts), apart] {
                let (reference, bytes) = stored("config-0", &piece);
                let error = ConfigPiece::open(&reference, &bytes).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "shard config-0: contains hostname \"a.test\" twice in route table \"http/80\""
                );
            }
        }
        let mut tables = piece(std::slice::from_ref(&a));
        tables.route_tables.extend(piece(&[a]).route_tables);
        tables.route_tables[1].name = "http/81".to_owned();
        let (reference, bytes) = stored("config-0", &tables);
        ConfigPiece::open(&reference, &bytes).expect("two tables may have the same domain");
    }

    #[test]
    fn shard_twice_in_manifest_is_refused() {
        let shard = |name: &str, sha256: &str| ShardRef {
            name: name.to_owned(),
            sha256: sha256.to_owned(),
            size: 0,
        };
        let checked = |config: &[ShardRef], endpoints: &[ShardRef]| {
            check(&Manifest {
                format: FORMAT,
                config: config.to_vec(),
                endpoints: endpoints.to_vec(),
                ..Manifest::default()
            })
        };
        let (a, b) = (shard("a", "1"), shard("b", "2"));
        let (e, f) = (shard("e", ""), shard("f", ""));
        assert_eq!(
            checked(&[a.clone(), b.clone()], &[e.clone(), f.clone()]),
            Ok(())
        );
        let refused = |name: &str| {
            Err(ShardError::Repeated {
                name: name.to_owned(),
            })
        };
        assert_eq!(
            checked(&[a.clone(), b.clone(), a.clone()], &[]),
            refused("a")
        );
        assert_eq!(checked(&[a.clone(), shard("c", "1")], &[]), refused("c"));
        assert_eq!(checked(&[a, b], &[e, f.clone(), f]), refused("f"));
    }
}
