//! Which of several matches comes first (Gateway API, `HTTPRouteRule.matches` and `HTTPRouteSpec.hostnames`).
//!
//! Most specific hostname; Exact path; longest path; method; most headers; most query parameters; oldest
//! route; first rule; first match. The specification leaves regular expressions open: here they come after
//! Exact and are compared with prefixes by their length, a prefix first when equal. So `/api/.*` comes
//! before the prefix `/api`, and `.*` after every real prefix.

use std::cmp::Reverse;

use sesame_proto::schema::path_match::Kind;

use super::matches::Conditions;

/// The rank of a match by what it asks; less comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MatchRank {
    not_exact: bool,
    path_length: Reverse<usize>,
    regex: bool,
    any_method: bool,
    headers: Reverse<usize>,
    query_params: Reverse<usize>,
}

impl MatchRank {
    pub(super) fn of(conditions: &Conditions) -> Self {
        let (not_exact, length, regex) = match &conditions.path {
            Kind::Exact(path) => (false, path.len(), false),
            Kind::Prefix(prefix) => (true, prefix.len(), false),
            Kind::Regex(pattern) => (true, pattern.len(), true),
        };
        Self {
            not_exact,
            path_length: Reverse(length),
            regex,
            any_method: conditions.method.is_empty(),
            headers: Reverse(conditions.headers.len()),
            query_params: Reverse(conditions.query_params.len()),
        }
    }
}

/// The full order within a virtual host; less comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    /// Of the route's own hostname.
    pub(super) hostname: Reverse<(bool, usize)>,
    pub(super) rank: MatchRank,
    /// Oldest first.
    pub(super) route: usize,
    pub(super) rule: usize,
    pub(super) match_: usize,
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::StringMatch;

    use super::*;

    fn conditions(path: Kind, method: &str, headers: usize, query_params: usize) -> Conditions {
        Conditions {
            path,
            method: method.to_owned(),
            headers: vec![StringMatch::default(); headers],
            query_params: vec![StringMatch::default(); query_params],
        }
    }

    #[test]
    fn matches_are_ordered_as_specified() {
        let exact = |path: &str| Kind::Exact(path.to_owned());
        let prefix = |path: &str| Kind::Prefix(path.to_owned());
        let regex = |path: &str| Kind::Regex(path.to_owned());
        let ordered = [
            conditions(exact("/a"), "GET", 0, 0),
            conditions(exact("/a"), "", 9, 9),
            conditions(prefix("/long/prefix"), "", 0, 0),
            conditions(regex("/api/.*"), "", 0, 0),
            conditions(prefix("/api"), "GET", 0, 0),
            conditions(prefix("/api"), "", 2, 0),
            conditions(prefix("/api"), "", 1, 2),
            conditions(prefix("/api"), "", 1, 1),
            conditions(prefix("/api"), "", 1, 0),
            conditions(prefix("/ap"), "GET", 9, 9),
            conditions(prefix("/a"), "", 0, 0),
            conditions(regex(".*"), "", 0, 0),
            conditions(prefix(""), "", 0, 0),
        ];
        for pair in ordered.windows(2) {
            assert!(pair[0].rank() < pair[1].rank(), "{pair:?}");
        }
    }
}
