//! Tests how request and response filters are rendered as Envoy messages.

use prost::Message as _;
use prost_reflect::prost_types::{
    DescriptorProto, FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto,
    ServiceDescriptorProto,
};
use serde_json::{Value, json};
use sesame_proto::schema::compression::Algorithm;
use sesame_proto::schema::shared_filter::Kind;
use sesame_proto::schema::{
    AddressFilter, AddressRange, ApiKeyAuth, ApiKeySource, Authorization, AuthorizationRule,
    Bandwidth, BasicAuth, ClaimValues, Compression, CredentialCheck, CredentialSet, ErrorPage,
    Fault, GrpcJsonTranscoder, HeaderValues, InjectedCredential, MaintenancePage, PathRule,
    RequestFilters, ResponseFilter, Route, SharedFilter, SignIn, TokenHeader, TokenPolicy,
    TokenProvider, TokenSet, TokenSource, api_key_source, credential_check, route::Action,
    token_source,
};

use super::access_checks::every_certificate;
use super::everything::{
    EVERY_BYTE, EVERY_CREDENTIAL, EVERY_INJECTED, EVERY_PAGE, EVERY_REPORTED_TOKEN, EVERY_RESPONSE,
    EVERY_TOKEN, EVERY_TRANSCODER, everything,
};
use super::parts::{WEB, forward, header, options, route, to};
use crate::{dump, render};

pub(crate) fn every_shared_filter() -> Vec<SharedFilter> {
    let compression = Compression {
        algorithms: [Algorithm::Zstd, Algorithm::Brotli, Algorithm::Gzip]
            .map(i32::from)
            .into(),
        content_types: vec!["text/html".into()],
        min_bytes: 100,
    };
    let page = |statuses: &[u32], of_backends| ErrorPage {
        statuses: statuses.to_vec(),
        body: "100% <sorry>\n".into(),
        content_type: "text/plain".into(),
        status: 503,
        of_backends,
    };
    let bandwidth = Kind::Bandwidth(Bandwidth {
        request_bytes: 1,
        response_bytes: 1 << 40,
    });
    let response = Kind::Response(ResponseFilter {
        compression: Some(compression),
        error_pages: vec![page(&[404, 4, 5], false), page(&[410], true)],
        sign_in: Some(SignIn {
            scheme: "https".into(),
            path: "/start?a=100%".into(),
            parameter: "rd".into(),
            ..SignIn::default()
        }),
    });
    let [first, second] = EVERY_TOKEN;
    let set = TokenSet {
        policies: [first, second, EVERY_REPORTED_TOKEN].map(Into::into).into(),
    };
    let reported = TokenPolicy {
        report_only: true,
        ..token_policy(&["d"])
    };
    let credentials = CredentialSet {
        checks: every_credential_check(),
    };
    let injected = InjectedCredential {
        header: "authorization".into(),
    };
    let names = [
        CredentialSet::name(&credentials.checks),
        TokenSet::name(&set.policies),
    ];
    let filters = [
        (names[0].as_str(), Kind::Credentials(credentials)),
        (first, Kind::Tokens(token_policy(&["a", "b"]))),
        (&names[1], Kind::TokenSet(set)),
        (second, Kind::Tokens(token_policy(&["c"]))),
        (EVERY_REPORTED_TOKEN, Kind::Tokens(reported)),
        (EVERY_INJECTED, Kind::Injected(injected)),
        (EVERY_TRANSCODER, Kind::GrpcJson(every_transcoder())),
        (EVERY_PAGE, Kind::Maintenance(every_page())),
        (EVERY_BYTE, bandwidth),
        (EVERY_RESPONSE, response),
    ];
    let filters = filters.map(|(name, kind)| SharedFilter {
        name: name.into(),
        kind: Some(kind),
    });
    filters.into()
}

/// Returns a set that defines the service `books.v1.Books`.
pub(super) fn descriptor_set() -> Vec<u8> {
    let name = |name: &str| Some(name.to_owned());
    let method = MethodDescriptorProto {
        name: name("Get"),
        input_type: name(".books.v1.Book"),
        output_type: name(".books.v1.Book"),
        ..MethodDescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: name("books.proto"),
        package: name("books.v1"),
        message_type: vec![DescriptorProto {
            name: name("Book"),
            ..DescriptorProto::default()
        }],
        service: vec![ServiceDescriptorProto {
            name: name("Books"),
            method: vec![method],
            ..ServiceDescriptorProto::default()
        }],
        syntax: name("proto3"),
        ..FileDescriptorProto::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

pub(super) fn every_transcoder() -> GrpcJsonTranscoder {
    GrpcJsonTranscoder {
        descriptor_set: descriptor_set(),
        services: vec!["books.v1.Books".into()],
        ignored_query_parameters: vec!["utm".into()],
        add_whitespace: true,
        print_default_values: true,
        print_enums_as_ints: true,
        keep_field_names: true,
    }
}

pub(super) fn every_page() -> MaintenancePage {
    MaintenancePage {
        body: "100% <sorry>\n".into(),
        content_type: "text/x-100%".into(),
        retry_after_seconds: 60,
    }
}

pub(super) fn every_credential_check() -> Vec<CredentialCheck> {
    let sources = [
        api_key_source::Kind::Header("x-key".into()),
        api_key_source::Kind::QueryParameter("key".into()),
        api_key_source::Kind::Cookie("key".into()),
    ];
    let api_key = ApiKeyAuth {
        sources: sources.map(|kind| ApiKeySource { kind: Some(kind) }).into(),
        client_header: "x-client".into(),
        hide: true,
    };
    let basic = BasicAuth {
        username_header: "x-user".into(),
    };
    let [users, clients] = EVERY_CREDENTIAL;
    let checks = [
        (clients, credential_check::Kind::ApiKey(api_key)),
        (users, credential_check::Kind::Basic(basic)),
    ];
    let checks = checks.map(|(name, kind)| CredentialCheck {
        name: name.into(),
        kind: Some(kind),
        exempt_clients: (name == users).then(exempt_clients),
    });
    checks.into()
}

pub(crate) fn exempt_clients() -> AddressFilter {
    let range = |network: &str| AddressRange {
        network: network.into(),
        peer: false,
    };
    AddressFilter {
        name: "Ingress/ns/every/source-range".into(),
        allow: vec![range("192.0.2.0/24"), range("2001:db8::/32")],
        deny: vec![range("192.0.2.1/32")],
    }
}

pub(crate) const KEYS: &str = r#"{"keys":[{"alg":"EdDSA","crv":"Ed25519","kid":"a","kty":"OKP","x":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"}]}"#;

fn token_policy(providers: &[&str]) -> TokenPolicy {
    let header = |name: &str, prefix: &str| {
        token_source::Kind::Header(TokenHeader {
            name: name.into(),
            prefix: prefix.into(),
        })
    };
    let sources = [
        header("authorization", "Bearer "),
        header("x-token", ""),
        token_source::Kind::QueryParameter("token".into()),
        token_source::Kind::Cookie("token".into()),
    ];
    let providers = providers.iter().map(|name| TokenProvider {
        name: (*name).into(),
        issuer: "https://id.test".into(),
        audiences: vec!["shop".into()],
        jwks: KEYS.into(),
        sources: sources
            .clone()
            .map(|kind| TokenSource { kind: Some(kind) })
            .into(),
    });
    TokenPolicy {
        providers: providers.collect(),
        report_only: false,
    }
}

pub(crate) fn every_authorization() -> Vec<Authorization> {
    let [tokens, _] = EVERY_TOKEN;
    let rule = AuthorizationRule {
        allow: true,
        claims: vec![ClaimValues {
            tokens: tokens.into(),
            providers: vec!["a".into(), "b".into()],
            path: vec!["realm".into(), "groups".into()],
            values: vec!["staff".into(), "admin".into()],
        }],
        methods: vec!["GET".into(), "POST".into()],
        paths: vec![
            PathRule {
                path: "/admin".into(),
                prefix: true,
            },
            PathRule {
                path: "/a".into(),
                prefix: false,
            },
        ],
        headers: vec![HeaderValues {
            name: "x-a".into(),
            values: vec!["1".into(), "2".into()],
        }],
        clients: vec![AddressRange {
            network: "192.0.2.0/24".into(),
            peer: false,
        }],
        hosts: vec!["a.test".into(), "*.b-c.test".into()],
        certificates: every_certificate(),
    };
    let everyone = AuthorizationRule {
        paths: vec![PathRule {
            path: "/".into(),
            prefix: true,
        }],
        ..AuthorizationRule::default()
    };
    let authorization = |name: &str, rules: &[AuthorizationRule], allow_others| Authorization {
        name: name.into(),
        rules: rules.to_vec(),
        allow_others,
    };
    vec![
        authorization(
            "AccessPolicy/ns/a",
            &[rule.clone(), everyone.clone()],
            false,
        ),
        authorization("AccessPolicy/ns/b", &[everyone, rule], true),
        authorization("AccessPolicy/ns/c", &[], false),
        authorization("AccessPolicy/ns/d", &[], true),
    ]
}

pub(super) fn filtered(filters: RequestFilters) -> Route {
    Route {
        filters: Some(Box::new(filters)),
        ..route("one", "/a", Action::Forward(forward(&[to(WEB, 1)])))
    }
}

pub(super) fn printed(host_filters: Option<RequestFilters>, route: Route) -> Value {
    printed_below(None, host_filters, route)["virtual_hosts"][0].clone()
}

fn printed_below(
    of_snapshot: Option<RequestFilters>,
    host_filters: Option<RequestFilters>,
    route: Route,
) -> Value {
    let (mut snapshot, keys) = everything();
    snapshot.filters = of_snapshot.map(Box::new);
    snapshot.route_tables.truncate(1);
    snapshot.route_tables[0].virtual_hosts.truncate(1);
    let host = &mut snapshot.route_tables[0].virtual_hosts[0];
    host.external_auth = Vec::new();
    host.filters = host_filters;
    host.routes = vec![route];
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    printed["routes"][0].clone()
}

#[test]
fn snapshot_filters_appear_once_per_table() {
    let limit = |max_body_bytes| RequestFilters {
        max_body_bytes,
        response: EVERY_RESPONSE.into(),
        ..RequestFilters::default()
    };
    let plain = || route("one", "/a", Action::Forward(forward(&[to(WEB, 1)])));
    let table = printed_below(Some(limit(7)), None, plain());
    let places = |part: &Value| {
        let places = part["typed_per_filter_config"].as_object();
        let names = places.into_iter().flat_map(|it| it.keys().cloned());
        names.collect::<Vec<String>>()
    };
    let host = &table["virtual_hosts"][0];
    assert_eq!(places(&table), ["request_body", "response"]);
    assert_eq!(places(host), [""; 0]);
    assert_eq!(host["routes"][1]["direct_response"]["status"], json!(404));
    let none = RequestFilters::default();
    let table = printed_below(Some(limit(7)), Some(none), plain());
    let host = &table["virtual_hosts"][0];
    assert_eq!(places(host), ["request_body", "response"]);
    assert_eq!(
        host["typed_per_filter_config"]["response"]["matcher"],
        json!({})
    );
    // If Envoy would reject a default filter, every request is rejected.
    let table = printed_below(Some(limit(1 << 32)), None, plain());
    let routes = table["virtual_hosts"][0]["routes"].as_array().unwrap();
    assert_eq!(routes[0]["direct_response"]["status"], json!(500));
}

#[test]
fn route_filters_replace_all_of_the_host() {
    let host_filters = RequestFilters {
        max_body_bytes: 7,
        response: EVERY_RESPONSE.into(),
        ..RequestFilters::default()
    };
    let route_filters = RequestFilters {
        max_body_bytes: 8,
        ..RequestFilters::default()
    };
    let host = printed(Some(host_filters), filtered(route_filters));
    let filter_config = |part: &Value, place: &str| part["typed_per_filter_config"][place].clone();
    let route = &host["routes"][0];
    let buffer = |config: Value| {
        let action = &config["matcher"]["matcher_list"]["matchers"][0]["on_match"]["action"];
        let held = &action["typed_config"]["filter_chain"]["typed_config"][1];
        held["typed_config"]["max_request_bytes"].clone()
    };
    assert_eq!(buffer(filter_config(&host, "request_body")), json!(7));
    assert_eq!(buffer(filter_config(route, "request_body")), json!(8));
    let chain =
        &filter_config(&host, "response")["matcher"]["on_no_match"]["action"]["typed_config"];
    assert_eq!(chain["filter_chain_name"], json!(EVERY_RESPONSE));
    assert_eq!(filter_config(route, "response")["matcher"], json!({}));
    // Requests that match no route also pass through the virtual host's filters.
    assert_eq!(host["routes"][1]["direct_response"]["status"], json!(404));
}

#[test]
fn filter_that_envoy_would_refuse_refuses_requests() {
    let fault = |fault| RequestFilters {
        fault: Some(fault),
        ..RequestFilters::default()
    };
    let changed = |name: &str| RequestFilters {
        request_headers: Some(sesame_proto::schema::HeaderModifier {
            set: vec![header(name, "a")],
            ..Default::default()
        }),
        ..RequestFilters::default()
    };
    for filters in [
        RequestFilters {
            max_body_bytes: 1 << 32,
            ..RequestFilters::default()
        },
        RequestFilters {
            response: "absent".into(),
            ..RequestFilters::default()
        },
        RequestFilters {
            bandwidth: EVERY_RESPONSE.into(),
            ..RequestFilters::default()
        },
        fault(Fault::default()),
        fault(Fault {
            abort_status: 503,
            ..Fault::default()
        }),
        fault(Fault {
            abort_status: 600,
            abort_percent: 1,
            ..Fault::default()
        }),
        changed("content-length"),
        changed("a b"),
    ] {
        let host = printed(None, filtered(filters.clone()));
        let status = &host["routes"][0]["direct_response"]["status"];
        assert_eq!(status, &json!(500), "{filters:?}");
        let host = printed(Some(filters), filtered(RequestFilters::default()));
        let routes = host["routes"].as_array().unwrap();
        assert_eq!(routes.len(), 1);
        assert_eq!(routes[0]["direct_response"]["status"], json!(500));
    }
}
