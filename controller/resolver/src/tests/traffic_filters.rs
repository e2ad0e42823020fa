//! TrafficPolicy filters: the lowest limit applies, and an invalid filter rejects requests or is
//! ignored.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sesame_proto::schema::shared_filter;

use super::traffic_policies::{SCOPES, conditions, is_refused, policy, served};
use super::{ConditionState, holds};
use sesame_kinds::status::{ConditionType, Reason};

#[test]
fn invalid_filter_that_protects_refuses_its_targets() {
    for (spec, why) in [
        (
            "requestBody: {maxSize: 10MB}",
            "requestBody.maxSize \"10MB\"",
        ),
        ("requestBody: {maxSize: 2Gi}", "requestBody.maxSize \"2Gi\""),
        ("bandwidth: {}", "bandwidth: expected request or response"),
        ("bandwidth: {response: '1'}", "bandwidth.response \"1\""),
        ("bandwidth: {request: '1'}", "bandwidth.request \"1\""),
        (
            "headers: {request: {add: [{name: 'a b', value: c}]}}",
            "headers.request.add[0].name",
        ),
        (
            "headers: {response: {set: [{name: x-a, value: \"a\\nb\"}]}}",
            "headers.response.set[0]",
        ),
        (
            "headers: {response: {remove: ['a b']}}",
            "headers.response.remove[0]",
        ),
        (
            "headers: {request: {remove: [x-a], set: [{name: x-a, value: b}]}}",
            "headers.request.remove",
        ),
        (
            "headers: {response: {set: [{name: x-a}]}}",
            "headers.response.set[0]: expected value or valueFrom",
        ),
        (
            "headers: {request: {set: [{name: x-a, valueFrom: Cookie}]}}",
            "headers.request.set[0].valueFrom \"Cookie\" is unknown",
        ),
        (
            "headers: {request: {remove: [Host]}}",
            "headers.request.remove[0]",
        ),
    ] {
        for target in SCOPES {
            let resolution = served(&policy("p", target, spec));
            assert!(is_refused(&resolution), "{spec} {target}");
            let message = &conditions(&resolution, "p")[0].message;
            assert!(message.contains(&format!("spec.{why}")), "{message}");
        }
    }
}

#[test]
fn invalid_filter_that_tunes_is_left_out() {
    for spec in [
        "compression: {types: [Lzma]}",
        "compression: {types: [Gzip, Gzip]}",
        "compression: {types: [Gzip], minSize: '0'}",
        "compression: {types: [Gzip], contentTypes: [\"a\\nb\"]}",
        "errorPages: [{codes: [5xx], body: a, contentType: \"a\\nb\"}]",
        "errorPages: [{codes: [], body: a}]",
        "errorPages: [{codes: ['200'], body: a}]",
        "errorPages: [{codes: [5xx], body: a, statusCode: 99}]",
        "errorPages: [{codes: [5xx], body: a, source: Backend}]",
        "fault: {}",
        "fault: {abort: {statusCode: 199}}",
        "fault: {abort: {statusCode: 503, percent: 101}}",
        "fault: {delay: {duration: 1s, percent: 0}}",
        "fault: {delay: {duration: 0s}}",
    ] {
        let resolution = served(&policy("p", SCOPES[3], spec));
        let host = &resolution.gateways[0].snapshot.route_tables[0].virtual_hosts[0];
        assert_eq!(
            (&host.filters, &host.routes[0].filters),
            (&None, &None),
            "{spec}"
        );
        let accepted = holds(conditions(&resolution, "p"), ConditionType::Accepted);
        assert_eq!(accepted, ConditionState::False(Reason::Invalid), "{spec}");
    }
}

/// Scope index, body size in KiB, bandwidth in KiB/s, and whether compression is disabled.
type AnyFilters = (usize, Option<u64>, Option<u64>, Option<bool>);

fn any_filters() -> impl Strategy<Value = AnyFilters> {
    let size = || prop::option::of(1_u64..100);
    (
        0..SCOPES.len(),
        size(),
        size(),
        prop::option::of(any::<bool>()),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn smallest_limit_holds_and_nearest_filter_applies(policies in prop::collection::vec(any_filters(), 0..7)) {
        let mut text = String::new();
        let mut compressions = BTreeMap::new();
        for (age, (scope, body, bandwidth, disables)) in policies.iter().enumerate() {
            let mut spec = vec!["rateLimits: []".to_owned()];
            spec.extend(body.map(|kib| format!("requestBody: {{maxSize: {kib}Ki}}")));
            spec.extend(bandwidth.map(|kib| format!("bandwidth: {{response: {kib}Ki}}")));
            if let Some(disables) = disables {
                let types = if *disables { "" } else { "Gzip" };
                spec.push(format!("compression: {{types: [{types}]}}"));
                compressions.entry((*scope, age)).or_insert((format!("p{age}"), *disables));
            }
            text += &policy(&format!("p{age}"), SCOPES[*scope], &spec.join(", "));
        }
        let resolution = served(&text);
        let snapshot = &resolution.gateways[0].snapshot;
        let host = &snapshot.route_tables[0].virtual_hosts[0];
        let own = host.routes[0].filters.as_deref();
        let filters = own.or(host.filters.as_ref()).or(snapshot.filters.as_deref()).cloned().unwrap_or_default();
        let smallest = |limits: Vec<u64>| limits.into_iter().min().unwrap_or_default() * 1_024;
        let bodies = policies.iter().filter_map(|(_, body, ..)| *body).collect();
        prop_assert_eq!(filters.max_body_bytes, smallest(bodies));
        let named = |name: &str| {
            let found = snapshot.shared_filters.iter().find(|it| it.name == name);
            found.and_then(|it| it.kind.clone())
        };
        let bandwidths = policies.iter().filter_map(|(_, _, bandwidth, _)| *bandwidth).collect();
        let passed = match named(&filters.bandwidth) {
            Some(shared_filter::Kind::Bandwidth(bandwidth)) => bandwidth.response_bytes,
            _ => 0,
        };
        prop_assert_eq!(passed, smallest(bandwidths));
        let nearest = compressions.values().next().filter(|(_, disables)| !disables);
        let nearest = nearest.map(|(name, _)| format!("TrafficPolicy/web/{name}/compression"));
        prop_assert_eq!(named(&filters.response).map(|_| filters.response), nearest);
    }
}
