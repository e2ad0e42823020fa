//! Quarantine finds everything that a real Envoy rejects, and excludes nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sesame_apply::publish::{Published, publish};
use sesame_apply::quarantine::{
    Configuration, Culprit, Culprits, Digest, MatchVerdict, Piece, Quarantine, affected, exclude,
};
use sesame_apply::{Applier, Outcome, Patience};
use sesame_envoy::{Admin, Supervisor};
use sesame_kinds::api::NamespacedName;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    Backend, BackendTls, Cors, CorsOrigin, Endpoint, EndpointSet, ExternalAuth, ExternalAuthGrpc,
    Forward, KeyRef, Listener, PathMatch, Port, Protocol, Route, RouteTable, Snapshot, StringMatch,
    TlsTermination, TrustBundle, VirtualHost, WeightedBackend, cors_origin, external_auth,
    path_match, route::Action, string_match,
};
use sesame_render::RenderOptions;
use sesame_resolver::ResolvedGateway;
use sesame_tests::envoy_files::{
    Host, backend, free_address, get, load_of, until_answered, until_status,
};

const TABLE: &str = "http/80";
/// Rust's `regex` crate accepts this expression, but RE2 does not.
const BAD_REGEX: &str = "(?x)a";
/// RE2 rejects this escape. Sesame accepts it, because Sesame treats origins as literal text.
const BAD_ORIGIN: &str = r"https://\u0041\.test";

/// A valid configuration, to which tests add invalid parts.
struct World {
    resolved: ResolvedGateway,
}

fn forward(backend: &str) -> Action {
    Action::Forward(Forward {
        backends: vec![WeightedBackend {
            backend: backend.to_owned(),
            weight: 1,
            ..WeightedBackend::default()
        }],
        ..Forward::default()
    })
}

fn route(name: &str, backend: &str) -> Route {
    Route {
        name: format!("HTTPRoute/ns/{name}/rules/0/matches/0"),
        path: Some(PathMatch {
            kind: Some(path_match::Kind::Prefix(format!("/{name}"))),
        }),
        action: Some(forward(backend)),
        ..Route::default()
    }
}

fn bad_string(name: &str) -> StringMatch {
    StringMatch {
        name: name.to_owned(),
        kind: Some(string_match::Kind::Regex(BAD_REGEX.to_owned())),
    }
}

/// The certificate's serial number ends with `number`. Envoy rejects the pair if `wrong_key` is
/// true.
fn key(name: &str, number: u8, wrong_key: bool) -> (KeyRef, KeyPair) {
    let key = rcgen::KeyPair::generate().unwrap();
    let shown = if wrong_key {
        rcgen::KeyPair::generate().unwrap()
    } else {
        rcgen::KeyPair::try_from(key.serialize_der()).unwrap()
    };
    let mut params = rcgen::CertificateParams::new(vec![format!("{name}.example.com")]).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from(vec![0x4e, number]));
    let pair = KeyPair {
        name: format!("Secret/ns/{name}"),
        certificate_chain: params.self_signed(&key).unwrap().pem().into_bytes(),
        private_key: shown.serialize_pem().into_bytes(),
        ..KeyPair::default()
    };
    let key = KeyRef {
        name: pair.name.clone(),
        digest: pair.digest(),
        serial: format!("4e{number:02x}"),
        not_after: 0,
        on_host: false,
    };
    (key, pair)
}

#[derive(Clone, Copy, Debug)]
enum Poison {
    PathRegex,
    HeaderRegex,
    QueryRegex,
    CorsRegex,
    LongSni,
    TrustBundle,
    ClientKey,
    KeyOfAnother,
    DomainTwice,
}

impl Poison {
    const ALL: [Self; 9] = [
        Self::PathRegex,
        Self::HeaderRegex,
        Self::QueryRegex,
        Self::CorsRegex,
        Self::LongSni,
        Self::TrustBundle,
        Self::ClientKey,
        Self::KeyOfAnother,
        Self::DomainTwice,
    ];
}

impl World {
    fn new(routes: usize, endpoint: SocketAddr) -> Self {
        let name = "Service/ns/good/80";
        let mut world = Self {
            resolved: ResolvedGateway {
                gateway: NamespacedName::new("ns", "gw"),
                snapshot: Snapshot {
                    gateway: "Gateway/ns/gw".to_owned(),
                    ports: vec![
                        Port {
                            port: 80,
                            listeners: vec![Listener {
                                name: "Gateway/ns/gw/listeners/http".to_owned(),
                                protocol: Protocol::Http.into(),
                                route_table: TABLE.to_owned(),
                                ..Listener::default()
                            }],
                            ..Port::default()
                        },
                        Port {
                            port: 443,
                            ..Port::default()
                        },
                    ],
                    route_tables: vec![RouteTable {
                        name: TABLE.to_owned(),
                        virtual_hosts: vec![VirtualHost {
                            domain: "*".to_owned(),
                            routes: (0..routes).map(|i| route(&format!("g{i}"), name)).collect(),
                            ..VirtualHost::default()
                        }],
                    }],
                    backends: vec![Backend {
                        name: name.to_owned(),
                        endpoints: name.to_owned(),
                        ..Backend::default()
                    }],
                    endpoints: vec![EndpointSet {
                        name: name.to_owned(),
                        endpoints: vec![Endpoint {
                            address: endpoint.ip().to_string(),
                            port: endpoint.port().into(),
                            ..Endpoint::default()
                        }],
                        ..EndpointSet::default()
                    }],
                    ..Snapshot::default()
                },
                keys: Vec::new(),
            },
        };
        world.https("good", false);
        world
    }

    fn routes(&mut self) -> &mut Vec<Route> {
        &mut self.resolved.snapshot.route_tables[0].virtual_hosts[0].routes
    }

    fn https(&mut self, name: &str, wrong_key: bool) -> String {
        let host = format!("{name}.example.com");
        let number = u8::try_from(self.resolved.keys.len() + 1).unwrap();
        let (key, pair) = key(name, number, wrong_key);
        let snapshot = &mut self.resolved.snapshot;
        snapshot.keys.push(key);
        let listener = format!("Gateway/ns/gw/listeners/{name}");
        snapshot.ports[1].listeners.push(Listener {
            name: listener.clone(),
            protocol: Protocol::Https.into(),
            hostname: host,
            route_table: TABLE.to_owned(),
            tls: Some(TlsTermination {
                keys: vec![pair.name.clone()],
                ..TlsTermination::default()
            }),
            ..Listener::default()
        });
        self.resolved.keys.push(pair);
        listener
    }

    fn rotate(&mut self, name: &str, number: u8, wrong_key: bool) {
        let (key, pair) = key(name, number, wrong_key);
        let (keys, pairs) = (&mut self.resolved.snapshot.keys, &mut self.resolved.keys);
        let place = keys.iter().position(|old| old.name == key.name).unwrap();
        (keys[place], pairs[place]) = (key, pair);
    }

    /// Returns the piece that quarantine must exclude.
    fn poison(&mut self, poison: Poison, number: usize) -> Piece {
        let name = format!("bad{number}");
        let mut bad = route(&name, "Service/ns/good/80");
        match poison {
            Poison::PathRegex => {
                bad.path = Some(PathMatch {
                    kind: Some(path_match::Kind::Regex(BAD_REGEX.to_owned())),
                });
            }
            Poison::HeaderRegex => bad.headers.push(bad_string("x-header")),
            Poison::QueryRegex => bad.query_params.push(bad_string("q")),
            Poison::CorsRegex => {
                bad.cors = Some(Box::new(Cors {
                    allow_origins: vec![CorsOrigin {
                        kind: Some(cors_origin::Kind::Regex(BAD_ORIGIN.to_owned())),
                    }],
                    ..Cors::default()
                }));
            }
            Poison::LongSni | Poison::TrustBundle => {
                let backend = format!("Service/ns/{name}/80");
                let bundle = format!("ConfigMap/ns/{name}");
                let is_bundle = matches!(poison, Poison::TrustBundle);
                let snapshot = &mut self.resolved.snapshot;
                if is_bundle {
                    snapshot.trust_bundles.push(TrustBundle {
                        name: bundle.clone(),
                        pem: "no certificate".to_owned(),
                        ..TrustBundle::default()
                    });
                }
                snapshot.backends.push(Backend {
                    name: backend.clone(),
                    endpoints: "Service/ns/good/80".to_owned(),
                    tls: Some(Box::new(BackendTls {
                        sni: "x".repeat(if is_bundle { 1 } else { 300 }),
                        trust_bundle: if is_bundle {
                            bundle.clone()
                        } else {
                            String::new()
                        },
                        dns_names: vec!["x".to_owned()],
                        ..BackendTls::default()
                    })),
                    ..Backend::default()
                });
                bad.action = Some(forward(&backend));
                self.routes().push(bad);
                return if is_bundle {
                    Piece::TrustBundle(bundle)
                } else {
                    Piece::Backend(backend)
                };
            }
            Poison::ClientKey => {
                let backend = format!("Service/ns/{name}/80");
                let serial = u8::try_from(number % 256).unwrap();
                let (key, pair) = key(&name, serial, true);
                let certificate = String::from_utf8(pair.certificate_chain.clone()).unwrap();
                let snapshot = &mut self.resolved.snapshot;
                snapshot.keys.push(key);
                snapshot.trust_bundles.push(TrustBundle {
                    name: format!("ConfigMap/ns/{name}"),
                    pem: certificate,
                    ..TrustBundle::default()
                });
                snapshot.backends.push(Backend {
                    name: backend.clone(),
                    endpoints: "Service/ns/good/80".to_owned(),
                    tls: Some(Box::new(BackendTls {
                        sni: "x".to_owned(),
                        trust_bundle: format!("ConfigMap/ns/{name}"),
                        dns_names: vec!["x".to_owned()],
                        client_key: pair.name.clone(),
                        ..BackendTls::default()
                    })),
                    ..Backend::default()
                });
                bad.action = Some(forward(&backend));
                self.routes().push(bad);
                let piece = Piece::Key(pair.name.clone());
                self.resolved.keys.push(pair);
                return piece;
            }
            Poison::KeyOfAnother => {
                self.https(&name, true);
                return Piece::Key(format!("Secret/ns/{name}"));
            }
            Poison::DomainTwice => {
                let hosts = &mut self.resolved.snapshot.route_tables[0].virtual_hosts;
                for domain in [
                    format!("{name}.com"),
                    format!("{}.com", name.to_uppercase()),
                ] {
                    hosts.push(VirtualHost {
                        domain,
                        routes: Vec::new(),
                        ..VirtualHost::default()
                    });
                }
                // The upper-case duplicate sorts first, so Envoy accepts it.
                return Piece::VirtualHost {
                    table: TABLE.to_owned(),
                    domain: format!("{name}.com"),
                };
            }
        }
        let piece = Piece::Route(bad.name.clone());
        self.routes().push(bad);
        piece
    }
}

struct Publisher {
    host: Host,
    at: SocketAddr,
    options: RenderOptions,
    applier: Applier,
    supervisor: Supervisor,
    envoy: Admin,
    quarantine: Quarantine,
}

impl Publisher {
    /// `world` may be invalid.
    async fn start(world: &World) -> Self {
        let host = Host::new();
        let (at, tls) = (free_address(), free_address());
        let options = RenderOptions {
            addresses: vec![at.ip()],
            port_map: BTreeMap::from([(80, at.port().into()), (443, tls.port().into())]),
            subscription_budget: 24,
            limits: sesame_render::limits::Limits::default(),
            layout: host.layout.clone(),
            admin_socket: host.admin_socket(),
            trusted_hops: 0,
            fleet_hosts: 1,
            first_in_files: Arc::default(),
            system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
            endpoints: sesame_render::EndpointRules {
                local: true,
                ..sesame_render::EndpointRules::default()
            },
            session_tickets: false,
            stand_in_tickets: None,
            access_log: None,
            retained: BTreeMap::new(),
        };
        let ResolvedGateway { snapshot, keys, .. } = &world.resolved;
        let (applier, supervisor) = host
            .start(&sesame_render::render(snapshot, keys, &options))
            .await;
        let applier = applier.with_patience(Patience {
            // Searches wait this long after certificate changes.
            serial: Duration::from_millis(500),
            ..Patience::default()
        });
        Self {
            quarantine: Quarantine::new(host.config().binary, host.directory.path().join("judge")),
            envoy: supervisor.admin(),
            host,
            at,
            options,
            applier,
            supervisor,
        }
    }

    async fn publish(&mut self, world: &World) -> Published {
        let ResolvedGateway { snapshot, keys, .. } = &world.resolved;
        let rendered = sesame_render::render(snapshot, keys, &self.options);
        let encoded = Arc::new(EncodedSnapshot::new(snapshot, keys.clone()));
        let target = Configuration {
            encoded: &encoded,
            options: &self.options,
            rendered: &rendered,
        };
        let (quarantine, applier) = (&mut self.quarantine, &mut self.applier);
        let published = publish(quarantine, applier, &self.envoy, target, || false).await;
        published.unwrap()
    }

    /// Returns the excluded pieces.
    async fn accepted(&mut self, world: &World) -> BTreeSet<Piece> {
        let mut published = self.publish(world).await;
        // On a busy machine, a search may need several attempts.
        while let Published::Searching { .. } = published {
            published = self.publish(world).await;
        }
        let found: BTreeSet<Piece> = self.quarantine.culprits().keys().cloned().collect();
        assert!(
            matches!(published, Published::Accepted { .. }),
            "{published:?}: {found:?}"
        );
        found
    }

    async fn serials(&self) -> BTreeSet<String> {
        let serials = self.envoy.certificate_serials().await.unwrap();
        serials.into_iter().collect()
    }

    async fn stop(self) {
        self.supervisor.stop(Duration::ZERO).await;
        drop(self.host);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_poison_is_quarantined_alone_until_fixed() {
    let endpoint = backend("good").await;
    let world = World::new(20, endpoint);
    let mut publisher = Publisher::start(&world).await;
    let at = publisher.at;
    assert!(publisher.accepted(&world).await.is_empty());
    let paths: Vec<String> = (0..20).map(|i| format!("/g{i}")).collect();
    let load = load_of(at, 2, &paths);
    for (number, poison) in Poison::ALL.into_iter().enumerate() {
        let mut bad = World {
            resolved: world.resolved.clone(),
        };
        let culprit = bad.poison(poison, number);
        let found = publisher.accepted(&bad).await;
        assert_eq!(found, BTreeSet::from([culprit.clone()]), "{poison:?}");
        let words = &publisher.quarantine.culprits()[&culprit].envoy_words;
        assert!(!words.is_empty(), "{poison:?}");
        eprintln!("{poison:?}: {words}");
        let answered = match poison {
            Poison::CorsRegex | Poison::LongSni | Poison::TrustBundle => 500,
            // Envoy connects to the backend without a client key.
            Poison::ClientKey => 503,
            _ => 404,
        };
        until_status(at, &format!("/bad{number}"), answered).await;
        load.pass(20).await;
        assert!(publisher.accepted(&world).await.is_empty(), "{poison:?}");
    }
    load.stop().await.assert_clean();
    publisher.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantined_virtual_host_answers_500_not_wider_host() {
    let endpoint = backend("good").await;
    let world = World::new(2, endpoint);
    let mut publisher = Publisher::start(&world).await;
    assert!(publisher.accepted(&world).await.is_empty());
    until_answered(publisher.at, "/g0", (200, "good")).await;

    let mut snapshot = world.resolved.snapshot.clone();
    snapshot.route_tables[0].virtual_hosts.insert(
        0,
        VirtualHost {
            domain: "example.com".to_owned(),
            routes: vec![route("g0", "Service/ns/good/80")],
            external_auth: vec![ExternalAuth {
                backend: "Service/ns/good/80".to_owned(),
                protocol: Some(external_auth::Protocol::Grpc(ExternalAuthGrpc::default())),
                max_body_bytes: 0,
                ..ExternalAuth::default()
            }],
            filters: None,
        },
    );
    let piece = Piece::VirtualHost {
        table: TABLE.to_owned(),
        domain: "example.com".to_owned(),
    };
    // Envoy would accept this virtual host.
    let culprit = Culprit {
        digest: Digest::default(),
        envoy_words: "no".to_owned(),
        since: Timestamp::UNIX_EPOCH,
        match_verdict: MatchVerdict::Accepted,
        put_back: None,
    };
    let culprits = Culprits::from([(piece, culprit)]);
    let affected = affected(&snapshot, &culprits, publisher.quarantine.unbound(), |it| {
        it.port
    });
    let effects = affected.refused.iter().map(|it| it.effect.as_str());
    let effects: Vec<&str> = effects.collect();
    assert_eq!(effects, ["its requests get 500"]);
    let mut without = World {
        resolved: world.resolved.clone(),
    };
    without.resolved.snapshot = exclude(&snapshot, &culprits);
    assert!(publisher.accepted(&without).await.is_empty());
    for path in ["/g0", "/g1"] {
        until_status(publisher.at, path, 500).await;
    }
    assert!(publisher.accepted(&world).await.is_empty());
    until_answered(publisher.at, "/g0", (200, "good")).await;
    publisher.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_culprits_are_named_exactly_without_failed_request() {
    let endpoint = backend("good").await;
    let good = World::new(500, endpoint);
    let mut publisher = Publisher::start(&good).await;
    assert!(publisher.accepted(&good).await.is_empty());
    let paths: Vec<String> = (0..500).map(|i| format!("/g{i}")).collect();
    let load = load_of(publisher.at, 2, &paths);
    load.pass(200).await;

    let mut bad = World {
        resolved: good.resolved.clone(),
    };
    let culprits: BTreeSet<Piece> = (0..40)
        .map(|number| bad.poison(Poison::ALL[number % Poison::ALL.len()], number))
        .collect();
    assert_eq!(culprits.len(), 40);
    assert_eq!(publisher.accepted(&bad).await, culprits);
    load.pass(200).await;

    bad.routes().push(route("new", "Service/ns/good/80"));
    let Published::Accepted { report, reduced } = publisher.publish(&bad).await else {
        panic!("an unrelated change was rejected");
    };
    assert_eq!(report.outcome, Outcome::Applied);
    assert!(reduced.is_some());
    until_answered(publisher.at, "/new", (200, "good")).await;

    let affected = affected(
        &bad.resolved.snapshot,
        publisher.quarantine.culprits(),
        publisher.quarantine.unbound(),
        |port| port.port,
    );
    assert_eq!(affected.refused.len(), 40);
    // Rejected keys affect listeners. Rejected trust bundles and backends affect routes.
    assert_eq!(affected.listeners.len(), 4);
    let lost = affected
        .routes
        .values()
        .filter(|route| !route.works)
        .count();
    assert_eq!((lost, affected.routes.len()), (20, 28));

    assert!(publisher.accepted(&good).await.is_empty());
    load.stop().await.assert_clean();
    publisher.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_start_with_poison_serves_good_routes() {
    let endpoint = backend("good").await;
    let mut world = World::new(50, endpoint);
    let culprits: BTreeSet<Piece> = Poison::ALL
        .into_iter()
        .enumerate()
        .map(|(number, poison)| world.poison(poison, number))
        .collect();
    let mut publisher = Publisher::start(&world).await;
    publisher.quarantine.suspect();
    assert_eq!(publisher.accepted(&world).await, culprits);
    for i in 0..50 {
        until_answered(publisher.at, &format!("/g{i}"), (200, "good")).await;
    }
    publisher.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_configuration_ends_search_and_keeps_findings() {
    let endpoint = backend("good").await;
    let good = World::new(20, endpoint);
    let mut publisher = Publisher::start(&good).await;
    assert!(publisher.accepted(&good).await.is_empty());
    let mut bad = World {
        resolved: good.resolved.clone(),
    };
    let culprit = bad.poison(Poison::HeaderRegex, 0);
    let ResolvedGateway { snapshot, keys, .. } = &bad.resolved;
    let rendered = sesame_render::render(snapshot, keys, &publisher.options);
    let encoded = Arc::new(EncodedSnapshot::new(snapshot, keys.clone()));
    let target = Configuration {
        encoded: &encoded,
        options: &publisher.options,
        rendered: &rendered,
    };
    let (quarantine, applier) = (&mut publisher.quarantine, &mut publisher.applier);
    let outcome = publish(quarantine, applier, &publisher.envoy, target, || true).await;
    let outcome = outcome.unwrap();
    assert!(
        matches!(outcome, Published::Searching { .. }),
        "{outcome:?}"
    );
    assert_eq!(get(publisher.at, "/g1").await.unwrap().0, 200);
    assert_eq!(publisher.accepted(&bad).await, BTreeSet::from([culprit]));
    publisher.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_key_is_replaced_by_accepted_until_fixed() {
    let endpoint = backend("good").await;
    let mut world = World::new(5, endpoint);
    let mut publisher = Publisher::start(&world).await;
    assert!(publisher.accepted(&world).await.is_empty());
    let culprit = Piece::Key("Secret/ns/good".to_owned());
    let first = "4e01".to_owned();
    for number in [0x11, 0x12] {
        world.rotate("good", number, true);
        let found = publisher.accepted(&world).await;
        assert_eq!(found, BTreeSet::from([culprit.clone()]));
        assert_eq!(publisher.serials().await, BTreeSet::from([first.clone()]));
        let affected = affected(
            &world.resolved.snapshot,
            publisher.quarantine.culprits(),
            publisher.quarantine.unbound(),
            |port| port.port,
        );
        assert!(affected.listeners.is_empty(), "{affected:?}");
        let [refused] = affected.refused.as_slice() else {
            panic!("{affected:?}");
        };
        assert_eq!(refused.object, "Secret/ns/good");
        assert!(
            refused.effect.contains("previously accepted"),
            "{refused:?}"
        );
    }

    // A restarted agent knows only the last accepted keys.
    world.routes().push(route("beside", "Service/ns/good/80"));
    let Published::Accepted { reduced, .. } = publisher.publish(&world).await else {
        panic!("an unrelated change was rejected");
    };
    until_answered(publisher.at, "/beside", (200, "good")).await;
    let host = &publisher.host;
    let restarted = Quarantine::new(host.config().binary, host.directory.path().join("judge"));
    publisher.quarantine = restarted.with_last_good_keys(reduced.map(|reduced| reduced.encoded));
    let found = publisher.accepted(&world).await;
    assert_eq!(found, BTreeSet::from([culprit]));
    assert_eq!(publisher.serials().await, BTreeSet::from([first]));

    world.rotate("good", 0x13, false);
    assert!(publisher.accepted(&world).await.is_empty());
    assert!(publisher.serials().await.contains("4e13"));
    publisher.stop().await;
}
