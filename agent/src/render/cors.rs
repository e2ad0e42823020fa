//! Cross-origin requests.

use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::{Cors, CorsOrigin, cors_origin};

use super::wrappers;

/// The filter's name in the connection manager, and the key of a route's configuration.
pub(super) const FILTER: &str = "envoy.filters.http.cors";

/// The route's configuration of the filter.
pub(super) fn render(cors: &Cors) -> Any {
    let Cors {
        allow_origins,
        allow_credentials,
        allow_methods,
        allow_headers,
        expose_headers,
        max_age_seconds,
    } = cors;
    pack_any(CorsPolicy {
        allow_origin_string_match: allow_origins
            .iter()
            .filter_map(|CorsOrigin { kind }| match kind {
                Some(cors_origin::Kind::Exact(origin)) => Some(wrappers::exact(origin)),
                Some(cors_origin::Kind::Regex(origin)) => Some(wrappers::matching(origin)),
                None => None,
            })
            .collect(),
        allow_methods: allow_methods.join(","),
        allow_headers: allow_headers.join(","),
        // With credentials, `*` is a header of that name to a browser, and Gateway API forbids it. For the
        // other lists Envoy answers `*` with what the request asks for, with or without credentials.
        expose_headers: expose_headers
            .iter()
            .filter(|name| !(*allow_credentials && *name == "*"))
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(","),
        max_age: match max_age_seconds {
            0 => String::new(),
            seconds => seconds.to_string(),
        },
        allow_credentials: (*allow_credentials)
            .then(|| wrappers::boolean(true))
            .flatten(),
        // A preflight from elsewhere is answered here, without CORS headers, and never reaches the backend.
        forward_not_matching_preflights: wrappers::boolean(false),
        ..Default::default()
    })
}
