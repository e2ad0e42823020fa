//! Tests how rate limits are rendered as Envoy messages.

use serde_json::{Value, json};
use sesame_proto::schema::rate_limit_key::Kind;
use sesame_proto::schema::{EndpointSet, RateLimit, RateLimitKey, Route, route::Action};

use super::everything::{EVERY_CLIENT, everything};
use super::parts::{WEB, forward, options, route, to};
use crate::layout::file_name;
use crate::rendered::RenderProblem;
use crate::{RenderOptions, dump, render};

pub(super) fn limited(limits: &[&str]) -> Route {
    Route {
        rate_limits: limits.iter().map(|&name| name.to_owned()).collect(),
        ..route("one", "/a", Action::Forward(forward(&[to(WEB, 1)])))
    }
}

pub(super) fn limit(name: &str) -> RateLimit {
    RateLimit {
        name: name.into(),
        requests: 5,
        per_ms: 1_000,
        ..RateLimit::default()
    }
}

/// Returns the filter with the limits, the route, and the number of problems with limits.
fn printed(route: Route, limits: Vec<RateLimit>) -> (Value, Value, usize) {
    let (mut snapshot, keys) = everything();
    snapshot.route_tables.truncate(1);
    snapshot.route_tables[0].virtual_hosts.truncate(1);
    snapshot.route_tables[0].virtual_hosts[0].external_auth = Vec::new();
    snapshot.route_tables[0].virtual_hosts[0].routes = vec![route];
    snapshot.rate_limits = limits;
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    let route = &printed["routes"][0]["virtual_hosts"][0]["routes"][0];
    let filters = printed["filters"].as_array().unwrap();
    let filter = filters
        .iter()
        .find(|it| it["name"] == "rate_limits")
        .unwrap();
    let filter = filter["typed_config"].clone();
    let is_about_limits = |problem: &&RenderProblem| problem.message.contains("limit");
    let problems = rendered.problems.iter().filter(is_about_limits).count();
    (filter, route.clone(), problems)
}

#[test]
fn route_names_buckets_of_the_filter() {
    let (snapshot, _) = everything();
    let (filter, route, problems) = printed(limited(&[EVERY_CLIENT]), snapshot.rate_limits);
    assert_eq!(problems, 0);
    let config = &route["typed_per_filter_config"]["rate_limits"];
    let chain = &config["matcher"]["on_no_match"]["action"]["typed_config"]["filter_chain_name"];
    let chains = filter["named_filter_chains"].as_object().unwrap();
    assert_eq!(chains.len(), 2);
    let own = &chains[chain.as_str().unwrap()]["typed_config"][0]["typed_config"];
    let hash = file_name(EVERY_CLIENT);
    assert_eq!(
        own["descriptors"],
        json!([{
            "entries": [
                {"key": "limit", "value": hash},
                {"key": "remote_address"},
                {"key": "value"},
                {"key": "value"},
                {"key": "value"},
            ],
            "token_bucket": {"max_tokens": 120, "tokens_per_fill": 100, "fill_interval": "60s"},
        }])
    );
    assert_eq!(own["status"], json!({"code": "ServiceUnavailable"}));
    let key = file_name("key");
    let methods = "GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH";
    let method = |key: &str, value: &str, expected: bool| {
        let headers =
            json!([{"name": ":method", "string_match": {"safe_regex": {"regex": methods}}}]);
        json!({"header_value_match": {"descriptor_key": key, "descriptor_value": value,
            "expect_match": expected, "headers": headers}})
    };
    let value = |format: &str| {
        json!({"remote_address_match": {"descriptor_key": "value", "descriptor_value": format,
            "address_matcher": {"invert_match": true}}})
    };
    let cookie = format!("=%DYNAMIC_METADATA(rate_limit_cookies:{key}):512%");
    let actions = |known: bool, last: Value| {
        json!({"x_ratelimit_option": "DRAFT_VERSION_03", "actions": [method("limit", &hash, known),
            {"remote_address": {}}, value("=%REQ(x-key):512%"), value(&cookie), last]})
    };
    assert_eq!(
        route["route"]["rate_limits"],
        json!([
            actions(true, value("=%REQ(:method):512%")),
            actions(false, method("value", "?", false)),
        ])
    );
    let cookies = &route["typed_per_filter_config"]["rate_limit_cookies"]["request_rules"];
    let stored = json!({"metadata_namespace": "rate_limit_cookies", "key": key});
    assert_eq!(
        *cookies,
        json!([{"cookie": "key", "on_header_present": stored}])
    );
}

#[test]
fn reporting_limit_has_own_filter() {
    let keyed = |name: &str, report_only: bool| RateLimit {
        report_only,
        draft_headers: report_only,
        keys: vec![RateLimitKey {
            kind: Some(Kind::Path(true)),
        }],
        ..limit(name)
    };
    let limits = vec![keyed("a", true), keyed("b", false), keyed("c", true)];
    let (filter, route, problems) = printed(limited(&["a", "b", "c"]), limits);
    assert_eq!(problems, 0);
    let chains = filter["named_filter_chains"].as_object().unwrap();
    let chain = chains.values().next().unwrap();
    let parts = |place: usize| {
        let config = &chain["typed_config"][place]["typed_config"];
        let enforced = &config["filter_enforced"]["default_value"]["numerator"];
        let remembered = &config["max_dynamic_descriptors"];
        let limits = config["descriptors"].as_array().map(Vec::len);
        let stage = &config["stage"];
        json!([config["stat_prefix"], stage, enforced, remembered, limits])
    };
    // Reports do not affect how many values the enforced limit remembers.
    assert_eq!(parts(0), json!(["reported_rate_limits", 1, null, 8192, 2]));
    assert_eq!(parts(1), json!(["rate_limits", null, 100, 65536, 1]));
    assert_eq!(chain["typed_config"].as_array().map(Vec::len), Some(2));
    let limits = route["route"]["rate_limits"].as_array().unwrap();
    assert!(limits.iter().all(|it| it["x_ratelimit_option"].is_null()));
    let stages: Vec<&Value> = limits.iter().map(|it| &it["stage"]).collect();
    assert_eq!(stages, [&json!(1), &Value::Null, &json!(1)]);
}

#[test]
fn fleet_limits_have_own_filters_and_enough_tokens() {
    let fleet = |name: &str, requests: u32, report_only: bool| RateLimit {
        requests,
        report_only,
        fleet: true,
        ..limit(name)
    };
    let limits = vec![
        fleet("a", 5, false),
        limit("b"),
        fleet("c", 100, false),
        fleet("d", 5, true),
    ];
    let (mut snapshot, keys) = everything();
    snapshot.rate_limits = limits;
    for (counted, alone, hosts, least) in [(0, 1, 1, 5), (0, 6, 6, 8), (3, 6, 3, 5), (9, 1, 9, 16)]
    {
        let set = EndpointSet::of_hosts(&snapshot.gateway, counted);
        let other = |it: &EndpointSet| !EndpointSet::counts_hosts(&it.name);
        snapshot.endpoints.retain(other);
        snapshot.endpoints.push(set);
        let options = RenderOptions {
            fleet_hosts: alone,
            ..options()
        };
        let rendered = render(&snapshot, &keys, &options);
        assert_eq!(rendered.fleet_hosts, hosts);
        let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
        let filters = printed["filters"].as_array().unwrap();
        let filter = filters.iter().find(|it| it["name"] == "rate_limits");
        let chains = &filter.unwrap()["typed_config"]["named_filter_chains"];
        let chain = chains.as_object().unwrap().values().next().unwrap();
        let parts = chain["typed_config"].as_array().unwrap().iter().map(|it| {
            let config = &it["typed_config"];
            let buckets = config["descriptors"].as_array().unwrap().iter();
            let tokens = buckets.map(|it| it["token_bucket"]["max_tokens"].clone());
            let is_divided = config["local_cluster_rate_limit"].is_object();
            json!([config["stage"], is_divided, tokens.collect::<Vec<_>>()])
        });
        assert_eq!(
            parts.collect::<Vec<_>>(),
            [
                json!([3, true, [least]]),
                json!([null, false, [5]]),
                json!([2, true, [least, 100]])
            ]
        );
    }
}

#[test]
fn excess_keyed_limits_keep_memory_of_others() {
    let keyed = |name: String, report_only: bool| RateLimit {
        report_only,
        keys: vec![RateLimitKey {
            kind: Some(Kind::Path(true)),
        }],
        ..limit(&name)
    };
    let most = RateLimit::MAX_KEYED;
    let limits = (0..=most).map(|n| keyed(format!("a{n:03}"), false));
    let reports = (0..most).map(|n| keyed(format!("b{n:03}"), true));
    let limits: Vec<RateLimit> = limits.chain(reports).chain([limit("c")]).collect();
    let excess = limits[most].name.clone();
    let (filter, route, problems) = printed(limited(&[&excess]), limits.clone());
    assert_eq!(route["direct_response"]["status"], 500);
    assert_eq!(problems, 2);
    let chains = filter["named_filter_chains"].as_object().unwrap();
    let enforced = &chains.values().next().unwrap()["typed_config"][1]["typed_config"];
    assert_eq!(enforced["max_dynamic_descriptors"], 256);
    assert_eq!(
        enforced["descriptors"].as_array().map(Vec::len),
        Some(most + 1)
    );
    let (_, route, _) = printed(limited(&["a000", "b000", "c"]), limits);
    let limits = route["route"]["rate_limits"].as_array();
    assert_eq!(limits.map(Vec::len), Some(3));
}

#[test]
fn reports_take_no_places_of_limits() {
    let most = RateLimit::MAX_OF_ROUTE;
    let name = |n: usize| format!("{n:02}");
    let limits = (0..2 * most).map(|n| RateLimit {
        report_only: n < most,
        ..limit(&name(n))
    });
    let names: Vec<String> = (0..2 * most).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (_, route, problems) = printed(limited(&names), limits.collect());
    let limits = route["route"]["rate_limits"].as_array();
    assert_eq!((limits.map(Vec::len), problems), (Some(2 * most), 0));
}

/// Envoy aborts if it cannot parse a format string.
#[test]
fn names_that_could_end_format_strings_are_refused() {
    let long = "a".repeat(RateLimit::MAX_KEY_NAME + 1);
    for name in ["", "a%", "a)", "a:1", "a b", "ä", &long] {
        for kind in [Kind::RequestHeader, Kind::QueryParameter, Kind::Cookie] {
            let bad = RateLimit {
                keys: vec![RateLimitKey {
                    kind: Some(kind(name.to_owned())),
                }],
                ..limit("a")
            };
            let (_, route, problems) = printed(limited(&["a"]), vec![bad]);
            assert_eq!(route["direct_response"]["status"], 500, "{name}");
            assert!(problems > 0, "{name}");
        }
    }
}

#[test]
fn route_whose_limit_cannot_count_is_refused() {
    let bad = |change: fn(&mut RateLimit)| {
        let mut limit = limit("a");
        change(&mut limit);
        limit
    };
    let other = RateLimit {
        status: 503,
        ..limit("b")
    };
    for (names, limits) in [
        (vec!["absent"], vec![limit("a")]),
        (vec!["a"], vec![bad(|it| it.requests = 0)]),
        (vec!["a"], vec![bad(|it| it.per_ms = 49)]),
        (vec!["a"], vec![bad(|it| it.status = 200)]),
        (
            vec!["a"],
            vec![bad(|it| {
                it.keys = vec![RateLimitKey::default()];
            })],
        ),
        (vec!["a", "b"], vec![limit("a"), other]),
        (vec!["a"; RateLimit::MAX_OF_ROUTE + 1], vec![limit("a")]),
    ] {
        let (_, route, problems) = printed(limited(&names), limits);
        assert_eq!(route["direct_response"]["status"], 500, "{names:?}");
        assert!(problems > 0, "{names:?}");
    }
    let (_, route, problems) = printed(limited(&["a", "b"]), vec![limit("a"), limit("b")]);
    assert_eq!(
        route["route"]["rate_limits"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(problems, 0);
}

#[test]
fn repeated_and_unsorted_limits_are_left_out() {
    for names in [["b", "b"], ["b", "a"]] {
        let limits: Vec<RateLimit> = names.map(limit).into();
        let (filter, route, problems) = printed(limited(&names), limits.clone());
        let chains = filter["named_filter_chains"].as_object().unwrap();
        let chain = chains.values().next().unwrap();
        let own = &chain["typed_config"][0]["typed_config"];
        assert_eq!(own["descriptors"].as_array().map(Vec::len), Some(1));
        assert_eq!(RateLimit::usable(&limits).len(), 1);
        assert!(problems > 0);
        let is_refused = route["direct_response"]["status"] == 500;
        assert_eq!(is_refused, names == ["b", "a"], "{names:?}");
    }
}

#[test]
fn limits_beyond_the_most_are_left_out() {
    let limits = (0..=RateLimit::MAX).map(|n| limit(&format!("{n:05}")));
    let limits: Vec<RateLimit> = limits.collect();
    let last = limits[RateLimit::MAX].name.clone();
    let (filter, route, problems) = printed(limited(&[&last]), limits);
    let chains = filter["named_filter_chains"].as_object().unwrap();
    let chain = chains.values().next().unwrap();
    let buckets = chain["typed_config"][0]["typed_config"]["descriptors"].as_array();
    assert_eq!(buckets.map(Vec::len), Some(RateLimit::MAX));
    assert_eq!(route["direct_response"]["status"], 500);
    assert_eq!(problems, 2);
}

#[test]
fn limit_statuses_match_envoy_status_codes() {
    use envoy_types::pb::envoy::r#type::v3::StatusCode;
    for status in 400..600 {
        let known = StatusCode::try_from(status).is_ok();
        let status = u32::try_from(status).unwrap();
        assert_eq!(RateLimit::is_status(status), known, "{status}");
    }
}
