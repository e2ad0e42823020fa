//! Precedence of matches (Gateway API, `HTTPRouteRule.matches`, `HTTPRouteSpec.hostnames` and
//! `GRPCRouteRule.matches`).
//!
//! The specification does not rank regular expressions. Here, they rank below Exact and are
//! compared with prefixes by length; at equal length, the prefix ranks higher. A character prefix,
//! which HTTPRoutes do not have, ranks below an element prefix of the same length. As in
//! ingress-nginx, an Ingress's regular expressions are compared by length, but they also rank below
//! Exact.
//!
//! As in Contour, regular expressions in HTTPProxies rank below Exact and above all other paths; of
//! the same length, the alphabetically last ranks highest. HTTPProxy matches with equally many
//! conditions rank by these conditions.
//!
//! GRPCRoutes match only gRPC requests, and rank above HTTPRoutes for the same hostname. Other
//! kinds of routes do not affect the order among HTTPRoutes.

use std::cmp::{Ordering, Reverse};

use sesame_proto::schema::StringMatch;
use sesame_proto::schema::path_match::Kind as PathKind;
use sesame_proto::schema::string_match::Kind as StringKind;
use sesame_proto::schema::text_match::Operator;

use super::matches::{Grpc, RouteMatch};
use sesame_kinds::world::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MatchRank<'a> {
    Grpc(Grpc, Reverse<usize>),
    Http(HttpRank<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HttpRank<'a> {
    not_exact: bool,
    /// False for a regular expression in an HTTPProxy.
    not_proxy_regex: bool,
    path_length: Reverse<usize>,
    kind: PathRank,
    /// Empty except for a regular expression in an HTTPProxy.
    proxy_regex: Reverse<&'a str>,
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

impl<'a> MatchRank<'a> {
    fn of(conditions: &'a RouteMatch, is_proxy: bool) -> Self {
        if let Some(grpc) = conditions.grpc {
            return Self::Grpc(grpc, Reverse(conditions.headers.len()));
        }
        let (not_exact, length, kind) = match &conditions.path {
            PathKind::Exact(path) => (false, path.len(), PathRank::Elements),
            PathKind::Prefix(prefix) => (true, prefix.len(), PathRank::Elements),
            PathKind::TextPrefix(prefix) => (true, prefix.len(), PathRank::Text),
            PathKind::Regex(pattern) => {
                let length = conditions.ranked_length.unwrap_or(pattern.len());
                (true, length, PathRank::Regex)
            }
        };
        let proxy_regex = match &conditions.path {
            PathKind::Regex(pattern) if is_proxy => Some(pattern.as_str()),
            _ => None,
        };
        let host_conditions = usize::from(conditions.one_label);
        Self::Http(HttpRank {
            not_exact,
            not_proxy_regex: proxy_regex.is_none(),
            path_length: Reverse(length),
            kind,
            proxy_regex: Reverse(proxy_regex.unwrap_or_default()),
            any_method: conditions.method.is_empty(),
            headers: Reverse(conditions.headers.len().saturating_sub(host_conditions)),
            query_params: Reverse(conditions.query_params.len()),
        })
    }
}

/// Order of matches with the same rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tie<'a> {
    Gateway,
    Proxy(Values<'a>),
    Ingress,
}

/// An HTTPProxy's conditions on headers and query parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values<'a>(&'a [StringMatch], &'a [StringMatch]);

impl Ord for Values<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let headers = self.0.iter().map(value_rank);
        let headers = headers.cmp(other.0.iter().map(value_rank));
        headers.then_with(|| {
            self.1
                .iter()
                .map(value_rank)
                .cmp(other.1.iter().map(value_rank))
        })
    }
}

impl PartialOrd for Values<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Contour's order of conditions: by name, operator and value.
pub(crate) fn value_rank(value: &StringMatch) -> impl Ord + use<'_> {
    let StringMatch { name, kind } = value;
    let plain = (false, false, false);
    let (operator, text, flags) = match kind {
        None => (0, "", plain),
        Some(StringKind::Exact(text)) => (1, text.as_str(), plain),
        Some(StringKind::Regex(text)) => (2, text.as_str(), plain),
        Some(StringKind::Text(text)) => {
            let operator = match text.operator() {
                Operator::Exact => 1,
                Operator::Prefix => 3,
                Operator::Suffix => 4,
                Operator::Contains => 5,
            };
            let flags = (text.negate, text.ignore_case, text.missing_is_empty);
            (operator, text.value.as_str(), flags)
        }
        Some(StringKind::Present(present)) => (6, "", (!present, false, false)),
    };
    (name, operator, text, flags)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order<'a> {
    /// Specificity of the route's own hostname, not of its intersection with the listener's.
    pub(crate) hostname: Reverse<(bool, usize)>,
    rank: MatchRank<'a>,
    tie: Tie<'a>,
    /// Index of the route, and index among the route's checked rules.
    turn: (usize, usize),
    pub(crate) place: MatchPlace,
}

impl<'a> Order<'a> {
    /// `turn` is the index among the route's checked rules.
    pub(crate) fn of(
        kind: Kind,
        hostname: (bool, usize),
        route_match: &'a RouteMatch,
        turn: usize,
        place: MatchPlace,
    ) -> Self {
        Self {
            hostname: Reverse(hostname),
            rank: MatchRank::of(route_match, kind == Kind::HttpProxy),
            tie: match kind {
                Kind::HttpProxy => {
                    Tie::Proxy(Values(&route_match.headers, &route_match.query_params))
                }
                Kind::Ingress => Tie::Ingress,
                _ => Tie::Gateway,
            },
            turn: (place.route, turn),
            place,
        }
    }
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
    use sesame_proto::schema::TextMatch;

    use super::*;

    fn order(kind: Kind, route_match: &RouteMatch) -> Order<'_> {
        let place = MatchPlace {
            route: 0,
            rule: 0,
            match_: 0,
        };
        Order::of(kind, (true, 0), route_match, 0, place)
    }

    fn conditions(path: PathKind, method: &str, headers: usize, query_params: usize) -> RouteMatch {
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
            ..conditions(PathKind::Prefix(String::new()), "", headers, 0)
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
            conditions(PathKind::Exact("/a".to_owned()), "GET", 9, 9),
        ];
        for pair in ordered.windows(2) {
            let [first, later] = [0, 1].map(|at| order(Kind::HttpRoute, &pair[at]));
            assert!(first < later, "{pair:?}");
        }
    }

    fn any_match() -> impl Strategy<Value = RouteMatch> {
        let path = (0..4, "/[a-c]{0,3}").prop_map(|(kind, path)| match kind {
            0 => PathKind::Exact(path),
            1 => PathKind::Prefix(path),
            2 => PathKind::TextPrefix(path),
            _ => PathKind::Regex(path),
        });
        let method = prop_oneof![Just(""), Just("GET")];
        let values = || prop::collection::vec(any_value(), 0..3);
        let all = (path, method, values(), values());
        all.prop_map(|(path, method, headers, query_params)| RouteMatch {
            headers,
            query_params,
            ..conditions(path, method, 0, 0)
        })
    }

    fn any_value() -> impl Strategy<Value = StringMatch> {
        (0..4, "[ab]", "[ab]", any::<bool>()).prop_map(|(kind, name, text, flag)| {
            let kind = match kind {
                0 => StringKind::Exact(text),
                1 => StringKind::Regex(text),
                2 => contains(&text, flag),
                _ => StringKind::Present(flag),
            };
            let kind = Some(kind);
            StringMatch { name, kind }
        })
    }

    fn contains(text: &str, negate: bool) -> StringKind {
        StringKind::Text(TextMatch {
            operator: Operator::Contains.into(),
            value: text.to_owned(),
            negate,
            ..TextMatch::default()
        })
    }

    fn of_http_routes(route_match: &RouteMatch) -> impl Ord + use<> {
        let (exact, kind, path) = match &route_match.path {
            PathKind::Exact(path) => (true, 0, path),
            PathKind::Prefix(path) => (false, 0, path),
            PathKind::TextPrefix(path) => (false, 1, path),
            PathKind::Regex(path) => (false, 2, path),
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
            all in prop::collection::vec((any_match(), 0..3_usize), 3),
        ) {
            let kinds = [Kind::HttpRoute, Kind::HttpProxy, Kind::Ingress];
            let orders: Vec<_> = all.iter().map(|(it, kind)| order(kinds[*kind], it)).collect();
            let (a, b, c) = (orders[0], orders[1], orders[2]);
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert!(!(a <= b && b <= c) || a <= c);
            prop_assert!(!(a == b && b == c) || a == c);
            let (first, other) = (&all[0].0, &all[1].0);
            let alone = order(Kind::HttpRoute, first).cmp(&order(Kind::HttpRoute, other));
            prop_assert_eq!(alone, of_http_routes(first).cmp(&of_http_routes(other)));
        }
    }

    #[test]
    fn equally_many_conditions_rank_only_in_proxies() {
        let value = |name: &str, kind| StringMatch {
            name: name.to_owned(),
            kind: Some(kind),
        };
        let exact = |text: &str| StringKind::Exact(text.to_owned());
        let headers = [
            value("a", exact("y")),
            value("a", StringKind::Regex("x".to_owned())),
            value("a", contains("x", false)),
            value("a", contains("x", true)),
            value("a", contains("y", false)),
            value("a", StringKind::Present(true)),
            value("a", StringKind::Present(false)),
            value("b", exact("x")),
        ];
        let all = || PathKind::Prefix(String::new());
        let by_header = headers.iter().map(|header| RouteMatch {
            headers: vec![header.clone()],
            ..conditions(all(), "", 0, 0)
        });
        let by_param = headers.iter().map(|param| RouteMatch {
            query_params: vec![param.clone()],
            ..conditions(all(), "", 0, 0)
        });
        let regex = |text: &str| conditions(PathKind::Regex(text.to_owned()), "", 0, 0);
        let regexes = vec![regex("/b.*"), regex("/a.*")];
        for ordered in [by_header.collect(), by_param.collect(), regexes] {
            let ordered: Vec<RouteMatch> = ordered;
            for pair in ordered.windows(2) {
                let [first, later] = [0, 1].map(|at| order(Kind::HttpProxy, &pair[at]));
                assert!(first < later, "{pair:?}");
                for kind in [Kind::HttpRoute, Kind::Ingress] {
                    assert_eq!(order(kind, &pair[0]), order(kind, &pair[1]), "{pair:?}");
                }
            }
        }
    }

    #[test]
    fn matches_are_ordered_as_specified() {
        let exact = |path: &str| PathKind::Exact(path.to_owned());
        let prefix = |path: &str| PathKind::Prefix(path.to_owned());
        let regex = |path: &str| PathKind::Regex(path.to_owned());
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
            let [first, later] = [0, 1].map(|at| order(Kind::HttpRoute, &pair[at]));
            assert!(first < later, "{pair:?}");
        }
    }
}
