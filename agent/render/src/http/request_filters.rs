//! Request and response filters. The connection manager has a placeholder for each kind.
//!
//! A route's filters replace its virtual host's. If a filter cannot be rendered, reject the
//! requests, because it may protect the backend.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::common::fault::v3::{
    FaultDelay, fault_delay::FaultDelaySecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::buffer::v3::Buffer;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::{
    FaultAbort, HttpFault, fault_abort,
};
use envoy_types::pb::envoy::extensions::filters::http::grpc_web::v3::GrpcWeb;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as HeaderMutationFilter, Mutations,
};
use envoy_types::pb::envoy::r#type::v3::Int64Range;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::{Fault, HeaderModifier, ReportedChecks, RequestFilters, SharedFilter};

use super::authorization::ReportedRules;
use super::{
    address_filters, authorization, composite, credentials, csrf, headers, injected, route_filter,
    shared_filters, tokens,
};
use crate::context::{SharedPlaces, SnapshotFilters};
use crate::rendered::RenderProblems;
use crate::wrappers;

pub(crate) const GRPC_WEB: &str = "grpc_web";
pub(crate) const FAULT: &str = "fault";
pub(crate) const BODY: &str = "request_body";
pub(crate) const HEADERS: &str = "headers";
pub(crate) const RESERVED_HEADERS: &str = "reserved_headers";
pub(crate) const CLAIM_HEADERS: &str = "claim_headers";
pub(crate) const TOKEN_HEADERS: &str = "token_headers";

const HEADER_MUTATION: &str = "envoy.filters.http.header_mutation";

pub(crate) const ALL: [&str; 16] = [
    address_filters::FILTER,
    csrf::FILTER,
    TOKEN_HEADERS,
    RESERVED_HEADERS,
    CLAIM_HEADERS,
    credentials::FILTER,
    injected::FILTER,
    route_filter::FILTER,
    tokens::FILTER,
    authorization::FILTER,
    shared_filters::BANDWIDTH,
    shared_filters::RESPONSE,
    GRPC_WEB,
    FAULT,
    BODY,
    HEADERS,
];

pub(crate) fn idle(place: &str) -> Any {
    match place {
        tokens::FILTER => tokens::idle(),
        _ => composite::idle(),
    }
}

pub(crate) fn of_snapshot<'a>(
    default: Option<&'a RequestFilters>,
    shared: &'a [SharedFilter],
) -> SnapshotFilters<'a> {
    let shared = shared_filters::places(shared);
    SnapshotFilters {
        default,
        rendered: default.map_or(Ok(Vec::new()), |filters| render(filters, &shared)),
        shared,
    }
}

pub(crate) fn render(
    filters: &RequestFilters,
    shared: &SharedPlaces<'_>,
) -> Result<Vec<(&'static str, Any)>, String> {
    let RequestFilters {
        max_body_bytes,
        request_headers,
        response_headers,
        grpc_web,
        fault,
        response: _,
        bandwidth: _,
        tokens: _,
        policies: _,
        address_filters,
        reserved_headers,
        authorizations,
        claim_headers,
        token_headers,
        exempt_from: _,
        credentials,
        csrf: csrf_checks,
        reported,
        injected: _,
        grpc_json: _,
        maintenance: _,
    } = filters;
    let mut rendered = shared_filters::named(filters, shared)?;
    let (reported_addresses, reported) = match reported {
        Some(ReportedChecks {
            address_filters,
            tokens,
            authorizations,
        }) => {
            let tokens = shared_filters::reported_tokens(tokens, shared)?;
            (
                &address_filters[..],
                ReportedRules {
                    tokens,
                    authorizations,
                },
            )
        }
        None => (&[][..], ReportedRules::default()),
    };
    let addresses = address_filters::render(address_filters, reported_addresses)?;
    rendered.extend(addresses.map(|filter| (address_filters::FILTER, filter)));
    rendered.extend(csrf::render(csrf_checks)?.map(|filter| (csrf::FILTER, filter)));
    for (place, names) in [
        (RESERVED_HEADERS, reserved_headers),
        (TOKEN_HEADERS, token_headers),
    ] {
        if !names.is_empty() {
            rendered.push((place, removing(names)?));
        }
    }
    if !claim_headers.is_empty() {
        rendered.push((CLAIM_HEADERS, tokens::claim_headers(claim_headers)?));
    }
    let authorizations = authorization::render(authorizations, credentials, reported)?;
    rendered.extend(authorizations.map(|filter| (authorization::FILTER, filter)));
    if *grpc_web {
        let filter = composite::inline("envoy.filters.http.grpc_web", pack_any(GrpcWeb {}));
        rendered.push((GRPC_WEB, filter));
    }
    if let Some(fault) = fault {
        let filter = composite::inline("envoy.filters.http.fault", pack_any(injected(fault)?));
        rendered.push((FAULT, filter));
    }
    if *max_body_bytes > 0 {
        rendered.push((BODY, limited(*max_body_bytes)?));
    }
    let changes = changes(request_headers.as_ref(), response_headers.as_ref())?;
    rendered.extend(changes.map(|filter| (HEADERS, filter)));
    Ok(rendered)
}

fn removing(names: &[String]) -> Result<Any, String> {
    for name in names {
        headers::check_writable(name)?;
    }
    let removed = names.iter().cloned().map(Action::Remove);
    Ok(mutating(removed.collect()))
}

/// Buffers each request, and rejects large bodies. Checks `content-length` first, because Envoy
/// does not count the last frame of an HTTP/2 body.
fn limited(max_bytes: u64) -> Result<Any, String> {
    let most = u32::try_from(max_bytes)
        .map_err(|_| format!("request bodies of {max_bytes} bytes; at most 4 GiB are allowed"))?;
    let lengths = HeaderMatcher {
        name: "content-length".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::RangeMatch(Int64Range {
            start: i64::from(most) + 1,
            end: i64::MAX,
        })),
        ..Default::default()
    };
    let too_long = abort(lengths, 413);
    let held = Buffer {
        max_request_bytes: wrappers::uint32(most),
    };
    Ok(composite::unless_upgraded(vec![
        composite::filter("envoy.filters.http.fault", pack_any(too_long)),
        composite::filter("envoy.filters.http.buffer", pack_any(held)),
    ]))
}

pub(crate) fn abort(header: HeaderMatcher, status: u32) -> HttpFault {
    HttpFault {
        headers: vec![header],
        abort: Some(FaultAbort {
            error_type: Some(fault_abort::ErrorType::HttpStatus(status)),
            percentage: wrappers::percent(100),
            // Envoy 1.39 rejects `response_body`.
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn injected(fault: &Fault) -> Result<HttpFault, String> {
    let Fault {
        delay_ms,
        delay_percent,
        abort_status,
        abort_percent,
    } = *fault;
    let share = |percent: u32| match percent {
        1..=100 => Ok(wrappers::percent(percent)),
        _ => Err(format!("fault of {percent} %; 1 to 100 are allowed")),
    };
    let delay = (delay_ms > 0).then(|| {
        Ok::<_, String>(FaultDelay {
            percentage: share(delay_percent)?,
            fault_delay_secifier: wrappers::milliseconds(delay_ms)
                .map(FaultDelaySecifier::FixedDelay),
        })
    });
    let abort = (abort_status > 0).then(|| match abort_status {
        200..=599 => Ok(FaultAbort {
            percentage: share(abort_percent)?,
            error_type: Some(fault_abort::ErrorType::HttpStatus(abort_status)),
            ..Default::default()
        }),
        _ => Err(format!(
            "fault with status {abort_status}; 200 to 599 are allowed"
        )),
    });
    let (delay, abort) = (delay.transpose()?, abort.transpose()?);
    if delay.is_none() && abort.is_none() {
        return Err("fault with neither a delay nor a status".to_owned());
    }
    Ok(HttpFault {
        delay,
        abort,
        ..Default::default()
    })
}

/// Returns an error if Envoy would reject a change, because removing a header might be
/// security-relevant.
fn changes(
    request: Option<&HeaderModifier>,
    response: Option<&HeaderModifier>,
) -> Result<Option<Any>, String> {
    let mut problems = RenderProblems::default();
    let actions = [request, response].map(|modifier| {
        let headers::HeaderChanges { add, remove } = headers::changes("", modifier, &mut problems);
        let removed = remove.into_iter().map(Action::Remove);
        let written = add.into_iter().map(Action::Append);
        removed.chain(written).collect::<Vec<_>>()
    });
    if let Some(problem) = problems.distinct().first() {
        return Err(problem.message.clone());
    }
    let changes_any = actions.iter().any(|it| !it.is_empty());
    Ok(changes_any.then(|| mutations(actions)))
}

pub(crate) fn mutating(request: Vec<Action>) -> Any {
    mutations([request, Vec::new()])
}

pub(crate) fn mutating_filter(request: Vec<Action>) -> TypedExtensionConfig {
    composite::filter(HEADER_MUTATION, mutation([request, Vec::new()]))
}

fn mutations(actions: [Vec<Action>; 2]) -> Any {
    composite::inline(HEADER_MUTATION, mutation(actions))
}

fn mutation(actions: [Vec<Action>; 2]) -> Any {
    let [request_mutations, response_mutations] = actions.map(|actions| {
        let mutations = actions.into_iter().map(|action| HeaderMutation {
            action: Some(action),
        });
        mutations.collect()
    });
    let filter = HeaderMutationFilter {
        mutations: Some(Mutations {
            request_mutations,
            response_mutations,
            ..Default::default()
        }),
        ..Default::default()
    };
    pack_any(filter)
}
