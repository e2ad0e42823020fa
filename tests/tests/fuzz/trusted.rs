//! Inputs that determine which signers and servers an agent trusts.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use prost::Message as _;
use sesame_proto::bounds;
use sesame_proto::bundle::sealed::{self, HostIdentity};
use sesame_proto::bundle::{self, BundleFile, BundleLabel};
use sesame_proto::shard;
use sesame_proto::signature::{SignedPiece, SigningKeys, Statement, TrustedKeys};
use sesame_published::kubeconfig;
use sesame_resolver::ResolvedGateway;

use super::campaign::{Verdict, run, scratch};
use super::edit::Form;
use super::seeds;

/// A test vector from RFC 8032, in PEM.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
    -----END PUBLIC KEY-----\n";
const STAMP: u64 = 66_051;

fn keys() -> SigningKeys {
    SigningKeys::from_pem(PRIVATE.as_bytes()).expect("a key")
}

fn statement(content: &[u8]) -> Statement<'_> {
    Statement {
        gateway: "Gateway/default/edge",
        piece: SignedPiece::Endpoints { name: "shard" },
        content,
    }
}

/// A signature must be valid only for the signed stamp and content.
#[test]
fn signatures() {
    let keys = keys();
    let trusted = keys.trusted();
    let seeds = [keys.sign(&statement(b"content"), STAMP)];
    run("signatures", Form::Text, &seeds, |bytes| -> Verdict {
        if trusted.verify(&statement(b"other"), Some(bytes)).is_ok() {
            return Err("accepted unsigned content".to_owned());
        }
        match trusted.verify(&statement(b"content"), Some(bytes)) {
            Ok(STAMP) => Ok(true),
            Ok(stamp) => Err(format!("accepted the unsigned stamp {stamp}")),
            Err(_) => Ok(false),
        }
    });
}

/// Only signed content may be accepted.
#[test]
fn bundles() {
    let keys = keys();
    let trusted = keys.trusted();
    let two = seeds::two();
    let made = |index: u64, gateway: &ResolvedGateway| {
        let label = BundleLabel {
            gateway: gateway.snapshot.gateway.clone(),
            sequence: STAMP + index,
            ..BundleLabel::default()
        };
        let host = HostIdentity::from_random([1; 32]).public();
        let mut random = |bytes: &mut [u8]| bytes.fill(1);
        let sealed = sealed::seal(&gateway.keys, &[host], &label.gateway, STAMP, &mut random);
        let sharded = shard::split(&gateway.snapshot).expect("shards");
        let sealed = sealed.expect("sealed keys");
        bundle::write(&label, &sharded, Some(&sealed), &keys).expect("a bundle")
    };
    let seeds: Vec<Vec<u8>> = (0..).zip(two).map(|(n, one)| made(n, one)).collect();
    let digest = |bytes: &[u8]| BundleFile::read(bytes).map(|file| file.digest()).ok();
    let signed: Vec<Option<String>> = seeds.iter().map(|bytes| digest(bytes)).collect();
    run("bundles", Form::Text, &seeds, |bytes| -> Verdict {
        let Ok(file) = BundleFile::read(bytes) else {
            return Ok(false);
        };
        let identity = HostIdentity::from_random([1; 32]);
        if let Some(keys) = file.keys() {
            let _ = sealed::open(keys, &identity, &file.label().gateway, STAMP);
        }
        if file.verify(&trusted, 1).is_err() {
            return Ok(false);
        }
        if !signed.contains(&Some(file.digest())) {
            return Err("accepted an unsigned bundle".to_owned());
        }
        let read = file.snapshot().map_err(|error| error.to_string())?;
        Ok(read.gateway == file.label().gateway)
    });
}

/// Every key in an accepted file must be usable.
#[test]
fn key_files() {
    let seeds = [PRIVATE, PUBLIC].map(|pem| pem.as_bytes().to_vec());
    run("key_files", Form::Text, &seeds, |bytes| -> Verdict {
        let mut trusted = TrustedKeys::default();
        let public = trusted.add_pem(bytes).is_ok();
        let Ok(keys) = SigningKeys::from_pem(bytes) else {
            return Ok(public);
        };
        let signature = keys.sign(&statement(b"content"), STAMP);
        match keys
            .trusted()
            .verify(&statement(b"content"), Some(&signature))
        {
            Ok(_) => Ok(true),
            Err(error) => Err(format!("a key rejects its own signature: {error}")),
        }
    });
}

/// A kubeconfig must not cause a crash, whatever paths it contains.
#[test]
fn kubeconfigs() {
    let dir = scratch();
    let file = dir.path().join("config");
    std::fs::write(&file, "").expect("write");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let seed = br#"apiVersion: v1
kind: Config
current-context: edge
contexts: [{name: edge, context: {cluster: edge, user: agent, namespace: sesame-system}}]
clusters: [{name: edge, cluster: {server: "https://192.0.2.1:6443", certificate-authority: ca.crt, tls-server-name: api}}]
users: [{name: agent, user: {tokenFile: token, client-certificate-data: QUJD, client-key-data: QUJD}}]
"#;
    run("kubeconfigs", Form::Text, &[seed.to_vec()], |bytes| {
        std::fs::write(&file, bytes).expect("write");
        Ok(kubeconfig::check(&file).is_ok())
    });
}

/// The agent must respect its size limits, and reject missing shards.
#[test]
fn snapshot_manifests() {
    let gateways = seeds::gateways().iter().take(64);
    let seeds: Vec<Vec<u8>> = gateways
        .filter_map(|gateway| shard::split(&gateway.snapshot).ok())
        .map(|sharded| sharded.manifest.encode_to_vec())
        .collect();
    run("snapshot_manifests", Form::Proto, &seeds, |bytes| {
        let Ok(manifest) = bounds::manifest(bytes) else {
            return Ok(false);
        };
        let nothing = BTreeMap::<String, Vec<u8>>::new();
        if shard::join(&manifest, &nothing).is_ok() && !manifest.config.is_empty() {
            return Err("joined a snapshot without its shards".to_owned());
        }
        Ok(true)
    });
}
