//! Builds a snapshot that uses every field.

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    AddressFilter, AddressRange, AppProtocol, Backend, BackendTls, Endpoint, EndpointSet,
    ForwardClientCertificate, KeyRef, L4Route, Listener, Port, Protocol, RateLimit, RateLimitKey,
    RateLimitService, Route, RouteTable, Snapshot, TlsTermination, Transport, TrustBundle,
    VirtualHost, WeightedBackend, ZonePreference, rate_limit_key::Kind, tls_termination::Version,
};
use sesame_proto::tls_parameters::{CIPHER_SUITES, KEY_EXCHANGE_GROUPS};

use super::backend_settings::{balancer, breaker, connections, health_check, outlier};
use super::every_route::every_route;
use super::parts::{API, WEB, WS, header, key_pair, pem, to};
use super::service_limits::every_service_key;
use super::shared_filters::every_shared_filter;

pub(crate) const EVERY_CLIENT: &str = "HTTPProxy/ns/a/routes/0/rateLimit";
pub(super) const EVERY_DECISION: &str = "HTTPProxy/ns/a/routes/1/rateLimit/0";
pub(super) const EVERY_REPORT: &str = "HTTPProxy/ns/all/rateLimit";

pub(crate) const EVERY_REPORTED_TOKEN: &str = "AccessPolicy/ns/r/jwt";
pub(crate) const EVERY_INJECTED: &str = "RouteFilter/ns/a/credentialInjection";
pub(crate) const EVERY_TRANSCODER: &str = "RouteFilter/ns/b/grpcJSONTranscoding";
pub(crate) const EVERY_PAGE: &str = "RouteFilter/ns/c/maintenance";
pub(crate) const EVERY_TOKEN: [&str; 2] = ["AccessPolicy/ns/a/jwt", "AccessPolicy/ns/b/jwt"];
pub(crate) const EVERY_CREDENTIAL: [&str; 2] = [
    "AccessPolicy/ns/b/basicAuth",
    "AccessPolicy/ns/a/apiKeyAuth",
];
pub(crate) const EVERY_BYTE: &str = "TrafficPolicy/ns/every/bandwidth";
pub(crate) const EVERY_RESPONSE: &str = "TrafficPolicy/ns/every/response";

pub(crate) fn parameters() -> TlsTermination {
    TlsTermination {
        keys: vec!["Secret/ns/b".to_owned()],
        min_version: Version::Tls12.into(),
        max_version: Version::Tls13.into(),
        cipher_suites: CIPHER_SUITES.map(str::to_owned).to_vec(),
        key_exchange_groups: KEY_EXCHANGE_GROUPS.map(str::to_owned).to_vec(),
        alpn: vec!["http/1.1".to_owned(), "h2".to_owned()],
        session_ticket_keys: "Secret/ns/tickets".to_owned(),
        forward_client_certificate: Some(ForwardClientCertificate {
            subject: true,
            cert: true,
            chain: true,
            dns: true,
            uri: true,
        }),
        ..Default::default()
    }
}

pub(crate) fn everything() -> (Snapshot, Vec<KeyPair>) {
    let credentials = |name: &str, content: &str| KeyPair {
        name: name.to_owned(),
        private_key: content.as_bytes().to_vec(),
        ..KeyPair::default()
    };
    let [users, clients] = EVERY_CREDENTIAL;
    let keys = vec![
        credentials(clients, "app:k-app\ntill:k-till\n"),
        credentials(users, "ann:{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=\n"),
        key_pair("Secret/ns/a", "a.example.com"),
        key_pair("Secret/ns/b", "*.example.com"),
        KeyPair {
            name: "Secret/ns/tickets".to_owned(),
            private_key: (0..160).collect(),
            ..KeyPair::default()
        },
        credentials(EVERY_INJECTED, "Bearer 100%-hush"),
    ];
    let bundle = "ConfigMap/ns/ca";
    let routes = every_route();
    let table = |name: &str, routes: &[Route]| RouteTable {
        name: name.into(),
        virtual_hosts: ["example.com", "*.example.com", "*"]
            .map(|domain| VirtualHost {
                domain: domain.into(),
                routes: routes.to_vec(),
                ..VirtualHost::default()
            })
            .to_vec(),
    };
    let tls = |keys: &[&str], bundle: &str, fallback| {
        Some(TlsTermination {
            keys: keys.iter().map(|&k| k.to_owned()).collect(),
            client_trust_bundle: bundle.into(),
            client_mode: i32::from(fallback),
            ..Default::default()
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
        ..L4Route::default()
    };
    let ranges = |networks: &[&str]| {
        let ranges = networks.iter().map(|&network| AddressRange {
            network: network.into(),
            peer: false,
        });
        ranges.collect()
    };
    let filtered = |route: L4Route| L4Route {
        address_filters: vec![AddressFilter {
            name: "AccessPolicy/ns/office".into(),
            allow: ranges(&["192.0.2.0/24", "2001:db8::/32"]),
            deny: ranges(&["192.0.2.7/32"]),
        }],
        exempt_from: vec!["AccessPolicy/ns/all/ipFilter".into()],
        ..route
    };
    let port = |transport: Transport, port, listeners: Vec<Listener>| Port {
        transport: transport.into(),
        port,
        listeners,
        inside: 0,
        proxy_protocol: 0,
        http3: false,
        edge: None,
        client_address: None,
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
        idle_timeout_ms: (name == API).then_some(0),
        load_balancer: (name == WEB).then(|| Box::new(balancer())),
        health_check: (name == WEB).then(|| Box::new(health_check())),
        outlier: (name == API).then(|| Box::new(outlier())),
        breaker: (name == API).then(|| Box::new(breaker())),
        connections: (name == API).then(|| Box::new(connections())),
        panic_percent: (name == API).then_some(30),
        zone_preference: (name == WEB).then(ZonePreference::default),
        fallback: if name == WS { API } else { "" }.into(),
        weighted: false,
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
                    https("d", "d.example.com", Some(parameters())),
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
                        l4_routes: vec![filtered(l4(
                            "TLSRoute/ns/end/rules/0",
                            &["end.example.com"],
                            &[to(WEB, 1), to("", 1)],
                        ))],
                        ..listener("end", Protocol::Tls, "end.example.com")
                    },
                ],
            ),
            port(
                Transport::Tcp,
                9000,
                vec![Listener {
                    l4_routes: vec![filtered(l4(
                        "TCPRoute/ns/tcp/rules/0",
                        &[],
                        &[to("Service/ns/tcp/9000", 1)],
                    ))],
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
                    l4_routes: vec![filtered(l4(
                        "UDPRoute/ns/udp/rules/0",
                        &[],
                        &[
                            to("Service/ns/udp/53", 7),
                            to("", 2),
                            to("Service/ns/udp/53", 1),
                        ],
                    ))],
                    ..listener("udp", Protocol::RawUdp, "")
                }],
            ),
        ],
        route_tables: vec![
            table("http/80", &routes),
            table("https/443/Gateway/ns/gw/listeners/a", &routes),
            table("https/443/Gateway/ns/gw/listeners/b", &routes),
            table("https/443/Gateway/ns/gw/listeners/c", &[]),
            table("https/443/Gateway/ns/gw/listeners/d", &[]),
        ],
        backends: vec![
            Backend {
                tls: Some(Box::new(BackendTls {
                    sni: "api.internal".into(),
                    trust_bundle: bundle.into(),
                    dns_names: vec!["api.internal".into()],
                    uris: vec!["spiffe://cluster.local/ns/ns/sa/api".into()],
                    client_key: "Secret/ns/a".into(),
                    dns_suffixes: vec![".internal".into()],
                    uri_prefixes: vec!["spiffe://cluster.local/ns/api/".into()],
                    mesh: false,
                    min_version: Version::Tls12.into(),
                    max_version: Version::Tls13.into(),
                    cipher_suites: vec!["ECDHE-RSA-AES128-GCM-SHA256".into()],
                    unverified: false,
                    key_exchange_groups: vec!["P-384".into()],
                })),
                ..backend(API, "Service/ns/api/80", AppProtocol::Http2)
            },
            Backend {
                tls: Some(Box::new(BackendTls {
                    sni: "public.example.org".into(),
                    dns_names: vec!["public.example.org".into()],
                    ..Default::default()
                })),
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
            backend(WS, WEB, AppProtocol::Websocket),
        ],
        endpoints: vec![
            EndpointSet {
                name: "Service/ns/api/80".into(),
                endpoints: vec![],
                ..EndpointSet::default()
            },
            EndpointSet {
                name: "Service/ns/udp/53".into(),
                endpoints: vec![Endpoint {
                    address: "10.0.0.9".into(),
                    port: 5353,
                    ..Endpoint::default()
                }],
                ..EndpointSet::default()
            },
            EndpointSet {
                name: WEB.into(),
                endpoints: vec![
                    Endpoint {
                        address: "10.0.0.1".into(),
                        port: 8080,
                        zone: 1,
                        ..Endpoint::default()
                    },
                    Endpoint {
                        address: "fd00::1".into(),
                        port: 8080,
                        zone: 2,
                        ..Endpoint::default()
                    },
                ],
                zones: vec!["a".into(), "b".into()],
                ..EndpointSet::default()
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
            pem: pem(&keys[2]),
            ..TrustBundle::default()
        }],
        edge: None,
        rotation: None,
        tracing: None,
        log_output: None,
        measured_routes: Vec::new(),
        rollout: None,
        rate_limits: vec![
            RateLimit {
                name: EVERY_CLIENT.into(),
                requests: 100,
                per_ms: 60_000,
                burst: 20,
                keys: [
                    Kind::ClientAddress(true),
                    Kind::RequestHeader("x-key".into()),
                    Kind::Cookie("key".into()),
                    Kind::Method(true),
                ]
                .map(|kind| RateLimitKey { kind: Some(kind) })
                .into(),
                status: 503,
                response_headers: vec![header("x-limit", "100%")],
                report_only: false,
                draft_headers: true,
                fleet: false,
                service: None,
            },
            RateLimit {
                name: EVERY_DECISION.into(),
                keys: every_service_key(),
                draft_headers: true,
                service: Some(RateLimitService {
                    backend: WEB.into(),
                    domain: "shop".into(),
                    timeout_ms: 20,
                    fail_open: true,
                    resource_exhausted: true,
                }),
                ..RateLimit::default()
            },
            RateLimit {
                name: EVERY_REPORT.into(),
                requests: u32::MAX,
                per_ms: 1_000,
                burst: 1,
                keys: [
                    Kind::QueryParameter("!#$&'*+-.^_`|~a".into()),
                    Kind::Path(true),
                ]
                .map(|kind| RateLimitKey { kind: Some(kind) })
                .into(),
                report_only: true,
                ..RateLimit::default()
            },
        ],
        shared_filters: every_shared_filter(),
        filters: None,
    };
    (snapshot, keys)
}
