//! Renders the HTTP connection manager, with defaults for an edge proxy that does not trust
//! clients.
//!
//! It contains nothing specific to a route or tenant, unless the subscription budget is used up.

use std::iter;

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{HeaderMutation, header_mutation};
use envoy_types::pb::envoy::config::core::v3::{CidrRange, TypedExtensionConfig};
use envoy_types::pb::envoy::config::listener::v3::{Filter, filter};
use envoy_types::pb::envoy::extensions::filters::http::composite::v3::Composite;
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::Cors;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::HeaderMutation as HeaderMutationFilter;
use envoy_types::pb::envoy::extensions::filters::http::header_to_metadata::v3::Config as HeaderToMetadata;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::http::set_filter_state::v3::Config as SetFilterState;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds,
    http_connection_manager::{
        InternalAddressConfig, PathWithEscapedSlashesAction, RouteSpecifier,
        ServerHeaderTransformation, UpgradeConfig,
    },
    http_filter,
};
use envoy_types::pb::envoy::extensions::http::early_header_mutation::header_mutation::v3::HeaderMutation as EarlyHeaderMutation;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::encoding::encode_varint;
use sesame_proto::schema::edge::{EscapedSlashes, RequestId, ServerHeader};
use sesame_proto::schema::{Edge, TlsTermination, VirtualHost};

use super::client_addresses::ClientAddresses;
use super::http3::{self, HttpConnections};
use super::protocol_options::{self, upgrades};
use super::{
    address_filters, auth_headers, authorization, composite, cors, credentials, csrf,
    external_auth, forwarded_certificates, injected, matches, oidc, rate_limit_keys, rate_limits,
    request_filters, route_filter, service_limits, sessions, shared_filters, tokens, tracing,
};
use crate::access_log::{self, LoggedPlace};
use crate::context::RenderContext;
use crate::{config_sources, wrappers};

/// Tag of `HttpConnectionManager.route_config`, a length-delimited field.
const ROUTE_CONFIG: u8 = 4 << 3 | 2;

#[derive(Clone, Copy)]
pub(crate) enum Table<'a> {
    File(&'a str),
    /// Used if the subscription budget is exhausted.
    Inline(&'a [u8]),
}

/// Names statistics after the protocol and port of `place`. `tls` is `None` for plaintext.
pub(crate) fn render(
    place: LoggedPlace<'_>,
    table: Table<'_>,
    tls: Option<&TlsTermination>,
    connections: HttpConnections,
    addresses: ClientAddresses<'_>,
    context: &RenderContext<'_>,
) -> Filter {
    let edge = context.edge;
    let (forward_client_cert_details, set_current_client_cert_details) =
        forwarded_certificates::render(tls, edge);
    let manager = HttpConnectionManager {
        stat_prefix: format!("{}-{}", place.protocol, place.port),
        codec_type: connections.codec().into(),
        http_filters: http3::announcing(connections)
            .into_iter()
            .chain(addresses.http_filter())
            .chain(http_filters(context))
            .collect(),
        route_specifier: table_in_file(table, context),
        use_remote_address: wrappers::boolean(addresses.detection().is_none()),
        xff_num_trusted_hops: addresses.hops(),
        original_ip_detection_extensions: addresses.detection().into_iter().collect(),
        internal_address_config: Some(no_internal_addresses()),
        forward_client_cert_details,
        set_current_client_cert_details,
        // Backends treat `/a/../b` as `/b`. Without normalization, a request could bypass the route
        // that protects `/b`.
        normalize_path: wrappers::boolean(true),
        // Backends may treat `/a//b` and `/a%2Fb` as `/a/b`, which could also bypass a route.
        merge_slashes: !edge.keep_repeated_slashes,
        path_with_escaped_slashes_action: escaped_slashes(edge).into(),
        server_header_transformation: server_header(edge).into(),
        via: if edge.append_via { VIA } else { "" }.to_owned(),
        // `name.` is the same host as `name` (RFC 3986, 3.2.2) and must use the same route.
        // `MALFORMED_AUTHORITY` matches the dots that are left.
        strip_trailing_host_dot: !edge.reject_trailing_dot,
        early_header_mutation_extensions: vec![removed_headers(addresses, edge)],
        generate_request_id: wrappers::boolean(false)
            .filter(|_| edge.request_id() == RequestId::Leave),
        preserve_external_request_id: edge.request_id() == RequestId::KeepOrGenerate,
        // Forward `103 Early Hints` (RFC 9110, 15.2), and leave `Expect: 100-continue` to the
        // backend. No Envoy filter can remove 1xx responses for HTTP/1.0 clients.
        proxy_100_continue: !edge.answer_expect,
        common_http_protocol_options: Some(protocol_options::common(edge)),
        http_protocol_options: Some(protocol_options::http1(edge)),
        http2_protocol_options: Some(protocol_options::http2(edge)),
        http3_protocol_options: http3::options(connections),
        max_request_headers_kb: wrappers::uint32(
            edge.max_request_headers_kib
                .unwrap_or(MAX_HEADER_KIB)
                .clamp(1, 8192),
        ),
        request_timeout: edge.request_timeout_ms.and_then(wrappers::milliseconds),
        request_headers_timeout: wrappers::milliseconds(
            edge.request_headers_timeout_ms.unwrap_or(HEADERS_MS),
        ),
        stream_idle_timeout: wrappers::milliseconds(protocol_options::stream_idle_ms(edge)),
        upgrade_configs: upgrades(edge).into_iter().map(upgrade).collect(),
        access_log: access_log::of_requests(place, context),
        tracing: tracing::render(context),
        ..Default::default()
    };
    Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(with_inline_table(
            pack_any(manager),
            table,
        ))),
    }
}

fn table_in_file(table: Table<'_>, context: &RenderContext<'_>) -> Option<RouteSpecifier> {
    match table {
        Table::File(name) => Some(RouteSpecifier::Rds(Rds {
            config_source: Some(config_sources::file(&context.options.layout.rds(name))),
            route_config_name: name.to_owned(),
        })),
        Table::Inline(_) => None,
    }
}

fn with_inline_table(mut manager: Any, table: Table<'_>) -> Any {
    if let Table::Inline(bytes) = table {
        // Decoding and re-encoding would reorder the table's maps.
        manager.value.push(ROUTE_CONFIG);
        encode_varint(bytes.len() as u64, &mut manager.value);
        manager.value.extend_from_slice(bytes);
    }
    manager
}

/// Internal clients could control retries and timeouts with `x-envoy-*` headers. An empty list
/// would mean all private addresses, so list an address that no client has.
fn no_internal_addresses() -> InternalAddressConfig {
    InternalAddressConfig {
        cidr_ranges: vec![CidrRange {
            address_prefix: "0.0.0.0".to_owned(),
            prefix_len: wrappers::uint32(32),
        }],
        ..Default::default()
    }
}

fn escaped_slashes(edge: Edge) -> PathWithEscapedSlashesAction {
    match edge.escaped_slashes() {
        EscapedSlashes::Redirect => PathWithEscapedSlashesAction::UnescapeAndRedirect,
        EscapedSlashes::Reject => PathWithEscapedSlashesAction::RejectRequest,
        EscapedSlashes::Unescape => PathWithEscapedSlashesAction::UnescapeAndForward,
        EscapedSlashes::Keep => PathWithEscapedSlashesAction::KeepUnchanged,
    }
}

fn server_header(edge: Edge) -> ServerHeaderTransformation {
    match edge.server_header() {
        ServerHeader::FromBackend => ServerHeaderTransformation::PassThrough,
        ServerHeader::AddIfMissing => ServerHeaderTransformation::AppendIfAbsent,
        ServerHeader::Overwrite => ServerHeaderTransformation::Overwrite,
    }
}

fn upgrade(protocol: &str) -> UpgradeConfig {
    UpgradeConfig {
        upgrade_type: protocol.to_owned(),
        ..Default::default()
    }
}

/// `x-envoy-*` headers control this proxy and any proxies behind it.
fn removed_headers(addresses: ClientAddresses<'_>, edge: Edge) -> TypedExtensionConfig {
    let remove = header_mutation::Action::RemoveOnMatch(header_mutation::RemoveOnMatch {
        key_matcher: Some(wrappers::string(MatchPattern::Prefix(
            "x-envoy-".to_owned(),
        ))),
    });
    // Envoy replaces the client's value only if it determines the address itself.
    let keeps_id = edge.request_id() != RequestId::Generate || addresses.detection().is_none();
    let request_id = (!keeps_id).then(|| header_mutation::Action::Remove(REQUEST_ID.to_owned()));
    let actions = iter::once(remove).chain(request_id);
    TypedExtensionConfig {
        name: "envoy.http.early_header_mutation.header_mutation".to_owned(),
        typed_config: Some(pack_any(EarlyHeaderMutation {
            mutations: actions
                .map(|action| HeaderMutation {
                    action: Some(action),
                })
                .collect(),
        })),
    }
}

const HEADERS_MS: u64 = 10_000;
const MAX_HEADER_KIB: u32 = 60;
const REQUEST_ID: &str = "x-request-id";
const VIA: &str = "1.1 sesame";
const AUTHORITY: &str = "authority";

/// Matches authorities from which a backend might extract a host that another route protects
/// (RFC 9112, 3.2): with `,` (Envoy joins two `Host` headers with a comma) or `@`, with a final dot
/// (Envoy has already removed one), or with two ports.
const MALFORMED_AUTHORITY: &str = r"[^,@]*[,@].*|.*\.(:.*)?|[^\[:]*:[^:]*:.*|\[.*\][^:]*:[^:]*:.*";

fn malformed_authorities() -> HttpFault {
    let authority = matches::header(":authority", wrappers::matching(MALFORMED_AUTHORITY));
    request_filters::abort(authority, 400)
}

/// Returns the HTTP filters, in the order in which a request passes through them.
///
/// | filter | enabled for | reason for its position |
/// |---|---|---|
/// | authority | all requests | rejects ambiguous hosts before anything else |
/// | header mutation, clear cached route | listeners with filters | clients must not forge services' headers |
/// | external authorization per filter | listeners with filters | the service's headers may affect routing |
/// | addresses | policies | rejected clients reach no other filter |
/// | responses | policies | all responses pass through it |
/// | CORS | routes with CORS | no filter may reject preflights first |
/// | header to metadata | routes with limits by cookie | reads cookies for the next filter |
/// | rate limits | routes with request limits | limits how fast clients can guess credentials |
/// | rate limits by service | routes with such limits | the service learns only of requests within all other limits |
/// | CSRF | policies | forged requests must not reach credential checks |
/// | header mutation | policies | some headers may be set only from claims |
/// | credentials, login, tokens, authorization, header mutation | policies | later filters see only valid requests |
/// | gRPC-Web | policies | services and backends get gRPC |
/// | header mutation | routes with external authorization | only the service may set its headers |
/// | external authorization per service | routes with it | later filters skip rejected requests |
/// | header mutation | policies | removes tokens, which backends must not see |
/// | faults, request bodies, header mutation | policies | run only for allowed requests |
/// | maintenance, JSON to gRPC | RouteFilters | earlier filters see the client's request |
/// | header mutation | routes with a credential for backends | only the backend may see it |
/// | bandwidth | policies | body limits apply before data is delayed |
/// | header to metadata | routes with session persistence | reads the session for load balancing |
/// | router | all requests | forwards the request |
///
/// Filters are disabled unless the route or virtual host configures them. The list never depends on
/// the snapshot, because changing it would drain the connections of every hostname on the port.
fn http_filters(context: &RenderContext<'_>) -> Vec<HttpFilter> {
    let on = |name: &str, config: Any| HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(config)),
        ..Default::default()
    };
    let off = |name: &str, config: Any| HttpFilter {
        disabled: true,
        ..on(name, config)
    };
    let place = |name: &str| off(name, pack_any(Composite::default()));
    let layout = &context.options.layout;
    let in_file = |name: &str| composite::in_file(name, composite::type_url(), layout);
    let headers = |name: &str| off(name, pack_any(HeaderMutationFilter::default()));
    let to_metadata = |name: &str| off(name, pack_any(HeaderToMetadata::default()));
    let before_listeners = [
        headers(auth_headers::LISTENER_FILTER),
        off(
            auth_headers::REROUTE,
            pack_any(SetFilterState {
                clear_route_cache: true,
                ..Default::default()
            }),
        ),
    ];
    let places = 0..VirtualHost::MAX_EXTERNAL_AUTHS;
    let listener_filters = places.map(|i| place(&external_auth::listener_filter(i)));
    let [auth_0, auth_1, auth_2, auth_3] = external_auth::FILTERS;
    let route_filters = [
        place(address_filters::FILTER),
        in_file(shared_filters::RESPONSE),
        off(cors::FILTER, pack_any(Cors::default())),
        to_metadata(rate_limit_keys::COOKIES),
        in_file(rate_limits::FILTER),
        in_file(service_limits::FILTER),
        place(csrf::FILTER),
        place(request_filters::RESERVED_HEADERS),
        in_file(credentials::FILTER),
        off(oidc::FILTER, oidc::placeholder()),
        composite::in_file(tokens::FILTER, tokens::type_url(), layout),
        place(authorization::FILTER),
        place(request_filters::CLAIM_HEADERS),
        place(request_filters::GRPC_WEB),
        headers(auth_headers::FILTER),
        place(auth_0),
        place(auth_1),
        place(auth_2),
        place(auth_3),
        place(request_filters::TOKEN_HEADERS),
        place(request_filters::FAULT),
        place(request_filters::BODY),
        place(request_filters::HEADERS),
        in_file(route_filter::FILTER),
        in_file(injected::FILTER),
        in_file(shared_filters::BANDWIDTH),
        to_metadata(sessions::FILTER),
        on(
            "envoy.filters.http.router",
            pack_any(Router {
                // `x-envoy-upstream-service-time` and similar headers reveal internals.
                suppress_envoy_headers: true,
                ..Default::default()
            }),
        ),
    ];
    let authority = on(AUTHORITY, pack_any(malformed_authorities()));
    iter::once(authority)
        .chain(before_listeners)
        .chain(listener_filters)
        .chain(route_filters)
        .collect()
}
