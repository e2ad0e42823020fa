//! Envoy filters that select which lines are written to an access log.

use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, AndFilter, ComparisonFilter, DurationFilter, HeaderFilter, OrFilter,
    RuntimeFilter, StatusCodeFilter, access_log_filter::FilterSpecifier, comparison_filter::Op,
};
use envoy_types::pb::envoy::config::core::v3::RuntimeUInt32;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use sesame_proto::schema::AccessLog as AccessLogRules;

use crate::wrappers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficKind {
    Requests,
    Connections,
    Sessions,
}

/// Returns `None` if everything is logged.
pub(super) fn render(rules: AccessLogRules, traffic: TrafficKind) -> Option<AccessLogFilter> {
    let AccessLogRules {
        off: _,
        min_status,
        min_duration_ms,
        percent,
    } = rules;
    // Only requests have a status. UDP sessions end by timeout, so their duration is meaningless.
    let min_status = min_status.filter(|_| traffic == TrafficKind::Requests);
    let min_duration_ms = min_duration_ms.filter(|_| traffic != TrafficKind::Sessions);
    let status = min_status.map(|least| {
        FilterSpecifier::StatusCodeFilter(StatusCodeFilter {
            comparison: Some(at_least(least, "sesame.access_log.min_status")),
        })
    });
    let duration = min_duration_ms.map(|least| {
        let least = u32::try_from(least).unwrap_or(u32::MAX);
        FilterSpecifier::DurationFilter(DurationFilter {
            comparison: Some(at_least(least, "sesame.access_log.min_duration")),
        })
    });
    let share = percent.map(|percent| {
        FilterSpecifier::RuntimeFilter(RuntimeFilter {
            runtime_key: "sesame.access_log.percent".to_owned(),
            percent_sampled: Some(FractionalPercent {
                numerator: percent.min(100),
                denominator: DenominatorType::Hundred.into(),
            }),
            // By default, Envoy samples by the request ID, which a client can choose.
            use_independent_randomness: true,
        })
    });
    let filters = [status, duration, share].into_iter().flatten();
    any(filters.map(specified).collect())
}

pub(super) fn all(mut filters: Vec<AccessLogFilter>) -> Option<AccessLogFilter> {
    match filters.len() {
        0 | 1 => filters.pop(),
        _ => Some(specified(FilterSpecifier::AndFilter(AndFilter { filters }))),
    }
}

pub(super) fn any(mut filters: Vec<AccessLogFilter>) -> Option<AccessLogFilter> {
    match filters.len() {
        0 | 1 => filters.pop(),
        _ => Some(specified(FilterSpecifier::OrFilter(OrFilter { filters }))),
    }
}

/// Matches requests whose header is ASCII or missing, or all other requests if `expected` is false.
pub(super) fn is_ascii(header: &str, expected: bool) -> AccessLogFilter {
    let ascii = wrappers::matching("[\\t -~]*");
    specified(FilterSpecifier::HeaderFilter(HeaderFilter {
        header: Some(HeaderMatcher {
            name: header.to_owned(),
            invert_match: !expected,
            treat_missing_header_as_empty: true,
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(ascii)),
        }),
    }))
}

fn specified(filter: FilterSpecifier) -> AccessLogFilter {
    AccessLogFilter {
        filter_specifier: Some(filter),
    }
}

/// Envoy requires a runtime key, but no runtime layer sets it.
fn at_least(value: u32, key: &str) -> ComparisonFilter {
    ComparisonFilter {
        op: Op::Ge.into(),
        value: Some(RuntimeUInt32 {
            default_value: value,
            runtime_key: key.to_owned(),
        }),
    }
}
