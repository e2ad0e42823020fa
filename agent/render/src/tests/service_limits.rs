//! Tests how rate limits by a service are rendered as Envoy messages.

use serde_json::{Value, json};
use sesame_proto::schema::rate_limit_key::Kind;
use sesame_proto::schema::{
    RateLimit, RateLimitCondition, RateLimitEntry, RateLimitHeader, RateLimitKey, RateLimitService,
    StringMatch, string_match,
};

use super::everything::everything;
use super::parts::{WEB, options};
use super::rate_limits::{limit, limited};
use crate::{dump, render};

fn entry(key: &str, value: &str) -> RateLimitEntry {
    RateLimitEntry {
        key: key.into(),
        value: value.into(),
    }
}

fn condition(kind: Option<string_match::Kind>) -> RateLimitCondition {
    RateLimitCondition {
        entry: Some(entry("plan", "free")),
        headers: vec![StringMatch {
            name: "x-plan".into(),
            kind,
        }],
        inverted: true,
    }
}

pub(super) fn every_service_key() -> Vec<RateLimitKey> {
    let header = RateLimitHeader {
        key: "user".into(),
        name: "x-user".into(),
    };
    let exact = string_match::Kind::Exact("paid".into());
    [
        Kind::Entry(entry("limit", "ns/a/b")),
        Kind::ClientAddress(true),
        Kind::RequestHeader("x-key".into()),
        Kind::Cookie("key".into()),
        Kind::QueryParameter("key".into()),
        Kind::Path(true),
        Kind::Method(true),
        Kind::Header(header),
        Kind::Condition(condition(Some(exact))),
    ]
    .map(|kind| RateLimitKey { kind: Some(kind) })
    .into()
}

fn by_service(name: &str, backend: &str, domain: &str) -> RateLimit {
    RateLimit {
        service: Some(RateLimitService {
            backend: backend.into(),
            domain: domain.into(),
            ..RateLimitService::default()
        }),
        requests: 0,
        per_ms: 0,
        ..limit(name)
    }
}

/// Returns the filter's entries and the route.
fn printed(names: &[&str], limits: Vec<RateLimit>) -> (Value, Value) {
    let (mut snapshot, keys) = everything();
    snapshot.route_tables.truncate(1);
    snapshot.route_tables[0].virtual_hosts.truncate(1);
    snapshot.route_tables[0].virtual_hosts[0].external_auth = Vec::new();
    snapshot.route_tables[0].virtual_hosts[0].routes = vec![limited(names)];
    snapshot.rate_limits = limits;
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    let route = &printed["routes"][0]["virtual_hosts"][0]["routes"][0];
    let filters = printed["filters"].as_array().unwrap().iter();
    let mut filters = filters.filter(|it| it["name"] == "service_limits");
    let chains = &filters.next().unwrap()["typed_config"]["named_filter_chains"];
    (chains.clone(), route.clone())
}

fn chosen<'c>(chains: &'c Value, route: &Value) -> &'c Value {
    let config = &route["typed_per_filter_config"]["service_limits"];
    let chain = &config["matcher"]["on_no_match"]["action"]["typed_config"]["filter_chain_name"];
    &chains[chain.as_str().unwrap()]["typed_config"][0]["typed_config"]
}

#[test]
fn route_names_its_service_and_descriptors() {
    let keyed = RateLimit {
        keys: every_service_key(),
        ..by_service("a", WEB, "shop")
    };
    let (chains, route) = printed(&["a", "b"], vec![keyed, limit("b")]);
    let filter = chosen(&chains, &route);
    assert_eq!(filter["domain"], "shop");
    assert_eq!(filter["failure_mode_deny"], true);
    assert_eq!(filter["timeout"], "1s");
    let service = &filter["rate_limit_service"]["grpc_service"]["envoy_grpc"];
    assert_eq!(service["cluster_name"], WEB);
    assert!(route["typed_per_filter_config"]["rate_limits"].is_object());
    let limits = route["route"]["rate_limits"].as_array().unwrap();
    let stages: Vec<&Value> = limits.iter().map(|it| &it["stage"]).collect();
    assert_eq!(stages, [&json!(4), &json!(4), &Value::Null]);
    let actions = limits[0]["actions"].as_array().unwrap();
    let keys = actions.iter().map(|action| {
        let (kind, action) = action.as_object().unwrap().iter().next().unwrap();
        format!(
            "{kind} {}",
            action["descriptor_key"].as_str().unwrap_or("-")
        )
    });
    assert_eq!(
        keys.collect::<Vec<_>>(),
        [
            "header_value_match limit",
            "remote_address -",
            "remote_address_match header:x-key",
            "remote_address_match cookie:key",
            "remote_address_match query_parameter:key",
            "remote_address_match path",
            "remote_address_match method",
            "request_headers user",
            "header_value_match plan",
        ]
    );
    assert_eq!(
        actions[8]["header_value_match"],
        json!({"descriptor_key": "plan", "descriptor_value": "free", "expect_match": false,
            "headers": [{"name": "x-plan", "string_match": {"exact": "paid"}}]})
    );
}

#[test]
fn strictest_settings_of_a_service_win() {
    let with = |name: &str, timeout_ms: u64, fail_open: bool, report_only: bool| {
        let mut limit = by_service(name, WEB, "shop");
        let service = limit.service.as_mut().unwrap();
        service.timeout_ms = timeout_ms;
        service.fail_open = fail_open;
        RateLimit {
            report_only,
            ..limit
        }
    };
    let limits = vec![
        with("a", 9_000, true, false),
        with("b", 2_000, false, false),
        with("c", 3_000, false, false),
        with("d", 8_000, false, true),
    ];
    for (names, timeout, denies) in [
        (&["a", "b", "c", "d"][..], "3s", true),
        (&["a", "d"], "9s", false),
        (&["d"], "8s", true),
    ] {
        let (chains, route) = printed(names, limits.clone());
        let filter = chosen(&chains, &route);
        assert_eq!(filter["timeout"], timeout, "{names:?}");
        assert_eq!(filter["failure_mode_deny"] == true, denies, "{names:?}");
        let limits = route["route"]["rate_limits"].as_array().unwrap();
        let reports = limits
            .iter()
            .filter(|it| it["apply_on_stream_done"] == true);
        assert_eq!(reports.count(), usize::from(names.contains(&"d")));
    }
}

#[test]
fn route_whose_service_cannot_decide_is_refused() {
    let refused = |names: &[&str], limits: Vec<RateLimit>| {
        let (_, route) = printed(names, limits);
        route["direct_response"]["status"] == 500
    };
    let with = |change: &dyn Fn(&mut RateLimit)| {
        let mut limit = by_service("a", WEB, "shop");
        change(&mut limit);
        vec![limit]
    };
    let key = |kind: Kind| RateLimitKey { kind: Some(kind) };
    assert!(!refused(&["a"], with(&|_| ())));
    let open = |it: &mut RateLimit| it.service.as_mut().unwrap().fail_open = true;
    assert!(!refused(
        &["a"],
        with(&|it| {
            open(it);
            it.service.as_mut().unwrap().backend = "absent".into();
        })
    ));
    let regex = string_match::Kind::Regex("a+".into());
    for (case, limits) in [
        with(&|it| it.service.as_mut().unwrap().backend = "absent".into()),
        with(&|it| it.service.as_mut().unwrap().backend.clear()),
        with(&|it| it.service.as_mut().unwrap().domain.clear()),
        with(&|it| it.service.as_mut().unwrap().domain = "%A%".into()),
        with(&|it| it.service.as_mut().unwrap().timeout_ms = u64::MAX),
        with(&|it| it.keys = vec![key(Kind::Entry(entry("a", "%A%")))]),
        with(&|it| it.keys = vec![key(Kind::Entry(entry("", "a")))]),
        with(&|it| it.keys = vec![key(Kind::Condition(RateLimitCondition::default()))]),
        with(&|it| it.keys = vec![key(Kind::Condition(condition(None)))]),
        with(&|it| it.keys = vec![key(Kind::Condition(condition(Some(regex.clone()))))]),
        with(&|it| it.keys = vec![key(Kind::Header(RateLimitHeader::default()))]),
        with(&|it| it.keys = vec![key(Kind::Path(true)); RateLimit::MAX_SERVICE_KEYS + 1]),
        with(&|it| it.keys = vec![key(Kind::Entry(entry("a", &"b".repeat(400)))); 6]),
        vec![RateLimit {
            keys: vec![key(Kind::Entry(entry("a", "b")))],
            ..limit("a")
        }],
    ]
    .into_iter()
    .enumerate()
    {
        assert!(refused(&["a"], limits), "{case}");
    }
    for other in [by_service("b", WEB, "other"), by_service("b", "x", "shop")] {
        let limits = vec![by_service("a", WEB, "shop"), other];
        assert!(refused(&["a", "b"], limits));
    }
}
