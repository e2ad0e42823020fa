//! Matches for routes and includes whose conditions are invalid.

use sesame_proto::expressions::quote;
use sesame_proto::schema::StringMatch;
use sesame_proto::schema::path_match::Kind as PathKind;

use super::{Inherited, OwnPath, by_rank, fixed_paths, own_paths, prefix_kind};
use crate::proxies::values::{
    contradiction, header_match, header_presence, query_match, query_presence,
};
use crate::routes::matches::RouteMatch;
use crate::syntax::limits::MAX_MATCHED_VALUES;
use crate::syntax::regexes::Regexes;
use sesame_kinds::api::ProxyCondition;

/// Matches for the requests that invalid conditions may mean, but never more than the includes
/// allow.
pub(in crate::proxies) struct Widened {
    /// The likeliest first. A security-relevant route needs all of them.
    pub(in crate::proxies) likely: Vec<RouteMatch>,
    /// Like the likeliest, but without values for the invalid conditions.
    pub(in crate::proxies) wide: Option<RouteMatch>,
}

impl Widened {
    /// Returns the matches that no other route may serve, and the matches that others precede.
    pub(in crate::proxies) fn split(self, protects: bool) -> (Vec<RouteMatch>, Vec<RouteMatch>) {
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

impl Inherited {
    pub(in crate::proxies) fn widened(
        &self,
        conditions: &[ProxyCondition],
        regexes: &mut Regexes,
    ) -> Widened {
        let paths = conditions.iter().flat_map(own_paths).collect();
        self.widened_on(paths, conditions, regexes)
    }

    /// Like [`Self::widened`]. The path of an include is always a prefix.
    pub(in crate::proxies) fn widened_include(
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
