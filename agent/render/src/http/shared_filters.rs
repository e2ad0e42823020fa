//! Response changes, bandwidth limits, credentials and tokens, to which routes refer by name.
//!
//! Each kind has its own file: error pages are long, and all routes with the same bandwidth limit
//! must share its token bucket.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::compression::brotli::compressor::v3::Brotli;
use envoy_types::pb::envoy::extensions::compression::gzip::compressor::v3::Gzip;
use envoy_types::pb::envoy::extensions::compression::zstd::compressor::v3::Zstd;
use envoy_types::pb::envoy::extensions::filters::http::bandwidth_limit::v3::{
    BandwidthLimit, bandwidth_limit::EnableMode,
};
use envoy_types::pb::envoy::extensions::filters::http::compressor::v3::{
    Compressor,
    compressor::{CommonDirectionConfig, ResponseDirectionConfig},
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::compression::Algorithm;
use sesame_proto::schema::shared_filter::Kind;
use sesame_proto::schema::{
    Bandwidth, Compression, RequestFilters, ResponseFilter, SharedFilter, TokenPolicy,
};

use super::composite::{self, filter};
use super::tokens::{self, Tokens};
use super::{credentials, error_pages, injected, route_filter};
use crate::context::{SharedPlace, SharedPlaces};
use crate::rendered::{RenderProblems, Resource};
use crate::wrappers;

pub(crate) const BANDWIDTH: &str = "bandwidth";
pub(crate) const RESPONSE: &str = "response";

const STATISTICS: &str = "bandwidth";

pub(crate) fn render(
    all: &[SharedFilter],
    keys: &[KeyPair],
    problems: &mut RenderProblems,
) -> Vec<Resource> {
    let pairs = keys.iter().map(|pair| (pair.name.as_str(), pair)).collect();
    let usable = SharedFilter::usable(all);
    let without = "requests that need it get 500";
    for filter in all.iter().skip(usable.len()) {
        let most = SharedFilter::MAX;
        problems.add(
            &filter.name,
            format!(
                "at most {most} filters are allowed, sorted by name and without duplicate names; {without}"
            ),
        );
    }
    let places = [
        BANDWIDTH,
        RESPONSE,
        credentials::FILTER,
        injected::FILTER,
        route_filter::FILTER,
    ];
    let mut places = BTreeMap::from(places.map(|place| (place, Vec::new())));
    let mut tokens = Tokens::default();
    for filter in usable {
        let name = &filter.name;
        let mut add = |place, filters| {
            places
                .entry(place)
                .or_default()
                .push((name.clone(), filters));
        };
        let added = match &filter.kind {
            Some(Kind::Response(it)) => of_responses(it).map(|filters| add(RESPONSE, filters)),
            Some(Kind::Bandwidth(it)) => of_bandwidth(*it).map(|filters| add(BANDWIDTH, filters)),
            Some(Kind::Tokens(policy)) => tokens.add(name, policy),
            Some(Kind::Credentials(set)) => credentials::check_set(name, set).map(|()| {
                let (filters, missing) = credentials::chain(name, set, &pairs);
                add(credentials::FILTER, filters);
                if let Some(why) = missing {
                    problems.add(name, format!("shared filter: {why}; {without}"));
                }
            }),
            Some(Kind::Injected(it)) => injected::check(name, it).map(|()| {
                let (filters, missing) = injected::chain(name, it, &pairs);
                add(injected::FILTER, filters);
                if let Some(why) = missing {
                    problems.add(name, format!("shared filter: {why}; {without}"));
                }
            }),
            Some(Kind::GrpcJson(it)) => {
                let filter = route_filter::transcoding(it);
                filter.map(|filter| add(route_filter::FILTER, vec![filter]))
            }
            Some(Kind::Maintenance(it)) => {
                let filters = route_filter::page(it);
                filters.map(|filters| add(route_filter::FILTER, filters))
            }
            // Token sets are added later, because they refer to token policies.
            Some(Kind::TokenSet(_)) => Ok(()),
            None => Err("its kind is unknown".to_owned()),
        };
        let added = added.map_err(|why| format!("shared filter: {why}"));
        problems.value(name, added, without);
    }
    for filter in usable {
        if let Some(Kind::TokenSet(set)) = &filter.kind {
            let added = tokens::check_set(&filter.name, set);
            let added = added.and_then(|()| tokens.add_set(&filter.name, set));
            let added = added.map_err(|why| format!("shared filter: {why}"));
            problems.value(&filter.name, added, without);
        }
    }
    let files = places.into_iter();
    let files = files.map(|(place, filters)| composite::file(place, filters));
    files.chain([tokens.into_resource()]).collect()
}

/// Filters are checked on first use, because a changed route needs only a few of them.
pub(crate) fn places(all: &[SharedFilter]) -> SharedPlaces<'_> {
    let usable = SharedFilter::usable(all).iter();
    let places = usable.map(|filter| {
        let place = SharedPlace {
            filter,
            place: OnceCell::new(),
        };
        (filter.name.as_str(), place)
    });
    places.collect()
}

fn place(filter: &SharedFilter) -> Result<&'static str, String> {
    match &filter.kind {
        Some(Kind::Response(response)) => of_responses(response).map(|_| RESPONSE),
        Some(Kind::Bandwidth(bandwidth)) => of_bandwidth(*bandwidth).map(|_| BANDWIDTH),
        Some(Kind::Tokens(policy)) => tokens::check(policy).map(|()| tokens::FILTER),
        Some(Kind::TokenSet(set)) => tokens::check_set(&filter.name, set).map(|()| tokens::FILTER),
        Some(Kind::Credentials(set)) => {
            credentials::check_set(&filter.name, set).map(|()| credentials::FILTER)
        }
        Some(Kind::Injected(it)) => injected::check(&filter.name, it).map(|()| injected::FILTER),
        Some(Kind::GrpcJson(it)) => route_filter::transcoding(it).map(|_| route_filter::FILTER),
        Some(Kind::Maintenance(it)) => route_filter::page(it).map(|_| route_filter::FILTER),
        None => Err("its kind is unknown".to_owned()),
    }
}

pub(crate) fn named(
    filters: &RequestFilters,
    shared: &SharedPlaces<'_>,
) -> Result<Vec<(&'static str, Any)>, String> {
    let check = |expected: &str, name: &str| {
        let known = shared.get(name);
        let known = known.ok_or_else(|| format!("the shared filter `{name}` does not exist"))?;
        match known.place.get_or_init(|| place(known.filter)) {
            Ok(found) if *found == expected => Ok(()),
            Ok(_) => Err(format!("the shared filter `{name}` is not for {expected}")),
            Err(why) => Err(format!("shared filter `{name}`: {why}")),
        }
    };
    let mut named = Vec::new();
    for (place, name) in [
        (RESPONSE, &filters.response),
        (BANDWIDTH, &filters.bandwidth),
        (credentials::FILTER, &filters.credentials),
        (injected::FILTER, &filters.injected),
    ] {
        if !name.is_empty() {
            check(place, name)?;
            named.push((place, composite::named(name)));
        }
    }
    let page = filters.maintenance.as_ref().map(|it| it.page.as_str());
    let transcoder = Some(filters.grpc_json.as_str()).filter(|name| !name.is_empty());
    for name in page.into_iter().chain(transcoder) {
        check(route_filter::FILTER, name)?;
    }
    let of_rule = route_filter::named(filters.maintenance.as_ref(), &filters.grpc_json)?;
    named.extend(of_rule.map(|filter| (route_filter::FILTER, filter)));
    for policy in &filters.tokens {
        check(tokens::FILTER, policy)?;
        // Such a policy accepts all requests.
        if token_policy(policy, shared).is_none_or(|it| it.report_only) {
            return Err(format!("`{policy}` does not require tokens"));
        }
    }
    if let Some(set) = filters.token_set() {
        check(tokens::FILTER, &set)?;
        named.push((tokens::FILTER, tokens::required(&set)));
    }
    Ok(named)
}

fn token_policy<'s>(name: &str, shared: &SharedPlaces<'s>) -> Option<&'s TokenPolicy> {
    match &shared.get(name)?.filter.kind {
        Some(Kind::Tokens(policy)) => Some(policy),
        _ => None,
    }
}

/// Returns the token policies that only report.
pub(crate) fn reported_tokens<'s>(
    names: &'s [String],
    shared: &SharedPlaces<'s>,
) -> Result<Vec<(&'s str, &'s TokenPolicy)>, String> {
    let policies = names.iter().map(|name| {
        let policy = token_policy(name, shared).filter(|it| it.report_only);
        let policy = policy.ok_or_else(|| format!("`{name}` is not a policy that only reports"))?;
        tokens::check(policy).map_err(|why| format!("shared filter `{name}`: {why}"))?;
        Ok((name.as_str(), policy))
    });
    policies.collect()
}

/// Returns the filters in request order. Responses pass through them in reverse, so the error page
/// is applied last.
fn of_responses(response: &ResponseFilter) -> Result<Vec<TypedExtensionConfig>, String> {
    let ResponseFilter {
        compression,
        error_pages,
        sign_in,
    } = response;
    let mut filters = Vec::new();
    filters.extend(error_pages::render(error_pages, sign_in.as_ref())?);
    if let Some(compression) = compression {
        filters.extend(compressors(compression)?);
    }
    if filters.is_empty() {
        return Err("it changes nothing".to_owned());
    }
    Ok(filters)
}

#[expect(
    deprecated,
    reason = "Envoy 1.39 does not know the field that replaces `content_type`"
)]
fn compressors(compression: &Compression) -> Result<Vec<TypedExtensionConfig>, String> {
    let Compression {
        algorithms,
        content_types,
        min_bytes,
    } = compression;
    if !(1..=3).contains(&algorithms.len()) {
        return Err("expected 1 to 3 compression algorithms".to_owned());
    }
    for (i, algorithm) in algorithms.iter().enumerate() {
        if algorithms.iter().take(i).any(|it| it == algorithm) {
            return Err("a compression algorithm is listed twice".to_owned());
        }
    }
    let libraries = algorithms.iter().enumerate().map(|(i, algorithm)| {
        let library = match Algorithm::try_from(*algorithm) {
            Ok(Algorithm::Gzip) => filter("gzip", pack_any(Gzip::default())),
            Ok(Algorithm::Brotli) => filter("brotli", pack_any(Brotli::default())),
            Ok(Algorithm::Zstd) => filter("zstd", pack_any(Zstd::default())),
            Ok(Algorithm::Unknown) | Err(_) => {
                return Err(format!("compression algorithm {algorithm} is unknown"));
            }
        };
        let config = Compressor {
            compressor_library: Some(library),
            response_direction_config: Some(ResponseDirectionConfig {
                common_config: Some(CommonDirectionConfig {
                    min_content_length: wrappers::uint32(*min_bytes).filter(|_| *min_bytes > 0),
                    content_type: content_types.clone(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            choose_first: i == 0,
            ..Default::default()
        };
        Ok(filter("envoy.filters.http.compressor", pack_any(config)))
    });
    libraries.collect()
}

/// The request filter must come last for requests, and the response filter last for responses,
/// because Envoy skips all filters after one that pauses.
fn of_bandwidth(bandwidth: Bandwidth) -> Result<Vec<TypedExtensionConfig>, String> {
    let Bandwidth {
        request_bytes,
        response_bytes,
    } = bandwidth;
    let directions = [
        (EnableMode::Response, response_bytes),
        (EnableMode::Request, request_bytes),
    ];
    let limited = directions.into_iter().filter(|(_, bytes)| *bytes > 0);
    let filters = limited.map(|(mode, bytes)| {
        let config = BandwidthLimit {
            stat_prefix: STATISTICS.to_owned(),
            enable_mode: mode.into(),
            limit_kbps: wrappers::uint64(bytes.div_ceil(1024)),
            ..Default::default()
        };
        filter("envoy.filters.http.bandwidth_limit", pack_any(config))
    });
    let filters: Vec<_> = filters.collect();
    if filters.is_empty() {
        return Err("no bandwidth limit is set".to_owned());
    }
    Ok(filters)
}
