//! Builds routes that use every field.

use sesame_proto::schema::{
    AddressFilter, AddressRange, ClaimHeader, ContextValue, Cors, CorsOrigin, DirectResponse,
    ExternalAuth, ExternalAuthGrpc, ExternalAuthHttp, Fault, Forward, Header, HeaderModifier,
    HeaderPart, InternalRedirect, Maintenance, Mirror, PathMatch, PathModifier, Redirect,
    ReportedChecks, RequestFilters, Retry, Route, SessionPersistence, StringMatch, TextMatch,
    UrlRewrite, WeightedBackend, cors_origin, external_auth, header_part, internal_redirect,
    path_match, path_modifier, route::Action, session_persistence, string_match,
    text_match::Operator,
};

use super::access_checks::every_csrf;
use super::everything::{
    EVERY_BYTE, EVERY_CLIENT, EVERY_DECISION, EVERY_INJECTED, EVERY_PAGE, EVERY_REPORT,
    EVERY_REPORTED_TOKEN, EVERY_RESPONSE, EVERY_TOKEN, EVERY_TRANSCODER,
};
use super::parts::{API, WEB, forward, header, route, to};
use super::shared_filters::{every_authorization, exempt_clients};

pub(super) fn every_route() -> Vec<Route> {
    let exact = |value: &str| Some(string_match::Kind::Exact(value.into()));
    let regex = |value: &str| Some(string_match::Kind::Regex(value.into()));
    // Envoy must support all facts.
    let facts = (1..=26).map(header_part::Kind::Fact);
    let parts = [
        header_part::Kind::Literal("50% of ".into()),
        header_part::Kind::RequestHeader("x-header-1".into()),
    ];
    let parts = parts.into_iter().chain(facts);
    let parts = Header {
        name: "x-parts".into(),
        value: String::new(),
        parts: parts.map(|kind| HeaderPart { kind: Some(kind) }).collect(),
    };
    let modifier = |value: &str| {
        Some(HeaderModifier {
            set: vec![header("x-set", value), parts.clone()],
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
    let range = |network: &str, peer| AddressRange {
        network: network.into(),
        peer,
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
        max_age_seconds: Some(3600),
        allow_private_network: credentials,
        ignores_matched_headers: credentials,
    };
    vec![
        Route {
            name: "GRPCRoute/ns/grpc/rules/0/matches/0".into(),
            path: Some(PathMatch {
                kind: Some(path_match::Kind::Exact("/shop.Cart/Add".into())),
            }),
            action: Some(Action::Forward(forward(&[to(API, 1), to("", 1)]))),
            grpc: true,
            rate_limits: vec![EVERY_REPORT.into()],
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
                StringMatch {
                    name: "x-present".into(),
                    kind: Some(string_match::Kind::Present(false)),
                },
                StringMatch {
                    name: "x-text".into(),
                    kind: Some(string_match::Kind::Text(TextMatch {
                        operator: Operator::Contains.into(),
                        value: "b".into(),
                        ignore_case: true,
                        negate: true,
                        missing_is_empty: true,
                    })),
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
            request_headers: modifier("100%").map(Box::new),
            response_headers: modifier("").map(Box::new),
            cors: Some(Box::new(cors(true))),
            grpc: false,
            external_auth: vec![ExternalAuth {
                backend: API.into(),
                protocol: Some(external_auth::Protocol::Grpc(ExternalAuthGrpc {
                    request_headers: vec!["x-header-1".into()],
                    peer_certificate: true,
                    text_body: true,
                })),
                max_body_bytes: 1024,
                policy: "HTTPProxy/ns/every".into(),
                context: vec![ContextValue {
                    name: "team".into(),
                    value: "100%".into(),
                }],
                timeout_ms: 1_000,
                fail_open: true,
                partial_body: true,
                no_response_headers: true,
                exempt_clients: Some(exempt_clients()),
            }],
            rate_limits: vec![EVERY_CLIENT.into(), EVERY_DECISION.into()],
            filters: Some(Box::new(RequestFilters {
                max_body_bytes: 1024,
                request_headers: modifier("100%"),
                response_headers: modifier(""),
                grpc_web: true,
                fault: Some(Fault {
                    delay_ms: 1,
                    delay_percent: 1,
                    abort_status: 503,
                    abort_percent: 100,
                }),
                response: EVERY_RESPONSE.into(),
                bandwidth: EVERY_BYTE.into(),
                policies: vec!["TrafficPolicy/ns/every".into()],
                address_filters: vec![
                    AddressFilter {
                        name: "AccessPolicy/ns/a".into(),
                        allow: vec![range("192.0.2.0/24", false), range("2001:db8::/32", true)],
                        deny: vec![range("192.0.2.1/32", false)],
                    },
                    AddressFilter {
                        name: "AccessPolicy/ns/b".into(),
                        deny: vec![range("0.0.0.0/0", true)],
                        ..AddressFilter::default()
                    },
                ],
                tokens: EVERY_TOKEN.map(Into::into).into(),
                reserved_headers: vec!["x-user".into()],
                authorizations: every_authorization(),
                claim_headers: vec![ClaimHeader {
                    header: "x-user".into(),
                    tokens: EVERY_TOKEN[0].into(),
                    provider: "a".into(),
                    path: vec!["realm".into(), "user".into()],
                }],
                token_headers: vec!["authorization".into()],
                exempt_from: Vec::new(),
                credentials: "AccessPolicy/ns/a/apiKeyAuth,AccessPolicy/ns/b/basicAuth".into(),
                csrf: every_csrf(),
                reported: Some(ReportedChecks {
                    address_filters: vec![AddressFilter {
                        name: "AccessPolicy/ns/r".into(),
                        allow: vec![range("192.0.2.0/24", false)],
                        deny: vec![range("192.0.2.1/32", true)],
                    }],
                    tokens: vec![EVERY_REPORTED_TOKEN.into()],
                    authorizations: every_authorization(),
                }),
                injected: EVERY_INJECTED.into(),
                grpc_json: EVERY_TRANSCODER.into(),
                maintenance: Some(Maintenance {
                    page: EVERY_PAGE.into(),
                    except: vec![range("192.0.2.0/24", false), range("2001:db8::/32", false)],
                }),
            })),
        },
        Route {
            path: Some(PathMatch {
                kind: Some(path_match::Kind::Exact("/exact".into())),
            }),
            ..route(
                "exact",
                "",
                Action::DirectResponse(DirectResponse {
                    status: 421,
                    body: "100% elsewhere\n".into(),
                    content_type: "text/x-100%".into(),
                }),
            )
        },
        Route {
            cors: Some(Box::new(cors(false))),
            external_auth: vec![ExternalAuth {
                backend: WEB.into(),
                protocol: Some(external_auth::Protocol::Http(ExternalAuthHttp {
                    path_prefix: "/check".into(),
                    request_headers: vec!["cookie".into()],
                    response_headers: vec!["x-user".into()],
                    ..Default::default()
                })),
                max_body_bytes: 0,
                ..Default::default()
            }],
            ..route(
                "weights",
                "/weights",
                Action::Forward(Forward {
                    unavailable: true,
                    backends: vec![
                        WeightedBackend {
                            request_headers: modifier("web").map(Box::new),
                            response_headers: modifier("web").map(Box::new),
                            ..to(WEB, 3)
                        },
                        to(API, u32::MAX),
                        to("", 2),
                        to(WEB, 0),
                    ],
                    rewrite: Some(Box::new(UrlRewrite {
                        host: "other.example.com".into(),
                        host_header: String::new(),
                        path: path(path_modifier::Kind::Prefix("/".into())),
                    })),
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
                    stream_idle_timeout_ms: Some(1_500),
                    internal_redirect: Some(Box::new(InternalRedirect {
                        max: 3,
                        statuses: vec![302, 307],
                        cross_scheme: internal_redirect::CrossScheme::SafeOnly.into(),
                        denies_repeated_route: true,
                    })),
                    request_timeout_disabled: false,
                    backend_timeout_ms: 250,
                    retry: Some(Box::new(Retry {
                        statuses: vec![500, 503],
                        attempts: 3,
                        backoff_ms: 25,
                        unprocessed_only: true,
                        conditions: Vec::new(),
                    })),
                    session: Some(Box::new(SessionPersistence {
                        kind: Some(session_persistence::Kind::Cookie("session".into())),
                        cookie_max_age_seconds: 60,
                        cookie_path: "/shop".into(),
                    })),
                }),
            )
        },
        route(
            "full",
            "/full",
            Action::Forward(Forward {
                rewrite: Some(Box::new(UrlRewrite {
                    host: String::new(),
                    host_header: "x-host".into(),
                    path: path(path_modifier::Kind::Full("/one".into())),
                })),
                retry: Some(Box::new(Retry {
                    statuses: vec![429],
                    attempts: 1,
                    // Envoy must support all conditions.
                    conditions: (1..=16).collect(),
                    ..Default::default()
                })),
                session: Some(Box::new(SessionPersistence {
                    kind: Some(session_persistence::Kind::Header("x-session".into())),
                    ..Default::default()
                })),
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
    ]
}
