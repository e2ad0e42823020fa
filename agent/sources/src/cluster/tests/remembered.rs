//! Tests that an assembler that remembers shards gives the same result as a new one.

use proptest::prelude::*;
use sesame_proto::digest;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::Route;

use super::*;

#[derive(Clone, Debug)]
enum Change {
    Route(usize, u8),
    HostAdded(u8),
    HostRemoved(usize),
    Backend(usize, i32),
    BackendAdded(u8),
    Endpoint(usize, u8),
    Address(u8),
    Key(u8),
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    Nothing,
    Revision,
    Twice,
    Garbage,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    All,
    One,
    Fault,
    /// The answer arrives only after another manifest.
    None,
}

#[derive(Clone, Debug)]
struct Step {
    changes: Vec<Change>,
    wrong: Wrong,
    endpoints_first: bool,
    answers: Vec<Answer>,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (any::<usize>(), any::<u8>()).prop_map(|(h, text)| Change::Route(h, text)),
        1 => any::<u8>().prop_map(Change::HostAdded),
        1 => any::<usize>().prop_map(Change::HostRemoved),
        1 => (any::<usize>(), 0..3_i32).prop_map(|(b, p)| Change::Backend(b, p)),
        2 => any::<u8>().prop_map(Change::BackendAdded),
        3 => (any::<usize>(), any::<u8>()).prop_map(|(b, last)| Change::Endpoint(b, last)),
        1 => any::<u8>().prop_map(Change::Address),
        1 => (0..3_u8).prop_map(Change::Key),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let wrong = prop_oneof![
        10 => Just(Wrong::Nothing),
        1 => Just(Wrong::Revision),
        1 => Just(Wrong::Twice),
        1 => Just(Wrong::Garbage),
    ];
    let answer = prop_oneof![
        10 => Just(Answer::All),
        1 => Just(Answer::One),
        1 => Just(Answer::Fault),
        1 => Just(Answer::None),
    ];
    let changes = proptest::collection::vec(change(), 0..3);
    let answers = proptest::collection::vec(answer, 0..5);
    (changes, wrong, any::<bool>(), answers).prop_map(
        |(changes, wrong, endpoints_first, answers)| Step {
            changes,
            wrong,
            endpoints_first,
            answers,
        },
    )
}

fn host(domain: &str, route: &str) -> VirtualHost {
    VirtualHost {
        domain: domain.to_owned(),
        routes: vec![Route {
            name: format!("{route}{}", "x".repeat(4096)),
            ..Route::default()
        }],
        ..VirtualHost::default()
    }
}

fn pair(version: u8) -> KeyPair {
    KeyPair {
        name: "Secret/default/pair".to_owned(),
        certificate_chain: vec![version],
        private_key: b"key".to_vec(),
        ..KeyPair::default()
    }
}

fn apply(snapshot: &mut Snapshot, key: &mut u8, change: &Change) {
    let hosts = &mut snapshot.route_tables[0].virtual_hosts;
    let (host_count, backend_count) = (hosts.len(), snapshot.backends.len());
    match change {
        Change::Route(index, text) => {
            let held = &mut hosts[index % host_count];
            *held = host(&held.domain, &text.to_string());
        }
        Change::HostAdded(number) => {
            let domain = format!("new{number}.example.com");
            hosts.retain(|held| held.domain != domain);
            hosts.push(host(&domain, "new"));
        }
        Change::HostRemoved(index) if host_count > 1 => drop(hosts.remove(index % host_count)),
        Change::HostRemoved(_) => {}
        Change::Backend(index, protocol) => {
            snapshot.backends[index % backend_count].protocol = *protocol;
        }
        Change::BackendAdded(number) => {
            let name = format!("new{number}");
            if !snapshot.backends.iter().any(|held| held.name == name) {
                snapshot.endpoints.push(set(&name, "10.0.1.1"));
                snapshot.backends.push(Backend {
                    endpoints: name.clone(),
                    name,
                    ..Backend::default()
                });
            }
        }
        Change::Endpoint(index, last) => {
            let set = &mut snapshot.endpoints[index % backend_count];
            set.endpoints[0].address = format!("10.0.0.{last}");
        }
        Change::Address(last) => snapshot.addresses = vec![format!("192.0.2.{last}")],
        Change::Key(version) => *key = *version,
    }
    snapshot.keys = vec![KeyRef {
        name: pair(*key).name,
        digest: pair(*key).digest(),
        ..KeyRef::default()
    }];
    digest::canonicalize(snapshot);
}

fn answer(need: &MissingPieces, sharded: &Sharded, key: u8, answer: Answer) -> Option<Fetched> {
    let mut fetched = fetched(need, sharded);
    if need.key_secrets > 0 {
        fetched.keys = vec![pair(key)];
    }
    match answer {
        Answer::All => {}
        Answer::One => fetched.shards.truncate(1),
        Answer::Fault => {
            fetched = Fetched {
                faults: vec!["no route to host".to_owned()],
                ..Fetched::default()
            }
        }
        Answer::None => return None,
    }
    Some(fetched)
}

fn set_endpoints(assembler: &mut RevisionAssembler, sharded: &Sharded) {
    for reference in &sharded.manifest.endpoints {
        let shard = sharded.shards.iter().find(|s| s.name == reference.name);
        let name = shard_name(&edge(), &reference.name);
        let bytes = shard.expect("a shard").bytes.to_vec();
        set_live(assembler, &object(name, SHARD_ENTRY, bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn remembered_shards_equal_whole_join(steps in proptest::collection::vec(step(), 1..10)) {
        let (mut published, mut key) = (snapshot(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]), 0);
        let hosts = &mut published.route_tables[0].virtual_hosts;
        hosts.extend((0..60).map(|h| host(&format!("h{h}.example.com"), "1")));
        let id = gateway_id(&edge());
        let mut assembler = RevisionAssembler::default();
        for step in steps {
            let present = Change::Key(key);
            apply(&mut published, &mut key, &present);
            for change in &step.changes {
                apply(&mut published, &mut key, change);
            }
            let mut sharded = shard::split(&published).expect("shards");
            match step.wrong {
                Wrong::Nothing => {}
                Wrong::Revision => sharded.manifest.revision = digest::sha256(b"another"),
                Wrong::Twice => {
                    let last = sharded.manifest.config[1].clone();
                    sharded.manifest.config.push(last);
                }
                Wrong::Garbage => sharded.shards[1].bytes = b"not zstd".as_slice().into(),
            }
            let object = manifest(&sharded.manifest, "1");
            if step.endpoints_first {
                set_endpoints(&mut assembler, &sharded);
            }
            assembler.set_manifest(&id, &object);
            let mut need = assembler.advance();
            set_endpoints(&mut assembler, &sharded);
            for kind in step.answers {
                let asked = need.take();
                let found = asked.and_then(|asked| answer(&asked, &sharded, key, kind));
                assembler.absorb(found.unwrap_or_default());
                need = assembler.advance();
            }
            assembler.advance();
            let now = complete(&assembler);
            let revision = now.as_ref().and_then(|now| now.manifest_revision.as_ref());
            if revision == Some(&sharded.manifest.revision) {
                let expected = EncodedSnapshot::new(&published, vec![pair(key)]);
                prop_assert_eq!(now.map(|now| (*now.encoded).clone()), Some(expected));
            }
        }
    }
}
