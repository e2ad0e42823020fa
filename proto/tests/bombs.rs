//! Tests that a few kilobytes of stored data cannot expand beyond the memory limits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "the test reads its own memory usage"
)]

use std::collections::BTreeMap;

use sesame_proto::digest::sha256;
use sesame_proto::schema::{Manifest, ShardRef};
use sesame_proto::shard::{FORMAT, MAX_SHARD_BYTES, ShardError, endpoint_sets, join_config};
use sesame_proto::{bounds, keys};

/// Returns the peak memory usage in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.expect("VmHWM").parse::<u64>().expect("a number") * 1024
}

fn list(number: u8, bytes: u64) -> Vec<u8> {
    [number << 3 | 2, 0].repeat(usize::try_from(bytes / 2).unwrap())
}

fn within(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

// This file must contain only one test, because the test measures the memory of the whole process.
#[test]
fn bomb_is_refused_before_decoding() {
    let room = MAX_SHARD_BYTES - 64;
    let mut bombs: Vec<(String, Vec<u8>)> = (2..=8)
        .map(|number| (format!("field {number}"), list(number, room)))
        .collect();
    // Listeners of a port, routes of a virtual host, endpoints of a set.
    bombs.push(("listeners".to_owned(), within(3, &list(3, room))));
    bombs.push(("routes".to_owned(), within(4, &within(2, &list(2, room)))));
    bombs.push(("endpoints".to_owned(), within(6, &list(2, room))));
    let before = peak();
    for (what, plain) in &bombs {
        let stored = zstd::bulk::compress(plain, 3).unwrap();
        assert!(stored.len() < 8192, "{what}: {}", stored.len());
        let error = endpoint_sets("endpoints-1-0", &stored).unwrap_err();
        assert!(
            error.to_string().contains("bytes of memory once decoded"),
            "{what}: {error}"
        );

        let reference = ShardRef {
            name: "config-0".to_owned(),
            sha256: sha256(&stored),
            size: plain.len() as u64,
        };
        let mut manifest = Manifest {
            format: FORMAT,
            config: vec![reference],
            ..Manifest::default()
        };
        let shards = BTreeMap::from([("config-0".to_owned(), stored)]);
        let error = join_config(&manifest, &shards).unwrap_err();
        assert!(
            matches!(error, ShardError::Malformed { .. }),
            "{what}: {error}"
        );
        // The size in the manifest also limits decompression.
        manifest.config[0].size = 4096;
        let error = join_config(&manifest, &shards).unwrap_err().to_string();
        assert!(
            error.contains("more than 4096 bytes once decompressed"),
            "{what}: {error}"
        );
    }
    for number in [4, 5] {
        assert!(bounds::manifest(&list(number, 900 * 1024)).is_err());
    }
    assert!(keys::decode(&list(1, 8 << 20)).is_err());
    let grown = peak() - before;
    // Allow for one decompressed shard, and its compressed bytes.
    assert!(grown < 96 << 20, "{grown} bytes");
}
