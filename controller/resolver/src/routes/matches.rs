//! Reads the matches in HTTPRoute and GRPCRoute rules.

use std::cmp::Reverse;
use std::collections::HashSet;

use sesame_proto::canonical_path::{collapse_dots, upper_escapes};
use sesame_proto::schema;

use crate::syntax::regexes::{self, Regexes};
use crate::syntax::{limits, names};
use sesame_kinds::api::{HttpMatch, PathMatch, PathMatchType, StringMatch, StringMatchType};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteMatch {
    pub(crate) path: schema::path_match::Kind,
    /// If empty, any method matches.
    pub(crate) method: String,
    /// Sorted by name, in lower case.
    pub(crate) headers: Vec<schema::StringMatch>,
    pub(crate) query_params: Vec<schema::StringMatch>,
    pub(crate) grpc: Option<Grpc>,
    /// True if the first header match limits a wildcard hostname to a single label. This match on
    /// the Host header does not count towards precedence.
    pub(crate) one_label: bool,
    /// Length by which an Ingress's regular expression is ranked.
    pub(crate) ranked_length: Option<usize>,
    /// Total number of instructions in the compiled regular expressions.
    pub(crate) instructions: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Grpc {
    service: GrpcPartRank,
    method: GrpcPartRank,
}

/// The specification does not rank regular expressions. Here, they rank below all exact values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum GrpcPartRank {
    Exact(Reverse<usize>),
    Regex(Reverse<usize>),
    #[default]
    Any,
}

impl Grpc {
    pub(crate) fn exact(service: &str, method: &str) -> Self {
        Self::of(GrpcPartRank::Exact, service, method)
    }

    pub(crate) fn regex(service: &str, method: &str) -> Self {
        Self::of(GrpcPartRank::Regex, service, method)
    }

    fn of(rank: fn(Reverse<usize>) -> GrpcPartRank, service: &str, method: &str) -> Self {
        let part = |text: &str| match text.len() {
            0 => GrpcPartRank::Any,
            length => rank(Reverse(length)),
        };
        Self {
            service: part(service),
            method: part(method),
        }
    }
}

impl RouteMatch {
    pub(crate) fn all() -> Self {
        Self {
            path: schema::path_match::Kind::Prefix(String::new()),
            method: String::new(),
            headers: Vec::new(),
            query_params: Vec::new(),
            grpc: None,
            one_label: false,
            ranked_length: None,
            instructions: 0,
        }
    }

    pub(crate) fn is_all(&self) -> bool {
        matches!(&self.path, schema::path_match::Kind::Prefix(prefix) if prefix.is_empty())
            && self.method.is_empty()
            && self.headers.is_empty()
            && self.query_params.is_empty()
    }
}

/// Matches may be wider than intended, because no intended request may reach another route. Returns
/// `all` if the list is empty or too long.
pub(crate) fn read_widened<S>(
    specs: &[S],
    all: RouteMatch,
    read: impl FnMut(&S) -> RouteMatch,
) -> Vec<RouteMatch> {
    if specs.is_empty() || specs.len() > limits::MAX_MATCHES {
        return vec![all];
    }
    specs.iter().map(read).collect()
}

/// Skips invalid parts, so the match covers every request that the author may have meant.
pub(crate) fn widened(spec: &HttpMatch, regexes: &mut Regexes) -> RouteMatch {
    let HttpMatch {
        path,
        headers,
        query_params,
        method,
    } = spec;
    let mut part = |path: &Option<PathMatch>, headers: &[_], query_params: &[_]| {
        let part = HttpMatch {
            path: path.clone(),
            headers: headers.to_vec(),
            query_params: query_params.to_vec(),
            method: None,
        };
        read(&part, regexes).unwrap_or_else(|_| RouteMatch::all())
    };
    let by_path = part(path, &[], &[]);
    let by_headers = part(&None, headers, &[]);
    let by_query = part(&None, &[], query_params);
    let method = method.as_deref().unwrap_or_default();
    let is_method = names::check_token(format_args!("method"), method).is_ok();
    RouteMatch {
        path: by_path.path,
        // Keep an unsupported method, because the method narrows the match as intended.
        method: if is_method { method } else { "" }.to_owned(),
        headers: by_headers.headers,
        query_params: by_query.query_params,
        grpc: None,
        one_label: false,
        ranked_length: None,
        instructions: by_path.instructions + by_headers.instructions + by_query.instructions,
    }
}

/// Returns `all` if the list is empty.
pub(crate) fn read_all<S>(
    specs: &[S],
    all: RouteMatch,
    mut read: impl FnMut(&S) -> Result<RouteMatch, String>,
) -> Result<Vec<RouteMatch>, String> {
    limits::entries("matches", specs.len(), 0..=limits::MAX_MATCHES)?;
    if specs.is_empty() {
        return Ok(vec![all]);
    }
    let read = |(i, spec)| read(spec).map_err(|why| format!("matches[{i}].{why}"));
    specs.iter().enumerate().map(read).collect()
}

/// CONNECT is missing because its requests have no path to match.
const METHODS: &[&str] = &[
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH",
];

/// Errors start with the field path relative to the match.
pub(crate) fn read(spec: &HttpMatch, regexes: &mut Regexes) -> Result<RouteMatch, String> {
    let HttpMatch {
        path,
        headers,
        query_params,
        method,
    } = spec;
    let method = method.as_deref().unwrap_or_default();
    if method == "CONNECT" {
        return Err(
            "method CONNECT is not supported: such requests have no path and are not forwarded"
                .to_owned(),
        );
    }
    if !method.is_empty() && !METHODS.contains(&method) {
        return Err(format!(
            "method {method:?} is unknown; expected one of {}",
            METHODS.join(", ")
        ));
    }
    let mut instructions = 0;
    Ok(RouteMatch {
        path: match path {
            Some(path) => read_path(path, regexes, &mut instructions)?,
            None => schema::path_match::Kind::Prefix(String::new()),
        },
        method: method.to_owned(),
        headers: read_headers(headers, regexes, &mut instructions)?,
        query_params: read_list(
            "queryParams",
            (query_params, 1024, str::to_owned),
            regexes,
            &mut instructions,
        )?,
        grpc: None,
        one_label: false,
        ranked_length: None,
        instructions,
    })
}

/// Adds the regular expressions' instruction counts to `instructions`. If several matches have the
/// same name, only the first applies.
pub(crate) fn read_headers(
    headers: &[StringMatch],
    regexes: &mut Regexes,
    instructions: &mut u64,
) -> Result<Vec<schema::StringMatch>, String> {
    let list = (headers, 4096, str::to_ascii_lowercase as fn(&str) -> String);
    read_list("headers", list, regexes, instructions)
}

fn read_path(
    spec: &PathMatch,
    regexes: &mut Regexes,
    instructions: &mut u64,
) -> Result<schema::path_match::Kind, String> {
    let PathMatch { type_, value } = spec;
    let value = value.as_deref().unwrap_or("/");
    limits::max_bytes("path.value", value, limits::MAX_PATH)?;
    match type_ {
        Some(PathMatchType::Exact) => Ok(schema::path_match::Kind::Exact(canonical_path(value)?)),
        None | Some(PathMatchType::PathPrefix) => {
            let path = canonical_path(value)?;
            let prefix = path.strip_suffix('/').unwrap_or(&path);
            Ok(schema::path_match::Kind::Prefix(prefix.to_owned()))
        }
        Some(PathMatchType::RegularExpression) => {
            *instructions += regexes
                .check(value)
                .map_err(|why| format!("path.value {value:?} {why}"))?;
            if let Some(escape) = regexes::impossible_escape(value) {
                return Err(format!(
                    "path.value {value:?} never matches: no path has the escape {escape} once the proxy has normalized it"
                ));
            }
            Ok(schema::path_match::Kind::Regex(value.to_owned()))
        }
        Some(PathMatchType::Other(other)) => Err(format!(
            "path.type {other:?} is unknown; expected Exact, PathPrefix or RegularExpression"
        )),
    }
}

/// Normalizes a path in the same way as Envoy normalizes request paths.
pub(crate) fn canonical_path(value: &str) -> Result<String, String> {
    check_path(value)?;
    let never = |what: &str| format!("path.value {value:?} never matches: {what}");
    // Envoy removes dot segments, and treats an escaped backslash as a slash.
    let plain = value.replace("%2e", ".").replace("%2E", ".");
    if plain
        .split('/')
        .any(|element| matches!(element, "." | ".."))
    {
        return Err(never("the proxy resolves the path element %2e first"));
    }
    if value.contains("%5c") || value.contains("%5C") {
        return Err(never(
            "the proxy treats an escaped backslash (%5C) as a slash",
        ));
    }
    let path = collapse_dots(value)
        .ok_or_else(|| never("requests with an escaped NUL (%00) are rejected"))?;
    Ok(upper_escapes(&path).into_owned())
}

fn check_path(value: &str) -> Result<(), String> {
    if !value.starts_with('/') {
        return Err(format!("path.value {value:?} must start with '/'"));
    }
    for bad in ["//", "/./", "/../", "%2f", "%2F", "#"] {
        if value.contains(bad) {
            return Err(format!("path.value {value:?} must not contain {bad:?}"));
        }
    }
    for bad in ["/..", "/."] {
        if value.ends_with(bad) {
            return Err(format!("path.value {value:?} must not end with {bad:?}"));
        }
    }
    names::check_path("path.value", value)
}

fn read_list(
    field: &str,
    (list, longest, canonical): (&[StringMatch], usize, fn(&str) -> String),
    regexes: &mut Regexes,
    instructions: &mut u64,
) -> Result<Vec<schema::StringMatch>, String> {
    limits::entries(field, list.len(), 0..=limits::MAX_MATCHED_VALUES)?;
    let mut found: Vec<schema::StringMatch> = Vec::with_capacity(list.len());
    let mut seen: HashSet<String> = HashSet::new();
    for (i, StringMatch { type_, name, value }) in list.iter().enumerate() {
        names::check_token(format_args!("{field}[{i}].name"), name)?;
        limits::field_value(format_args!("{field}[{i}]"), value, longest)?;
        let mut size = 0;
        let kind = match type_ {
            None | Some(StringMatchType::Exact) => schema::string_match::Kind::Exact(value.clone()),
            Some(StringMatchType::RegularExpression) => {
                size = regexes
                    .check(value)
                    .map_err(|why| format!("{field}[{i}].value {value:?} {why}"))?;
                schema::string_match::Kind::Regex(value.clone())
            }
            Some(StringMatchType::Other(other)) => {
                return Err(format!(
                    "{field}[{i}].type {other:?} is unknown; expected Exact or RegularExpression"
                ));
            }
        };
        let name = canonical(name);
        if seen.insert(name.clone()) {
            *instructions += size;
            found.push(schema::StringMatch {
                name,
                kind: Some(kind),
            });
        }
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
