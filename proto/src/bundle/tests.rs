//! Tests that readers reject bundles that differ from what `write` returns.

use bytes::Bytes;
use prost::Message as _;

use super::*;
use crate::schema::{EndpointSet, Manifest, RouteTable, Snapshot, VirtualHost};
use crate::shard::{Shard, Sharded, split};
use crate::signature::{SigningKeys, TrustedKeys};

const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";
const OTHER: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIEzNCJsoXb2Wlk8vptbPp2xE6nuXazJ27Jqmp6w4pvW4\n\
    -----END PRIVATE KEY-----\n";

fn signing(pem: &str) -> SigningKeys {
    SigningKeys::from_pem(pem.as_bytes()).unwrap()
}

fn trusted(pem: &str) -> TrustedKeys {
    signing(pem).trusted()
}

fn snapshot() -> Snapshot {
    let host = VirtualHost {
        domain: "a.example.com".to_owned(),
        ..VirtualHost::default()
    };
    Snapshot {
        gateway: "Gateway/default/edge".to_owned(),
        route_tables: vec![RouteTable {
            name: "http/80".to_owned(),
            virtual_hosts: vec![host],
        }],
        endpoints: vec![EndpointSet {
            name: "Service/default/web/80".to_owned(),
            endpoints: Vec::new(),
            ..EndpointSet::default()
        }],
        ..Snapshot::default()
    }
}

fn label() -> BundleLabel {
    BundleLabel {
        gateway: "Gateway/default/edge".to_owned(),
        sequence: 7,
        created: 1_700_000_000,
        creator: "somebody".to_owned(),
        origin: "manifests".to_owned(),
    }
}

fn sharded() -> Sharded {
    split(&snapshot()).unwrap()
}

fn made() -> Vec<u8> {
    write(&label(), &sharded(), Some(b"keys"), &signing(PRIVATE)).unwrap()
}

fn refused(bytes: &[u8]) -> BundleError {
    BundleFile::read(bytes).expect_err("refused")
}

#[test]
fn bundle_reads_back_and_is_deterministic() {
    let bytes = made();
    assert_eq!(bytes, made());
    let file = BundleFile::read(&bytes).unwrap();
    assert_eq!(*file.label(), label());
    assert_eq!(file.keys(), Some(&b"keys"[..]));
    assert_eq!(file.verify(&trusted(PRIVATE), 1).unwrap().stamp, 7);
    let mut expected = snapshot();
    crate::digest::canonicalize(&mut expected);
    assert_eq!(file.snapshot().unwrap(), expected);
}

#[test]
fn altered_or_truncated_bundle_is_refused() {
    let bytes = made();
    let trusted = trusted(PRIVATE);
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        let taken = BundleFile::read(&changed).and_then(|file| file.verify(&trusted, 1));
        assert!(taken.is_err(), "byte {place}");
    }
    for length in 0..bytes.len() {
        let error = refused(&bytes[..length]);
        assert!(
            matches!(error, BundleError::CutOff { .. }),
            "{length}: {error}"
        );
        assert!(error.may_be_unfinished());
    }
    let longer = [&bytes[..], b"more"].concat();
    assert_eq!(refused(&longer), BundleError::Trailing { extra: 4 });
    assert_eq!(refused(b"PK\x03\x04"), BundleError::NoBundle);
}

#[test]
fn newer_format_is_refused_with_upgrade_hint() {
    let mut bytes = made();
    bytes[17] = 2;
    let error = refused(&bytes);
    assert_eq!(error, BundleError::Format { found: 2 });
    let text = error.to_string();
    assert!(
        text.contains("format 2") && text.contains("supports format 1"),
        "{text}"
    );
    assert!(text.contains("upgrade this host"), "{text}");
}

#[test]
fn signers_are_counted_and_can_be_added() {
    let bytes = made();
    let both = signing(&[PRIVATE, OTHER].concat()).trusted();
    let file = BundleFile::read(&bytes).unwrap();
    assert!(file.verify(&trusted(OTHER), 1).is_err());
    let error = file.verify(&both, 2).unwrap_err().to_string();
    assert!(error.contains("--require-signers"), "{error}");
    let more = add_signatures(&bytes, &signing(OTHER)).unwrap();
    let signed = BundleFile::read(&more).unwrap();
    assert_eq!(signed.verify(&both, 2).unwrap().signers.len(), 2);
    assert_eq!(signed.digest(), file.digest());
    assert_eq!(signed.snapshot(), file.snapshot());
}

#[test]
fn mismatched_shards_and_manifest_are_refused() {
    let good = sharded();
    let with = |change: &dyn Fn(&mut Sharded)| {
        let mut sharded = good.clone();
        change(&mut sharded);
        write(&label(), &sharded, None, &signing(PRIVATE))
    };
    let assert_refused = |change: &dyn Fn(&mut Sharded), word: &str| {
        let error = with(change).expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
    };
    assert_refused(
        &|all| {
            let shard = Shard {
                name: "stray".to_owned(),
                bytes: Bytes::from_static(b"x"),
            };
            all.shards.push(shard);
        },
        "does not belong",
    );
    assert_refused(&|all| drop(all.shards.pop()), "is missing");
    assert_refused(&|all| all.shards.swap(0, 1), "order");
    assert_refused(&|all| all.shards.push(all.shards[0].clone()), "repeated");
    assert_refused(
        &|all| "Gateway/default/other".clone_into(&mut all.manifest.gateway),
        "its header names",
    );
    assert_refused(
        &|all| {
            "../../etc/passwd".clone_into(&mut all.manifest.config[0].name);
            "../../etc/passwd".clone_into(&mut all.shards[0].name);
        },
        "is not a plain name",
    );
    assert_refused(&|all| all.manifest.format = 9, "manifest format 9");
    assert_refused(
        &|all| all.shards[0].bytes = vec![0; crate::shard::MAX_STORED_BYTES + 1].into(),
        "at most 921600 are allowed",
    );
    // The digests of all parts are correct, but the manifest's revision is not.
    let forged = with(&|all| "0".repeat(64).clone_into(&mut all.manifest.revision)).unwrap();
    assert!(BundleFile::read(&forged).unwrap().snapshot().is_err());
    let empty = Sharded {
        manifest: Manifest::default(),
        shards: Vec::new(),
    };
    assert!(write(&label(), &empty, None, &signing(PRIVATE)).is_err());
}

#[test]
fn labels_are_plain_text_and_unknown_fields_fail() {
    for (creator, sequence) in [("a\u{1b}[2J", 1), ("", 0), (&"x".repeat(600), 1)] {
        let label = BundleLabel {
            creator: creator.to_owned(),
            sequence,
            ..label()
        };
        assert!(write(&label, &sharded(), None, &signing(PRIVATE)).is_err());
    }
    // An unknown field might be security-relevant.
    let bytes = made();
    let length = u32::from_be_bytes(bytes[18..22].try_into().unwrap()) as usize;
    let header = BundleHeader::decode(&bytes[22..22 + length]).unwrap();
    let mut longer = header.encode_to_vec();
    longer.extend([0xf8, 0x07, 0x01]);
    let mut changed = bytes[..18].to_vec();
    changed.extend(u32::try_from(longer.len()).unwrap().to_be_bytes());
    changed.extend(longer);
    changed.extend(&bytes[22 + length..]);
    let error = refused(&changed).to_string();
    assert!(
        error.contains("has fields that format 1 does not have"),
        "{error}"
    );
}

#[test]
fn difference_names_changed_parts() {
    let from = snapshot();
    let mut to = snapshot();
    to.route_tables[0].virtual_hosts[0].domain = "b.example.com".to_owned();
    to.endpoints[0].endpoints.push(crate::schema::Endpoint {
        address: "192.0.2.1".to_owned(),
        port: 80,
        ..crate::schema::Endpoint::default()
    });
    let found = difference(&from, &to);
    assert_eq!(found.virtual_hosts.added, ["http/80 b.example.com"]);
    assert_eq!(found.virtual_hosts.removed, ["http/80 a.example.com"]);
    assert_eq!(found.endpoints.changed, ["Service/default/web/80"]);
    assert_eq!(difference(&from, &from), BundleDifference::default());
}
