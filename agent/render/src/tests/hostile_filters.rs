//! Generates filters with hostile values.

use proptest::prelude::*;
use sesame_proto::schema::{
    AddressFilter, AddressRange, ApiKeyAuth, ApiKeySource, Authorization, AuthorizationRule,
    Bandwidth, BasicAuth, CertificateNames, ClaimHeader, ClaimValues, Compression, CredentialCheck,
    CredentialSet, Csrf, ErrorPage, Fault, GrpcJsonTranscoder, HeaderValues, InjectedCredential,
    Maintenance, MaintenancePage, PathRule, ReportedChecks, RequestFilters, ResponseFilter,
    SharedFilter, SignIn, TokenHeader, TokenPolicy, TokenProvider, TokenSet, TokenSource,
    api_key_source, credential_check, shared_filter, token_source,
};

use super::everything::EVERY_INJECTED;
use super::hostile::{modifier, text};
use super::shared_filters::{KEYS, descriptor_set};

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("x-ok".to_owned()), text()]
}

pub(super) fn filters() -> BoxedStrategy<RequestFilters> {
    let percent = || prop_oneof![0..102_u32, any::<u32>()];
    let fault = (any::<u64>(), percent(), any::<u32>(), percent());
    let fault = fault.prop_map(
        |(delay_ms, delay_percent, abort_status, abort_percent)| Fault {
            delay_ms,
            delay_percent,
            abort_status: abort_status % 700,
            abort_percent,
        },
    );
    (
        any::<u64>(),
        prop::option::of(modifier()),
        any::<bool>(),
        prop::option::of(fault),
        (name(), name(), name(), name(), name()),
        (
            prop::collection::vec(address_filter(), 0..3),
            prop::option::of(maintenance()),
        ),
        access(),
        prop::collection::vec(csrf(), 0..3),
        prop::option::of(reported()),
    )
        .prop_map(
            |(
                max_body_bytes,
                headers,
                grpc_web,
                fault,
                (response, bandwidth, credentials, injected, grpc_json),
                (address_filters, maintenance),
                (tokens, reserved_headers, authorizations, claim_headers),
                csrf,
                reported,
            )| {
                RequestFilters {
                    max_body_bytes,
                    request_headers: headers.clone(),
                    response_headers: headers,
                    grpc_web,
                    fault,
                    response,
                    bandwidth,
                    policies: Vec::new(),
                    address_filters,
                    tokens,
                    token_headers: reserved_headers.clone(),
                    reserved_headers,
                    authorizations,
                    claim_headers,
                    exempt_from: Vec::new(),
                    credentials,
                    csrf,
                    reported,
                    injected,
                    grpc_json,
                    maintenance,
                }
            },
        )
        .boxed()
}

fn maintenance() -> impl Strategy<Value = Maintenance> {
    (name(), address_filter()).prop_map(|(page, AddressFilter { allow, .. })| Maintenance {
        page,
        except: allow,
    })
}

fn route_filter() -> impl Strategy<Value = shared_filter::Kind> {
    let set = prop_oneof![
        Just(descriptor_set()),
        prop::collection::vec(any::<u8>(), 0..32)
    ];
    let service = prop_oneof![Just("books.v1.Books".to_owned()), text()];
    let services = prop::collection::vec(service, 0..3);
    let transcoder = (set, services, text()).prop_map(|(descriptor_set, services, ignored)| {
        shared_filter::Kind::GrpcJson(GrpcJsonTranscoder {
            descriptor_set,
            services,
            ignored_query_parameters: vec![ignored],
            ..GrpcJsonTranscoder::default()
        })
    });
    let page = (text(), text(), any::<u64>());
    let page = page.prop_map(|(body, content_type, retry_after_seconds)| {
        shared_filter::Kind::Maintenance(MaintenancePage {
            body,
            content_type,
            retry_after_seconds,
        })
    });
    prop_oneof![transcoder, page]
}

fn reported() -> impl Strategy<Value = ReportedChecks> {
    let checks = (
        prop::collection::vec(address_filter(), 0..3),
        prop::collection::vec(name(), 0..3),
        prop::collection::vec(authorization(), 0..3),
    );
    checks.prop_map(|(address_filters, tokens, authorizations)| ReportedChecks {
        address_filters,
        tokens,
        authorizations,
    })
}

type Access = (
    Vec<String>,
    Vec<String>,
    Vec<Authorization>,
    Vec<ClaimHeader>,
);

fn access() -> impl Strategy<Value = Access> {
    let names = || prop::collection::vec(name(), 0..3);
    let claim = (name(), name(), name(), names());
    let claim = claim.prop_map(|(header, tokens, provider, path)| ClaimHeader {
        header,
        tokens,
        provider,
        path,
    });
    (
        names(),
        names(),
        prop::collection::vec(authorization(), 0..3),
        prop::collection::vec(claim, 0..3),
    )
}

fn authorization() -> impl Strategy<Value = Authorization> {
    let names = || prop::collection::vec(name(), 0..3);
    let claim = (name(), names(), names(), names());
    let claim = claim.prop_map(|(tokens, providers, path, values)| ClaimValues {
        tokens,
        providers,
        path,
        values,
    });
    let path = prop_oneof![Just("/a".to_owned()), text()];
    let path = (path, any::<bool>()).prop_map(|(path, prefix)| PathRule { path, prefix });
    let header = (name(), names()).prop_map(|(name, values)| HeaderValues { name, values });
    let host = prop_oneof![Just("*.a.test".to_owned()), name()];
    let certificates = prop::collection::vec(certificate(), 0..3);
    let rule = (
        any::<bool>(),
        claim,
        names(),
        path,
        header,
        host,
        certificates,
    );
    let rule = rule.prop_map(
        |(allow, claim, methods, path, header, host, certificates)| AuthorizationRule {
            allow,
            claims: vec![claim],
            methods,
            paths: vec![path],
            headers: vec![header],
            clients: Vec::new(),
            hosts: vec![host],
            certificates,
        },
    );
    (name(), prop::collection::vec(rule, 0..18), any::<bool>()).prop_map(
        |(name, rules, allow_others)| Authorization {
            name,
            rules,
            allow_others,
        },
    )
}

fn certificate() -> impl Strategy<Value = CertificateNames> {
    let uri = prop_oneof![Just("spiffe://a/".to_owned()), text()];
    let uris = || prop::collection::vec(uri.clone(), 0..2);
    let suffix = prop_oneof![Just(".a.test".to_owned()), text()];
    let names = prop::collection::vec(name(), 0..2);
    let suffixes = prop::collection::vec(suffix, 0..2);
    let subject = prop_oneof![Just(String::new()), text()];
    (names, uris(), suffixes, uris(), subject).prop_map(
        |(dns_names, uris, dns_suffixes, uri_prefixes, subject)| CertificateNames {
            dns_names,
            uris,
            dns_suffixes,
            uri_prefixes,
            subject,
        },
    )
}

fn csrf() -> impl Strategy<Value = Csrf> {
    let origin = prop_oneof![Just("a.test:8443".to_owned()), text()];
    let origins = prop::collection::vec(origin, 0..18);
    (name(), origins).prop_map(|(name, additional_origins)| Csrf {
        name,
        additional_origins,
    })
}

fn token_provider() -> impl Strategy<Value = TokenProvider> {
    let jwks = prop_oneof![Just(KEYS.to_owned()), text()];
    let source = prop_oneof![
        (name(), text()).prop_map(|(name, prefix)| {
            token_source::Kind::Header(TokenHeader { name, prefix })
        }),
        text().prop_map(token_source::Kind::QueryParameter),
        text().prop_map(token_source::Kind::Cookie),
    ];
    let source = prop::option::of(source).prop_map(|kind| TokenSource { kind });
    let sources = prop::collection::vec(source, 0..3);
    (name(), name(), name(), jwks, sources).prop_map(|(name, issuer, audience, jwks, sources)| {
        TokenProvider {
            name,
            issuer,
            audiences: vec![audience],
            jwks,
            sources,
        }
    })
}

pub(super) fn address_filter() -> impl Strategy<Value = AddressFilter> {
    let network = || prop_oneof![Just("192.0.2.0/24".to_owned()), text()];
    let ranges = || {
        (network(), any::<bool>()).prop_map(|(network, peer)| vec![AddressRange { network, peer }])
    };
    (name(), ranges(), ranges()).prop_map(|(name, allow, deny)| AddressFilter { name, allow, deny })
}

pub(super) fn shared_filter() -> BoxedStrategy<SharedFilter> {
    let page = (text(), text(), any::<u32>(), any::<u32>(), any::<bool>());
    let page = page.prop_map(|(body, content_type, of, status, of_backends)| ErrorPage {
        statuses: vec![of % 700, 5],
        body,
        content_type,
        status: status % 700,
        of_backends,
    });
    let compression = (prop::collection::vec(0..5_i32, 0..4), text(), any::<u32>());
    let compression = compression.prop_map(|(algorithms, of, min_bytes)| Compression {
        algorithms,
        content_types: vec![of],
        min_bytes,
    });
    let bandwidth = (any::<u64>(), any::<u64>()).prop_map(|(request_bytes, response_bytes)| {
        shared_filter::Kind::Bandwidth(Bandwidth {
            request_bytes,
            response_bytes,
        })
    });
    let response = (
        prop::option::of(compression),
        prop::collection::vec(page, 0..3),
        prop::option::of((name(), name(), text(), name(), any::<bool>())),
    );
    let response = response.prop_map(|(compression, error_pages, sign_in)| {
        let sign_in = sign_in.map(|(scheme, host, path, parameter, path_only)| SignIn {
            scheme,
            host,
            path,
            parameter,
            path_only,
        });
        shared_filter::Kind::Response(ResponseFilter {
            compression,
            error_pages,
            sign_in,
        })
    });
    let tokens = (prop::collection::vec(token_provider(), 0..3), any::<bool>());
    let tokens = tokens.prop_map(|(providers, report_only)| {
        shared_filter::Kind::Tokens(TokenPolicy {
            providers,
            report_only,
        })
    });
    let set = prop::collection::vec(name(), 0..3);
    let set = set.prop_map(|policies| shared_filter::Kind::TokenSet(TokenSet { policies }));
    let check = (name(), any::<bool>(), name()).prop_map(|(name, is_basic, header)| {
        let basic = BasicAuth {
            username_header: header.clone(),
        };
        let api_key = ApiKeyAuth {
            sources: vec![ApiKeySource {
                kind: Some(api_key_source::Kind::Header(header)),
            }],
            ..ApiKeyAuth::default()
        };
        let kind = if is_basic {
            credential_check::Kind::Basic(basic)
        } else {
            credential_check::Kind::ApiKey(api_key)
        };
        CredentialCheck {
            name,
            kind: Some(kind),
            exempt_clients: None,
        }
    });
    let credentials = prop::collection::vec(check, 0..3)
        .prop_map(|checks| shared_filter::Kind::Credentials(CredentialSet { checks }));
    let injected =
        name().prop_map(|header| shared_filter::Kind::Injected(InjectedCredential { header }));
    let kind = prop_oneof![
        bandwidth,
        response,
        tokens,
        set,
        credentials,
        injected,
        route_filter()
    ];
    let name = prop_oneof![4 => name(), 1 => Just(EVERY_INJECTED.to_owned())];
    (name, prop::option::of(kind))
        .prop_map(|(name, kind)| SharedFilter { name, kind })
        .boxed()
}
