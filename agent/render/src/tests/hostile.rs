//! Hostile strings in snapshots: nothing may panic, and Envoy must accept the result.
//!
//! The generators omit regular expressions: the controller and Envoy check them, and this crate
//! only limits their cost.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sesame_proto::schema::{
    AppProtocol, Backend, BackendConnections, CircuitBreaker, ClientAddress, ContextValue, Cors,
    CorsOrigin, DirectResponse, Edge, Endpoint, EndpointSet, ExternalAuth, ExternalAuthGrpc,
    ExternalAuthHttp, Forward, HashPolicy, Header, HeaderModifier, HeaderPart, HealthCheck,
    InternalRedirect, Keepalive, L4Route, Listener, LoadBalancer, Mirror, OutlierDetection,
    PathMatch, PathModifier, Port, Redirect, Retry, RetryBudget, Route, RouteTable,
    SessionPersistence, SlowStart, Snapshot, StringMatch, UrlRewrite, VirtualHost, WeightedBackend,
    ZonePreference, cors_origin, external_auth, hash_policy, header_part, health_check, path_match,
    path_modifier, route::Action, session_persistence, string_match,
};

use super::envoy::{envoy, validate};
use super::hostile_filters::{address_filter, filters, shared_filter};
use super::parts::options;
use crate::{render, static_bootstrap};

pub(super) fn text() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "a", "B", "/", "//", "*", ".", "%", "\\", "\\1", "?", "#", ":", "_", "-", " ", "\n", "\0",
        "é", "{", "$", "host", "..", "%%", "@", "\u{7f}", "'", "\"",
    ]);
    prop_oneof![
        4 => prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat()),
        1 => Just("a".repeat(20_000)),
        1 => Just("x-ok".to_owned()),
        1 => Just("/ok".to_owned()),
    ]
}

fn string_match() -> impl Strategy<Value = StringMatch> {
    (text(), text()).prop_map(|(name, value)| StringMatch {
        name,
        kind: Some(string_match::Kind::Exact(value)),
    })
}

fn field_name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => text(),
        1 => prop::sample::select(FRAMING.to_vec()).prop_map(str::to_owned),
    ]
}

const FRAMING: &[&str] = &[
    "Content-Length",
    "transfer-encoding",
    "KEEP-ALIVE",
    "content_length",
];

pub(super) fn modifier() -> impl Strategy<Value = HeaderModifier> {
    let part = prop_oneof![
        text().prop_map(header_part::Kind::Literal),
        (0..40).prop_map(header_part::Kind::Fact),
        text().prop_map(header_part::Kind::RequestHeader),
    ];
    let part = prop::option::of(part).prop_map(|kind| HeaderPart { kind });
    let parts = prop::collection::vec(part, 0..3);
    let header = || {
        let all = (field_name(), text(), parts.clone());
        all.prop_map(|(name, value, parts)| Header { name, value, parts })
    };
    (header(), header(), field_name()).prop_map(|(set, add, remove)| HeaderModifier {
        set: vec![set],
        add: vec![add],
        remove: vec![remove],
    })
}

fn path_modifier() -> impl Strategy<Value = Option<PathModifier>> {
    let kind = prop_oneof![
        text().prop_map(path_modifier::Kind::Full),
        text().prop_map(path_modifier::Kind::Prefix),
    ];
    prop::option::of(kind).prop_map(|kind| Some(PathModifier { kind }))
}

fn weighted(names: Vec<String>) -> impl Strategy<Value = WeightedBackend> {
    (
        prop::sample::select(names),
        any::<u32>(),
        prop::option::of(modifier()),
    )
        .prop_map(|(backend, weight, headers)| WeightedBackend {
            rewrite: None,
            backend,
            weight,
            request_headers: headers.clone().map(Box::new),
            response_headers: headers.map(Box::new),
        })
}

fn forward(names: Vec<String>) -> impl Strategy<Value = Forward> {
    (
        prop::collection::vec(weighted(names.clone()), 0..4),
        (text(), path_modifier()),
        (prop::sample::select(names), any::<u32>(), any::<u32>()),
        (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>()),
        prop::collection::vec(any::<u32>(), 0..3),
        (field_name(), any::<bool>(), any::<u64>()),
    )
        .prop_map(
            |(
                backends,
                (host, path),
                (backend, numerator, denominator),
                times,
                statuses,
                session,
            )| {
                let (request_timeout_ms, backend_timeout_ms, attempts, backoff_ms) = times;
                let (name, cookie, cookie_max_age_seconds) = session;
                Forward {
                    unavailable: false,
                    stream_idle_timeout_ms: Some(backend_timeout_ms).filter(|_| cookie),
                    internal_redirect: Some(Box::new(InternalRedirect {
                        max: attempts,
                        statuses: statuses.iter().copied().chain(302..309).collect(),
                        cross_scheme: attempts.cast_signed(),
                        denies_repeated_route: cookie,
                    })),
                    backends,
                    rewrite: Some(Box::new(UrlRewrite {
                        host_header: if cookie { host.clone() } else { String::new() },
                        host: host.clone(),
                        path,
                    })),
                    mirrors: vec![Mirror {
                        backend,
                        numerator,
                        denominator,
                    }],
                    request_timeout_ms,
                    request_timeout_disabled: cookie,
                    backend_timeout_ms,
                    retry: Some(Box::new(Retry {
                        conditions: if cookie {
                            vec![attempts.cast_signed(), 1]
                        } else {
                            Vec::new()
                        },
                        statuses,
                        attempts,
                        backoff_ms,
                        unprocessed_only: cookie,
                    })),
                    session: Some(Box::new(SessionPersistence {
                        kind: Some(if cookie {
                            session_persistence::Kind::Cookie(name)
                        } else {
                            session_persistence::Kind::Header(name)
                        }),
                        cookie_max_age_seconds,
                        cookie_path: host.clone(),
                    })),
                }
            },
        )
}

fn external_auth_of(names: Vec<String>) -> impl Strategy<Value = ExternalAuth> {
    let protocol = prop_oneof![
        // Over gRPC, these headers are part of a message, so they cannot affect framing.
        (prop::collection::vec(text(), 0..3), any::<bool>()).prop_map(
            |(request_headers, peer_certificate)| {
                external_auth::Protocol::Grpc(ExternalAuthGrpc {
                    request_headers,
                    peer_certificate,
                    text_body: !peer_certificate,
                })
            }
        ),
        (
            text(),
            prop::collection::vec(field_name(), 0..3),
            prop::option::of(text()),
            any::<bool>(),
        )
            .prop_map(|(path_prefix, names, path, subrequest)| {
                external_auth::Protocol::Http(ExternalAuthHttp {
                    path_prefix,
                    request_headers: names.clone(),
                    response_headers: names,
                    path: path.unwrap_or_default(),
                    subrequest,
                })
            }),
    ];
    (
        prop::sample::select(names),
        prop::option::of(protocol),
        any::<u32>(),
        prop::collection::vec((text(), text()), 0..2),
        any::<u64>(),
        any::<[bool; 3]>(),
        prop::option::of(address_filter()),
    )
        .prop_map(
            |(backend, protocol, max_body_bytes, context, timeout_ms, flags, exempt_clients)| {
                ExternalAuth {
                    backend,
                    protocol,
                    max_body_bytes,
                    policy: String::new(),
                    context: (context.into_iter())
                        .map(|(name, value)| ContextValue { name, value })
                        .collect(),
                    timeout_ms,
                    fail_open: flags[0],
                    partial_body: flags[1],
                    no_response_headers: flags[2],
                    exempt_clients,
                }
            },
        )
}

fn action(names: Vec<String>) -> impl Strategy<Value = Option<Action>> {
    let redirect = (
        prop::sample::select(vec!["", "http", "https", "ftp"]),
        text(),
        any::<u32>(),
        path_modifier(),
        300_u32..310,
    );
    prop_oneof![
        3 => forward(names).prop_map(|forward| Some(Action::Forward(forward))),
        2 => redirect.prop_map(|(scheme, host, port, path, status)| {
            let implied_port = (port >> 16) % 70_000;
            Some(Action::Redirect(Redirect {
                scheme: scheme.into(),
                host,
                port: port % 70_000,
                path,
                status,
                implied_port,
            }))
        }),
        1 => (any::<u32>(), text(), text()).prop_map(|(status, body, content_type)| Some(Action::DirectResponse(DirectResponse { status, body, content_type }))),
        1 => Just(None),
    ]
}

fn route(names: Vec<String>) -> impl Strategy<Value = Route> {
    let path = prop_oneof![
        text().prop_map(path_match::Kind::Exact),
        text().prop_map(path_match::Kind::Prefix),
        text().prop_map(|text| path_match::Kind::Prefix(format!("/{text}"))),
    ];
    let cors =
        (text(), text(), any::<bool>(), any::<u32>()).prop_map(|(a, b, credentials, age)| Cors {
            allow_origins: vec![CorsOrigin {
                kind: Some(cors_origin::Kind::Exact(a.clone())),
            }],
            allow_credentials: credentials,
            allow_methods: vec![b.clone()],
            allow_headers: vec![a.clone(), b],
            expose_headers: vec![a],
            max_age_seconds: Some(age),
            allow_private_network: credentials,
            ignores_matched_headers: credentials,
        });
    (
        text(),
        prop::option::of(path),
        text(),
        (string_match(), string_match()),
        action(names.clone()),
        prop::option::of(modifier()),
        prop::option::of(cors),
        any::<bool>(),
        prop::option::of(external_auth_of(names)),
        prop::option::of(filters()),
    )
        .prop_map(
            |(
                name,
                path,
                method,
                (header, query),
                action,
                headers,
                cors,
                grpc,
                external_auth,
                filters,
            )| {
                Route {
                    external_auth: external_auth.into_iter().collect(),
                    filters: filters.map(Box::new),
                    rate_limits: vec![method.clone()],
                    name,
                    path: path.map(|kind| PathMatch { kind: Some(kind) }),
                    method,
                    headers: vec![header],
                    query_params: vec![query],
                    action,
                    request_headers: headers.clone().map(Box::new),
                    response_headers: headers.map(Box::new),
                    cors: cors.map(Box::new),
                    grpc,
                }
            },
        )
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    prop::collection::vec(text(), 1..4).prop_flat_map(|names| {
        let listener = (
            text(),
            text(),
            0..5_i32,
            prop::collection::vec(text(), 0..3),
            (text(), prop::collection::vec(address_filter(), 0..3)),
        );
        (
            prop::collection::vec((0..2_i32, any::<u32>(), listener), 0..4),
            prop::collection::vec(
                (
                    text(),
                    prop::collection::vec(route(names.clone()), 0..3),
                    prop::collection::vec(external_auth_of(names.clone()), 0..3),
                    prop::option::of(filters()),
                ),
                0..3,
            ),
            prop::collection::vec((text(), any::<u32>()), 0..3),
            Just(names),
            prop::collection::vec(shared_filter(), 0..3),
        )
            .prop_map(
                |(ports, hosts, endpoints, names, shared_filters)| Snapshot {
                    shared_filters,
                    ports: ports
                        .into_iter()
                        .chain([(
                            0,
                            80,
                            (
                                "http".into(),
                                String::new(),
                                0,
                                vec![],
                                ("http".into(), vec![]),
                            ),
                        )])
                        .map(
                            |(
                                transport,
                                port,
                                (name, hostname, protocol, hostnames, (route, address_filters)),
                            )| {
                                Port {
                                    transport,
                                    port: port % 70_000,
                                    inside: port % 66_000,
                                    proxy_protocol: transport,
                                    http3: port % 2 == 0,
                                    edge: None,
                                    client_address: Some(ClientAddress {
                                        networks: vec![name.clone(), "::/0".into()],
                                        hops: port % 3 * 9,
                                        header: if port % 2 == 0 {
                                            name.clone()
                                        } else {
                                            String::new()
                                        },
                                    })
                                    .filter(|_| port % 5 > 0),
                                    listeners: vec![Listener {
                                        name: name.clone(),
                                        protocol,
                                        hostname,
                                        route_table: "table".into(),
                                        tls: None,
                                        l4_routes: vec![L4Route {
                                            name: route,
                                            hostnames,
                                            backends: names
                                                .iter()
                                                .map(|backend| WeightedBackend {
                                                    backend: backend.clone(),
                                                    weight: port,
                                                    ..Default::default()
                                                })
                                                .collect(),
                                            address_filters,
                                            ..L4Route::default()
                                        }],
                                    }],
                                }
                            },
                        )
                        .collect(),
                    route_tables: vec![RouteTable {
                        name: "table".into(),
                        virtual_hosts: hosts
                            .into_iter()
                            .map(|(domain, routes, external_auth, filters)| VirtualHost {
                                domain,
                                routes,
                                external_auth,
                                filters,
                            })
                            .collect(),
                    }],
                    backends: names
                        .iter()
                        .map(|name| Backend {
                            name: name.clone(),
                            endpoints: name.clone(),
                            protocol: AppProtocol::Http1.into(),
                            tls: None,
                            session_key: b"key".to_vec(),
                            idle_timeout_ms: Some(u64::MAX),
                            load_balancer: Some(Box::new(LoadBalancer {
                                strategy: 3,
                                slow_start: Some(SlowStart {
                                    window_ms: u64::MAX,
                                    aggression_per_mille: u32::MAX,
                                    min_weight_percent: u32::MAX,
                                }),
                                hash_policies: vec![HashPolicy {
                                    kind: Some(hash_policy::Kind::Header(name.clone())),
                                    terminal: true,
                                }],
                            })),
                            health_check: Some(Box::new(HealthCheck {
                                kind: Some(health_check::Kind::GrpcService(name.clone())),
                                interval_ms: u64::MAX,
                                timeout_ms: u64::MAX,
                                healthy_threshold: u32::MAX,
                                unhealthy_threshold: 0,
                                port: u32::MAX,
                            })),
                            outlier: Some(Box::new(OutlierDetection {
                                consecutive_5xx: u32::MAX,
                                consecutive_gateway_errors: u32::MAX,
                                interval_ms: u64::MAX,
                                base_ejection_ms: u64::MAX,
                                max_ejection_percent: u32::MAX,
                            })),
                            breaker: Some(Box::new(CircuitBreaker {
                                max_connections: u32::MAX,
                                max_pending_requests: u32::MAX,
                                max_requests: u32::MAX,
                                max_retries: u32::MAX,
                                max_connections_per_endpoint: u32::MAX,
                                retry_budget: Some(RetryBudget {
                                    percent: u32::MAX,
                                    min_retries: u32::MAX,
                                }),
                            })),
                            connections: Some(Box::new(BackendConnections {
                                connect_timeout_ms: u64::MAX,
                                max_duration_ms: u64::MAX,
                                max_requests: u32::MAX,
                                keepalive: Some(Keepalive {
                                    idle_seconds: u32::MAX,
                                    interval_seconds: 0,
                                    probes: u32::MAX,
                                }),
                                proxy_protocol: 77,
                            })),
                            panic_percent: Some(u32::MAX),
                            zone_preference: Some(ZonePreference { min_endpoints: 2 }),
                            weighted: true,
                            fallback: name.clone(),
                        })
                        .collect(),
                    endpoints: names
                        .iter()
                        .map(|name| EndpointSet {
                            name: name.clone(),
                            endpoints: endpoints
                                .iter()
                                .map(|(address, port)| Endpoint {
                                    address: address.clone(),
                                    port: *port,
                                    zone: *port % 3,
                                    group: *port % 4,
                                })
                                .collect(),
                            zones: vec!["a".to_owned()],
                            weights: vec![0, u32::MAX],
                        })
                        .collect(),
                    edge: Some(Edge {
                        escaped_slashes: 77,
                        header_underscores: -1,
                        forwarded_client_certificate: 77,
                        request_timeout_ms: Some(u64::MAX),
                        stream_idle_timeout_ms: Some(u64::MAX),
                        tls_handshake_timeout_ms: Some(u64::MAX),
                        udp_session_timeout_ms: Some(0),
                        max_request_headers_kib: Some(u32::MAX),
                        max_request_headers: Some(0),
                        request_id: 77,
                        server_header: -1,
                        append_via: true,
                        preserve_header_case: true,
                        max_response_headers: Some(0),
                        max_response_headers_kib: Some(u32::MAX),
                        max_connection_age_ms: u64::MAX,
                        max_connection_requests: u32::MAX,
                        keepalive_interval_ms: u64::MAX,
                        max_concurrent_streams: Some(u32::MAX),
                        connection_buffer_kib: Some(0),
                        ..Default::default()
                    }),
                    ..Default::default()
                },
            )
    })
}

fn has_cookies(snapshot: &Snapshot) -> bool {
    let tables = snapshot.route_tables.iter();
    let routes = tables.flat_map(|table| table.virtual_hosts.iter().flat_map(|host| &host.routes));
    let mut sessions = routes.filter_map(|route| match &route.action {
        Some(Action::Forward(forward)) => forward.session.as_ref(),
        _ => None,
    });
    sessions.any(|session| matches!(session.kind, Some(session_persistence::Kind::Cookie(_))))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(24),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn rendered_tables_never_write_framing_headers(snapshot in snapshot()) {
        let rendered = render(&snapshot, &[], &options());
        for table in rendered.route_tables.iter() {
            // A cookie may have the name of a framing header.
            for name in FRAMING.iter().filter(|_| !has_cookies(&snapshot)) {
                let found = table.bytes.windows(name.len()).any(|w| w.eq_ignore_ascii_case(name.as_bytes()));
                prop_assert!(!found, "{name}");
            }
        }
    }

    #[test]
    fn envoy_accepts_rendering_of_any_snapshot(snapshot in snapshot()) {
        let rendered = render(&snapshot, &[], &options());
        let bootstrap = static_bootstrap(&rendered).unwrap();
        if let Some(envoy) = envoy()
            && let Err(reason) = validate(&envoy, "pb", &bootstrap)
        {
            let last = reason.lines().last().unwrap_or_default().to_owned();
            return Err(TestCaseError::fail(last));
        }
    }
}

/// 1,000 expressions that exhaust RE2's state memory, and one that is too large by itself.
#[test]
fn virtual_host_expressions_stay_within_budget() {
    let route = |i: usize, pattern: &str| Route {
        name: format!("route-{i}"),
        path: Some(PathMatch {
            kind: Some(path_match::Kind::Regex(pattern.to_owned())),
        }),
        action: Some(Action::DirectResponse(DirectResponse::new(200))),
        ..Route::default()
    };
    let mut routes = vec![route(0, "[ab]*a[ab]{2000}c")];
    routes.extend((1..=1000).map(|i| route(i, "[ab]*a[ab]{900}c")));
    routes.push(route(1001, "/cheap"));
    let snapshot = Snapshot {
        route_tables: vec![RouteTable {
            name: "table".to_owned(),
            virtual_hosts: vec![VirtualHost {
                domain: "*".to_owned(),
                routes,
                ..VirtualHost::default()
            }],
        }],
        ..Snapshot::default()
    };
    let rendered = render(&snapshot, &[], &options());
    let left_out: BTreeSet<&str> = rendered
        .problems
        .iter()
        .map(|it| it.object.as_str())
        .collect();
    assert_eq!(left_out.len(), 995);
    assert!(left_out.contains("route-0") && left_out.contains("route-7"));
    assert!(!left_out.contains("route-6") && !left_out.contains("route-1001"));
}
