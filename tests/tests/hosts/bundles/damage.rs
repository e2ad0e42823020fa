//! Bundles that a host must reject.

use bytes::Bytes;
use prost::Message as _;
use sesame_proto::bundle::sealed::{self, HostIdentity};
use sesame_proto::bundle::write;
use sesame_proto::digest::sha256;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{BundleHeader, Snapshot};
use sesame_proto::shard::{self, Shard};
use sesame_proto::signature::SigningKeys;

use super::forge::{Forge, PREAMBLE, Pieces, signatures, signed, whole};

/// `reason` is part of the expected message.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) reason: &'static str,
}

pub(crate) struct Material<'a> {
    pub(crate) served: &'a [u8],
    pub(crate) older: &'a [u8],
    pub(crate) next: &'a Snapshot,
    pub(crate) with_keys: (&'a Snapshot, &'a [KeyPair]),
    /// `ours` is trusted; `theirs` is not.
    pub(crate) ours: &'a SigningKeys,
    pub(crate) theirs: &'a SigningKeys,
}

pub(crate) fn cases(material: &Material<'_>) -> Vec<Case> {
    let Material {
        served,
        older,
        next,
        with_keys,
        ours,
        theirs,
    } = *material;
    let forge = Forge {
        snapshot: next,
        keys: ours,
    };
    let good = forge.good();
    let new = good.bytes();
    let parts_at = new.len() - good.parts.concat().len();
    let flipped = |at: usize| {
        let mut bytes = new.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cut = |length: usize| new[..length].to_vec();
    let with_number = |at: usize, number: u32| {
        let mut bytes = new.clone();
        bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    // The following bundles can be created without a signing key.
    let header = |change: &dyn Fn(&mut BundleHeader)| {
        let mut pieces = good.clone();
        change(&mut pieces.header);
        pieces.bytes()
    };
    let signed_by = |signatures: Vec<u8>| {
        let mut pieces = good.clone();
        pieces.signatures = signatures;
        pieces.bytes()
    };
    let raw_header = |change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let changed = signed(&change(good.header.encode_to_vec()));
        let signatures = signatures(&good.header, &changed, ours);
        whole(changed, &signatures, &good.parts)
    };
    let sealed_to = |number: u8, sequence: u64| {
        let (snapshot, pairs) = with_keys;
        let host = HostIdentity::from_random([number; 32]).public();
        let mut random = |bytes: &mut [u8]| bytes.fill(number);
        let keys = sealed::seal(pairs, &[host], &snapshot.gateway, sequence, &mut random).unwrap();
        let sharded = shard::split(snapshot).unwrap();
        write(&forge.label(), &sharded, Some(&keys), ours).unwrap()
    };
    let bomb = || {
        let zeros = vec![0u8; 64 << 20];
        zstd::bulk::compress(&zeros, 19).unwrap()
    };
    let mut twice = served.to_vec();
    twice.extend(&new);
    let all: Vec<(&'static str, Vec<u8>, &'static str)> = vec![
        ("empty", Vec::new(), "is truncated after 0 bytes"),
        (
            "archive",
            b"PK\x03\x04 something else".to_vec(),
            "is not a bundle",
        ),
        ("yaml", b"kind: Gateway\n".repeat(100), "is not a bundle"),
        (
            "newer-format",
            with_number(14, 2),
            "has format 2, but this version of Sesame supports format 1; upgrade this host",
        ),
        ("older-format", with_number(14, 0), "has format 0"),
        ("cut-in-header", cut(PREAMBLE + 40), "within its header"),
        (
            "cut-in-signatures",
            cut(parts_at - 10),
            "within its signatures",
        ),
        ("cut-in-shard", cut(new.len() - 1), "within its shard"),
        (
            "garbage-behind",
            [&new[..], b"\0"].concat(),
            "has extra bytes after its end: 1",
        ),
        ("two-in-one", twice, "bytes after its end"),
        (
            "flipped-in-manifest",
            flipped(parts_at + 3),
            "its manifest was changed or damaged",
        ),
        (
            "flipped-in-shard",
            flipped(new.len() - 3),
            "was changed or damaged",
        ),
        (
            "flipped-in-signature",
            flipped(parts_at - 1),
            "is for other content",
        ),
        (
            "higher-number",
            header(&|header| header.sequence += 1),
            "is for other content",
        ),
        (
            "other-origin",
            header(&|header| "elsewhere".clone_into(&mut header.origin)),
            "is for other content",
        ),
        (
            "stranger",
            signed_by(signatures(&good.header, &good.signed(), theirs)),
            "none of which is trusted here",
        ),
        (
            "nobody",
            signed_by(good.signatures[..9].to_vec()),
            "malformed (9 bytes)",
        ),
        (
            "no-signatures",
            signed_by(Vec::new()),
            "malformed (0 bytes)",
        ),
        (
            "signature-of-another",
            signed_by(Pieces::parse(served).signatures),
            "is for other content",
        ),
        (
            "replayed",
            older.to_vec(),
            "is older than the last applied bundle",
        ),
        (
            "same-number",
            {
                let mut pieces = forge.good();
                pieces.header.sequence = Pieces::parse(served).header.sequence;
                pieces.sign(ours)
            },
            "as a bundle that was already applied",
        ),
        (
            "other-gateway",
            {
                let other = Snapshot {
                    gateway: "Gateway/default/other".to_owned(),
                    ..next.clone()
                };
                Forge {
                    snapshot: &other,
                    keys: ours,
                }
                .good()
                .bytes()
            },
            "is for Gateway default/other, but this host serves only default/edge",
        ),
        (
            "gateway-of-header-only",
            forge.headed(|header| "Gateway/default/other".clone_into(&mut header.gateway)),
            "its manifest is for",
        ),
        (
            "path-as-gateway",
            {
                let other = Snapshot {
                    gateway: "Gateway/default/../../etc".to_owned(),
                    ..next.clone()
                };
                Forge {
                    snapshot: &other,
                    keys: ours,
                }
                .good()
                .bytes()
            },
            "is not a Gateway",
        ),
        (
            "path-as-shard",
            forge.changed(|all| {
                "../../../etc/cron.d/x".clone_into(&mut all.manifest.config[0].name);
                "../../../etc/cron.d/x".clone_into(&mut all.shards[0].name);
            }),
            "is not a plain name",
        ),
        (
            "missing-shard",
            forge.changed(|all| drop(all.shards.pop())),
            "is missing",
        ),
        (
            "stray-shard",
            forge.changed(|all| {
                all.shards.push(Shard {
                    name: "stray".to_owned(),
                    bytes: Bytes::from_static(b"x"),
                });
            }),
            "does not belong to its manifest",
        ),
        (
            "shard-twice",
            forge.changed(|all| all.shards.push(all.shards[0].clone())),
            "repeated",
        ),
        (
            "wrong-revision",
            forge.changed(|all| "0".repeat(64).clone_into(&mut all.manifest.revision)),
            "the manifest has 0000",
        ),
        (
            "wrong-shard-digest",
            forge.changed(|all| {
                "0".repeat(64)
                    .clone_into(&mut all.manifest.config[0].sha256);
            }),
            "expected 0000",
        ),
        (
            "bomb",
            forge.changed(|all| {
                let bytes = bomb();
                all.manifest.config[0].sha256 = sha256(&bytes);
                all.shards[0].bytes = bytes.into();
            }),
            "shard config-",
        ),
        (
            "endpoints-with-routes",
            forge.changed(|all| {
                let bytes = all.shards[0].bytes.clone();
                all.shards.last_mut().unwrap().bytes = bytes;
            }),
            "contains more than endpoints",
        ),
        (
            "large-shard",
            forge.changed(|all| all.shards[0].bytes = vec![7; 1 << 20].into()),
            "at most 921600 are allowed",
        ),
        (
            "endless-header",
            with_number(PREAMBLE, u32::MAX),
            "the size of its header is 4294967295 bytes",
        ),
        (
            "endless-signatures",
            with_number(parts_at - good.signatures.len() - 4, u32::MAX),
            "the size of its signatures is 4294967295 bytes",
        ),
        (
            "endless-part",
            header(&|header| header.parts[1].size = u64::MAX),
            "; at most ",
        ),
        (
            "too-many-parts",
            header(&|header| {
                let part = header.parts[1].clone();
                header.parts.extend(std::iter::repeat_n(part, 2000));
            }),
            "at most 1026 are allowed",
        ),
        (
            "unknown-part",
            forge.headed(|header| header.parts[1].kind = 77),
            "of kind 77",
        ),
        (
            "parts-in-another-order",
            forge.headed(|header| header.parts.swap(0, 1)),
            "is not allowed at this position",
        ),
        (
            "unknown-field",
            raw_header(&|bytes| [&bytes[..], &[0xf8, 0x07, 0x01]].concat()),
            "has fields that format 1 does not have",
        ),
        (
            "not-utf-8",
            raw_header(&|bytes| [&bytes[..], &[0x22, 0x02, 0xff, 0xfe]].concat()),
            "its header cannot be decoded",
        ),
        (
            "escape-sequences",
            forge.headed(|header| "\u{1b}[2J".clone_into(&mut header.creator)),
            "control characters",
        ),
        (
            "number-zero",
            forge.headed(|header| header.sequence = 0),
            "sequence number is 0",
        ),
        (
            "keys-of-another-host",
            sealed_to(7, forge.label().sequence),
            "are for other hosts (1), not for this host",
        ),
        (
            "damaged-keys",
            {
                let mut pieces = Pieces::parse(&sealed_to(9, 1));
                pieces.parts.last_mut().unwrap()[30] ^= 1;
                pieces.sign(ours)
            },
            "needs keys that this host does not have",
        ),
    ];
    let case = |(name, bytes, reason)| Case {
        name,
        bytes,
        reason,
    };
    all.into_iter().map(case).collect()
}
