//! Merges a route's match conditions with the conditions of all includes above the route.
//!
//! An include's prefix is literal, and the included routes match only paths below it. A request
//! must meet all conditions.

use sesame_proto::expressions::{fixed_path, quote};
use sesame_proto::schema::StringMatch;
use sesame_proto::schema::path_match::Kind as PathKind;

use super::values::{contradiction, header_match, query_match};
use crate::api::ProxyCondition;
use crate::resolve::routes::matches::{RouteMatch, canonical_path};
use crate::resolve::syntax::limits::{self, MAX_MATCHED_VALUES, MAX_PATH};
use crate::resolve::syntax::regexes::{self, Regexes};

/// Contour's reason, and a message.
pub(super) type ConditionFault = (&'static str, String);

const PATH: &str = "PathMatchConditionsNotValid";
const HEADER: &str = "HeaderMatchConditionsNotValid";
const QUERY: &str = "QueryParameterMatchConditionsNotValid";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inherited {
    /// Empty, or starts with `/`.
    prefix: String,
    headers: Vec<StringMatch>,
    query_params: Vec<StringMatch>,
    instructions: u64,
}

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
        let path = match own_path(conditions)? {
            OwnPath::None => own.prefix_kind(),
            OwnPath::Prefix(prefix) => {
                own.prefix = self.joined(prefix)?;
                own.prefix_kind()
            }
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
                own.instructions = own.instructions.saturating_add(checked);
                PathKind::Regex(whole)
            }
        };
        Ok(own.matching(path))
    }

    /// Covers every request that the author may have meant, but never more than the includes allow.
    pub(super) fn widened(&self, conditions: &[ProxyCondition]) -> RouteMatch {
        let mut wide = self.clone();
        let mut paths = conditions.iter().flat_map(|it| {
            let regex = fixed_path(&it.regex);
            [it.prefix.as_str(), it.exact.as_str(), regex]
        });
        let readable = paths.find_map(|path| self.joined(path).ok());
        if let Some(path) = readable {
            wide.prefix = path;
        }
        let path = wide.prefix_kind();
        wide.matching(path)
    }

    pub(super) fn whole(&self) -> RouteMatch {
        self.clone().matching(self.prefix_kind())
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
            mut headers,
            mut query_params,
            instructions,
        } = self;
        // Sort, because the order of conditions must not affect equality.
        headers.sort_by_cached_key(|it| (it.name.clone(), format!("{it:?}")));
        query_params.sort_by_cached_key(|it| (it.name.clone(), format!("{it:?}")));
        RouteMatch {
            path,
            headers,
            query_params,
            instructions,
            ..RouteMatch::all()
        }
    }

    fn prefix_kind(&self) -> PathKind {
        match self.prefix.as_str() {
            "" | "/" => PathKind::Prefix(String::new()),
            prefix => PathKind::TextPrefix(prefix.to_owned()),
        }
    }

    fn joined(&self, path: &str) -> Result<String, ConditionFault> {
        if !path.starts_with('/') {
            return Err((PATH, format!("path {path:?} must start with '/'")));
        }
        let mut joined = String::with_capacity(self.prefix.len() + path.len());
        for c in self.prefix.chars().chain(path.chars()) {
            if c != '/' || !joined.ends_with('/') {
                joined.push(c);
            }
        }
        limits::max_bytes("path", &joined, MAX_PATH).map_err(|why| (PATH, why))?;
        canonical_path(&joined).map_err(|why| (PATH, why.replacen("path.value", "path", 1)))
    }

    /// Prepends the includes' prefix.
    fn pattern(&self, pattern: &str) -> String {
        match self.prefix.trim_end_matches('/') {
            "" => pattern.to_owned(),
            prefix => format!("{}(?:{pattern})", quote(prefix)),
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
        contradiction("query parameter", &self.query_params).map_err(|why| (QUERY, why))
    }
}

fn own_path(conditions: &[ProxyCondition]) -> Result<OwnPath<'_>, ConditionFault> {
    let mut found = OwnPath::None;
    for condition in conditions {
        let ProxyCondition {
            prefix,
            exact,
            regex,
            header: _,
            query_parameter: _,
        } = condition;
        let paths = [
            (prefix, OwnPath::Prefix(prefix)),
            (exact, OwnPath::Exact(exact)),
            (regex, OwnPath::Regex(regex)),
        ];
        for (text, path) in paths {
            if text.is_empty() {
                continue;
            }
            if !matches!(found, OwnPath::None) {
                let why = "more than one prefix, exact or regex condition; expected one";
                return Err((PATH, why.to_owned()));
            }
            if !text.starts_with('/') {
                return Err((PATH, format!("path {text:?} must start with '/'")));
            }
            found = path;
        }
    }
    Ok(found)
}
