//! Tests that the fast path is used and gives the same result as joining all shards.

use proptest::prelude::*;
use sesame_proto::delta::{
    BackendDelta, ChangedHost, EndpointDelta, GatewayDelta, RouteTableDelta,
};
use sesame_proto::digest;
use sesame_proto::schema::{Route, ShardRef};
use sesame_proto::shard::Splitter;

use super::*;
use sesame_proto::encoded::EncodedSnapshot;

const TABLES: [&str; 2] = ["http/80", "http/81"];
const CONFIG: usize = 5;

fn host(domain: &str, route: &str) -> VirtualHost {
    VirtualHost {
        domain: domain.to_owned(),
        routes: vec![Route {
            name: route.to_owned(),
            ..Route::default()
        }],
        ..VirtualHost::default()
    }
}

fn bucket(name: &str, count: usize) -> usize {
    name.bytes().map(usize::from).sum::<usize>() % count
}

fn stored(piece: &Snapshot) -> Vec<u8> {
    zstd::encode_all(piece.encode_to_vec().as_slice(), 1).expect("compression in memory")
}

fn reference(bytes: &[u8]) -> ShardRef {
    let sha256 = digest::sha256(bytes);
    ShardRef {
        name: format!("config-{}", &sha256[..20]),
        sha256,
        size: 0,
    }
}

#[derive(Clone, Debug)]
enum Change {
    Route(usize, usize, u8),
    HostAdded(usize, usize),
    HostRemoved(usize, usize),
    Backend(usize, i32),
    BackendAdded,
    BackendRemoved,
    Endpoint(usize, u8),
    Address(u8),
    Key(u8),
}

fn change() -> impl Strategy<Value = Change> {
    let place = || (0..TABLES.len(), 0..8_usize);
    prop_oneof![
        24 => (place(), any::<u8>()).prop_map(|((t, h), text)| Change::Route(t, h, text)),
        1 => place().prop_map(|(t, h)| Change::HostAdded(t, h)),
        1 => place().prop_map(|(t, h)| Change::HostRemoved(t, h)),
        1 => (0..4_usize, 0..3_i32).prop_map(|(b, p)| Change::Backend(b, p)),
        2 => Just(Change::BackendAdded),
        2 => Just(Change::BackendRemoved),
        3 => (0..4_usize, any::<u8>()).prop_map(|(b, last)| Change::Endpoint(b, last)),
        1 => any::<u8>().prop_map(Change::Address),
        1 => (0..3_u8).prop_map(Change::Key),
    ]
}

#[derive(Clone, Debug)]
enum Wrong {
    Nothing,
    Revision,
    /// The previous manifest's revision.
    OldRevision,
    Order(usize),
    Name(usize),
    Twice(usize),
    /// Content that no controller writes.
    Garbage(usize),
    /// The shard contains endpoints, which must be ignored.
    Endpoints(usize),
    /// The shard contains a duplicate virtual host.
    Double(usize),
}

fn wrong() -> impl Strategy<Value = Wrong> {
    let shard = || 0..CONFIG;
    prop_oneof![
        30 => Just(Wrong::Nothing),
        1 => Just(Wrong::Revision),
        1 => Just(Wrong::OldRevision),
        1 => shard().prop_map(Wrong::Order),
        1 => shard().prop_map(Wrong::Name),
        1 => shard().prop_map(Wrong::Twice),
        1 => shard().prop_map(Wrong::Garbage),
        1 => shard().prop_map(Wrong::Endpoints),
        1 => shard().prop_map(Wrong::Double),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    All,
    One,
    Garbage,
    Fault,
    /// The answer arrives only after another manifest.
    None,
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        20 => Just(Answer::All),
        1 => Just(Answer::One),
        1 => Just(Answer::Garbage),
        1 => Just(Answer::Fault),
        2 => Just(Answer::None),
    ]
}

#[derive(Clone, Debug)]
struct Step {
    changes: Vec<Change>,
    wrong: Wrong,
    /// When the endpoint shards arrive, relative to the manifest.
    live: u8,
    live_shards: usize,
    answers: Vec<Answer>,
    key_secrets: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let key_secrets = prop_oneof![1 => Just(0_u8), 20 => Just(1_u8), 1 => Just(2_u8)];
    (
        proptest::collection::vec(change(), 0..3),
        wrong(),
        0..3_u8,
        prop_oneof![6 => Just(2_usize), 1 => Just(1_usize)],
        proptest::collection::vec(answer(), 0..5),
        key_secrets,
    )
        .prop_map(
            |(changes, wrong, live, live_shards, answers, key_secrets)| Step {
                changes,
                wrong,
                live,
                live_shards,
                answers,
                key_secrets,
            },
        )
}

struct Publisher {
    snapshot: Snapshot,
    keys: Vec<KeyPair>,
    shards: BTreeMap<String, Vec<u8>>,
    revision: String,
}

impl Publisher {
    fn new() -> Self {
        let mut snapshot = snapshot(&[
            ("b0", "10.0.0.1"),
            ("b1", "10.0.0.2"),
            ("b2", "10.0.0.3"),
            ("b3", "10.0.0.4"),
        ]);
        snapshot.route_tables = TABLES
            .iter()
            .map(|name| RouteTable {
                name: (*name).to_owned(),
                virtual_hosts: (0..6).map(|h| host(&format!("h{h}"), "1")).collect(),
            })
            .collect();
        let mut publisher = Self {
            snapshot,
            keys: Vec::new(),
            shards: BTreeMap::new(),
            revision: String::new(),
        };
        publisher.change(&Change::Key(0));
        publisher
    }

    fn change(&mut self, change: &Change) {
        let snapshot = &mut self.snapshot;
        let domain = |h: &usize| format!("h{h}");
        match change {
            Change::Route(table, h, text) => {
                let hosts = &mut snapshot.route_tables[*table].virtual_hosts;
                for held in hosts.iter_mut().filter(|held| held.domain == domain(h)) {
                    *held = host(&domain(h), &text.to_string());
                }
            }
            Change::HostAdded(table, h) => {
                let hosts = &mut snapshot.route_tables[*table].virtual_hosts;
                hosts.push(host(&domain(h), "new"));
            }
            Change::HostRemoved(table, h) => {
                let hosts = &mut snapshot.route_tables[*table].virtual_hosts;
                hosts.retain(|held| held.domain != domain(h));
            }
            Change::Backend(index, protocol) => snapshot.backends[*index].protocol = *protocol,
            Change::BackendAdded => {
                let last = snapshot.backends.last().map_or("b", |last| &last.name);
                let name = format!("{last}+");
                snapshot.endpoints.push(set(&name, "10.0.1.1"));
                snapshot.backends.push(Backend {
                    endpoints: name.clone(),
                    name,
                    ..Backend::default()
                });
            }
            Change::BackendRemoved => {
                if snapshot.backends.len() > 4 {
                    snapshot.backends.remove(4);
                    snapshot.endpoints.remove(4);
                }
            }
            Change::Endpoint(index, last) => {
                let set = &mut snapshot.endpoints[*index];
                set.endpoints[0].address = format!("10.0.0.{last}");
            }
            Change::Address(last) => snapshot.addresses = vec![format!("192.0.2.{last}")],
            Change::Key(version) => {
                let pair = KeyPair {
                    name: "Secret/default/pair".to_owned(),
                    certificate_chain: vec![*version],
                    private_key: b"key".to_vec(),
                    ..KeyPair::default()
                };
                snapshot.keys = vec![KeyRef {
                    name: pair.name.clone(),
                    digest: pair.digest(),
                    ..KeyRef::default()
                }];
                self.keys = vec![pair];
            }
        }
    }

    fn pieces(&self) -> Vec<Snapshot> {
        let mut pieces = vec![Snapshot::default(); CONFIG];
        for table in &self.snapshot.route_tables {
            for host in &table.virtual_hosts {
                let tables = &mut pieces[bucket(&host.domain, CONFIG)].route_tables;
                match tables.last_mut() {
                    Some(last) if last.name == table.name => last.virtual_hosts.push(host.clone()),
                    _ => tables.push(RouteTable {
                        name: table.name.clone(),
                        virtual_hosts: vec![host.clone()],
                    }),
                }
            }
        }
        for backend in &self.snapshot.backends {
            let piece = &mut pieces[bucket(&backend.name, CONFIG)];
            piece.backends.push(backend.clone());
        }
        let head = Snapshot {
            gateway: self.snapshot.gateway.clone(),
            addresses: self.snapshot.addresses.clone(),
            keys: self.snapshot.keys.clone(),
            ..Snapshot::default()
        };
        pieces.insert(0, head);
        pieces
    }

    fn manifest(&mut self, wrong: &Wrong, live_shards: usize) -> Manifest {
        let mut pieces = self.pieces();
        let mut revision = digest::revision(&self.snapshot);
        match wrong {
            Wrong::Revision => revision = digest::sha256(b"another"),
            Wrong::OldRevision if !self.revision.is_empty() => {
                revision.clone_from(&self.revision);
            }
            Wrong::Endpoints(index) => pieces[*index].endpoints.push(set("b0", "10.9.9.9")),
            Wrong::Double(index) => {
                for table in &mut pieces[*index].route_tables {
                    table.virtual_hosts.extend(table.virtual_hosts.clone());
                }
            }
            _ => {}
        }
        let mut stored: Vec<Vec<u8>> = pieces.iter().map(stored).collect();
        if let Wrong::Garbage(index) = wrong {
            stored[*index] = b"not zstd".to_vec();
        }
        let mut config: Vec<ShardRef> = stored.iter().map(|bytes| reference(bytes)).collect();
        for (reference, bytes) in config.iter().zip(stored) {
            self.shards.insert(reference.sha256.clone(), bytes);
        }
        match wrong {
            Wrong::Order(index) => config.swap(*index, index + 1),
            Wrong::Name(index) => config[*index].name = config[index + 1].name.clone(),
            Wrong::Twice(index) => config.push(config[*index].clone()),
            _ => {}
        }
        self.revision.clone_from(&revision);
        Manifest {
            format: shard::FORMAT,
            gateway: self.snapshot.gateway.clone(),
            revision,
            config,
            endpoints: (0..live_shards)
                .map(|index| ShardRef {
                    name: format!("endpoints-{index}"),
                    ..ShardRef::default()
                })
                .collect(),
        }
    }

    fn live(&self, live_shards: usize) -> Vec<ConfigMap> {
        let shard = |index: usize| {
            let sets = self.snapshot.endpoints.iter();
            let piece = Snapshot {
                endpoints: sets
                    .filter(|set| bucket(&set.name, live_shards) == index)
                    .cloned()
                    .collect(),
                ..Snapshot::default()
            };
            let name = shard_name(&edge(), &format!("endpoints-{index}"));
            object(name, SHARD_ENTRY, stored(&piece))
        };
        (0..live_shards).map(shard).collect()
    }

    fn answer(&self, need: &MissingPieces, answer: Answer) -> Option<Fetched> {
        let stored = need.shards.iter().map(|shard| {
            let bytes = self.shards[&shard.sha256].clone();
            (shard.sha256.clone(), bytes)
        });
        let mut fetched = Fetched {
            shards: stored.collect(),
            keys: Vec::new(),
            faults: Vec::new(),
        };
        if need.key_secrets > 0 {
            fetched.keys.clone_from(&self.keys);
        }
        match answer {
            Answer::All => {}
            Answer::One => fetched.shards.truncate(1),
            Answer::Garbage => fetched.shards.first_mut()?.1 = b"garbage".to_vec(),
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
}

/// Both assemblers get the same input. The second always joins all shards.
#[derive(Default)]
struct AssemblerPair([RevisionAssembler; 2]);

impl AssemblerPair {
    fn for_each(&mut self, action: impl Fn(&mut RevisionAssembler)) {
        self.0.iter_mut().for_each(action);
    }

    fn advance(&mut self) -> Result<Option<MissingPieces>, TestCaseError> {
        let [fast, whole] = &mut self.0;
        whole.forget_base();
        let (need, expected) = (fast.advance(), whole.advance());
        prop_assert_eq!(&need, &expected);
        let (fast, whole) = (fast.update(), whole.update());
        prop_assert_eq!(fast.is_some(), whole.is_some());
        if let (Some((_, fast)), Some((_, whole))) = (fast, whole) {
            prop_assert_eq!(fast.incomplete, whole.incomplete);
            let parts = |c: GatewayRevision| (c.manifest_revision, c.encoded);
            prop_assert_eq!(fast.complete.map(parts), whole.complete.map(parts));
        }
        Ok(need)
    }
}

fn follow(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut publisher = Publisher::new();
    let mut both = AssemblerPair::default();
    for step in steps {
        for change in &step.changes {
            publisher.change(change);
        }
        let live = publisher.live(step.live_shards);
        let take = |assembler: &mut RevisionAssembler| {
            for object in &live {
                set_live(assembler, object);
            }
        };
        if step.live == 0 {
            both.for_each(take);
        }
        let object = manifest(
            &publisher.manifest(&step.wrong, step.live_shards),
            &step.key_secrets.to_string(),
        );
        both.for_each(|assembler| assembler.set_manifest(&gateway_id(&edge()), &object));
        let mut need = both.advance()?;
        for answer in step.answers {
            if let Some(asked) = &need
                && publisher.answer(asked, answer).is_some()
            {
                both.for_each(|assembler| {
                    assembler.absorb(publisher.answer(asked, answer).unwrap_or_default());
                });
                need = both.advance()?;
            }
        }
        if step.live == 1 {
            both.for_each(take);
            both.advance()?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fast_path_matches_full_join(
        steps in proptest::collection::vec(step(), 1..30)
    ) {
        follow(steps)?;
    }
}

/// Updates from `first` to `second` after corrupting all unchanged shards. Returns `None` if the
/// assembler does not remember the first version.
fn read_alone(first: &Sharded, second: &Sharded, remembers: bool) -> Option<GatewayRevision> {
    let mut assembler = filled(first);
    if !remembers {
        assembler.forget_base();
    }
    // A controller publishes endpoints before the manifest.
    set_live(&mut assembler, &live(second));
    assembler.advance();
    assembler.set_manifest(&gateway_id(&edge()), &manifest(&second.manifest, "0"));
    let need = assembler.advance().expect("a shard is missing");
    assert!(need.shards.len() <= 3, "{}", need.shards.len());
    let mut fetched = fetched(&need, second);
    // An assembler that reads any of these shards fails.
    let others = second.manifest.config.iter();
    let others = others.filter(|shard| !need.shards.contains(shard));
    let others: Vec<_> = others
        .map(|shard| (shard.sha256.clone(), b"garbage".to_vec()))
        .collect();
    assert!(others.len() > 4, "{}", others.len());
    fetched.shards.extend(others);
    assembler.absorb(fetched);
    assert_eq!(assembler.advance(), None);
    let now = complete(&assembler).expect("complete");
    let revision = now.manifest_revision.as_ref();
    if revision == Some(&second.manifest.revision) {
        assert_eq!(reason(&assembler), "");
        return Some(now);
    }
    assert_eq!(revision, Some(&first.manifest.revision));
    let reason = reason(&assembler);
    assert!(reason.contains("SHA-256"), "{reason}");
    None
}

#[test]
fn fast_path_reads_only_shards_of_changed_objects() {
    let mut original = snapshot(&[("a", "10.0.0.1"), ("c", "10.0.0.3")]);
    let domain = |index: usize| format!("h{index}.example.com");
    let long = "x".repeat(1024);
    original.route_tables[0].virtual_hosts = (0..400).map(|h| host(&domain(h), &long)).collect();
    digest::canonicalize(&mut original);
    let changed = host(&domain(7), "changed");
    let route_tables: RouteTableDelta = [ChangedHost {
        table: original.route_tables[0].name.clone(),
        before: host(&domain(7), &long),
        after: changed.clone(),
    }]
    .into_iter()
    .collect();
    let other = snapshot(&[("b", "10.0.0.2")]);
    let route = GatewayDelta {
        route_tables: route_tables.clone(),
        ..GatewayDelta::default()
    };
    let route_and_backend = GatewayDelta {
        route_tables,
        backends: BackendDelta {
            added: other.backends.clone(),
            removed: vec!["a".to_owned()],
        },
        endpoints: EndpointDelta {
            added: other.endpoints.clone(),
            removed: vec!["a".to_owned()],
        },
    };
    for delta in [route, route_and_backend] {
        let mut splitter = Splitter::default();
        let first = splitter.split(&mut original.clone()).expect("shards");
        let second = splitter.change(&delta).expect("shards");
        let second = second.expect("all have their places");
        assert!(read_alone(&first, &second, false).is_none());
        let now = read_alone(&first, &second, true).expect("the fast path applies");
        let encoded = EncodedSnapshot::new(&original, Vec::new());
        let expected = encoded.with_changes(&delta).expect("all have their places");
        assert_eq!(*now.encoded, expected);
    }
}
