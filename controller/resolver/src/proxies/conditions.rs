//! Merges a route's match conditions with the conditions of all includes above the route.
//!
//! An include's prefix is literal, and the included routes match only paths below it. A request
//! must meet all conditions.

mod widened;

use std::cmp::Ordering;

use sesame_proto::expressions::{fixed_path, quote};
use sesame_proto::schema::StringMatch;
use sesame_proto::schema::path_match::Kind as PathKind;

pub(super) use self::widened::Widened;
use super::values::{contradiction, header_match, query_match};
use crate::routes::matches::{RouteMatch, canonical_path};
use crate::routes::precedence::value_rank;
use crate::syntax::limits::{self, MAX_MATCHED_VALUES, MAX_PATH};
use crate::syntax::regexes::{self, Regexes};
use sesame_kinds::api::ProxyCondition;

/// Contour's reason, and a message.
pub(super) type ConditionFault = (&'static str, String);

const PATH: &str = "PathMatchConditionsNotValid";
const HEADER: &str = "HeaderMatchConditionsNotValid";
const QUERY: &str = "QueryParameterMatchConditionsNotValid";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inherited {
    /// Empty, or starts with `/`.
    prefix: String,
    /// Sorted by rank, because the order of conditions must not affect equality.
    headers: Vec<StringMatch>,
    query_params: Vec<StringMatch>,
    instructions: u64,
}

#[derive(Clone, Copy)]
enum OwnPath<'c> {
    None,
    Prefix(&'c str),
    Exact(&'c str),
    Regex(&'c str),
}

impl Inherited {
    pub(super) fn include(
        &self,
        conditions: &[ProxyCondition],
        regexes: &mut Regexes,
    ) -> Result<Self, ConditionFault> {
        let mut below = self.clone();
        match own_path(conditions)? {
            OwnPath::None => {}
            OwnPath::Prefix(prefix) => below.prefix = self.joined(prefix)?,
            OwnPath::Exact(_) | OwnPath::Regex(_) => {
                return Err((
                    PATH,
                    "an include can only have a prefix condition".to_owned(),
                ));
            }
        }
        below.add_values(conditions, regexes)?;
        Ok(below)
    }

    pub(super) fn route(
        &self,
        conditions: &[ProxyCondition],
        regexes: &mut Regexes,
    ) -> Result<RouteMatch, ConditionFault> {
        let mut own = self.clone();
        own.add_values(conditions, regexes)?;
        let path = self.path(own_path(conditions)?, regexes, &mut own.instructions)?;
        Ok(own.matching(path))
    }

    fn path(
        &self,
        own: OwnPath<'_>,
        regexes: &mut Regexes,
        instructions: &mut u64,
    ) -> Result<PathKind, ConditionFault> {
        Ok(match own {
            OwnPath::None => prefix_kind(&self.prefix),
            OwnPath::Prefix(prefix) => prefix_kind(&self.joined(prefix)?),
            OwnPath::Exact(path) => PathKind::Exact(self.joined(path)?),
            OwnPath::Regex(pattern) => {
                let invalid = |why: String| (PATH, format!("regex {pattern:?} {why}"));
                // Check the pattern alone first, because an unbalanced `)` could close the group
                // that `self.pattern` adds.
                regexes.check(pattern).map_err(invalid)?;
                let whole = self.pattern(pattern);
                let checked = regexes.check(&whole).map_err(invalid)?;
                if let Some(escape) = regexes::impossible_escape(pattern) {
                    let why = format!("regex {pattern:?} never matches: no path contains {escape}");
                    return Err((PATH, why));
                }
                *instructions = instructions.saturating_add(checked);
                PathKind::Regex(whole)
            }
        })
    }

    pub(super) fn whole(&self) -> RouteMatch {
        self.clone().matching(prefix_kind(&self.prefix))
    }

    pub(super) fn prefix_of(route_match: &RouteMatch) -> Option<&str> {
        match &route_match.path {
            PathKind::TextPrefix(prefix) => Some(prefix),
            PathKind::Prefix(prefix) if prefix.is_empty() => Some("/"),
            _ => None,
        }
    }

    fn matching(self, path: PathKind) -> RouteMatch {
        let Self {
            prefix: _,
            headers,
            query_params,
            instructions,
        } = self;
        RouteMatch {
            path,
            headers,
            query_params,
            instructions,
            ..RouteMatch::all()
        }
    }

    fn joined(&self, path: &str) -> Result<String, ConditionFault> {
        let mut joined = String::with_capacity(self.prefix.len() + 1 + path.len());
        for c in self.prefix.chars().chain(['/']).chain(path.chars()) {
            if c != '/' || !joined.ends_with('/') {
                joined.push(c);
            }
        }
        limits::max_bytes("path", &joined, MAX_PATH).map_err(|why| (PATH, why))?;
        canonical_path(&joined).map_err(|why| (PATH, why.replacen("path.value", "path", 1)))
    }

    /// Prepends the includes' prefix.
    fn pattern(&self, pattern: &str) -> String {
        let slash = if pattern.starts_with('/') { "" } else { "/?" };
        match self.prefix.trim_end_matches('/') {
            "" if slash.is_empty() => pattern.to_owned(),
            prefix => format!("{}{slash}(?:{pattern})", quote(prefix)),
        }
    }

    fn add_values(
        &mut self,
        conditions: &[ProxyCondition],
        regexes: &mut Regexes,
    ) -> Result<(), ConditionFault> {
        let headers = conditions.iter().filter(|it| it.header.is_some()).count();
        let number = self.headers.len().saturating_add(headers);
        let count = limits::entries("header conditions", number, 0..=MAX_MATCHED_VALUES);
        count.map_err(|why| (HEADER, why))?;
        let params = conditions
            .iter()
            .filter(|it| it.query_parameter.is_some())
            .count();
        let number = self.query_params.len().saturating_add(params);
        let count = limits::entries("query conditions", number, 0..=MAX_MATCHED_VALUES);
        count.map_err(|why| (QUERY, why))?;
        for header in conditions.iter().filter_map(|it| it.header.as_ref()) {
            let read = header_match(header, regexes, &mut self.instructions);
            self.headers.push(read.map_err(|why| (HEADER, why))?);
        }
        for param in conditions
            .iter()
            .filter_map(|it| it.query_parameter.as_ref())
        {
            let read = query_match(param, regexes, &mut self.instructions);
            self.query_params.push(read.map_err(|why| (QUERY, why))?);
        }
        contradiction("header", &self.headers).map_err(|why| (HEADER, why))?;
        contradiction("query parameter", &self.query_params).map_err(|why| (QUERY, why))?;
        self.headers.sort_by(by_rank);
        self.query_params.sort_by(by_rank);
        Ok(())
    }
}

fn by_rank(a: &StringMatch, b: &StringMatch) -> Ordering {
    value_rank(a).cmp(&value_rank(b))
}

fn prefix_kind(prefix: &str) -> PathKind {
    match prefix {
        "" | "/" => PathKind::Prefix(String::new()),
        prefix => PathKind::TextPrefix(prefix.to_owned()),
    }
}

impl<'c> OwnPath<'c> {
    fn text(&self) -> &'c str {
        match *self {
            Self::None => "",
            Self::Prefix(text) | Self::Exact(text) | Self::Regex(text) => text,
        }
    }
}

fn own_paths(condition: &ProxyCondition) -> impl Iterator<Item = OwnPath<'_>> {
    let ProxyCondition {
        prefix,
        exact,
        regex,
        header: _,
        query_parameter: _,
    } = condition;
    let paths = [
        OwnPath::Prefix(prefix),
        OwnPath::Exact(exact),
        OwnPath::Regex(regex),
    ];
    paths.into_iter().filter(|path| !path.text().is_empty())
}

fn fixed_paths(conditions: &[ProxyCondition]) -> impl Iterator<Item = OwnPath<'_>> {
    let fixed = conditions.iter().map(|it| fixed_path(&it.regex));
    fixed.filter(|path| !path.is_empty()).map(OwnPath::Prefix)
}

fn own_path(conditions: &[ProxyCondition]) -> Result<OwnPath<'_>, ConditionFault> {
    let mut found = OwnPath::None;
    for path in conditions.iter().flat_map(own_paths) {
        if !matches!(found, OwnPath::None) {
            let why = "more than one prefix, exact or regex condition; expected one";
            return Err((PATH, why.to_owned()));
        }
        let text = path.text();
        if !text.starts_with('/') {
            return Err((PATH, format!("path {text:?} must start with '/'")));
        }
        found = path;
    }
    Ok(found)
}
