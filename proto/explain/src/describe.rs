//! Describes matches and header changes as text.

use std::borrow::Cow;

use sesame_proto::schema::text_match::Operator;
use sesame_proto::schema::{
    Header, HeaderModifier, HeaderPart, PathMatch, Route, StringMatch, TextMatch, header_part,
    path_match, string_match,
};

pub(super) fn condition(route: &Route) -> String {
    let mut parts = vec![path(route.path.as_ref())];
    if route.grpc {
        parts.push("gRPC".to_owned());
    }
    if !route.method.is_empty() {
        parts.push(format!("method {}", route.method));
    }
    let headers = route.headers.iter().map(|it| value("header", it));
    let query = route.query_params.iter().map(|it| value("query", it));
    parts.extend(headers.chain(query));
    parts.join(", ")
}

fn path(path: Option<&PathMatch>) -> String {
    match path.and_then(|path| path.kind.as_ref()) {
        None => "every path".to_owned(),
        Some(path_match::Kind::Exact(path)) => format!("path {path}"),
        Some(path_match::Kind::Regex(pattern)) => format!("path matches {pattern}"),
        Some(path_match::Kind::Prefix(prefix)) => match prefix.trim_end_matches('/') {
            "" => "every path".to_owned(),
            prefix => format!("path prefix {prefix}"),
        },
        Some(path_match::Kind::TextPrefix(prefix)) => format!("path begins with {prefix}"),
    }
}

fn value(what: &str, of: &StringMatch) -> String {
    let StringMatch { name, kind } = of;
    match kind {
        Some(string_match::Kind::Exact(value)) => format!("{what} {name} is {value:?}"),
        Some(string_match::Kind::Regex(pattern)) => format!("{what} {name} matches {pattern}"),
        Some(string_match::Kind::Present(true)) => format!("{what} {name} is present"),
        Some(string_match::Kind::Present(false)) => format!("{what} {name} is absent"),
        Some(string_match::Kind::Text(text)) => format!("{what} {name} {}", comparison(text)),
        None => format!("{what} {name}"),
    }
}

/// Example: `does not contain "x" (ignoring case)`.
pub(super) fn comparison(text: &TextMatch) -> String {
    let verb = match (text.operator(), text.negate) {
        (Operator::Exact, false) => "is",
        (Operator::Exact, true) => "is not",
        (Operator::Prefix, false) => "begins with",
        (Operator::Prefix, true) => "does not begin with",
        (Operator::Suffix, false) => "ends with",
        (Operator::Suffix, true) => "does not end with",
        (Operator::Contains, false) => "contains",
        (Operator::Contains, true) => "does not contain",
    };
    let case = if text.ignore_case {
        " (ignoring case)"
    } else {
        ""
    };
    let missing = if text.missing_is_empty {
        ", empty if missing"
    } else {
        ""
    };
    format!("{verb} {:?}{case}{missing}", text.value)
}

/// Returns an empty string if `modifier` is empty. `current` returns a header's value before the
/// changes.
pub(super) fn changes(
    modifier: &HeaderModifier,
    current: impl Fn(&str) -> Option<String>,
) -> String {
    let HeaderModifier { set, add, remove } = modifier;
    let mut parts = Vec::new();
    for header in set {
        let before = current(&header.name);
        let before = before.map(|value| format!(" instead of {value:?}"));
        parts.push(format!(
            "sets {} to {:?}{}",
            header.name,
            header_value(header),
            before.unwrap_or_default()
        ));
    }
    for header in add {
        parts.push(format!("adds {}: {:?}", header.name, header_value(header)));
    }
    parts.extend(remove.iter().map(|name| format!("removes {name}")));
    parts.join(", ")
}

fn header_value(
    Header {
        name: _,
        value,
        parts,
    }: &Header,
) -> Cow<'_, str> {
    if parts.is_empty() {
        return Cow::Borrowed(value);
    }
    let parts = parts.iter().map(|HeaderPart { kind }| match kind {
        Some(header_part::Kind::Literal(text)) => text.clone(),
        Some(header_part::Kind::RequestHeader(name)) => format!("%REQ({name})%"),
        Some(header_part::Kind::Fact(fact)) => {
            let fact = header_part::Fact::try_from(*fact).unwrap_or_default();
            format!("%{}%", fact.as_str_name())
        }
        None => String::new(),
    });
    Cow::Owned(parts.collect())
}

pub(super) fn host(host: &str) -> &str {
    match host {
        "" | "*" => "any other host",
        host => host,
    }
}

pub(super) fn duration(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1000) {
        format!("{} s", milliseconds / 1000)
    } else {
        format!("{milliseconds} ms")
    }
}
