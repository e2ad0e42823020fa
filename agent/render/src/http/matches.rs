//! Renders route matches: path, method, headers and query parameters.

use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, RouteMatch, header_matcher::HeaderMatchSpecifier,
    query_parameter_matcher::QueryParameterMatchSpecifier, route_match::GrpcRouteMatchOptions,
    route_match::PathSpecifier,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use sesame_proto::canonical_path::in_either_case;
use sesame_proto::expressions::{self, MAX_INSTRUCTIONS};
use sesame_proto::schema::text_match::Operator;
use sesame_proto::schema::{Cors, PathMatch, StringMatch, TextMatch, path_match, string_match};

use super::headers;
use crate::wrappers;

/// Envoy's own gRPC match does not include gRPC-Web.
const GRPC_AND_WEB: &str = "application/grpc(-web(-text)?)?([+;].*)?";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchedProtocol {
    Any,
    Grpc,
    GrpcAndWeb,
}

impl MatchedProtocol {
    /// `web` means that the proxy translates gRPC-Web.
    pub(crate) fn new(grpc: bool, web: bool) -> Self {
        match (grpc, web) {
            (false, _) => Self::Any,
            (true, false) => Self::Grpc,
            (true, true) => Self::GrpcAndWeb,
        }
    }
}

pub(crate) fn render(
    path: Option<&PathMatch>,
    method: &str,
    header_matches: &[StringMatch],
    query_params: &[StringMatch],
    grpc: MatchedProtocol,
) -> Result<RouteMatch, String> {
    let mut headers = Vec::with_capacity(header_matches.len() + usize::from(!method.is_empty()));
    if !method.is_empty() {
        headers.push(header(":method", wrappers::exact(method)));
    }
    for StringMatch { name, kind } in header_matches {
        headers::check_name(name).map_err(|reason| format!("header match `{name}`: {reason}"))?;
        headers.push(header_match(name, kind.as_ref())?);
    }
    if grpc == MatchedProtocol::GrpcAndWeb {
        headers.push(header("content-type", wrappers::matching(GRPC_AND_WEB)));
    }
    let query_parameters = query_params
        .iter()
        .map(|StringMatch { name, kind }| {
            if name.is_empty() || name.len() > 1024 {
                return Err(format!(
                    "query parameter match: expected a name of 1 to 1024 bytes, got {}",
                    name.len()
                ));
            }
            let specifier = match kind {
                Some(string_match::Kind::Present(present)) => {
                    QueryParameterMatchSpecifier::PresentMatch(*present)
                }
                kind => QueryParameterMatchSpecifier::StringMatch(string(name, kind.as_ref())?),
            };
            Ok(QueryParameterMatcher {
                name: name.clone(),
                query_parameter_match_specifier: Some(specifier),
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(RouteMatch {
        path_specifier: Some(self::path(path)?),
        headers,
        query_parameters,
        grpc: (grpc == MatchedProtocol::Grpc).then(GrpcRouteMatchOptions::default),
        ..Default::default()
    })
}

/// An empty `method` matches every method.
pub(crate) fn preflight(route_match: &RouteMatch, method: &str, cors: &Cors) -> RouteMatch {
    let mut preflight = route_match.clone();
    // A preflight does not contain the headers of the actual request.
    if cors.ignores_matched_headers {
        preflight.headers.retain(|header| header.name == "host");
    } else if !method.is_empty() {
        preflight.headers.clear();
    }
    // Like the CORS filter, require both headers to be non-empty.
    let any = || wrappers::matching(".+");
    preflight.headers.extend([
        header(":method", wrappers::exact("OPTIONS")),
        header(
            "access-control-request-method",
            if method.is_empty() {
                any()
            } else {
                wrappers::exact(method)
            },
        ),
        header("origin", any()),
    ]);
    preflight
}

fn path(path: Option<&PathMatch>) -> Result<PathSpecifier, String> {
    let Some(path) = path else {
        return Ok(PathSpecifier::Prefix("/".to_owned()));
    };
    // An unknown kind of match, from a newer release, must not match every path.
    let kind = path.kind.as_ref();
    let kind =
        kind.ok_or("path match: expected an exact path, a prefix or a regular expression")?;
    Ok(match kind {
        path_match::Kind::TextPrefix(prefix) => {
            if !prefix.starts_with('/') || prefix.contains(['?', '#']) {
                return Err(format!(
                    "path match: `{prefix}` is not a path prefix; it must begin with `/` and contain neither `?` nor `#`"
                ));
            }
            match in_either_case(prefix) {
                Some(pattern) => PathSpecifier::SafeRegex(wrappers::regex(format!("{pattern}.*"))),
                None => PathSpecifier::Prefix(prefix.clone()),
            }
        }
        path_match::Kind::Exact(path) => match in_either_case(path) {
            Some(pattern) => PathSpecifier::SafeRegex(wrappers::regex(&pattern)),
            None => PathSpecifier::Path(path.clone()),
        },
        path_match::Kind::Regex(pattern) => {
            check_expression(pattern).map_err(|reason| format!("path match: {reason}"))?;
            PathSpecifier::SafeRegex(wrappers::regex(pattern))
        }
        path_match::Kind::Prefix(prefix) => match prefix.trim_end_matches('/') {
            "" => PathSpecifier::Prefix("/".to_owned()),
            // Envoy rejects these prefixes.
            prefix if prefix.len() < 2 || prefix.contains(['?', '#']) => {
                return Err(format!(
                    "path match: `{prefix}` is not a path prefix; expected `/` and at least one more character, without `?` or `#`"
                ));
            }
            prefix => match in_either_case(prefix) {
                Some(pattern) => {
                    PathSpecifier::SafeRegex(wrappers::regex(format!("{pattern}(/.*)?")))
                }
                None => PathSpecifier::PathSeparatedPrefix(prefix.to_owned()),
            },
        },
    })
}

pub(crate) fn header(name: &str, value: StringMatcher) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(value)),
        ..Default::default()
    }
}

/// Envoy joins repeated headers with commas before it compares them.
pub(crate) fn header_match(
    name: &str,
    kind: Option<&string_match::Kind>,
) -> Result<HeaderMatcher, String> {
    Ok(match kind {
        Some(string_match::Kind::Present(present)) => HeaderMatcher {
            name: name.to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(*present)),
            ..Default::default()
        },
        Some(string_match::Kind::Text(text)) => HeaderMatcher {
            invert_match: text.negate,
            treat_missing_header_as_empty: text.missing_is_empty,
            ..header(name, text_match(name, text)?)
        },
        kind => header(name, string(name, kind)?),
    })
}

fn text_match(name: &str, text: &TextMatch) -> Result<StringMatcher, String> {
    let TextMatch {
        operator,
        value,
        ignore_case,
        negate: _,
        missing_is_empty: _,
    } = text;
    let value = value.clone();
    let pattern = match Operator::try_from(*operator) {
        Ok(Operator::Exact) => MatchPattern::Exact(value),
        // Envoy rejects these operators with an empty value.
        _ if value.is_empty() => return Err(format!("match of `{name}`: the value is empty")),
        Ok(Operator::Prefix) => MatchPattern::Prefix(value),
        Ok(Operator::Suffix) => MatchPattern::Suffix(value),
        Ok(Operator::Contains) => MatchPattern::Contains(value),
        Err(_) => {
            return Err(format!(
                "match of `{name}`: the operator {operator} is unknown"
            ));
        }
    };
    Ok(StringMatcher {
        ignore_case: *ignore_case,
        ..wrappers::string(pattern)
    })
}

fn string(name: &str, kind: Option<&string_match::Kind>) -> Result<StringMatcher, String> {
    match kind {
        Some(string_match::Kind::Text(text)) if !text.negate && !text.missing_is_empty => {
            text_match(name, text)
        }
        Some(string_match::Kind::Text(_) | string_match::Kind::Present(_)) => Err(format!(
            "match of `{name}`: only headers can be compared in this way"
        )),
        Some(string_match::Kind::Exact(value)) => Ok(wrappers::exact(value)),
        Some(string_match::Kind::Regex(pattern)) => {
            check_expression(pattern).map_err(|reason| format!("match of `{name}`: {reason}"))?;
            Ok(wrappers::matching(pattern))
        }
        None => Err(format!(
            "match of `{name}`: expected an exact value or a regular expression"
        )),
    }
}

/// Limits the expression's cost, because Envoy may evaluate it for every request, and the snapshot
/// is not trusted to limit it.
fn check_expression(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("the regular expression is empty".to_owned());
    }
    match expressions::instructions(pattern) {
        Some(size) if size <= MAX_INSTRUCTIONS => Ok(()),
        Some(size) => Err(format!(
            "the regular expression has {size} instructions once compiled; at most {MAX_INSTRUCTIONS} are allowed"
        )),
        None => Err("the regular expression cannot be parsed".to_owned()),
    }
}
