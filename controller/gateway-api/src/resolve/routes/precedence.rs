//! Precedence of matches (Gateway API, `HTTPRouteRule.matches`, `HTTPRouteSpec.hostnames` and
//! `GRPCRouteRule.matches`).
//!
//! The specification does not rank regular expressions. Here, they rank below Exact and are
//! compared with prefixes by length; at equal length, the prefix ranks higher. A character prefix,
//! which HTTPRoutes do not have, ranks below an element prefix of the same length. As in Contour,
//! regular expressions in HTTPProxies rank below Exact and above all other paths. As in
//! ingress-nginx, an Ingress's regular expressions are compared by length, but they also rank below
//! Exact.
//!
//! GRPCRoutes match only gRPC requests, and rank above HTTPRoutes for the same hostname. Other
//! kinds of routes do not affect the order among HTTPRoutes.

use std::cmp::Reverse;

use sesame_proto::schema::path_match::Kind;

use super::matches::{Grpc, RouteMatch};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MatchRank {
    Grpc(Grpc, Reverse<usize>),
    Http(HttpRank),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HttpRank {
    not_exact: bool,
    /// False for a regular expression in an HTTPProxy.
    not_layered_regex: bool,
    path_length: Reverse<usize>,
    kind: PathRank,
    any_method: bool,
    headers: Reverse<usize>,
    query_params: Reverse<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathRank {
    Elements,
    Text,
    Regex,
}

impl MatchRank {
    pub(crate) fn of(conditions: &RouteMatch, layered: bool) -> Self {
        if let Some(grpc) = conditions.grpc {
            return Self::Grpc(grpc, Reverse(conditions.headers.len()));
        }
        let (not_exact, length, kind) = match &conditions.path {
            Kind::Exact(path) => (false, path.len(), PathRank::Elements),
            Kind::Prefix(prefix) => (true, prefix.len(), PathRank::Elements),
            Kind::TextPrefix(prefix) => (true, prefix.len(), PathRank::Text),
            Kind::Regex(pattern) => {
                let length = conditions.ranked_length.unwrap_or(pattern.len());
                (true, length, PathRank::Regex)
            }
        };
        let host_conditions = usize::from(conditions.one_label);
        Self::Http(HttpRank {
            not_exact,
            not_layered_regex: !layered
                || kind != PathRank::Regex
                || conditions.ranked_length.is_some(),
            path_length: Reverse(length),
            kind,
            any_method: conditions.method.is_empty(),
            headers: Reverse(conditions.headers.len().saturating_sub(host_conditions)),
            query_params: Reverse(conditions.query_params.len()),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    /// Specificity of the route's own hostname, not of its intersection with the listener's.
    pub(crate) hostname: Reverse<(bool, usize)>,
    pub(crate) rank: MatchRank,
    /// Index of the route, and index among the route's checked rules.
    pub(crate) turn: (usize, usize),
    pub(crate) place: MatchPlace,
}

/// Orders Gateway API routes by age, before HTTPProxies and Ingresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MatchPlace {
    pub(crate) route: usize,
    pub(crate) rule: usize,
    pub(crate) match_: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sesame_proto::schema::StringMatch;

    use super::*;

    fn conditions(path: Kind, method: &str, headers: usize, query_params: usize) -> RouteMatch {
        RouteMatch {
            path,
            method: method.to_owned(),
            headers: vec![StringMatch::default(); headers],
            query_params: vec![StringMatch::default(); query_params],
            grpc: None,
            one_label: false,
            ranked_length: None,
            instructions: 0,
        }
    }

    #[test]
    fn grpc_matches_precede_others_in_own_order() {
        let grpc = |grpc: Grpc, headers: usize| RouteMatch {
            grpc: Some(grpc),
            ..conditions(Kind::Prefix(String::new()), "", headers, 0)
        };
        let ordered = [
            grpc(Grpc::exact("a.longer.Service", "Get"), 1),
            grpc(Grpc::exact("a.longer.Service", "Get"), 0),
            grpc(Grpc::exact("a.longer.Service", ""), 9),
            grpc(Grpc::exact("a", "Method"), 0),
            grpc(Grpc::regex("a.*", "Get"), 0),
            grpc(Grpc::exact("", "Get"), 0),
            grpc(Grpc::default(), 1),
            grpc(Grpc::default(), 0),
            conditions(Kind::Exact("/a".to_owned()), "GET", 9, 9),
        ];
        for pair in ordered.windows(2) {
            assert!(
                MatchRank::of(&pair[0], false) < MatchRank::of(&pair[1], false),
                "{pair:?}"
            );
        }
    }

    fn any_match() -> impl Strategy<Value = RouteMatch> {
        let path = (0..4, "/[a-c]{0,3}").prop_map(|(kind, path)| match kind {
            0 => Kind::Exact(path),
            1 => Kind::Prefix(path),
            2 => Kind::TextPrefix(path),
            _ => Kind::Regex(path),
        });
        let method = prop_oneof![Just(""), Just("GET")];
        let all = (path, method, 0..3_usize, 0..3_usize);
        all.prop_map(|(path, method, headers, query)| conditions(path, method, headers, query))
    }

    fn of_http_routes(route_match: &RouteMatch) -> impl Ord + use<> {
        let (exact, kind, path) = match &route_match.path {
            Kind::Exact(path) => (true, 0, path),
            Kind::Prefix(path) => (false, 0, path),
            Kind::TextPrefix(path) => (false, 1, path),
            Kind::Regex(path) => (false, 2, path),
        };
        let values = (route_match.headers.len(), route_match.query_params.len());
        (
            (!exact, Reverse(path.len()), kind),
            (route_match.method.is_empty(), Reverse(values)),
        )
    }

    proptest! {
        #[test]
        fn order_is_total_and_keeps_http_routes(
            all in prop::collection::vec((any_match(), any::<bool>()), 3),
        ) {
            let rank = |i: usize| MatchRank::of(&all[i].0, all[i].1);
            let (a, b, c) = (rank(0), rank(1), rank(2));
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert!(!(a <= b && b <= c) || a <= c);
            prop_assert!(!(a == b && b == c) || a == c);
            let (first, other) = (&all[0].0, &all[1].0);
            let alone = MatchRank::of(first, false).cmp(&MatchRank::of(other, false));
            prop_assert_eq!(alone, of_http_routes(first).cmp(&of_http_routes(other)));
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
            assert!(
                MatchRank::of(&pair[0], false) < MatchRank::of(&pair[1], false),
                "{pair:?}"
            );
        }
    }
}
