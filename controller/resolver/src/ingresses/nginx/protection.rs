//! Annotations that restrict client addresses, request rates, body sizes and CORS.

use std::sync::Arc;

use sesame_proto::network::Network;
use sesame_proto::schema::{
    AddressFilter, AddressRange, Cors, CorsOrigin, RateLimit, RateLimitKey, rate_limit_key,
};

use super::Annotations;
use super::values::{boolean, list, number, size};
use crate::filters::cors::origin;
use crate::policies::traffic::filters::FilterSettings;
use crate::syntax::limits::{self, MAX_CORS_ENTRIES, MAX_NETWORKS};
use crate::syntax::names;

const LIMITED: u32 = 503;
const BURST: u32 = 5;
const MAX_BODY_BYTES: u64 = 1 << 30;

/// Limits apply per client, and a client may send its whole burst at once.
pub(super) fn limits(from: &mut Annotations<'_>, ingress: &str) -> Vec<Arc<RateLimit>> {
    let burst = from.require("limit-burst-multiplier", |text| number(text, 1..=1_000));
    let extra = burst.unwrap_or(BURST) - 1;
    let rates = [("limit-rps", 1_000), ("limit-rpm", 60_000)];
    let limits = rates.into_iter().filter_map(|(name, per_ms)| {
        let requests = from.require(name, |text| number(text, 0..=1_000_000))?;
        let limit = RateLimit {
            name: format!("{ingress}/{name}"),
            requests,
            per_ms,
            burst: requests.saturating_mul(extra),
            keys: vec![RateLimitKey {
                kind: Some(rate_limit_key::Kind::ClientAddress(true)),
            }],
            status: LIMITED,
            response_headers: Vec::new(),
            report_only: false,
            draft_headers: false,
            fleet: false,
            service: None,
        };
        // As in ingress-nginx, 0 disables the limit.
        (requests > 0).then(|| Arc::new(limit))
    });
    limits.collect()
}

type Ranges = Option<Vec<AddressRange>>;

/// Returns the networks to allow and to deny.
pub(super) fn addresses(from: &mut Annotations<'_>) -> (Ranges, Ranges) {
    let allow = ["allowlist-source-range", "whitelist-source-range"];
    // As in ingress-nginx, the newer annotation name takes precedence.
    let mut allow = allow
        .into_iter()
        .filter_map(|name| from.require(name, networks));
    let allow = allow.next();
    let deny = from.require("denylist-source-range", networks);
    (allow, deny)
}

pub(super) fn source_ranges(from: &mut Annotations<'_>, ingress: &str) -> Option<AddressFilter> {
    let (allow, deny) = addresses(from);
    (allow.is_some() || deny.is_some()).then(|| AddressFilter {
        name: format!("{ingress}/source-range"),
        allow: allow.unwrap_or_default(),
        deny: deny.unwrap_or_default(),
    })
}

/// Returns the maximum size of a body; 0 for no limit, as in ingress-nginx.
pub(super) fn body(from: &mut Annotations<'_>) -> Option<u64> {
    from.require("proxy-body-size", |text| {
        let bytes = size(text)?;
        let bytes = Some(bytes).filter(|it| *it <= MAX_BODY_BYTES);
        bytes.ok_or_else(|| format!("{text:?}: expected at most 1g"))
    })
}

pub(super) fn filters(
    from: &mut Annotations<'_>,
    ingress: &str,
    ranges: Option<AddressFilter>,
) -> Option<FilterSettings> {
    let body = body(from);
    let mut settings = ranges.map_or_else(FilterSettings::default, FilterSettings::of_addresses);
    if let Some(bytes @ 1..) = body {
        settings.limit_body(ingress, bytes);
    }
    (!settings.is_empty()).then_some(settings)
}

/// An empty list is an error, because it would allow every client.
fn networks(text: &str) -> Result<Vec<AddressRange>, String> {
    let ranges = list(text).map(|text| {
        Ok::<_, String>(AddressRange {
            network: Network::of_host_or_network(text)?.to_string(),
            peer: false,
        })
    });
    let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
    limits::entries("the list", ranges.len(), 1..=MAX_NETWORKS)?;
    Ok(ranges)
}

/// Defaults in ingress-nginx.
const METHODS: [&str; 6] = ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];
const HEADERS: [&str; 9] = [
    "DNT",
    "Keep-Alive",
    "User-Agent",
    "X-Requested-With",
    "If-Modified-Since",
    "Cache-Control",
    "Content-Type",
    "Range",
    "Authorization",
];
const MAX_AGE_SECONDS: u32 = 1_728_000;

pub(super) fn cors(from: &mut Annotations<'_>) -> Option<Cors> {
    if !from.read("enable-cors", boolean).unwrap_or_default() {
        return None;
    }
    let origins = match from.get("cors-allow-origin") {
        None => vec![CorsOrigin {
            kind: origin("*").ok(),
        }],
        Some(_) => from.read("cors-allow-origin", |text| {
            let origins = list(text).map(|text| {
                let kind = origin(text).map_err(|why| format!("{text:?} {why}"))?;
                Ok::<_, String>(CorsOrigin { kind: Some(kind) })
            });
            let origins = origins.collect::<Result<Vec<_>, _>>()?;
            limits::entries("the list", origins.len(), 1..=MAX_CORS_ENTRIES)?;
            Ok(origins)
        })?,
    };
    let mut tokens = |name: &str, default: &[&str]| {
        let read = from.read(name, |text| {
            let names = list(text).map(|name| {
                names::check_token(format_args!("value"), name).map(|()| name.to_owned())
            });
            let names = names.collect::<Result<Vec<_>, _>>()?;
            limits::entries("the list", names.len(), 0..=MAX_CORS_ENTRIES)?;
            Ok(names)
        });
        read.unwrap_or_else(|| default.iter().map(|it| (*it).to_owned()).collect())
    };
    let allow_methods = tokens("cors-allow-methods", &METHODS);
    let allow_headers = tokens("cors-allow-headers", &HEADERS);
    let expose_headers = tokens("cors-expose-headers", &[]);
    let max_age = from.read("cors-max-age", |text| number(text, 0..=u32::MAX));
    Some(Cors {
        allow_origins: origins,
        allow_credentials: from.read("cors-allow-credentials", boolean).unwrap_or(true),
        allow_methods,
        allow_headers,
        expose_headers,
        max_age_seconds: Some(max_age.unwrap_or(MAX_AGE_SECONDS)),
        allow_private_network: false,
        ignores_matched_headers: true,
    })
}
