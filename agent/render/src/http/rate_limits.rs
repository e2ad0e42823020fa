//! Rate limits for requests, which Envoy counts in token buckets.
//!
//! Changing a route table refills the buckets configured in it. Therefore, all buckets are in a
//! separate file, and routes refer to them by name. Limits with the same response share a filter,
//! because a filter has only one response.
//!
//! Limits that only report have their own filter. A filter stops at the first exceeded limit, and
//! Envoy 1.39 then lets the request pass if that limit is in shadow mode.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3::rate_limit::XRateLimitOption;
use envoy_types::pb::envoy::config::route::v3::{RateLimit as OfRequest, route};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::LocalRateLimitDescriptor;
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, TokenBucket};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::Message as _;
use sesame_proto::digest::sha256;
use sesame_proto::schema::{HeaderModifier, RateLimit};

use super::routes::RenderedRoute;
use super::{composite, headers, rate_limit_keys};
use crate::context::RenderContext;
use crate::rendered::{RenderProblems, Resource};
use crate::wrappers;

pub(crate) const FILTER: &str = "rate_limits";

/// Prefix of the reporting filter's statistics.
const REPORTED: &str = "reported_rate_limits";

/// Maximum number of key values that each connection manager remembers, across all enforced limits.
/// Envoy evicts the least recently used value.
const REMEMBERED: usize = 65_536;

/// Separate maximum for limits that only report, which must not weaken enforced limits.
const REMEMBERED_FOR_REPORTS: usize = REMEMBERED / 4;

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
    let mut by_answer: BTreeMap<String, FiltersByMode> = BTreeMap::new();
    let keyed = |report_only: bool| {
        let same = usable.iter().filter(|it| it.report_only == report_only);
        same.filter(|limit| !limit.keys.is_empty()).count()
    };
    let (enforced, reported) = (keyed(false), keyed(true));
    for limit in usable {
        let keyed = if limit.report_only {
            reported
        } else {
            enforced
        };
        let filter = filter(limit, keyed).map_err(|why| format!("request limit: {why}"));
        let filter = problems.value(&limit.name, filter, without_requests);
        if let Some(filter) = filter {
            let filters = by_answer.entry(answer(limit)).or_default();
            let mode = if limit.report_only {
                &mut filters.reporting
            } else {
                &mut filters.enforcing
            };
            let shared = mode.get_or_insert(filter);
            shared.descriptors.push(bucket(limit));
        }
    }
    let filters = by_answer.into_iter().map(|(answer, filters)| {
        let FiltersByMode {
            reporting,
            enforcing,
        } = filters;
        // The reporting filter never pauses a request, so the other one always runs.
        let filters = reporting.into_iter().chain(enforcing);
        let filters =
            filters.map(|it| composite::filter("envoy.filters.http.local_ratelimit", pack_any(it)));
        (answer, filters.collect())
    });
    composite::file(FILTER, filters)
}

#[derive(Default)]
struct FiltersByMode {
    reporting: Option<LocalRateLimit>,
    enforcing: Option<LocalRateLimit>,
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

/// `keyed` is the number of limits with keys and the same mode.
fn filter(limit: &RateLimit, keyed: usize) -> Result<LocalRateLimit, String> {
    let RateLimit {
        name,
        requests,
        per_ms,
        burst: _,
        keys,
        status,
        response_headers,
        report_only,
        draft_headers: _,
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
    keys.iter().try_for_each(rate_limit_keys::check)?;
    let modifier = HeaderModifier {
        set: response_headers.clone(),
        ..Default::default()
    };
    let mut problems = RenderProblems::default();
    let response = headers::changes(name, Some(&modifier), &mut problems);
    if let Some(problem) = problems.distinct().first() {
        return Err(problem.message.clone());
    }
    let (stat_prefix, remembered, enforced) = if *report_only {
        (REPORTED, REMEMBERED_FOR_REPORTS, 0)
    } else {
        (FILTER, REMEMBERED, 100)
    };
    let kept = (remembered / keyed.next_power_of_two().max(1)).max(1);
    Ok(LocalRateLimit {
        stat_prefix: stat_prefix.to_owned(),
        status: (*status != 0).then(|| HttpStatus {
            code: i32::try_from(*status).unwrap_or_default(),
        }),
        filter_enabled: Some(percent(100)),
        filter_enforced: Some(percent(enforced)),
        response_headers_to_add: response.add,
        // Requests without a limit of this filter pass.
        always_consume_default_token_bucket: wrappers::boolean(false),
        stage: stage(limit),
        max_dynamic_descriptors: wrappers::uint32(u32::try_from(kept).unwrap_or(u32::MAX)),
        ..Default::default()
    })
}

/// A filter evaluates only limits with the same stage.
fn stage(limit: &RateLimit) -> u32 {
    limit.report_only.into()
}

fn percent(percent: u32) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: wrappers::percent(percent),
        ..Default::default()
    }
}

fn bucket(limit: &RateLimit) -> LocalRateLimitDescriptor {
    LocalRateLimitDescriptor {
        entries: rate_limit_keys::entries(limit),
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
    cookies: Option<Any>,
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
    let mut limits: Vec<&RateLimit> = Vec::new();
    for name in names {
        let place = all.binary_search_by(|limit| limit.name.cmp(name));
        let limit = place.ok().and_then(|place| all.get(place));
        let limit = limit.ok_or_else(|| format!("the request limit `{name}` does not exist"))?;
        filter(limit, 0).map_err(|why| format!("request limit `{name}`: {why}"))?;
        answers.push(answer(limit));
        limits.push(limit);
    }
    answers.dedup();
    let [answer] = answers.as_slice() else {
        return Err(format!(
            "request limit `{first}` and another limit of the route have different responses"
        ));
    };
    Ok(CountedRequests {
        cookies: rate_limit_keys::cookies(limits.iter().copied()),
        limits: limits.into_iter().flat_map(of_request).collect(),
        config: Some(composite::named(answer)),
    })
}

/// Envoy describes the slowest-filling limit in responses, and only if this limit has the option.
/// Otherwise, a route's policy could reveal the state of a Gateway's limit.
fn of_request(limit: &RateLimit) -> impl Iterator<Item = OfRequest> {
    let option = if limit.draft_headers && !limit.report_only {
        XRateLimitOption::DraftVersion03
    } else {
        XRateLimitOption::Unspecified
    };
    let stage = wrappers::uint32(stage(limit)).filter(|it| it.value > 0);
    let actions = rate_limit_keys::actions(limit).into_iter();
    actions.map(move |actions| OfRequest {
        actions,
        x_ratelimit_option: option.into(),
        stage,
        ..Default::default()
    })
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
                if let Some(cookies) = &self.cookies {
                    filters.insert(rate_limit_keys::COOKIES, cookies.clone());
                }
            }
        }
    }
}
