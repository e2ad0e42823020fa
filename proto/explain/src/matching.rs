//! Compares each part of a match with a request.

use sesame_proto::canonical_path::upper_escapes;
use sesame_proto::expressions::{self, MAX_INSTRUCTIONS};
use sesame_proto::schema::text_match::Operator;
use sesame_proto::schema::{Route, StringMatch, TextMatch, path_match, string_match};

use super::compared::{Compared, HeaderValue};
use super::describe;
use super::expressions::Expressions;

/// Rendering omits matches for which Envoy would reject the whole route table. Returns the reason
/// for omitting this match, or `None`.
pub(super) fn left_out(route: &Route) -> Option<String> {
    let mut patterns = Vec::new();
    match route.path.as_ref().and_then(|path| path.kind.as_ref()) {
        Some(path_match::Kind::Regex(pattern)) => patterns.push(pattern),
        Some(path_match::Kind::Prefix(prefix)) => {
            let prefix = prefix.trim_end_matches('/');
            if prefix.len() == 1 || prefix.contains(['?', '#']) {
                return Some(format!("it is omitted: {prefix:?} is not a path prefix"));
            }
        }
        Some(path_match::Kind::TextPrefix(prefix)) => {
            if !prefix.starts_with('/') || prefix.contains(['?', '#']) {
                return Some(format!("it is omitted: {prefix:?} is not a path prefix"));
            }
        }
        Some(path_match::Kind::Exact(_)) | None => {}
    }
    for StringMatch { name, kind } in route.headers.iter().chain(&route.query_params) {
        match kind {
            Some(string_match::Kind::Regex(pattern)) => patterns.push(pattern),
            Some(string_match::Kind::Text(text))
                if text.value.is_empty() && text.operator() != Operator::Exact =>
            {
                return Some(format!("it is omitted: its value for {name} is empty"));
            }
            Some(
                string_match::Kind::Exact(_)
                | string_match::Kind::Text(_)
                | string_match::Kind::Present(_),
            ) => {}
            None => return Some(format!("it is omitted: it has no value for {name}")),
        }
    }
    let bad = patterns.into_iter().find(|pattern| {
        let size = expressions::instructions(pattern);
        pattern.is_empty() || size.is_none_or(|size| size > MAX_INSTRUCTIONS)
    })?;
    Some(format!(
        "it is omitted: the regular expression {bad:?} is invalid or too large"
    ))
}

/// Returns an empty list if the request matches.
pub(super) fn mismatches(
    route: &Route,
    request: &Compared,
    expressions: &mut Expressions,
) -> Vec<String> {
    let mut reasons = Vec::new();
    reasons.extend(of_path(route, request, expressions));
    if route.grpc && !request.grpc {
        reasons.push("the request is not gRPC (content-type: application/grpc)".to_owned());
    }
    if !route.method.is_empty() && route.method != request.method {
        reasons.push(format!(
            "the method is {}, not {}",
            request.method, route.method
        ));
    }
    for header in &route.headers {
        reasons.extend(of_header(header, request, expressions));
    }
    for param in &route.query_params {
        reasons.extend(of_query(param, request, expressions));
    }
    reasons
}

/// `forwards` is the result of `routes::forwards`.
pub(super) fn is_preflight(
    route: &Route,
    forwards: bool,
    request: &Compared,
    expressions: &mut Expressions,
) -> bool {
    let any_method = route.method.is_empty();
    let Some(cors) = &route.cors else {
        return false;
    };
    if forwards && cors.takes_preflights(route) {
        return false;
    }
    let wanted = request.filled("access-control-request-method");
    let method = wanted.is_some_and(|wanted| any_method || wanted == route.method);
    // A preflight lacks the headers of the actual request.
    let mut headers = route.headers.iter().filter(|header| {
        if cors.ignores_matched_headers {
            header.name == "host"
        } else {
            any_method
        }
    });
    request.method == "OPTIONS"
        && method
        && request.filled("origin").is_some()
        && (!route.grpc || request.grpc)
        && of_path(route, request, expressions).is_none()
        && headers.all(|header| of_header(header, request, expressions).is_none())
        && route
            .query_params
            .iter()
            .all(|param| of_query(param, request, expressions).is_none())
}

pub(super) fn of_path(
    route: &Route,
    request: &Compared,
    expressions: &mut Expressions,
) -> Option<String> {
    let asked = request.path.as_str();
    match route.path.as_ref()?.kind.as_ref()? {
        path_match::Kind::Exact(path) => {
            let equal = upper_escapes(asked) == upper_escapes(path);
            (!equal).then(|| format!("the path {asked} is not {path}"))
        }
        path_match::Kind::Prefix(prefix) => {
            let prefix = prefix.trim_end_matches('/');
            let (asked_upper, prefix_upper) = (upper_escapes(asked), upper_escapes(prefix));
            let rest = asked_upper.strip_prefix(&*prefix_upper);
            let below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            (!below).then(|| format!("the path {asked} does not have the prefix {prefix}"))
        }
        path_match::Kind::TextPrefix(prefix) => {
            let begins = upper_escapes(asked).starts_with(&*upper_escapes(prefix));
            (!begins).then(|| format!("the path {asked} does not begin with {prefix}"))
        }
        path_match::Kind::Regex(pattern) => (!expressions.matches(pattern, asked))
            .then(|| format!("the path {asked} does not match {pattern}")),
    }
}

fn of_header(
    header: &StringMatch,
    request: &Compared,
    expressions: &mut Expressions,
) -> Option<String> {
    let name = &header.name;
    let what = format!("header {name}");
    match (request.header(name), &header.kind) {
        (HeaderValue::Unknown, _) => Some(format!(
            "the proxy sets header {name} to a value that cannot be predicted"
        )),
        (value, Some(string_match::Kind::Present(present))) => {
            of_presence(&what, *present, !matches!(value, HeaderValue::Absent))
        }
        (HeaderValue::Absent, Some(string_match::Kind::Text(text))) if text.missing_is_empty => {
            of_text(&what, text, "")
        }
        (HeaderValue::Absent, _) => Some(format!("header {name} is missing")),
        (HeaderValue::Is(values), Some(string_match::Kind::Text(text))) => {
            // Envoy joins multiple values before it compares them.
            of_text(&what, text, &values.join(","))
        }
        (HeaderValue::Is(values), _) => {
            let reasons = values
                .iter()
                .map(|value| of_value(&what, header, value, expressions));
            // One matching value is enough.
            let reasons: Option<Vec<String>> = reasons.collect();
            reasons.map(|reasons| reasons.join(", "))
        }
    }
}

fn of_query(
    param: &StringMatch,
    request: &Compared,
    expressions: &mut Expressions,
) -> Option<String> {
    let name = &param.name;
    let value = request.query_param(name);
    if let Some(string_match::Kind::Present(present)) = &param.kind {
        let what = format!("query parameter {name}");
        return of_presence(&what, *present, value.is_some());
    }
    match value {
        None => Some(format!("query parameter {name} is missing")),
        Some(value) => {
            let what = format!("query parameter {name}");
            of_value(&what, param, value, expressions)
        }
    }
}

fn of_value(
    what: &str,
    wanted: &StringMatch,
    value: &str,
    expressions: &mut Expressions,
) -> Option<String> {
    match wanted.kind.as_ref()? {
        string_match::Kind::Exact(exact) => {
            (exact != value).then(|| format!("{what} is {value:?}, not {exact:?}"))
        }
        string_match::Kind::Text(text) => of_text(what, text, value),
        string_match::Kind::Present(present) => of_presence(what, *present, true),
        string_match::Kind::Regex(pattern) => (!expressions.matches(pattern, value))
            .then(|| format!("{what} is {value:?}, which does not match {pattern}")),
    }
}

fn of_presence(what: &str, wanted: bool, present: bool) -> Option<String> {
    let is = if present { "present" } else { "missing" };
    (wanted != present).then(|| format!("{what} is {is}"))
}

fn of_text(what: &str, text: &TextMatch, value: &str) -> Option<String> {
    (!fulfils(text, value)).then(|| {
        format!(
            "{what} is {value:?}; expected: {}",
            describe::comparison(text)
        )
    })
}

pub(super) fn fulfils(text: &TextMatch, value: &str) -> bool {
    let folded = |text: &str| text.to_ascii_lowercase();
    let (value, wanted) = if text.ignore_case {
        (folded(value), folded(&text.value))
    } else {
        (value.to_owned(), text.value.clone())
    };
    let compares = match text.operator() {
        Operator::Exact => value == wanted,
        Operator::Prefix => value.starts_with(&wanted),
        Operator::Suffix => value.ends_with(&wanted),
        Operator::Contains => value.contains(&wanted),
    };
    compares != text.negate
}
