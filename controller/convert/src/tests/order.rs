//! Rules win in the order of their source, although the Gateway API chooses the most specific match.

use serde_json::{Map, Value, json};

use super::super::draft::ObjectId;
use super::super::routing::RuleDraft;
use super::super::routing::order::{HostUnit, OrderedRule, keep_order};

/// A small generator, so that each run tests the same rules.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % below
    }
}

const PATHS: [&str; 5] = ["/", "/a", "/a/b", "/a/b/c", "/x"];
const METHODS: [&str; 3] = ["", "GET", "PUT"];

fn matched(numbers: &mut Numbers) -> Value {
    let kinds = ["PathPrefix", "PathPrefix", "Exact"];
    let path = PATHS[numbers.next(PATHS.len())];
    let mut matched = json!({"path": {"type": kinds[numbers.next(3)], "value": path}});
    let method = METHODS[numbers.next(3)];
    if !method.is_empty() {
        matched["method"] = json!(method);
    }
    let headers: Vec<Value> = ["x", "y"]
        .into_iter()
        .filter_map(|name| {
            let value = ["", "", "1", "2"][numbers.next(4)];
            let header = json!({"type": "Exact", "name": name, "value": value});
            Some(header).filter(|_| !value.is_empty())
        })
        .collect();
    if !headers.is_empty() {
        matched["headers"] = headers.into();
    }
    matched
}

fn accepts(matched: &Value, path: &str, method: &str, headers: &[(&str, &str)]) -> bool {
    let value = matched["path"]["value"].as_str().expect("a path");
    let fits = match matched["path"]["type"].as_str() {
        Some("Exact") => path == value,
        _ => value == "/" || path == value || path.starts_with(&format!("{value}/")),
    };
    let own = matched["headers"].as_array().into_iter().flatten();
    let mut own = own.map(|it| (it["name"].as_str(), it["value"].as_str()));
    let has = |(name, value)| {
        headers
            .iter()
            .any(|it| (Some(it.0), Some(it.1)) == (name, value))
    };
    fits && (matched["method"].is_null() || matched["method"] == method) && own.all(has)
}

/// The Gateway API's precedence; lower wins. Equal matches of several routes have no order.
fn rank(matched: &Value) -> impl Ord + use<> {
    let count = matched["headers"].as_array().map_or(0, Vec::len);
    let length = matched["path"]["value"].as_str().map_or(0, str::len);
    (
        matched["path"]["type"] != "Exact",
        usize::MAX - length,
        matched["method"].is_null(),
        usize::MAX - count,
    )
}

fn unit(owner: &str, rules: Vec<OrderedRule>) -> HostUnit {
    HostUnit {
        owner: ObjectId::new("Route", "shop", owner),
        host: "a.example.com".to_owned(),
        parent: json!({"name": "edge"}),
        rules,
    }
}

#[test]
fn first_rule_wins_after_ordering() {
    let mut numbers = Numbers(7);
    let mut checked = 0;
    for _ in 0..300 {
        let count = 2 + numbers.next(5);
        let rules: Vec<OrderedRule> = (0..count)
            .map(|place| {
                let mut fields = Map::new();
                fields.insert("place".to_owned(), json!(place));
                let matches = (0..=numbers.next(2)).map(|_| matched(&mut numbers));
                let rule = RuleDraft {
                    matches: matches.collect(),
                    fields,
                    ..RuleDraft::default()
                };
                OrderedRule { place, rule }
            })
            .collect();
        let (first, second): (Vec<_>, Vec<_>) =
            rules.clone().into_iter().partition(|it| it.place % 2 == 0);
        let mut units = vec![unit("a", first), unit("b", second)];
        let conflicts = keep_order(&mut units, true);
        assert!(conflicts.is_empty(), "{conflicts:?}");
        for path in PATHS.iter().chain(&["/a/z", "/ab"]) {
            for method in ["GET", "PUT", "POST"] {
                for (x, y) in [("1", "1"), ("1", "2"), ("2", "1"), ("3", "3")] {
                    let headers = [("x", x), ("y", y)];
                    let fits = |it: &&Value| accepts(it, path, method, &headers);
                    let expected = rules
                        .iter()
                        .find(|it| it.rule.matches.iter().any(|it| fits(&it)))
                        .map(|it| it.place);
                    let all = units.iter().flat_map(|it| &it.rules);
                    let all = all.flat_map(|it| it.rule.matches.iter().map(move |m| (m, it.place)));
                    let mut found: Vec<_> = all.filter(|(m, _)| fits(m)).collect();
                    found.sort_by_key(|(m, _)| rank(m));
                    let best = found.first().map(|(m, _)| rank(m));
                    let best: Vec<usize> = found
                        .iter()
                        .filter(|(m, _)| Some(rank(m)) == best)
                        .map(|(_, place)| *place)
                        .collect();
                    // Within one route, the first of equal matches wins.
                    let same_unit = best.iter().all(|it| it % 2 == best[0] % 2);
                    assert!(same_unit, "{rules:?}\n{units:?}");
                    assert_eq!(
                        best.iter().min().copied(),
                        expected,
                        "{path} {method} {headers:?}"
                    );
                    checked += usize::from(expected.is_some());
                }
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}

#[test]
fn expression_of_earlier_rule_is_a_conflict() {
    let rule = |place, kind: &str, path: &str| OrderedRule {
        place,
        rule: RuleDraft {
            matches: vec![json!({"path": {"type": kind, "value": path}})],
            ..RuleDraft::default()
        },
    };
    let mut units = vec![
        unit("a", vec![rule(1, "RegularExpression", "/.*\\.js")]),
        unit("b", vec![rule(2, "PathPrefix", "/static/long/prefix")]),
    ];
    assert_eq!(keep_order(&mut units, true).len(), 1);
    let mut units = vec![
        unit("a", vec![rule(1, "RegularExpression", "/assets/.*\\.js")]),
        unit("b", vec![rule(2, "PathPrefix", "/static/long/prefix")]),
    ];
    assert!(keep_order(&mut units, true).is_empty());
}

#[test]
fn comparisons_of_one_host_are_bounded() {
    for (count, is_complete) in [(100, true), (2010, false)] {
        let rules = |first| {
            let places = (first..count).step_by(2);
            let rules = places.map(|place| OrderedRule {
                place,
                rule: RuleDraft {
                    matches: vec![json!({"path": {"type": "Exact", "value": format!("/{place}")}})],
                    ..RuleDraft::default()
                },
            });
            rules.collect()
        };
        let mut units = vec![unit("a", rules(0)), unit("b", rules(1))];
        assert_eq!(
            keep_order(&mut units, true).is_empty(),
            is_complete,
            "{count}"
        );
    }
}
