//! Inputs that are decoded into values: manifests, snapshots and shards.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use prost::Message as _;
use sesame_proto::digest;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::schema::{Manifest, ShardRef, Snapshot};
use sesame_proto::shard::{self, FORMAT, ShardError};
use sesame_render::RenderOptions;
use sesame_sources::last_good::LastGood;
use sesame_sources::manifests::Manifests;
use sesame_tests::rendering::options;

use super::campaign::{Verdict, run, scratch};
use super::edit::Form;
use super::seeds;

fn host() -> RenderOptions {
    RenderOptions {
        port_map: BTreeMap::from([(80, 8080)]),
        subscription_budget: 16,
        ..options(vec![Ipv4Addr::UNSPECIFIED.into()])
    }
}

pub(crate) fn holds(snapshot: &Snapshot, keys: &[KeyPair]) -> Result<(), String> {
    let again = Snapshot::decode(snapshot.encode_to_vec().as_slice()).map_err(|e| e.to_string())?;
    if digest::revision(&again) != digest::revision(snapshot) {
        return Err("a round trip changes the revision".to_owned());
    }
    let rendered = sesame_render::render(snapshot, keys, &host());
    if rendered != sesame_render::render(&again, keys, &host()) {
        return Err("a round trip changes the rendered output".to_owned());
    }
    let _ = sesame_render::static_bootstrap(&rendered);
    let encoded = EncodedSnapshot::new(snapshot, keys.to_vec());
    if rendered != sesame_render::render_encoded(&encoded, &host()) {
        return Err("encoding changes the rendered output".to_owned());
    }
    if encoded.snapshot() == *snapshot {
        Ok(())
    } else {
        Err("encoding and decoding changes the snapshot".to_owned())
    }
}

#[test]
fn manifests() {
    let dir = scratch();
    let file = dir.path().join("all.yaml");
    run(
        "manifests",
        Form::Text,
        &seeds::manifests(),
        |bytes| -> Verdict {
            std::fs::write(&file, bytes).expect("write");
            let mut manifests = Manifests::new(dir.path(), LastGood::none());
            let report = manifests.scan();
            let options = sesame_resolver::Options::default();
            let resolved = sesame_resolver::resolve(manifests.world(), &options);
            for gateway in &resolved.gateways {
                holds(&gateway.snapshot, &gateway.keys)?;
            }
            Ok(report.problems.is_empty())
        },
    );
}

#[test]
fn snapshots() {
    let gateways = seeds::gateways();
    let encoded: Vec<Vec<u8>> = gateways
        .iter()
        .map(|gateway| gateway.snapshot.encode_to_vec())
        .collect();
    let pairs: Vec<KeyPair> = gateways
        .iter()
        .flat_map(|gateway| gateway.keys.clone())
        .collect();
    run("snapshots", Form::Proto, &encoded, |bytes| {
        let Ok(snapshot) = Snapshot::decode(bytes) else {
            return Ok(false);
        };
        holds(&snapshot, &pairs)?;
        match shard::split(&snapshot) {
            Ok(sharded) => {
                let shards: BTreeMap<String, Vec<u8>> = sharded
                    .shards
                    .into_iter()
                    .map(|shard| (shard.name, shard.bytes.to_vec()))
                    .collect();
                let joined = shard::join(&sharded.manifest, &shards);
                // Joining may fail if the input repeats a map key, which no encoder does.
                if joined
                    .is_ok_and(|joined| digest::revision(&joined) != digest::revision(&snapshot))
                {
                    return Err("splitting and joining changes the revision".to_owned());
                }
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    });
}

/// Digests match, because anyone who can write shards can also write digests.
#[test]
fn shards() {
    let mut inputs = Vec::new();
    for gateway in seeds::gateways() {
        let sharded = shard::split(&gateway.snapshot).expect("golden cases fit");
        for piece in sharded.shards {
            let plain = zstd::stream::decode_all(&piece.bytes[..]).expect("a valid shard");
            inputs.extend([plain, piece.bytes.to_vec()]);
        }
    }
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).expect("compressed");
    inputs.push(bomb);
    run("shards", Form::Proto, &inputs, |bytes| {
        let compressed = zstd::bulk::compress(bytes, 1).expect("compressed");
        Ok(piece(bytes)? | piece(&compressed)?)
    });
}

fn piece(bytes: &[u8]) -> Verdict {
    if let Ok(sets) = shard::endpoint_sets("e-0", bytes) {
        let both =
            shard::unite_endpoints("e-0", bytes, bytes).map_err(|error| error.to_string())?;
        let again = shard::endpoint_sets("e-0", &both).map_err(|error| error.to_string())?;
        if again.sets.len() > sets.sets.len() {
            return Err("merging identical shards adds endpoint sets".to_owned());
        }
    }
    let plain = zstd::bulk::decompress(bytes, 1 << 20).unwrap_or_default();
    let mut manifest = Manifest {
        format: FORMAT,
        gateway: Snapshot::decode(plain.as_slice()).map_or_else(|_| String::new(), |s| s.gateway),
        revision: String::new(),
        config: vec![ShardRef {
            name: "c-0".to_owned(),
            sha256: digest::sha256(bytes),
            size: 0,
        }],
        endpoints: Vec::new(),
        rollout: None,
    };
    let shards = BTreeMap::from([("c-0".to_owned(), bytes)]);
    let Err(ShardError::Revision { found, .. }) = shard::join(&manifest, &shards) else {
        return Ok(false);
    };
    manifest.revision = found;
    match shard::join(&manifest, &shards) {
        Ok(snapshot) if digest::revision(&snapshot) == manifest.revision => {
            holds(&snapshot, &[])?;
            Ok(true)
        }
        Ok(_) => Err("the reported revision does not match".to_owned()),
        Err(_) => Ok(false),
    }
}

#[test]
fn key_pairs() {
    let encoded: Vec<Vec<u8>> = seeds::gateways()
        .iter()
        .map(|gateway| keys::encode(&gateway.keys))
        .collect();
    run("key_pairs", Form::Proto, &encoded, |bytes| {
        let Ok(pairs) = keys::decode(bytes) else {
            return Ok(false);
        };
        let again = keys::decode(&keys::encode(&pairs)).map_err(|error| error.to_string())?;
        if again != pairs {
            return Err("a round trip changes the keys".to_owned());
        }
        holds(&seeds::two()[0].snapshot, &pairs)?;
        Ok(true)
    });
}
