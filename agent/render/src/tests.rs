//! What is rendered, as a whole, and what Envoy says to it.

use sesame_proto::schema::{
    AppProtocol, Backend, BackendTls, Cors, CorsOrigin, DirectResponse, Endpoint, EndpointSet,
    Forward, Header, HeaderModifier, KeyRef, L4Route, Listener, Mirror, PathMatch, PathModifier,
    Port, Protocol, Redirect, Retry, Route, RouteTable, SessionPersistence, StringMatch,
    TlsTermination, Transport, TrustBundle, UrlRewrite, VirtualHost, WeightedBackend, cors_origin,
    path_match, path_modifier, route::Action, session_persistence, string_match,
};

use super::*;
use crate::dump;
use crate::http::headers;
use crate::layout::XdsLayout;
use sesame_proto::encoded::EncodedSnapshot;

pub(crate) fn options() -> Options {
    Options {
        addresses: vec![IpAddr::from([127, 0, 0, 1]), "::1".parse().unwrap()],
        port_map: BTreeMap::from([(80, 8080)]),
        subscription_budget: 100,
        limits: Limits::default(),
        layout: XdsLayout::new("/run/sesame/xds"),
        admin_socket: "/run/sesame/admin.sock".into(),
        trusted_hops: 0,
        system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
        endpoints: EndpointRules {
            local: true,
            ..EndpointRules::default()
        },
    }
}

fn prefix(prefix: &str) -> PathMatch {
    PathMatch {
        kind: Some(path_match::Kind::Prefix(prefix.into())),
    }
}

fn to(backend: &str, weight: u32) -> WeightedBackend {
    WeightedBackend {
        backend: backend.into(),
        weight,
        ..Default::default()
    }
}

fn forward(backends: &[WeightedBackend]) -> Forward {
    Forward {
        backends: backends.to_vec(),
        ..Default::default()
    }
}

fn header(name: &str, value: &str) -> Header {
    Header {
        name: name.into(),
        value: value.into(),
    }
}

fn route(name: &str, path: &str, action: Action) -> Route {
    Route {
        name: format!("HTTPRoute/ns/{name}/rules/0/matches/0"),
        path: Some(prefix(path)),
        action: Some(action),
        ..Default::default()
    }
}

fn key_pair(name: &str, hostname: &str) -> KeyPair {
    let key = rcgen::generate_simple_self_signed([hostname.to_owned()]).unwrap();
    KeyPair {
        name: name.into(),
        certificate_chain: key.cert.pem().into_bytes(),
        private_key: key.signing_key.serialize_pem().into_bytes(),
    }
}

fn pem(pair: &KeyPair) -> String {
    String::from_utf8(pair.certificate_chain.clone()).unwrap()
}

const WEB: &str = "Service/ns/web/80";
const API: &str = "Service/ns/api/80/7f";

/// A snapshot that uses every field, and the keys that it names.
pub(crate) fn everything() -> (Snapshot, Vec<KeyPair>) {
    let keys = vec![
        key_pair("Secret/ns/a", "a.example.com"),
        key_pair("Secret/ns/b", "*.example.com"),
    ];
    let bundle = "ConfigMap/ns/ca";
    let exact = |value: &str| Some(string_match::Kind::Exact(value.into()));
    let regex = |value: &str| Some(string_match::Kind::Regex(value.into()));
    let modifier = |value: &str| {
        Some(HeaderModifier {
            set: vec![header("x-set", value)],
            add: vec![header("x-add", value)],
            remove: vec!["x-remove".into()],
        })
    };
    let path = |kind| Some(PathModifier { kind: Some(kind) });
    let redirect = |scheme: &str, host: &str, port, path, status| {
        Action::Redirect(Redirect {
            scheme: scheme.into(),
            host: host.into(),
            port,
            path,
            status,
            implied_port: 443,
        })
    };
    let cors = |credentials| Cors {
        allow_origins: vec![
            CorsOrigin {
                kind: Some(cors_origin::Kind::Exact("https://www.foo.com".into())),
            },
            CorsOrigin {
                kind: Some(cors_origin::Kind::Regex(r"https://.*\.bar\.com".into())),
            },
        ],
        allow_credentials: credentials,
        allow_methods: vec!["GET".into(), "OPTIONS".into()],
        allow_headers: vec!["x-header-1".into()],
        expose_headers: vec!["x-header-2".into()],
        max_age_seconds: 3600,
    };
    let routes = vec![
        Route {
            name: "GRPCRoute/ns/grpc/rules/0/matches/0".into(),
            path: Some(PathMatch {
                kind: Some(path_match::Kind::Exact("/shop.Cart/Add".into())),
            }),
            action: Some(Action::Forward(forward(&[to(API, 1), to("", 1)]))),
            grpc: true,
            ..Default::default()
        },
        Route {
            name: "HTTPRoute/ns/matches/rules/0/matches/0".into(),
            path: Some(PathMatch {
                kind: Some(path_match::Kind::Regex("/v[0-9]+/.*".into())),
            }),
            method: "GET".into(),
            headers: vec![
                StringMatch {
                    name: "x-exact".into(),
                    kind: exact("a"),
                },
                StringMatch {
                    name: "x-regex".into(),
                    kind: regex("a.*"),
                },
            ],
            query_params: vec![
                StringMatch {
                    name: "q".into(),
                    kind: exact("1"),
                },
                StringMatch {
                    name: "r".into(),
                    kind: regex("[0-9]"),
                },
            ],
            action: Some(Action::Forward(forward(&[to(WEB, 1)]))),
            request_headers: modifier("100%"),
            response_headers: modifier(""),
            cors: Some(cors(true)),
            grpc: false,
        },
        Route {
            path: Some(PathMatch {
                kind: Some(path_match::Kind::Exact("/exact".into())),
            }),
            ..route(
                "exact",
                "",
                Action::DirectResponse(DirectResponse { status: 421 }),
            )
        },
        Route {
            cors: Some(cors(false)),
            ..route(
                "weights",
                "/weights",
                Action::Forward(Forward {
                    backends: vec![
                        WeightedBackend {
                            request_headers: modifier("web"),
                            response_headers: modifier("web"),
                            ..to(WEB, 3)
                        },
                        to(API, u32::MAX),
                        to("", 2),
                        to(WEB, 0),
                    ],
                    rewrite: Some(UrlRewrite {
                        host: "other.example.com".into(),
                        path: path(path_modifier::Kind::Prefix("/".into())),
                    }),
                    mirrors: vec![
                        Mirror {
                            backend: WEB.into(),
                            numerator: 1,
                            denominator: 3,
                        },
                        Mirror {
                            backend: API.into(),
                            numerator: 100,
                            denominator: 100,
                        },
                    ],
                    request_timeout_ms: 600_500,
                    request_timeout_disabled: false,
                    backend_timeout_ms: 250,
                    retry: Some(Retry {
                        statuses: vec![500, 503],
                        attempts: 3,
                        backoff_ms: 25,
                    }),
                    session: Some(SessionPersistence {
                        kind: Some(session_persistence::Kind::Cookie("session".into())),
                        cookie_max_age_seconds: 60,
                    }),
                }),
            )
        },
        route(
            "full",
            "/full",
            Action::Forward(Forward {
                rewrite: Some(UrlRewrite {
                    host: String::new(),
                    path: path(path_modifier::Kind::Full("/one".into())),
                }),
                session: Some(SessionPersistence {
                    kind: Some(session_persistence::Kind::Header("x-session".into())),
                    cookie_max_age_seconds: 0,
                }),
                ..forward(&[to(WEB, 1)])
            }),
        ),
        route("https", "/https", redirect("https", "", 0, None, 301)),
        route(
            "elsewhere",
            "/elsewhere",
            redirect(
                "",
                "example.org",
                8443,
                path(path_modifier::Kind::Prefix("/there".into())),
                308,
            ),
        ),
        route(
            "shorter",
            "/shorter",
            redirect(
                "",
                "",
                0,
                path(path_modifier::Kind::Prefix(String::new())),
                303,
            ),
        ),
        route("all", "", Action::Forward(forward(&[to(API, 1)]))),
    ];
    let table = |name: &str, routes: &[Route]| RouteTable {
        name: name.into(),
        virtual_hosts: ["example.com", "*.example.com", "*"]
            .map(|domain| VirtualHost {
                domain: domain.into(),
                routes: routes.to_vec(),
            })
            .to_vec(),
    };
    let tls = |keys: &[&str], bundle: &str, fallback| {
        Some(TlsTermination {
            keys: keys.iter().map(|&k| k.to_owned()).collect(),
            client_trust_bundle: bundle.into(),
            client_insecure_fallback: fallback,
        })
    };
    let listener = |name: &str, protocol: Protocol, hostname: &str| Listener {
        name: format!("Gateway/ns/gw/listeners/{name}"),
        protocol: protocol.into(),
        hostname: hostname.into(),
        ..Default::default()
    };
    let https = |name: &str, hostname: &str, tls| Listener {
        route_table: format!("https/443/Gateway/ns/gw/listeners/{name}"),
        tls,
        ..listener(name, Protocol::Https, hostname)
    };
    let l4 = |name: &str, hostnames: &[&str], backends: &[WeightedBackend]| L4Route {
        name: name.into(),
        hostnames: hostnames.iter().map(|&h| h.to_owned()).collect(),
        backends: backends.to_vec(),
    };
    let port = |transport: Transport, port, listeners: Vec<Listener>| Port {
        transport: transport.into(),
        port,
        listeners,
    };
    let http = |name: &str, hostname: &str| Listener {
        route_table: "http/80".into(),
        ..listener(name, Protocol::Http, hostname)
    };
    let backend = |name: &str, endpoints: &str, protocol: AppProtocol| Backend {
        name: name.into(),
        endpoints: endpoints.into(),
        protocol: protocol.into(),
        tls: None,
        session_key: if matches!(name, WEB | API) {
            b"key".to_vec()
        } else {
            Vec::new()
        },
    };
    let snapshot = Snapshot {
        gateway: "Gateway/ns/gw".into(),
        addresses: vec![],
        ports: vec![
            port(
                Transport::Tcp,
                80,
                vec![http("one", "example.com"), http("two", "")],
            ),
            port(
                Transport::Tcp,
                443,
                vec![
                    https(
                        "a",
                        "a.example.com",
                        tls(&["Secret/ns/a", "Secret/ns/b"], "", false),
                    ),
                    https("b", "*.example.com", tls(&["Secret/ns/b"], bundle, false)),
                    https("c", "", tls(&["Secret/ns/b"], bundle, true)),
                    Listener {
                        l4_routes: vec![l4(
                            "TLSRoute/ns/pass/rules/0",
                            &["pass.example.com", "*.pass.example.com"],
                            &[to(WEB, 1)],
                        )],
                        ..listener("pass", Protocol::Tls, "*.example.com")
                    },
                    Listener {
                        tls: tls(&["Secret/ns/b"], "", false),
                        l4_routes: vec![l4(
                            "TLSRoute/ns/end/rules/0",
                            &["end.example.com"],
                            &[to(WEB, 1), to("", 1)],
                        )],
                        ..listener("end", Protocol::Tls, "end.example.com")
                    },
                ],
            ),
            port(
                Transport::Tcp,
                9000,
                vec![Listener {
                    l4_routes: vec![l4(
                        "TCPRoute/ns/tcp/rules/0",
                        &[],
                        &[to("Service/ns/tcp/9000", 1)],
                    )],
                    ..listener("tcp", Protocol::RawTcp, "")
                }],
            ),
            port(
                Transport::Tcp,
                9001,
                vec![listener("empty", Protocol::RawTcp, "")],
            ),
            port(
                Transport::Udp,
                9000,
                vec![Listener {
                    l4_routes: vec![l4(
                        "UDPRoute/ns/udp/rules/0",
                        &[],
                        &[
                            to("Service/ns/udp/53", 7),
                            to("", 2),
                            to("Service/ns/udp/53", 1),
                        ],
                    )],
                    ..listener("udp", Protocol::RawUdp, "")
                }],
            ),
        ],
        route_tables: vec![
            table("http/80", &routes),
            table("https/443/Gateway/ns/gw/listeners/a", &routes),
            table("https/443/Gateway/ns/gw/listeners/b", &routes),
            table("https/443/Gateway/ns/gw/listeners/c", &[]),
        ],
        backends: vec![
            Backend {
                tls: Some(BackendTls {
                    sni: "api.internal".into(),
                    trust_bundle: bundle.into(),
                    dns_names: vec!["api.internal".into()],
                    uris: vec!["spiffe://cluster.local/ns/ns/sa/api".into()],
                    client_key: "Secret/ns/a".into(),
                }),
                ..backend(API, "Service/ns/api/80", AppProtocol::Http2)
            },
            Backend {
                tls: Some(BackendTls {
                    sni: "public.example.org".into(),
                    dns_names: vec!["public.example.org".into()],
                    ..Default::default()
                }),
                ..backend(
                    "Service/ns/public/443/aa",
                    "Service/ns/api/80",
                    AppProtocol::Http1,
                )
            },
            backend(
                "Service/ns/tcp/9000",
                "Service/ns/web/80",
                AppProtocol::TcpBytes,
            ),
            backend(
                "Service/ns/udp/53",
                "Service/ns/udp/53",
                AppProtocol::UdpDatagrams,
            ),
            backend(WEB, WEB, AppProtocol::Http1),
            backend("Service/ns/ws/80", WEB, AppProtocol::Websocket),
        ],
        endpoints: vec![
            EndpointSet {
                name: "Service/ns/api/80".into(),
                endpoints: vec![],
            },
            EndpointSet {
                name: "Service/ns/udp/53".into(),
                endpoints: vec![Endpoint {
                    address: "10.0.0.9".into(),
                    port: 5353,
                }],
            },
            EndpointSet {
                name: WEB.into(),
                endpoints: vec![
                    Endpoint {
                        address: "10.0.0.1".into(),
                        port: 8080,
                    },
                    Endpoint {
                        address: "fd00::1".into(),
                        port: 8080,
                    },
                ],
            },
        ],
        keys: keys
            .iter()
            .map(|pair| KeyRef {
                name: pair.name.clone(),
                digest: pair.digest(),
                ..Default::default()
            })
            .collect(),
        trust_bundles: vec![TrustBundle {
            name: bundle.into(),
            pem: pem(&keys[0]),
        }],
        edge: None,
    };
    (snapshot, keys)
}

#[test]
fn everything_is_rendered_without_a_problem() {
    let (snapshot, keys) = everything();
    let rendered = render(&snapshot, &keys, &options());
    assert_eq!(rendered.problems, []);
    assert_eq!(rendered.listeners.len(), 2 * snapshot.ports.len());
    let with_sessions = snapshot
        .backends
        .iter()
        .filter(|b| !b.session_key.is_empty());
    let of_sessions = 2 * with_sessions.count();
    assert_eq!(
        rendered.clusters.len(),
        snapshot.backends.len() + of_sessions
    );
}

#[test]
fn envoy_takes_everything() {
    let Some(envoy) = envoy() else {
        eprintln!("skipped: no Envoy; set ENVOY to its path, or put `envoy` on PATH");
        return;
    };
    let (snapshot, keys) = everything();
    // With endpoints by file, with endpoints inline, with some route tables and keys inline, with all.
    for budget in [100, 10, 8, 6, 2] {
        let options = Options {
            subscription_budget: budget,
            ..options()
        };
        let rendered = render(&snapshot, &keys, &options);
        validate(&envoy, "pb", &static_bootstrap(&rendered).unwrap()).unwrap();
    }
}

#[test]
fn envoy_takes_what_is_printed() {
    let Some(envoy) = envoy() else {
        eprintln!("skipped: no Envoy; set ENVOY to its path, or put `envoy` on PATH");
        return;
    };
    let (snapshot, keys) = everything();
    let bytes = static_bootstrap(&render(&snapshot, &keys, &options())).unwrap();
    let printed = dump::bootstrap(&bytes, dump::Redact::Nothing).unwrap();
    validate(&envoy, "yaml", dump::yaml(&printed).unwrap().as_bytes()).unwrap();
}

#[test]
fn envoy_takes_the_bootstrap() {
    let Some(envoy) = envoy() else {
        eprintln!("skipped: no Envoy; set ENVOY to its path, or put `envoy` on PATH");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let layout = XdsLayout::new(directory.path());
    // Envoy wants the files to be there, and reads none of them.
    for file in [layout.lds(), layout.cds(), layout.rtds()] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"").unwrap();
    }
    let bootstrap = bootstrap(&Options {
        layout,
        admin_socket: directory.path().join("admin.sock"),
        ..options()
    });
    validate(&envoy, "pb", &bootstrap).unwrap();
}

#[test]
fn rendering_twice_gives_the_same_bytes() {
    let (snapshot, keys) = everything();
    let first = render(&snapshot, &keys, &options());
    for _ in 0..8 {
        assert!(render(&snapshot, &keys, &options()) == first);
    }
}

/// [`everything`] without what is wrong in it.
fn everything_right() -> (Snapshot, Vec<KeyPair>) {
    let (mut snapshot, keys) = everything();
    let found = render(&snapshot, &keys, &options()).problems;
    let wrong = |name: &str| found.iter().any(|problem| problem.object == name);
    snapshot.backends.retain(|backend| !wrong(&backend.name));
    snapshot.endpoints.retain(|set| !wrong(&set.name));
    for host in snapshot
        .route_tables
        .iter_mut()
        .flat_map(|table| &mut table.virtual_hosts)
    {
        host.routes.retain(|route| !wrong(&route.name));
    }
    (snapshot, keys)
}

fn encoded(snapshot: &Snapshot, keys: &[KeyPair]) -> EncodedSnapshot {
    EncodedSnapshot::new(snapshot, keys.to_vec())
}

/// A change of a table, and whether its outcome can be told from what was rendered before.
type TableChange = (bool, fn(&mut RouteTable));

#[test]
fn virtual_hosts_that_are_taken_over_are_what_would_be_rendered() {
    let (mut old, keys) = everything_right();
    let table = &mut old.route_tables[0];
    for index in 0..200 {
        let mut host = table.virtual_hosts[0].clone();
        host.domain = format!("more{index:03}.example.com");
        table.virtual_hosts.push(host);
    }
    let wide = Options {
        subscription_budget: 1000,
        ..options()
    };
    let before = render(&old, &keys, &wide);
    assert!(before.problems.is_empty(), "{:?}", before.problems);
    assert!(!before.route_tables.is_empty());
    let changes: [TableChange; 7] = [
        (true, |table| {
            table.virtual_hosts.remove(0);
        }),
        (true, |table| {
            let host = VirtualHost {
                domain: "another.example.com".to_owned(),
                ..table.virtual_hosts[0].clone()
            };
            table.virtual_hosts.insert(3, host);
        }),
        (true, |table| table.virtual_hosts[1].routes.clear()),
        (true, |table| table.virtual_hosts.swap(5, 50)),
        (false, |table| {
            table.virtual_hosts[9].domain = "a*b*".to_owned();
        }),
        (false, |table| {
            let again = table.virtual_hosts[7].clone();
            table.virtual_hosts.push(again);
        }),
        (false, |table| table.name = "another".to_owned()),
    ];
    for (told, change) in changes {
        let mut new = old.clone();
        change(&mut new.route_tables[0]);
        let (then, now) = (encoded(&old, &keys), encoded(&new, &keys));
        assert!(now.unchanged_since(&then).only_route_tables_changed());
        let after = routes_after(&before, &then, &now, &wide);
        assert_eq!(after.is_some(), told);
        assert!(after.is_none_or(|after| after == render(&new, &keys, &wide)));
    }
    // Tables that are part of their listeners are not told apart.
    let narrow = Options {
        subscription_budget: 0,
        ..wide
    };
    let before = render(&old, &keys, &narrow);
    let then = encoded(&old, &keys);
    old.route_tables[0].virtual_hosts.truncate(1);
    assert!(routes_after(&before, &then, &encoded(&old, &keys), &narrow).is_none());
}

#[test]
fn what_endpoints_leave_alone_is_what_would_be_rendered() {
    // Without problems, or nothing is taken over.
    let (mut old, keys) = everything_right();
    let some = old
        .endpoints
        .iter()
        .position(|set| !set.endpoints.is_empty());
    old.endpoints.swap(0, some.unwrap());
    let changes: [fn(&mut Snapshot); 3] = [
        |new| new.endpoints[0].endpoints.clear(),
        |new| new.endpoints.truncate(1),
        |new| new.endpoints[0].endpoints[0].address = "not an IP".to_owned(),
    ];
    for budget in [0, options().subscription_budget, 1000] {
        let options = Options {
            subscription_budget: budget,
            ..options()
        };
        let before = render(&old, &keys, &options);
        for change in changes {
            let mut new = old.clone();
            change(&mut new);
            let whole = render(&new, &keys, &options);
            let encoded = encoded(&new, &keys);
            let now = encoded.without_route_tables();
            let after = endpoints_after(&before, &old.endpoints, &now, &keys, &options);
            let clean = before.problems.is_empty() && whole.problems.is_empty();
            assert_eq!(after.is_some(), clean, "{:?}", before.problems);
            assert!(after.is_none_or(|after| after == whole));
        }
        assert!(before.problems.is_empty(), "{:?}", before.problems);
    }
}

#[test]
fn a_change_of_routes_keys_or_bundles_leaves_listeners_alone() {
    let (mut snapshot, keys) = everything();
    let before = render(&snapshot, &keys, &options());
    for table in &mut snapshot.route_tables {
        table.virtual_hosts.truncate(1);
    }
    let keys = vec![
        key_pair("Secret/ns/a", "a.example.com"),
        key_pair("Secret/ns/b", "*.example.com"),
    ];
    snapshot.trust_bundles[0].pem = pem(&keys[1]);
    let after = render(&snapshot, &keys, &options());
    assert!(before.route_tables != after.route_tables && before.secrets != after.secrets);
    assert!(before.listeners == after.listeners && before.clusters == after.clusters);
}

#[test]
fn no_budget_is_exceeded() {
    let (snapshot, keys) = everything();
    for budget in 3..20 {
        let options = Options {
            subscription_budget: budget,
            ..options()
        };
        let rendered = render(&snapshot, &keys, &options);
        let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
        let mut shared = BTreeSet::new();
        paths(&printed["listeners"], &mut |path| {
            shared.insert(path.to_owned());
        });
        let mut endpoints = 0;
        paths(&printed["clusters"], &mut |path| {
            if path.contains("/eds/") {
                endpoints += 1;
            } else {
                shared.insert(path.to_owned());
            }
        });
        assert!(3 + shared.len() + endpoints <= budget, "budget {budget}");
        // Nothing is left out for it, and no key is printed wherever it stands.
        assert_eq!(rendered.problems, [], "budget {budget}");
        let mut keys = 0;
        private_keys(&printed, &mut |key| {
            assert_eq!(*key, serde_json::json!({"inline_string": "<redacted>"}));
            keys += 1;
        });
        assert!(keys >= 2, "budget {budget}");
    }
}

/// Calls `found` with every private key.
fn private_keys(value: &serde_json::Value, found: &mut impl FnMut(&serde_json::Value)) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                if name == "private_key" {
                    found(value);
                }
                private_keys(value, found);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|v| private_keys(v, found)),
        _ => {}
    }
}

/// Calls `found` with every watched path.
fn paths(value: &serde_json::Value, found: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::Object(map) => {
            if let Some(path) = map
                .get("path_config_source")
                .and_then(|s| s["path"].as_str())
            {
                found(path);
            }
            map.values().for_each(|value| paths(value, found));
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| paths(value, found)),
        _ => {}
    }
}

#[test]
fn what_is_wrong_is_left_out_alone() {
    let (mut snapshot, keys) = everything();
    let backend = |name: &str, tls| Backend {
        name: name.into(),
        endpoints: WEB.into(),
        protocol: AppProtocol::Http1.into(),
        tls: Some(tls),
        session_key: b"key".to_vec(),
    };
    snapshot
        .backends
        .push(backend("unverified", BackendTls::default()));
    snapshot.backends.push(backend(
        "bundleless",
        BackendTls {
            trust_bundle: "ConfigMap/ns/none".into(),
            dns_names: vec!["a".into()],
            ..Default::default()
        },
    ));
    let broken_header = HeaderModifier {
        set: vec![
            header("host", "a"),
            header("a b", "a"),
            header("x-ok", "a\nb"),
        ],
        add: vec![header("x-good", "yes")],
        remove: vec![":path".into()],
    };
    snapshot.route_tables[0].virtual_hosts = vec![VirtualHost {
        domain: "*".into(),
        routes: vec![
            route("prefix", "/a?b", Action::Forward(forward(&[to(WEB, 1)]))),
            route(
                "unverified",
                "/u",
                Action::Forward(forward(&[to("unverified", 1)])),
            ),
            Route {
                request_headers: Some(broken_header),
                ..route("headers", "/h", Action::Forward(forward(&[to(WEB, 1)])))
            },
            route(
                "status",
                "/s",
                Action::Redirect(Redirect {
                    status: 200,
                    ..Default::default()
                }),
            ),
        ],
    }];
    let duplicate = snapshot.route_tables[0].virtual_hosts[0].clone();
    snapshot.route_tables[0].virtual_hosts.push(duplicate);
    snapshot.ports[1].listeners[0].tls.as_mut().unwrap().keys = vec!["Secret/ns/none".into()];
    let rendered = render(&snapshot, &keys, &options());
    let objects: Vec<&str> = rendered
        .problems
        .iter()
        .map(|p| p.object.as_str())
        .collect();
    let name = |n: &str| format!("HTTPRoute/ns/{n}/rules/0/matches/0");
    let headers = name("headers");
    assert_eq!(
        objects,
        [
            "unverified",
            "bundleless",
            "Gateway/ns/gw/listeners/a",
            &name("prefix"),
            &name("unverified"),
            &headers,
            &headers,
            &headers,
            &headers,
            &name("status"),
            "http/80",
        ]
    );
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    let routes = printed["routes"][0]["virtual_hosts"][0]["routes"]
        .as_array()
        .unwrap();
    assert_eq!(routes.len(), 3);
    assert_eq!(routes[0]["direct_response"]["status"], 500);
    assert_eq!(
        routes[1]["request_headers_to_add"][0]["header"]["key"],
        "x-good"
    );
    assert_eq!(routes[2]["direct_response"]["status"], 500);
    if let Some(envoy) = envoy() {
        validate(&envoy, "pb", &static_bootstrap(&rendered).unwrap()).unwrap();
    }
}

/// The routes of a table with one virtual host, as printed.
fn printed_routes(routes: &[Route]) -> Vec<serde_json::Value> {
    let (mut snapshot, keys) = everything();
    snapshot.route_tables.truncate(1);
    snapshot.route_tables[0].virtual_hosts = vec![VirtualHost {
        domain: "*".into(),
        routes: routes.to_vec(),
    }];
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    printed["routes"][0]["virtual_hosts"][0]["routes"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn one_backend_is_said_without_weights() {
    let routes = printed_routes(&[route(
        "one",
        "/a",
        Action::Forward(forward(&[to(WEB, 7), to(API, 0)])),
    )]);
    assert_eq!(
        routes,
        [serde_json::json!({
            "name": "HTTPRoute/ns/one/rules/0/matches/0",
            "match": {"path_separated_prefix": "/a"},
            "route": {"cluster": WEB, "timeout": "0s"},
        })]
    );
}

#[test]
fn a_redirect_does_not_keep_the_port_that_a_client_named() {
    let redirect = |scheme: &str, host: &str| {
        printed_routes(&[route(
            "redirect",
            "",
            Action::Redirect(Redirect {
                scheme: scheme.into(),
                host: host.into(),
                status: 301,
                implied_port: 443,
                ..Default::default()
            }),
        )])
    };
    assert_eq!(redirect("", "").len(), 2);
    let routes = redirect("https", "");
    assert_eq!(routes.len(), 2);
    assert_eq!(routes[0]["match"]["headers"][0]["name"], ":authority");
    assert_eq!(routes[0]["redirect"]["port_redirect"], 443);
    assert_eq!(
        routes[1]["redirect"]["port_redirect"],
        serde_json::Value::Null
    );
    assert_eq!(redirect("https", "example.org").len(), 1);
    assert_eq!(redirect("", "example.org").len(), 1);
}

#[test]
fn a_route_with_cors_and_a_method_matches_its_preflight() {
    let cors = Route {
        method: "PUT".into(),
        cors: Some(Cors::default()),
        ..route("cors", "/a", Action::Forward(forward(&[to(WEB, 1)])))
    };
    let routes = printed_routes(&[cors]);
    assert_eq!(routes.len(), 2);
    let matched: Vec<_> = routes[1]["match"]["headers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|header| header["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        matched,
        [":method", "access-control-request-method", "origin"]
    );
    assert_eq!(
        routes[1]["typed_per_filter_config"],
        routes[0]["typed_per_filter_config"]
    );
}

#[test]
fn where_the_proxy_answers_by_itself_the_headers_of_cors_are_the_routes() {
    let origin = |kind| CorsOrigin { kind: Some(kind) };
    let cors = Cors {
        allow_origins: vec![
            origin(cors_origin::Kind::Exact("https://a.test".into())),
            origin(cors_origin::Kind::Regex(r"https://.*\.b\.test".into())),
        ],
        allow_credentials: true,
        expose_headers: vec!["x-seen".into()],
        ..Default::default()
    };
    let redirect = Action::Redirect(Redirect {
        scheme: "https".into(),
        status: 302,
        implied_port: 443,
        ..Default::default()
    });
    let answer = Action::DirectResponse(DirectResponse { status: 500 });
    // A redirect of all hosts is two routes: with and without a port in Host.
    for (action, expected) in [(redirect, 5), (answer, 3)] {
        let routes = printed_routes(&[Route {
            cors: Some(cors.clone()),
            ..route("cors", "/a", action)
        }]);
        assert_eq!(routes.len(), expected);
        assert_eq!(
            routes[0]["match"]["headers"][0]["string_match"]["exact"],
            "OPTIONS"
        );
        assert_eq!(routes[0]["route"]["cluster"], REFUSED_CLUSTER);
        let allowed = &routes[expected - 2];
        assert_eq!(
            allowed["match"]["headers"][0]["string_match"]["safe_regex"]["regex"],
            r"https\://a\.test|(?:https://.*\.b\.test)"
        );
        let said: Vec<(&str, &str)> = allowed["response_headers_to_add"]
            .as_array()
            .unwrap()
            .iter()
            .map(|option| &option["header"])
            .map(|h| (h["key"].as_str().unwrap(), h["value"].as_str().unwrap()))
            .collect();
        assert_eq!(
            said,
            [
                ("access-control-allow-origin", "%REQ(origin)%"),
                ("access-control-allow-credentials", "true"),
                ("access-control-expose-headers", "x-seen"),
            ]
        );
        assert_eq!(
            routes[expected - 1]["response_headers_to_add"],
            serde_json::Value::Null
        );
    }
}

#[test]
fn a_backend_without_trust_bundle_is_verified_with_the_hosts() {
    let mut snapshot = everything().0;
    for tls in snapshot.backends.iter_mut().filter_map(|b| b.tls.as_mut()) {
        tls.trust_bundle.clear();
    }
    let options = Options {
        system_ca: "/host/ca.pem".into(),
        ..options()
    };
    let rendered = render(&snapshot, &[], &options);
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    assert!(
        printed["clusters"]
            .to_string()
            .contains(r#""trusted_ca":{"filename":"/host/ca.pem"}"#),
        "{printed:#}"
    );
}

#[test]
fn shares_keep_their_proportion_when_their_sum_is_too_large() {
    let (snapshot, _) = everything();
    let options = options();
    let context = Context {
        options: &options,
        edge: Edge::default(),
        subscriptions: budget::Subscriptions::default(),
        secrets: BTreeMap::new(),
        route_tables: BTreeMap::new(),
        clusters: snapshot.backends.iter().map(|b| b.name.as_str()).collect(),
        session_backends: BTreeSet::new(),
    };
    let backends = [to(WEB, u32::MAX), to(API, u32::MAX), to("", 1), to(WEB, 0)];
    let shares = weights::shares("route", &backends, &context, &mut Vec::new());
    let weights: Vec<u32> = shares.iter().map(|share| share.weight).collect();
    assert_eq!(weights, [u32::MAX / 5, u32::MAX / 5, 1]);
    assert_eq!(shares[2].cluster, REFUSED_CLUSTER);
}

#[test]
fn a_backend_has_the_last_word_on_request_headers() {
    let modifier = |set: &[(&str, &str)], add: &[(&str, &str)], remove: &[&str]| HeaderModifier {
        set: set.iter().map(|(n, v)| header(n, v)).collect(),
        add: add.iter().map(|(n, v)| header(n, v)).collect(),
        remove: remove.iter().map(|&n| n.to_owned()).collect(),
    };
    let changes = |modifier| headers::changes("route", Some(&modifier), &mut Vec::new());
    let rule = changes(modifier(
        &[("X-A", "rule"), ("x-b", "rule")],
        &[("x-c", "rule")],
        &["x-d"],
    ));
    let backend = changes(modifier(
        &[("x-a", "backend")],
        &[("x-c", "backend")],
        &["x-b"],
    ));
    let both = rule.then(&backend);
    let said: Vec<_> = both
        .add
        .iter()
        .filter_map(|option| option.header.as_ref())
        .map(|header| (header.key.as_str(), header.value.as_str()))
        .collect();
    assert_eq!(
        said,
        [("x-c", "rule"), ("x-a", "backend"), ("x-c", "backend")]
    );
    assert_eq!(both.remove, ["x-d", "x-b"]);
}

/// `ENVOY`, or `envoy` on the path.
pub(crate) fn envoy() -> Option<std::path::PathBuf> {
    std::env::var_os("ENVOY").map(Into::into).or_else(|| {
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|directory| directory.join("envoy"))
            .find(|path| path.is_file())
    })
}

/// What Envoy says if it refuses.
pub(crate) fn validate(
    envoy: &std::path::Path,
    suffix: &str,
    bootstrap: &[u8],
) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(format!("bootstrap.{suffix}"));
    std::fs::write(&file, bootstrap).unwrap();
    let output = std::process::Command::new(envoy)
        .args([
            "--mode",
            "validate",
            "--disable-hot-restart",
            "-l",
            "warn",
            "-c",
        ])
        .arg(&file)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
