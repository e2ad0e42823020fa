//! Tests search and exclusion with a judge that knows the culprits in advance.

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;

use jiff::Timestamp;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    Backend, EndpointSet, Forward, KeyRef, Listener, PathMatch, Port, Protocol, Route, RouteTable,
    SessionPersistence, Snapshot, TlsTermination, VirtualHost, WeightedBackend, path_match,
    route::Action, session_persistence,
};

use super::exclude::{answering_500, refusing_all};
use super::isolate::{Depth, isolate};
use super::memory::still_there;
use super::piece::Pieces;
use super::unbound::Unbound;
use super::*;

const TABLE: &str = "http/80";

fn route(number: usize) -> Route {
    let name = format!("HTTPRoute/ns/r{number}/rules/0/matches/0");
    Route {
        name,
        path: Some(PathMatch {
            kind: Some(path_match::Kind::Prefix(format!("/{number}"))),
        }),
        action: Some(Action::Forward(Forward {
            backends: vec![WeightedBackend {
                backend: backend(number),
                weight: 1,
                ..WeightedBackend::default()
            }],
            ..Forward::default()
        })),
        ..Route::default()
    }
}

fn backend(number: usize) -> String {
    format!("Service/ns/s{number}/80")
}

fn snapshot(count: usize) -> Snapshot {
    Snapshot {
        gateway: "Gateway/ns/gw".to_owned(),
        ports: vec![Port {
            port: 80,
            listeners: vec![Listener {
                name: "Gateway/ns/gw/listeners/http".to_owned(),
                protocol: Protocol::Http.into(),
                route_table: TABLE.to_owned(),
                ..Listener::default()
            }],
            ..Port::default()
        }],
        route_tables: vec![RouteTable {
            name: TABLE.to_owned(),
            virtual_hosts: vec![VirtualHost {
                domain: "*".to_owned(),
                routes: (0..count).map(route).collect(),
                ..VirtualHost::default()
            }],
        }],
        backends: (0..count)
            .map(|number| Backend {
                name: backend(number),
                endpoints: backend(number),
                ..Backend::default()
            })
            .collect(),
        endpoints: (0..count)
            .map(|number| EndpointSet {
                name: backend(number),
                endpoints: Vec::new(),
                ..EndpointSet::default()
            })
            .collect(),
        ..Snapshot::default()
    }
}

/// Rejects each pair in `enemies` if both pieces are present.
#[derive(Default)]
struct OracleJudge {
    bad: BTreeSet<Piece>,
    enemies: Vec<(Piece, Piece)>,
    /// Pairs that conflict even if one of them responds with 500.
    equal: Vec<[Piece; 2]>,
    /// Routes that are rejected even if they respond with 500.
    bad_matches: BTreeSet<Piece>,
    judged: Mutex<usize>,
}

impl Judge for OracleJudge {
    async fn judge(
        &self,
        snapshot: Snapshot,
        _: ValidationScope,
    ) -> Result<Option<String>, NoVerdict> {
        *self.judged.lock().unwrap() += 1;
        let pieces = Pieces::new(&snapshot);
        let has = |piece: &Piece| match pieces.of.get(piece) {
            Some(super::piece::PieceContent::Route(copies)) => {
                copies.iter().any(|route| **route != answering_500(route))
            }
            Some(super::piece::PieceContent::VirtualHost(host)) => **host != refusing_all(host),
            Some(_) => true,
            None => false,
        };
        let bad = self.bad.iter().find(|piece| has(piece));
        let bad_match = self.bad_matches.iter().find(|p| pieces.of.contains_key(p));
        let enemies = self.enemies.iter().find(|(a, b)| has(a) && has(b));
        let is_there = |piece: &Piece| pieces.of.contains_key(piece);
        let equal = self.equal.iter().find(|pair| pair.iter().all(is_there));
        let found = bad.or(bad_match).or(enemies.map(|(_, b)| b));
        let found = found.or(equal.map(|[_, b]| b));
        Ok(found.map(|piece| format!("{piece} is bad")))
    }
}

async fn search(
    judge: &OracleJudge,
    wanted: &Snapshot,
    accepted: Option<&Snapshot>,
) -> (SearchEnd, Culprits, usize) {
    let (mut culprits, mut good) = (Culprits::new(), HashSet::new());
    let accepted_keys = AcceptedKeys::default();
    let mut search = Search {
        judge,
        limits: SearchLimits::default(),
        stop: || false,
        now: Timestamp::UNIX_EPOCH,
        accepted_keys: &accepted_keys,
        culprits: &mut culprits,
        good: &mut good,
        runs: 0,
        learned: false,
    };
    let end = search.run(wanted, accepted).await.unwrap();
    let runs = search.runs;
    (end, culprits, runs)
}

fn route_piece(number: usize) -> Piece {
    Piece::Route(route(number).name)
}

#[tokio::test]
async fn one_culprit_among_many_costs_a_logarithm() {
    let judge = OracleJudge {
        bad: [Piece::Backend(backend(611))].into(),
        ..OracleJudge::default()
    };
    let (end, culprits, runs) = search(&judge, &snapshot(1000), None).await;
    assert!(matches!(end, SearchEnd::Clean), "{end:?}");
    let culprit = &culprits[&Piece::Backend(backend(611))];
    assert_eq!(culprit.envoy_words, "Service/ns/s611/80 is bad");
    assert_eq!(culprits.len(), 1);
    // At most two runs per level of the bisection of 3,002 pieces, and a few for the whole
    // snapshot.
    assert!(runs <= 2 * 12 + 4, "{runs}");
}

#[tokio::test]
async fn only_what_is_new_is_suspected_at_first() {
    let judge = OracleJudge {
        bad: [route_piece(7)].into(),
        ..OracleJudge::default()
    };
    let (wanted, accepted) = (snapshot(1000), snapshot(1000));
    let mut accepted = accepted;
    accepted.route_tables[0].virtual_hosts[0].routes.remove(7);
    let (end, culprits, runs) = search(&judge, &wanted, Some(&accepted)).await;
    assert!(matches!(end, SearchEnd::Clean), "{end:?}");
    assert_eq!(culprits.into_keys().collect::<Vec<_>>(), [route_piece(7)]);
    assert_eq!(runs, 3);
}

#[tokio::test]
async fn newer_of_two_conflicting_pieces_is_culprit() {
    let judge = OracleJudge {
        enemies: vec![(route_piece(3), route_piece(900))],
        ..OracleJudge::default()
    };
    let wanted = snapshot(1000);
    for new in [3, 900] {
        let mut accepted = wanted.clone();
        accepted.route_tables[0].virtual_hosts[0].routes.remove(new);
        let (end, culprits, runs) = search(&judge, &wanted, Some(&accepted)).await;
        assert!(matches!(end, SearchEnd::Clean), "{end:?}");
        assert_eq!(culprits.into_keys().collect::<Vec<_>>(), [route_piece(new)]);
        assert!(runs < 20, "{runs}");
    }
}

#[tokio::test]
async fn bad_match_drops_route_and_others_answer_500() {
    let judge = OracleJudge {
        bad: [route_piece(1), route_piece(2)].into(),
        bad_matches: [route_piece(2)].into(),
        ..OracleJudge::default()
    };
    let wanted = snapshot(4);
    let (end, culprits, _) = search(&judge, &wanted, None).await;
    assert!(matches!(end, SearchEnd::Clean), "{end:?}");
    let left = exclude(&wanted, &culprits);
    let routes = &left.route_tables[0].virtual_hosts[0].routes;
    assert_eq!(*routes, [route(0), answering_500(&route(1)), route(3)]);
}

/// Interrupts each search at the first opportunity until one finishes.
async fn search_in_parts(judge: &OracleJudge, wanted: &Snapshot) -> Culprits {
    let (mut culprits, mut good) = (Culprits::new(), HashSet::new());
    for _ in 0..200 {
        let mut search = Search {
            judge,
            limits: SearchLimits::default(),
            stop: || true,
            now: Timestamp::UNIX_EPOCH,
            accepted_keys: &AcceptedKeys::default(),
            culprits: &mut culprits,
            good: &mut good,
            runs: 0,
            learned: false,
        };
        if let SearchEnd::Clean = search.run(wanted, None).await.unwrap() {
            return culprits;
        }
    }
    panic!("no progress: {culprits:?}");
}

#[tokio::test]
async fn interrupted_search_makes_progress_and_finishes() {
    let judge = OracleJudge {
        bad: [route_piece(1), Piece::Backend(backend(17)), route_piece(30)].into(),
        bad_matches: [route_piece(30)].into(),
        ..OracleJudge::default()
    };
    let culprits = search_in_parts(&judge, &snapshot(40)).await;
    assert_eq!(culprits.len(), 3);
    let dropped = |piece| culprits[&piece].is_dropped();
    assert_eq!([1, 30].map(|n| dropped(route_piece(n))), [false, true]);
}

#[tokio::test]
async fn interrupted_search_blames_one_of_two_equal_domains() {
    let mut wanted = snapshot(1);
    let pairs = [0, 1, 2].map(|number| {
        ["BAD", "bad"].map(|name| {
            let domain = format!("{name}{number}.com");
            wanted.route_tables[0].virtual_hosts.push(VirtualHost {
                domain: domain.clone(),
                ..VirtualHost::default()
            });
            let table = TABLE.to_owned();
            Piece::VirtualHost { table, domain }
        })
    });
    let judge = OracleJudge {
        equal: pairs.clone().into(),
        ..OracleJudge::default()
    };
    let culprits = search_in_parts(&judge, &wanted).await;
    let later = pairs.map(|[_, later]| later);
    assert_eq!(culprits.keys().cloned().collect::<Vec<_>>(), later);
}

#[test]
fn culprit_is_forgotten_only_when_it_changes() {
    let wanted = snapshot(3);
    let culprits: Culprits = [(
        route_piece(1),
        Culprit {
            digest: Pieces::new(&wanted).of[&route_piece(1)].digest(),
            envoy_words: "no".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            match_verdict: MatchVerdict::Accepted,
            put_back: None,
        },
    )]
    .into();
    let mut other = wanted.clone();
    other.route_tables[0].virtual_hosts[0].routes[2].method = "GET".to_owned();
    assert_eq!(still_there(&culprits, &other), culprits);
    other.route_tables[0].virtual_hosts[0].routes[1].method = "GET".to_owned();
    assert_eq!(still_there(&culprits, &other), Culprits::new());
}

#[test]
fn culprit_backend_loses_weight_and_route_reports_it() {
    let wanted = snapshot(2);
    let culprits: Culprits = [(
        Piece::Backend(backend(1)),
        Culprit {
            digest: Digest::default(),
            envoy_words: "no such SNI".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            match_verdict: MatchVerdict::Accepted,
            put_back: None,
        },
    )]
    .into();
    let left = exclude(&wanted, &culprits);
    assert_eq!(left.backends.len(), 1);
    let routes = &left.route_tables[0].virtual_hosts[0].routes;
    assert_eq!(routes[0], route(0));
    let Some(Action::Forward(forward)) = &routes[1].action else {
        panic!("{:?}", routes[1]);
    };
    assert_eq!(
        (
            forward.backends[0].backend.as_str(),
            forward.backends[0].weight
        ),
        ("", 1)
    );

    let affected = affected(&wanted, &culprits, &Unbound::default(), |port| port.port);
    assert_eq!(affected.refused[0].object, "Service/ns/s1/80");
    assert_eq!(affected.routes.len(), 1);
    let route = &affected.routes["HTTPRoute/ns/r1"];
    assert!(route.works && route.rules.is_empty(), "{route:?}");
    assert!(route.shares[&0].contains("no such SNI"), "{route:?}");
}

#[test]
fn accepted_key_replaces_refused_key() {
    let key = |digest: &str| KeyRef {
        name: "Secret/ns/pair".to_owned(),
        digest: digest.to_owned(),
        not_after: 1_800_000_000,
        ..KeyRef::default()
    };
    let pair = |byte: u8| KeyPair {
        name: "Secret/ns/pair".to_owned(),
        certificate_chain: vec![byte],
        private_key: Vec::new(),
        ..KeyPair::default()
    };
    let encoded = |key: KeyRef, pair: KeyPair| {
        let mut snapshot = snapshot(1);
        snapshot.keys.push(key);
        snapshot.ports[0].listeners[0].tls = Some(TlsTermination {
            keys: vec!["Secret/ns/pair".to_owned()],
            ..TlsTermination::default()
        });
        EncodedSnapshot::new(&snapshot, vec![pair])
    };
    let piece = Piece::Key("Secret/ns/pair".to_owned());
    let (before, target) = (encoded(key("old"), pair(1)), encoded(key("new"), pair(2)));
    let accepted = AcceptedKeys::new(&target, &before);
    assert_eq!(accepted.before(&piece), Some(key("old")));
    // A key is restored only if it has changed and the target still contains it.
    assert_eq!(AcceptedKeys::new(&target, &target).before(&piece), None);
    let without = EncodedSnapshot::new(&snapshot(1), Vec::new());
    assert_eq!(AcceptedKeys::new(&without, &before).before(&piece), None);

    let wanted = target.snapshot();
    for put_back in [accepted.before(&piece), None] {
        let is_open = put_back.is_some();
        let culprits: Culprits = [(
            piece.clone(),
            Culprit {
                digest: Digest::default(),
                envoy_words: "too short".to_owned(),
                since: Timestamp::UNIX_EPOCH,
                match_verdict: MatchVerdict::Rejected,
                put_back,
            },
        )]
        .into();
        let left = exclude(&wanted, &culprits);
        let affected = affected(&wanted, &culprits, &Unbound::default(), |port| port.port);
        assert_eq!(affected.refused[0].object, "Secret/ns/pair");
        assert_eq!(left.ports.len(), usize::from(is_open));
        assert_eq!(affected.listeners.is_empty(), is_open);
        if is_open {
            assert_eq!(left.keys, [key("old")]);
            assert_eq!(*accepted.pairs(&left, target.keys()), [pair(1)]);
            let effect = &affected.refused[0].effect;
            assert!(
                effect.ends_with("expires at 2027-01-15T08:00:00Z"),
                "{effect}"
            );
        }
    }
    assert_eq!(*accepted.pairs(&wanted, target.keys()), [pair(2)]);
}

#[test]
fn session_route_is_judged_with_its_clusters() {
    let mut snapshot = snapshot(1);
    snapshot.backends[0].session_key = b"key".to_vec();
    let route = &mut snapshot.route_tables[0].virtual_hosts[0].routes[0];
    if let Some(Action::Forward(forward)) = &mut route.action {
        forward.session = Some(Box::new(SessionPersistence {
            kind: Some(session_persistence::Kind::Cookie("session".to_owned())),
            ..SessionPersistence::default()
        }));
    }
    let probe = isolate(&Pieces::new(&snapshot), &[route_piece(0)], Depth::All);
    let judged: Vec<(&str, &[u8])> = probe
        .backends
        .iter()
        .map(|backend| (backend.name.as_str(), &*backend.session_key))
        .collect();
    assert_eq!(judged, [(&*backend(0), &b"key"[..])]);
}

#[tokio::test]
async fn bad_virtual_host_refuses_requests_or_is_removed() {
    let mut wanted = snapshot(1);
    let hosts = &mut wanted.route_tables[0].virtual_hosts;
    let mut narrow = hosts[0].clone();
    narrow.domain = "example.com".to_owned();
    hosts.push(narrow.clone());
    let piece = Piece::VirtualHost {
        table: TABLE.to_owned(),
        domain: narrow.domain.clone(),
    };
    for (is_domain, expected) in [(false, Some(refusing_all(&narrow))), (true, None)] {
        let judge = OracleJudge {
            bad: BTreeSet::from([piece.clone()]),
            bad_matches: is_domain.then(|| piece.clone()).into_iter().collect(),
            ..OracleJudge::default()
        };
        let (end, culprits, _) = search(&judge, &wanted, None).await;
        assert!(matches!(end, SearchEnd::Clean), "{is_domain}");
        let without = exclude(&wanted, &culprits);
        let hosts = &without.route_tables[0].virtual_hosts;
        let found = hosts.iter().find(|host| host.domain == narrow.domain);
        assert_eq!(found, expected.as_ref());
    }
}
