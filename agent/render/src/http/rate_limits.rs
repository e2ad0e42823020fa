//! Rate limits for requests, which Envoy counts in token buckets.
//!
//! Changing a route table refills the buckets configured in it. Therefore, all buckets are in a
//! separate file, and routes refer to them by name. Limits with the same response share a filter,
//! because a filter has only one response.
//!
//! Limits that only report have their own filter. A filter stops at the first exceeded limit, and
//! Envoy 1.39 then lets the request pass if that limit is in shadow mode.
//!
//! Envoy can divide only all limits of a filter by the number of hosts, so fleet limits have their
//! own filters, too. A request then takes as many tokens as there are hosts.
//!
//! [`service_limits`] renders the filter for limits that a service decides.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3::rate_limit::XRateLimitOption;
use envoy_types::pb::envoy::config::route::v3::{RateLimit as OfRequest, route};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::{
    LocalClusterRateLimit, LocalRateLimitDescriptor,
};
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, TokenBucket};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::Message as _;
use sesame_proto::digest::sha256;
use sesame_proto::schema::{HeaderModifier, RateLimit};

use super::routes::RenderedRoute;
use super::{composite, headers, rate_limit_keys, service_limits};
use crate::context::RenderContext;
use crate::rendered::{RenderProblems, Resource};
use crate::wrappers;

pub(crate) const FILTER: &str = "rate_limits";

/// Prefix of the reporting filter's statistics.
const REPORTED: &str = "reported_rate_limits";

/// Maximum number of key values that each connection manager remembers, across all enforced limits.
/// Envoy evicts the least recently used value. Each limit gets at least 256, because there are at
/// most [`RateLimit::MAX_KEYED`].
const REMEMBERED: usize = 65_536;

/// Separate maximum for limits that only report, which must not weaken enforced limits.
const REMEMBERED_FOR_REPORTS: usize = REMEMBERED / 4;

/// Allowed intervals in milliseconds. The minimum is Envoy's; the maximum is one year.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 50..=366 * 24 * 3_600_000;

/// Returns the files of limits with and without a service.
pub(crate) fn render(
    all: &[RateLimit],
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> [Resource; 2] {
    let usable = context.rate_limits;
    let without_requests = "requests that need it get 500";
    for limit in all.iter().skip(usable.len()) {
        let most = RateLimit::MAX;
        problems.add(
            &limit.name,
            format!("at most {most} limits are allowed, sorted by name and without duplicate names; {without_requests}"),
        );
    }
    let mut by_answer: BTreeMap<String, BTreeMap<Stage, LocalRateLimit>> = BTreeMap::new();
    let keyed = |report_only: bool| {
        let same = usable.iter().filter(|it| it.report_only == report_only);
        same.filter(|limit| !limit.keys.is_empty() && limit.service.is_none())
            .count()
    };
    let (enforced, reported) = (keyed(false), keyed(true));
    let last_keyed = last_keyed(usable);
    let mut of_services: Vec<&RateLimit> = Vec::new();
    for limit in usable {
        let keyed = if limit.report_only {
            reported
        } else {
            enforced
        };
        let filter = filter(limit, keyed).and_then(|filter| {
            check_keyed(limit, last_keyed)?;
            Ok(filter)
        });
        let filter = filter.map_err(|why| format!("request limit: {why}"));
        let filter = problems.value(&limit.name, filter, without_requests);
        if filter.is_some() && limit.service.is_some() {
            of_services.push(limit);
        } else if let Some(filter) = filter {
            let filters = by_answer.entry(answer(limit)).or_default();
            let shared = filters.entry(Stage::of(limit)).or_insert(filter);
            shared.descriptors.push(bucket(limit, context.fleet_hosts));
        }
    }
    let filters = by_answer.into_iter().map(|(answer, filters)| {
        // None of them pauses a request that may pass, so all of them run.
        let filters = filters.into_values();
        let filters =
            filters.map(|it| composite::filter("envoy.filters.http.local_ratelimit", pack_any(it)));
        (answer, filters.collect())
    });
    [
        service_limits::file(of_services.into_iter()),
        composite::file(FILTER, filters),
    ]
}

/// A filter evaluates only limits with the same stage. In the order in which filters run: reports
/// must come first, because an enforcing filter may end the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    ReportByHost,
    ReportByFleet,
    EnforceByHost,
    EnforceByFleet,
}

impl Stage {
    fn of(limit: &RateLimit) -> Self {
        match (limit.report_only, limit.fleet) {
            (true, false) => Self::ReportByHost,
            (true, true) => Self::ReportByFleet,
            (false, false) => Self::EnforceByHost,
            (false, true) => Self::EnforceByFleet,
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::EnforceByHost => 0,
            Self::ReportByHost => 1,
            Self::EnforceByFleet => 2,
            Self::ReportByFleet => 3,
        }
    }
}

/// Returns the name of the last limit that may remember key values, or `None` if all may.
fn last_keyed(all: &[RateLimit]) -> Option<&str> {
    if all.len() <= RateLimit::MAX_KEYED {
        return None;
    }
    let mut keyed = all.iter().filter(|limit| limit.remembers());
    let last = keyed.nth(RateLimit::MAX_KEYED - 1);
    last.map(|limit| limit.name.as_str())
}

fn check_keyed(limit: &RateLimit, last: Option<&str>) -> Result<(), String> {
    if limit.remembers() && last.is_some_and(|last| limit.name.as_str() > last) {
        let most = RateLimit::MAX_KEYED;
        return Err(format!("at most {most} enforced limits may have keys"));
    }
    Ok(())
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
        keys: _,
        status,
        response_headers,
        report_only,
        draft_headers: _,
        fleet,
        service,
    } = limit;
    rate_limit_keys::check(limit)?;
    if let Some(service) = service {
        // The service knows the rates, and its filter has its own response.
        service_limits::check(service)?;
        return Ok(LocalRateLimit::default());
    }
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
    let most = RateLimit::MAX_HEADERS;
    if response_headers.len() > most {
        return Err(format!("at most {most} response headers are allowed"));
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
    let (stat_prefix, remembered, enforced) = if *report_only {
        (REPORTED, REMEMBERED_FOR_REPORTS, 0)
    } else {
        (FILTER, REMEMBERED, 100)
    };
    // More limits than the maximum are left out.
    let keyed = if *report_only {
        keyed
    } else {
        keyed.min(RateLimit::MAX_KEYED)
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
        stage: Stage::of(limit).number(),
        local_cluster_rate_limit: fleet.then(LocalClusterRateLimit::default),
        max_dynamic_descriptors: wrappers::uint32(u32::try_from(kept).unwrap_or(u32::MAX)),
        ..Default::default()
    })
}

fn percent(percent: u32) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: wrappers::percent(percent),
        ..Default::default()
    }
}

/// A fleet's bucket has a token for each host, because smaller buckets would reject everything.
/// Rounds up, because changing a bucket refills all buckets.
fn bucket(limit: &RateLimit, hosts: u32) -> LocalRateLimitDescriptor {
    let max_tokens = limit.requests.saturating_add(limit.burst);
    let least = if limit.fleet {
        hosts.next_power_of_two()
    } else {
        1
    };
    LocalRateLimitDescriptor {
        entries: rate_limit_keys::entries(limit),
        token_bucket: Some(TokenBucket {
            max_tokens: max_tokens.max(least),
            tokens_per_fill: wrappers::uint32(limit.requests),
            fill_interval: wrappers::milliseconds(limit.per_ms),
        }),
        ..Default::default()
    }
}

#[derive(Default)]
pub(crate) struct CountedRequests {
    limits: Vec<OfRequest>,
    filters: Vec<(&'static str, Any)>,
}

/// Returns an error if any limit cannot be applied, because the route must not be served without
/// it.
pub(crate) fn of_route(
    names: &[String],
    context: &RenderContext<'_>,
) -> Result<CountedRequests, String> {
    let [first, ..] = names else {
        return Ok(CountedRequests::default());
    };
    let all = context.rate_limits;
    let last_keyed = last_keyed(all);
    let mut counts = [0, 0];
    let mut answers = Vec::new();
    let mut limits: Vec<&RateLimit> = Vec::new();
    for name in names {
        let place = all.binary_search_by(|limit| limit.name.cmp(name));
        let limit = place.ok().and_then(|place| all.get(place));
        let limit = limit.ok_or_else(|| format!("the request limit `{name}` does not exist"))?;
        let checked = filter(limit, 0).and_then(|_| check_keyed(limit, last_keyed));
        checked.map_err(|why| format!("request limit `{name}`: {why}"))?;
        // Reports must not take places from limits that protect.
        let [enforced, reported] = &mut counts;
        let count = if limit.report_only {
            reported
        } else {
            enforced
        };
        *count += 1;
        if *count > RateLimit::MAX_OF_ROUTE {
            let most = RateLimit::MAX_OF_ROUTE;
            return Err(format!("more than {most} request limits"));
        }
        if limit.service.is_none() {
            answers.push(answer(limit));
        }
        limits.push(limit);
    }
    answers.dedup();
    let answer = match answers.as_slice() {
        [] => None,
        [answer] => Some(composite::named(answer)),
        _ => {
            return Err(format!(
                "request limit `{first}` and another limit of the route have different responses"
            ));
        }
    };
    let filters = [
        (FILTER, answer),
        (
            service_limits::FILTER,
            service_limits::of_route(&limits, context)?,
        ),
        (
            rate_limit_keys::COOKIES,
            rate_limit_keys::cookies(limits.iter().copied()),
        ),
    ];
    let filters = filters.into_iter();
    Ok(CountedRequests {
        filters: filters
            .filter_map(|(place, config)| Some((place, config?)))
            .collect(),
        limits: limits.into_iter().flat_map(of_request).collect(),
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
    let with_service = limit.service.is_some();
    let stage = if with_service {
        service_limits::STAGE
    } else {
        Stage::of(limit).number()
    };
    let stage = wrappers::uint32(stage).filter(|it| it.value > 0);
    let actions = rate_limit_keys::actions(limit).into_iter();
    actions.map(move |actions| OfRequest {
        actions,
        x_ratelimit_option: option.into(),
        stage,
        // Envoy then ignores the service's decision.
        apply_on_stream_done: with_service && limit.report_only,
        ..Default::default()
    })
}

impl CountedRequests {
    /// Envoy can limit only routes that forward requests.
    pub(crate) fn apply(&self, routes: &mut [RenderedRoute]) {
        for RenderedRoute { route, filters } in routes {
            if let Some(route::Action::Route(action)) = &mut route.action {
                action.rate_limits.clone_from(&self.limits);
                filters.extend(self.filters.iter().cloned());
            }
        }
    }
}
