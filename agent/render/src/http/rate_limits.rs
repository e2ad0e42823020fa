//! Rate limits for requests, which Envoy counts in token buckets.
//!
//! Changing a route table refills the buckets configured in it. Therefore, all buckets are in a
//! separate file, and routes refer to them by name. Limits with the same response share a filter,
//! because a filter has only one response.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3::rate_limit::Action;
use envoy_types::pb::envoy::config::route::v3::rate_limit::action::{
    ActionSpecifier, GenericKey, QueryParameters, RemoteAddress, RequestHeaders,
};
use envoy_types::pb::envoy::config::route::v3::{RateLimit as OfRequest, route};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::{
    LocalRateLimitDescriptor, rate_limit_descriptor::Entry,
};
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, TokenBucket};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::Message as _;
use sesame_proto::digest::sha256;
use sesame_proto::schema::{HeaderModifier, RateLimit, RateLimitKey, rate_limit_key::Kind};

use super::routes::RenderedRoute;
use super::{composite, headers};
use crate::context::RenderContext;
use crate::layout::file_name;
use crate::rendered::{RenderProblems, Resource};
use crate::wrappers;

pub(crate) const FILTER: &str = "rate_limits";

const LIMIT: &str = "limit";
const CLIENT_ADDRESS: &str = "remote_address";

/// Maximum number of key values that each connection manager remembers, across all limits. Envoy
/// evicts the least recently used value.
const REMEMBERED: usize = 65_536;

/// Allowed intervals in milliseconds. The minimum is Envoy's; the maximum is one year.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 50..=366 * 24 * 3_600_000;

pub(crate) fn render(
    all: &[RateLimit],
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Resource {
    let usable = context.rate_limits;
    let without_requests = "requests that need it get 500";
    for limit in all.iter().skip(usable.len()) {
        let most = RateLimit::MAX;
        problems.add(
            &limit.name,
            format!("at most {most} limits are allowed, sorted by name and without duplicate names; {without_requests}"),
        );
    }
    let mut by_answer: BTreeMap<String, LocalRateLimit> = BTreeMap::new();
    let keyed = usable.iter().filter(|limit| !limit.keys.is_empty()).count();
    for limit in usable {
        let filter = filter(limit, keyed).map_err(|why| format!("request limit: {why}"));
        let filter = problems.value(&limit.name, filter, without_requests);
        if let Some(filter) = filter {
            let shared = by_answer.entry(answer(limit)).or_insert(filter);
            shared.descriptors.push(bucket(limit));
        }
    }
    let filters = by_answer.into_iter().map(|(answer, filter)| {
        let filter = composite::filter("envoy.filters.http.local_ratelimit", pack_any(filter));
        (answer, vec![filter])
    });
    composite::file(FILTER, filters)
}

fn answer(limit: &RateLimit) -> String {
    let answer = RateLimit {
        status: limit.status,
        response_headers: limit.response_headers.clone(),
        ..Default::default()
    };
    let mut digest = sha256(&answer.encode_to_vec());
    digest.truncate(32);
    digest
}

/// `keyed` is the number of limits with keys.
fn filter(limit: &RateLimit, keyed: usize) -> Result<LocalRateLimit, String> {
    let RateLimit {
        name,
        requests,
        per_ms,
        burst: _,
        keys,
        status,
        response_headers,
    } = limit;
    if *requests == 0 {
        return Err("0 requests; at least one is needed".to_owned());
    }
    if !INTERVAL_MS.contains(per_ms) {
        let (least, most) = INTERVAL_MS.into_inner();
        return Err(format!(
            "interval of {per_ms} ms; {least} to {most} are allowed"
        ));
    }
    if *status != 0 && !RateLimit::is_status(*status) {
        return Err(format!("status {status} is unknown to Envoy"));
    }
    let (most_keys, most_headers) = (RateLimit::MAX_KEYS, RateLimit::MAX_HEADERS);
    if keys.len() > most_keys || response_headers.len() > most_headers {
        return Err(format!(
            "at most {most_keys} keys and {most_headers} response headers are allowed"
        ));
    }
    for RateLimitKey { kind } in keys {
        match kind {
            Some(Kind::ClientAddress(_)) => {}
            Some(Kind::RequestHeader(header)) => headers::check_name(header)
                .map_err(|why| format!("key of header `{header}`: {why}"))?,
            Some(Kind::QueryParameter(name)) if !name.is_empty() => {}
            Some(Kind::QueryParameter(_)) => return Err("a key has no name".to_owned()),
            None => return Err("a key has no kind".to_owned()),
        }
    }
    let modifier = HeaderModifier {
        set: response_headers.clone(),
        ..Default::default()
    };
    let mut problems = RenderProblems::default();
    let response = headers::changes(name, Some(&modifier), &mut problems);
    if let Some(problem) = problems.distinct().first() {
        return Err(problem.message.clone());
    }
    let kept = (REMEMBERED / keyed.next_power_of_two().max(1)).max(1);
    Ok(LocalRateLimit {
        stat_prefix: FILTER.to_owned(),
        status: (*status != 0).then(|| HttpStatus {
            code: i32::try_from(*status).unwrap_or_default(),
        }),
        filter_enabled: Some(always()),
        filter_enforced: Some(always()),
        response_headers_to_add: response.add,
        // A limit does not apply to requests that lack one of its keys.
        always_consume_default_token_bucket: wrappers::boolean(false),
        max_dynamic_descriptors: wrappers::uint32(u32::try_from(kept).unwrap_or(u32::MAX)),
        ..Default::default()
    })
}

fn always() -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: wrappers::percent(100),
        ..Default::default()
    }
}

/// For an entry without a value, Envoy creates one bucket per value in requests.
fn bucket(limit: &RateLimit) -> LocalRateLimitDescriptor {
    let entry = |key: &str, value: String| Entry {
        key: key.to_owned(),
        value,
    };
    let own = entry(LIMIT, file_name(&limit.name));
    let keys = limit.keys.iter().map(|key| match &key.kind {
        Some(Kind::RequestHeader(name) | Kind::QueryParameter(name)) => entry(name, String::new()),
        Some(Kind::ClientAddress(_)) | None => entry(CLIENT_ADDRESS, String::new()),
    });
    LocalRateLimitDescriptor {
        entries: std::iter::once(own).chain(keys).collect(),
        token_bucket: Some(TokenBucket {
            max_tokens: limit.requests.saturating_add(limit.burst),
            tokens_per_fill: wrappers::uint32(limit.requests),
            fill_interval: wrappers::milliseconds(limit.per_ms),
        }),
        ..Default::default()
    }
}

#[derive(Default)]
pub(crate) struct CountedRequests {
    limits: Vec<OfRequest>,
    config: Option<Any>,
}

/// Returns an error if any limit cannot be applied, because the route must not be served without
/// it.
pub(crate) fn of_route(names: &[String], all: &[RateLimit]) -> Result<CountedRequests, String> {
    let [first, ..] = names else {
        return Ok(CountedRequests::default());
    };
    if names.len() > RateLimit::MAX_OF_ROUTE {
        return Err(format!(
            "{} request limits; at most {} are allowed",
            names.len(),
            RateLimit::MAX_OF_ROUTE
        ));
    }
    let mut answers = Vec::new();
    let mut limits = Vec::new();
    for name in names {
        let place = all.binary_search_by(|limit| limit.name.cmp(name));
        let limit = place.ok().and_then(|place| all.get(place));
        let limit = limit.ok_or_else(|| format!("the request limit `{name}` does not exist"))?;
        filter(limit, 0).map_err(|why| format!("request limit `{name}`: {why}"))?;
        answers.push(answer(limit));
        limits.push(of_request(limit));
    }
    answers.dedup();
    let [answer] = answers.as_slice() else {
        return Err(format!(
            "request limit `{first}` and another limit of the route have different responses"
        ));
    };
    Ok(CountedRequests {
        limits,
        config: Some(composite::named(answer)),
    })
}

/// A request that lacks one of the keys gets no descriptor.
fn of_request(limit: &RateLimit) -> OfRequest {
    let own = ActionSpecifier::GenericKey(GenericKey {
        descriptor_key: LIMIT.to_owned(),
        descriptor_value: file_name(&limit.name),
        ..Default::default()
    });
    let keys = limit.keys.iter().map(|key| match &key.kind {
        Some(Kind::RequestHeader(header)) => ActionSpecifier::RequestHeaders(RequestHeaders {
            header_name: header.clone(),
            descriptor_key: header.clone(),
            ..Default::default()
        }),
        Some(Kind::QueryParameter(name)) => ActionSpecifier::QueryParameters(QueryParameters {
            query_parameter_name: name.clone(),
            descriptor_key: name.clone(),
            ..Default::default()
        }),
        Some(Kind::ClientAddress(_)) | None => {
            ActionSpecifier::RemoteAddress(RemoteAddress::default())
        }
    });
    let actions = std::iter::once(own).chain(keys).map(|specifier| Action {
        action_specifier: Some(specifier),
    });
    OfRequest {
        actions: actions.collect(),
        ..Default::default()
    }
}

impl CountedRequests {
    /// Envoy can limit only routes that forward requests.
    pub(crate) fn apply(&self, routes: &mut [RenderedRoute]) {
        let Some(config) = &self.config else {
            return;
        };
        for RenderedRoute { route, filters } in routes {
            if let Some(route::Action::Route(action)) = &mut route.action {
                action.rate_limits.clone_from(&self.limits);
                filters.insert(FILTER, config.clone());
            }
        }
    }
}
