mod remembered;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use prost::Message as _;
use sesame_kinds::api::NamespacedName;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    Backend, Endpoint, EndpointSet, KeyRef, Manifest, RouteTable, Snapshot, VirtualHost,
};
use sesame_proto::shard::{self, Sharded};
use sesame_published::names::{
    GATEWAY_LABEL, MANIFEST_ENTRY, PART_LABEL, Part, SHARD_ENTRY, gateway_id, manifest_name,
    shard_name,
};

use super::assembler::RevisionAssembler;
use super::connect::ClusterSettings;
use super::fetch::{Fetched, MissingPieces};
use super::follow::ClusterEvent;
use super::store::ClusterStore;
use crate::update::GatewayRevision;

fn edge() -> NamespacedName {
    NamespacedName::new("default", "edge")
}

fn set(name: &str, address: &str) -> EndpointSet {
    EndpointSet {
        name: name.to_owned(),
        endpoints: vec![Endpoint {
            address: address.to_owned(),
            port: 80,
            ..Endpoint::default()
        }],
        ..EndpointSet::default()
    }
}

fn snapshot(backends: &[(&str, &str)]) -> Snapshot {
    let mut snapshot = Snapshot {
        gateway: "Gateway/default/edge".to_owned(),
        route_tables: vec![RouteTable {
            name: "http/80".to_owned(),
            virtual_hosts: vec![VirtualHost {
                domain: "*".to_owned(),
                routes: Vec::new(),
                ..VirtualHost::default()
            }],
        }],
        ..Snapshot::default()
    };
    for (name, address) in backends {
        snapshot.backends.push(Backend {
            name: (*name).to_owned(),
            endpoints: (*name).to_owned(),
            ..Backend::default()
        });
        snapshot.endpoints.push(set(name, address));
    }
    sesame_proto::digest::canonicalize(&mut snapshot);
    snapshot
}

fn object(name: String, entry: &str, bytes: Vec<u8>) -> ConfigMap {
    let mut object = ConfigMap {
        binary_data: Some(BTreeMap::from([(entry.to_owned(), ByteString(bytes))])),
        ..ConfigMap::default()
    };
    object.metadata.name = Some(name);
    object
}

fn manifest(manifest: &Manifest, key_secrets: &str) -> ConfigMap {
    let mut object = object(
        manifest_name(&edge()),
        MANIFEST_ENTRY,
        manifest.encode_to_vec(),
    );
    let summary = BTreeMap::from([("keySecrets".to_owned(), key_secrets.to_owned())]);
    object.data = Some(summary);
    object
}

fn live(sharded: &Sharded) -> ConfigMap {
    let reference = &sharded.manifest.endpoints[0];
    let shard = sharded.shards.iter().find(|s| s.name == reference.name);
    let name = shard_name(&edge(), &reference.name);
    object(name, SHARD_ENTRY, shard.expect("a shard").bytes.to_vec())
}

fn set_live(assembler: &mut RevisionAssembler, object: &ConfigMap) {
    let name = object.metadata.name.clone().expect("a name");
    assembler.set_live(&name, object);
}

/// After a rejected manifest, shards of the previous one are asked for, which no longer exist.
fn fetched(need: &MissingPieces, sharded: &Sharded) -> Fetched {
    let stored = need.shards.iter().filter_map(|reference| {
        let mut shards = sharded.shards.iter();
        let shard = shards.find(|shard| shard.name == reference.name)?;
        Some((reference.sha256.clone(), shard.bytes.to_vec()))
    });
    Fetched {
        shards: stored.collect(),
        ..Fetched::default()
    }
}

fn complete(assembler: &RevisionAssembler) -> Option<GatewayRevision> {
    assembler.update().and_then(|(_, update)| update.complete)
}

fn reason(assembler: &RevisionAssembler) -> String {
    let incomplete = assembler.update().and_then(|(_, update)| update.incomplete);
    incomplete
        .map(|incomplete| incomplete.reason)
        .unwrap_or_default()
}

fn filled(sharded: &Sharded) -> RevisionAssembler {
    let mut assembler = RevisionAssembler::default();
    set_live(&mut assembler, &live(sharded));
    assembler.set_manifest(&gateway_id(&edge()), &manifest(&sharded.manifest, "0"));
    let need = assembler.advance().expect("shards are missing");
    assembler.absorb(fetched(&need, sharded));
    assert_eq!(assembler.advance(), None, "{}", reason(&assembler));
    assert!(complete(&assembler).is_some(), "{}", reason(&assembler));
    assembler
}

#[test]
fn pieces_make_the_snapshot_in_any_order() {
    let original = snapshot(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
    let sharded = shard::split(&original).expect("shards");
    let id = gateway_id(&edge());
    for order in 0..2 {
        let mut assembler = RevisionAssembler::default();
        if order == 0 {
            set_live(&mut assembler, &live(&sharded));
        }
        assembler.set_manifest(&id, &manifest(&sharded.manifest, "0"));
        let need = assembler.advance().expect("shards are missing");
        assert_eq!(need.shards, sharded.manifest.config);
        for reference in &need.shards {
            assert!(complete(&assembler).is_none());
            let one = MissingPieces {
                shards: vec![reference.clone()],
                key_secrets: 0,
            };
            assembler.absorb(fetched(&one, &sharded));
            assembler.advance();
        }
        if order == 1 {
            assert!(complete(&assembler).is_none());
            assert!(
                reason(&assembler).contains("endpoint shard"),
                "{}",
                reason(&assembler)
            );
            set_live(&mut assembler, &live(&sharded));
            assembler.advance();
        }
        let whole = complete(&assembler).expect("all shards are present");
        assert_eq!(whole.encoded.snapshot(), original);
        assert_eq!(
            whole.manifest_revision.as_ref(),
            Some(&sharded.manifest.revision)
        );
    }
}

#[test]
fn out_of_step_endpoints_remove_nothing() {
    let first = shard::split(&snapshot(&[("a", "10.0.0.1")])).expect("shards");
    let mut assembler = filled(&first);

    // The shards are newer than the manifest, which still uses a backend without endpoints.
    let ahead = shard::split(&snapshot(&[("b", "10.0.0.2")])).expect("shards");
    set_live(&mut assembler, &live(&ahead));
    assert_eq!(assembler.advance(), None);
    let now = complete(&assembler).expect("complete");
    assert_eq!(now.encoded.endpoints(), [set("a", "10.0.0.1")]);

    // The shards are older than the manifest: the new backend has no endpoints yet.
    set_live(&mut assembler, &live(&first));
    assembler.set_manifest(&gateway_id(&edge()), &manifest(&ahead.manifest, "0"));
    let need = assembler.advance().expect("shards are missing");
    assembler.absorb(fetched(&need, &ahead));
    assembler.advance();
    assert!(
        reason(&assembler).contains("endpoints of b"),
        "{}",
        reason(&assembler)
    );
    let now = complete(&assembler).expect("complete");
    assert_eq!(
        now.manifest_revision.as_ref(),
        Some(&first.manifest.revision)
    );
    set_live(&mut assembler, &live(&ahead));
    assembler.advance();
    let now = complete(&assembler).expect("complete");
    assert_eq!(now.encoded.endpoints(), [set("b", "10.0.0.2")]);
    assert_eq!(reason(&assembler), "");
}

#[test]
fn an_endpoint_change_alone_asks_for_nothing() {
    let first = shard::split(&snapshot(&[("a", "10.0.0.1")])).expect("shards");
    let second = shard::split(&snapshot(&[("a", "10.0.0.9")])).expect("shards");
    assert_eq!(first.manifest.revision, second.manifest.revision);
    let mut assembler = filled(&first);
    set_live(&mut assembler, &live(&second));
    assert_eq!(assembler.advance(), None);
    let now = complete(&assembler).expect("complete");
    assert_eq!(now.encoded.endpoints(), [set("a", "10.0.0.9")]);
    // Neither invalid content nor a missing shard changes the served endpoints.
    let name = live(&first).metadata.name.expect("a name");
    assembler.set_live(
        &name,
        &object(name.clone(), SHARD_ENTRY, b"not zstd".to_vec()),
    );
    assembler.advance();
    assert!(
        reason(&assembler).contains("so the previous ones are used"),
        "{}",
        reason(&assembler)
    );
    assembler.drop_live(&name);
    assembler.advance();
    let now = complete(&assembler).expect("complete");
    assert_eq!(now.encoded.endpoints(), [set("a", "10.0.0.9")]);
    // An endpoint shard must contain nothing but endpoints.
    let config = &first.shards[0];
    let hostile = object(name.clone(), SHARD_ENTRY, config.bytes.to_vec());
    assembler.set_live(&name, &hostile);
    assembler.advance();
    assert!(
        reason(&assembler).contains("more than endpoints"),
        "{}",
        reason(&assembler)
    );
}

#[test]
fn next_revision_requests_only_missing_shards() {
    let many: Vec<(String, String)> = (0..40)
        .map(|index| (format!("backend-{index}"), format!("10.0.0.{index}")))
        .collect();
    let pairs: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let first = snapshot(&pairs);
    let mut second = first.clone();
    second.addresses = vec!["192.0.2.1".to_owned()];
    let (first, second) = (
        shard::split(&first).expect("shards"),
        shard::split(&second).expect("shards"),
    );
    let mut assembler = filled(&first);
    assembler.set_manifest(&gateway_id(&edge()), &manifest(&second.manifest, "0"));
    let need = assembler.advance().expect("one shard is new");
    assert_eq!(need.shards, second.manifest.config[..1]);
}

#[test]
fn keys_are_requested_once_and_only_with_secrets() {
    let pair = KeyPair {
        name: "Secret/default/pair".to_owned(),
        certificate_chain: b"chain".to_vec(),
        private_key: b"key".to_vec(),
        ..KeyPair::default()
    };
    let mut first = snapshot(&[("a", "10.0.0.1")]);
    first.keys.push(KeyRef {
        name: pair.name.clone(),
        digest: pair.digest(),
        ..KeyRef::default()
    });
    let mut second = first.clone();
    second.addresses = vec!["192.0.2.1".to_owned()];
    let (first, second) = (
        shard::split(&first).expect("shards"),
        shard::split(&second).expect("shards"),
    );
    let id = gateway_id(&edge());
    let mut assembler = RevisionAssembler::default();
    set_live(&mut assembler, &live(&first));
    assembler.set_manifest(&id, &manifest(&first.manifest, "0"));
    let need = assembler.advance().expect("shards are missing");
    assembler.absorb(fetched(&need, &first));
    assert_eq!(assembler.advance(), None, "nothing can be fetched");
    assert!(
        reason(&assembler).contains("no key Secrets"),
        "{}",
        reason(&assembler)
    );
    assembler.set_manifest(&id, &manifest(&first.manifest, "2"));
    let need = assembler.advance().expect("the keys are missing");
    assert_eq!((need.shards.len(), need.key_secrets), (0, 2));
    assembler.absorb(Fetched {
        keys: vec![pair.clone()],
        ..Fetched::default()
    });
    assert_eq!(assembler.advance(), None);
    let keys = |assembler: &RevisionAssembler| {
        complete(assembler)
            .expect("complete")
            .encoded
            .keys()
            .to_vec()
    };
    assert_eq!(keys(&assembler), std::slice::from_ref(&pair));
    assembler.set_manifest(&id, &manifest(&second.manifest, "2"));
    let need = assembler.advance().expect("one shard is new");
    assert_eq!(need.key_secrets, 0);
    assembler.absorb(fetched(&need, &second));
    assert_eq!(assembler.advance(), None);
    assert_eq!(keys(&assembler), [pair]);
}

#[test]
fn unusable_manifest_is_reported_and_keeps_previous() {
    let good = shard::split(&snapshot(&[("a", "10.0.0.1")])).expect("shards");
    let changed = |change: &dyn Fn(&mut Manifest)| {
        let mut changed = good.manifest.clone();
        change(&mut changed);
        manifest(&changed, "0")
    };
    let mut renamed = manifest(&good.manifest, "0");
    renamed.metadata.name = Some("default.other.manifest".to_owned());
    let cases = [
        (changed(&|m| m.format = 99), "format"),
        (
            changed(&|m| m.gateway = "Gateway/default/other".to_owned()),
            "Gateway default/other",
        ),
        (
            changed(&|m| m.gateway = "Gateway/../edge".to_owned()),
            "is not a Gateway",
        ),
        (
            changed(&|m| m.config[0].name = "../../secrets/x".to_owned()),
            "plain name",
        ),
        (
            changed(&|m| m.config = vec![m.config[0].clone(); 2000]),
            "shards exceed",
        ),
        (manifest(&good.manifest, "25"), "keySecrets"),
        (manifest(&good.manifest, "-1"), "keySecrets"),
        (renamed, "belongs in ConfigMap"),
        (
            object(manifest_name(&edge()), "other", Vec::new()),
            "binaryData",
        ),
        (
            object(manifest_name(&edge()), MANIFEST_ENTRY, vec![0xff]),
            "decoded",
        ),
    ];
    for (bad, word) in cases {
        let mut assembler = filled(&good);
        assembler.set_manifest(&gateway_id(&edge()), &bad);
        assert_eq!(assembler.advance(), None, "{word}");
        assert!(
            reason(&assembler).contains(word),
            "{word}: {}",
            reason(&assembler)
        );
        let now = complete(&assembler).expect("previous revision");
        assert_eq!(
            now.manifest_revision.as_ref(),
            Some(&good.manifest.revision)
        );
        assembler.set_manifest(&gateway_id(&edge()), &manifest(&good.manifest, "0"));
        assembler.advance();
        assert_eq!(reason(&assembler), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_stay_listed_whatever_the_cluster_reports() {
    let settings = ClusterSettings {
        trusted: None,
        stored: None,
        kubeconfig: None,
        namespace: "sesame-system".to_owned(),
        gateways: Vec::new(),
        fleet: "default".to_owned(),
        host: "host-1".to_owned(),
        zone: String::new(),
    };
    let other = NamespacedName::new("default", "other");
    // Without a client, no lookup is possible.
    let (clients, _) = tokio::sync::watch::channel(None);
    let mut store = ClusterStore::new(settings, clients, &[edge(), other.clone()]);
    let sharded = shard::split(&snapshot(&[("a", "10.0.0.1")])).expect("shards");
    let labelled = |mut object: ConfigMap, part: Part| {
        object.metadata.labels = Some(BTreeMap::from([
            (GATEWAY_LABEL.to_owned(), gateway_id(&edge())),
            (PART_LABEL.to_owned(), part.as_str().to_owned()),
        ]));
        object
    };
    let named = labelled(manifest(&sharded.manifest, "0"), Part::Manifest);
    let events = [
        ClusterEvent::Lost("no route to host".to_owned()),
        ClusterEvent::Back,
        ClusterEvent::Listed(Vec::new()),
        ClusterEvent::Listed(vec![
            labelled(live(&sharded), Part::Endpoints),
            named.clone(),
        ]),
        ClusterEvent::Deleted(Box::new(labelled(live(&sharded), Part::Endpoints))),
        ClusterEvent::Deleted(Box::new(named)),
        ClusterEvent::Lost("410".to_owned()),
        ClusterEvent::Listed(Vec::new()),
    ];
    for event in events {
        let what = format!("{event:?}");
        store.handle(event);
        if let Some(update) = store.update() {
            let listed: Vec<&NamespacedName> = update.gateways.keys().collect();
            assert_eq!(listed, [&edge(), &other], "after {what}");
            assert_eq!(update.away.is_some(), what.starts_with("Lost"), "{what}");
        }
    }
}
