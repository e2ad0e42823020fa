//! Merges a route's match conditions with the conditions of all includes above the route.
//!
//! An include's prefix is literal, and the included routes match only paths below it. A request
//! must meet all conditions.

use std::cmp::Ordering;

use sesame_proto::expressions::{fixed_path, quote};
use sesame_proto::schema::StringMatch;
use sesame_proto::schema::path_match::Kind as PathKind;

use super::values::{contradiction, header_match, header_presence, query_match, query_presence};
use crate::api::ProxyCondition;
use crate::resolve::routes::matches::{RouteMatch, canonical_path};
use crate::resolve::routes::precedence::value_rank;
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
    /// Sorted by rank, because the order of conditions must not affect equality.
    headers: Vec<StringMatch>,
    query_params: Vec<StringMatch>,
    instructions: u64,
}

/// Matches for the requests that invalid conditions may mean, but never more than the includes
/// allow.
pub(super) struct Widened {
    /// The likeliest first. A security-relevant route needs all of them.
    pub(super) likely: Vec<RouteMatch>,
    /// Like the likeliest, but without values for the invalid conditions.
    pub(super) wide: Option<RouteMatch>,
}

impl Widened {
    /// Returns the matches that no other route may serve, and the matches that others precede.
    pub(super) fn split(self, protects: bool) -> (Vec<RouteMatch>, Vec<RouteMatch>) {
        let Self { mut likely, wide } = self;
        if !protects {
            likely.truncate(1);
        }
        let wide = wide.filter(|it| likely.first() != Some(it));
        let wide = wide.into_iter();
        if protects {
            (likely, wide.collect())
        } else {
            (Vec::new(), likely.into_iter().chain(wide).collect())
        }
    }
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

    pub(super) fn widened(&self, conditions: &[ProxyCondition], regexes: &mut Regexes) -> Widened {
        let paths = conditions.iter().flat_map(own_paths).collect();
        self.widened_on(paths, conditions, regexes)
    }

    /// Like [`Self::widened`]. The path of an include is always a prefix.
    pub(super) fn widened_include(
        &self,
        conditions: &[ProxyCondition],
        regexes: &mut Regexes,
    ) -> Widened {
        let below = |it: &ProxyCondition| format!("(?:{}).*", it.regex);
        let with_regex = conditions.iter().filter(|it| !it.regex.is_empty());
        let regexes_below: Vec<String> = with_regex.map(below).collect();
        let paths = conditions.iter().flat_map(own_paths);
        let prefixes = paths.filter_map(|path| match path {
            OwnPath::Prefix(path) | OwnPath::Exact(path) => Some(OwnPath::Prefix(path)),
            OwnPath::None | OwnPath::Regex(_) => None,
        });
        let paths = prefixes.chain(regexes_below.iter().map(|it| OwnPath::Regex(it)));
        self.widened_on(paths.collect(), conditions, regexes)
    }

    /// A path without a leading slash gets one. Almost every header and query condition needs a
    /// value, so the first match requires one for each invalid condition, and the last does not.
    fn widened_on(
        &self,
        own: Vec<OwnPath<'_>>,
        conditions: &[ProxyCondition],
        regexes: &mut Regexes,
    ) -> Widened {
        let mut cost = self.instructions;
        let paths = self.possible_paths(own, conditions, regexes, &mut cost);
        let headers = conditions.iter().filter_map(|it| it.header.as_ref());
        let read = |it: &_| header_match(it, regexes, &mut cost);
        let headers = Readings::of(headers, read, header_presence);
        let params = conditions
            .iter()
            .filter_map(|it| it.query_parameter.as_ref());
        let read = |it: &_| query_match(it, regexes, &mut cost);
        let params = Readings::of(params, read, query_presence);
        let (mut likely, mut wide) = (self.clone(), self.clone());
        add_first(&mut likely.headers, [headers.likely, headers.present]);
        add_first(&mut likely.query_params, [params.likely, params.present]);
        add_first(&mut wide.headers, [headers.valid]);
        add_first(&mut wide.query_params, [params.valid]);
        (likely.instructions, wide.instructions) = (cost, cost);
        Widened {
            wide: paths.first().map(|(path, _)| wide.matching(path.clone())),
            likely: paths
                .into_iter()
                .map(|(path, ranked_length)| RouteMatch {
                    ranked_length,
                    ..likely.clone().matching(path)
                })
                .collect(),
        }
    }

    /// Returns the readable paths with their rank among expressions, the likeliest first. If any
    /// path is unreadable, the last covers everything that it may mean, and precedes all other
    /// expressions.
    fn possible_paths(
        &self,
        own: Vec<OwnPath<'_>>,
        conditions: &[ProxyCondition],
        regexes: &mut Regexes,
        cost: &mut u64,
    ) -> Vec<(PathKind, Option<usize>)> {
        let several = own.len() > 1;
        let mut unreadable = false;
        let mut paths = Vec::new();
        for path in own {
            match self.path(path, regexes, cost) {
                // The other conditions may mean paths below this one.
                Ok(PathKind::Exact(path)) if several => paths.push((prefix_kind(&path), None)),
                Ok(path) => paths.push((path, None)),
                Err(_) => unreadable = true,
            }
        }
        let fixed = fixed_paths(conditions).find_map(|path| self.path(path, regexes, cost).ok());
        let possible = fixed.unwrap_or_else(|| prefix_kind(&self.prefix));
        let below = match &possible {
            PathKind::TextPrefix(prefix) => format!("{}.*", quote(prefix)),
            _ => "/.*".to_owned(),
        };
        if paths.is_empty() {
            paths.push((possible, None));
        }
        if unreadable && let Ok(instructions) = regexes.check(&below) {
            *cost = cost.saturating_add(instructions);
            paths.push((PathKind::Regex(below), Some(usize::MAX)));
        }
        paths
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

/// What header or query conditions may mean if some of them are invalid.
#[derive(Default)]
struct Readings {
    /// An invalid condition requires a value.
    likely: Vec<StringMatch>,
    /// All conditions require a value.
    present: Vec<StringMatch>,
    /// Without invalid conditions.
    valid: Vec<StringMatch>,
}

impl Readings {
    fn of<'c, C: 'c>(
        conditions: impl Iterator<Item = &'c C>,
        mut read: impl FnMut(&C) -> Result<StringMatch, String>,
        presence: impl Fn(&C) -> Option<StringMatch>,
    ) -> Self {
        let mut readings = Self::default();
        for condition in conditions.take(MAX_MATCHED_VALUES) {
            let present = presence(condition);
            match read(condition) {
                Ok(valid) => {
                    readings.likely.push(valid.clone());
                    readings.valid.push(valid);
                }
                Err(_) => readings.likely.extend(present.clone()),
            }
            readings.present.extend(present);
        }
        readings
    }
}

/// Adds the first list that some request can meet.
fn add_first<const N: usize>(values: &mut Vec<StringMatch>, lists: [Vec<StringMatch>; N]) {
    let all = lists
        .into_iter()
        .map(|list| [values.as_slice(), &list].concat());
    let mut met =
        all.filter(|all| all.len() <= MAX_MATCHED_VALUES && contradiction("", all).is_ok());
    if let Some(mut first) = met.next() {
        first.sort_by(by_rank);
        first.dedup();
        *values = first;
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
