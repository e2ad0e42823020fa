//! Rate limits of TrafficPolicies: scopes, reports, and limits with keys.

use sesame_proto::schema::{EndpointSet, RateLimit};

use super::http_proxies::{root, with};
use super::traffic_policies::{SCOPES, conditions, first, is_refused, policy, served};
use super::{HTTP, gateway, resolved, route};

#[test]
fn fleet_limit_comes_with_number_of_hosts() {
    let limit = |scope: &str| {
        let limits = format!("rateLimits: [{{name: a, requests: 1, per: Second{scope}}}]");
        policy("p", SCOPES[0], &limits)
    };
    for (scope, fleet) in [
        ("", false),
        (", scope: Host", false),
        (", scope: Fleet", true),
    ] {
        let snapshot = &served(&limit(scope)).gateways[0].snapshot;
        assert_eq!(snapshot.rate_limits[0].fleet, fleet);
        let counts = |it: &EndpointSet| EndpointSet::counts_hosts(&it.name);
        let set = snapshot.endpoints.iter().find(|it| counts(it));
        let expected = format!("{}/hosts", snapshot.gateway);
        let name = set.map(|it| it.name.as_str());
        assert_eq!(name, fleet.then_some(expected.as_str()));
        assert!(snapshot.endpoints.is_sorted_by(|a, b| a.name < b.name));
    }
    let resolution = served(&limit(", scope: Region"));
    assert!(is_refused(&resolution));
    let message = &conditions(&resolution, "p")[0].message;
    assert!(
        message.contains("scope \"Region\" is unknown; expected Host, Fleet"),
        "{message}"
    );
}

#[test]
fn reports_keep_custom_response_and_places() {
    let own = "routes: [{services: [{name: a, port: 80}], rateLimitPolicy: {local: {requests: 1, \
               unit: second, responseStatusCode: 503}}}]";
    let report = |name: &str| format!("{{name: {name}, requests: 9, per: Second, mode: Report}}");
    let limit = policy("p", SCOPES[3], &format!("rateLimits: [{}]", report("all")));
    let resolution = with(&[root("r", own), limit]);
    let limits = &resolution.gateways[0].snapshot.rate_limits;
    let limits = limits
        .iter()
        .map(|it| (it.name.as_str(), it.status, it.report_only));
    let custom = "HTTPProxy/web/r/routes/0/rateLimit";
    let reported = format!("{custom}/TrafficPolicy/web/p/all/Gateway/gw");
    let gateway_limit = "TrafficPolicy/web/p/all/Gateway/gw";
    let expected = [
        (custom, 503, false),
        (reported.as_str(), 503, true),
        (gateway_limit, 0, true),
    ];
    assert_eq!(limits.collect::<Vec<_>>(), expected);
    assert_eq!(first(&resolution).rate_limits, [custom, &reported]);

    // Eight of each kind on the Gateway, and sixteen reports and eight limits on the route.
    let many = |name: &str, target: &str, mode: &str| {
        let limit = |n: usize| format!("{{name: l{n}, requests: 9, per: Second, mode: {mode}}}");
        let limits: Vec<String> = (0..8).map(limit).collect();
        policy(
            name,
            target,
            &format!("rateLimits: [{}]", limits.join(", ")),
        )
    };
    let fit = [
        many("a", SCOPES[3], "Enforce"),
        many("b", SCOPES[3], "Report"),
        many("c", SCOPES[1], "Enforce"),
        many("d", SCOPES[1], "Report"),
    ];
    let resolution = served(&fit.concat());
    assert!(!is_refused(&resolution));
    assert_eq!(first(&resolution).rate_limits.len(), 32);
    for mode in ["Enforce", "Report"] {
        let more = many("e", SCOPES[0], mode);
        assert!(is_refused(&served(&(fit.concat() + &more))), "{mode}");
    }
}

#[test]
fn excess_keyed_limits_are_dropped_and_reported() {
    let keyed =
        |n: usize| format!("{{name: l{n}, requests: 9, per: Hour, keys: [{{type: Path}}]}}");
    let keyed: Vec<String> = (0..8).map(keyed).collect();
    let spec = format!("rateLimits: [{}]", keyed.join(", "));
    let count = RateLimit::MAX_KEYED / 8 + 1;
    let objects = (0..count).map(|n| {
        let name = format!("r{n}");
        let target = format!("kind: HTTPRoute, name: {name}");
        let rule = "rules: [{backendRefs: [{name: a, port: 80}]}]";
        route(&name, rule) + &policy(&name, &target, &spec)
    });
    let plain = "rateLimits: [{name: all, requests: 9, per: Hour}]";
    let plain = policy("zz", SCOPES[3], plain);
    let resolution = resolved(&(gateway(HTTP) + &objects.collect::<String>() + &plain));
    let limits = &resolution.gateways[0].snapshot.rate_limits;
    let keyed = limits.iter().filter(|it| it.remembers()).count();
    assert_eq!(
        (keyed, limits.len()),
        (RateLimit::MAX_KEYED, RateLimit::MAX_KEYED + 1)
    );
    let dropped = "request limits with keys are dropped";
    let mut problems = resolution.problems.iter();
    assert!(problems.any(|it| it.message.contains(dropped)));
}
