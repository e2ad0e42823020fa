//! Load balancing, health checks and circuit breakers in HTTPProxies.

use sesame_proto::schema::health_check::Kind;
use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::{
    Backend, CircuitBreaker, HashPolicy, HealthCheck, HttpCheck, SlowStart, StatusRange,
    hash_policy,
};

use super::http_proxies::{NONE, ask, errors, root, warnings, with};
use super::ingresses::{ingress, path, rule};
use crate::Resolution;

fn backends(resolution: &Resolution) -> &[Backend] {
    &resolution.gateways[0].snapshot.backends
}

fn of(route: &str, service: &str) -> (Resolution, Backend) {
    let spec = format!("routes: [{{services: [{{name: a, port: 80{service}}}]{route}}}]");
    let resolution = with(&[root("r", &spec)]);
    assert_eq!(errors(&resolution, "r"), NONE, "{route}{service}");
    let backend = backends(&resolution)[0].clone();
    assert!(ask(&resolution, "/").starts_with("web/a/80"), "{route}");
    (resolution, backend)
}

fn hashes(backend: &Backend) -> Vec<HashPolicy> {
    let balancer = backend.load_balancer.clone().unwrap_or_default();
    balancer.hash_policies
}

#[test]
fn strategies_reach_the_backend() {
    for (strategy, expected) in [
        ("RoundRobin", None),
        ("Random", Some(Strategy::Random)),
        ("WeightedLeastRequest", Some(Strategy::LeastRequest)),
    ] {
        let (resolution, backend) = of(
            &format!(", loadBalancerPolicy: {{strategy: {strategy}}}"),
            "",
        );
        let got = backend.load_balancer.as_ref().map(|it| it.strategy());
        assert_eq!(got, expected);
        assert_eq!(backend.name == "Service/web/a/80", expected.is_none());
        assert_eq!(warnings(&resolution, "r"), NONE, "{strategy}");
    }
}

#[test]
fn hash_policies_with_faults_are_left_out() {
    let list = "{headerHashOptions: {headerName: X-User}, terminal: true}, \
                {queryParameterHashOptions: {parameterName: Shard}}, {hashSourceIP: true}";
    let policy = |list: &str| {
        format!(", loadBalancerPolicy: {{strategy: RequestHash, requestHashPolicies: [{list}]}}")
    };
    let expected = |terminal, kind| HashPolicy {
        kind: Some(kind),
        terminal,
    };
    let expected = [
        expected(true, hash_policy::Kind::Header("x-user".to_owned())),
        expected(false, hash_policy::Kind::QueryParameter("Shard".to_owned())),
        expected(false, hash_policy::Kind::SourceAddress(true)),
    ];
    let (resolution, backend) = of(&policy(list), "");
    assert_eq!(hashes(&backend), expected);
    assert_eq!(warnings(&resolution, "r"), NONE);
    let ring = Some(Strategy::RingHash);
    assert_eq!(backend.load_balancer.map(|it| it.strategy()), ring);
    let twice = format!("{list}, {{hashSourceIP: true}}, {{terminal: true}}");
    let (resolution, backend) = of(&policy(&twice), "");
    assert_eq!(hashes(&backend), expected);
    assert_eq!(warnings(&resolution, "r"), ["SpecError/IgnoredField"; 2]);
    let (resolution, backend) = of(&policy("{headerHashOptions: {headerName: 'a b'}}"), "");
    assert_eq!(hashes(&backend), []);
    assert_eq!(backend.load_balancer, None);
    assert_eq!(warnings(&resolution, "r"), ["SpecError/IgnoredField"; 2]);
}

#[test]
fn health_checks_have_defaults_of_contour() {
    let check = |host: &str, statuses| HealthCheck {
        kind: Some(Kind::Http(HttpCheck {
            path: "/ok".to_owned(),
            host: host.to_owned(),
            statuses,
        })),
        interval_ms: 10_000,
        timeout_ms: 2_000,
        healthy_threshold: 2,
        unhealthy_threshold: 3,
        port: 0,
    };
    let (_, backend) = of(", healthCheckPolicy: {path: /ok}", "");
    let expected = check("contour-envoy-healthcheck", Vec::new());
    assert_eq!(backend.health_check.as_deref(), Some(&expected));
    let all = ", healthCheckPolicy: {path: /ok, host: h, intervalSeconds: 1, timeoutSeconds: 30, \
               unhealthyThresholdCount: 5, healthyThresholdCount: 4, expectedStatuses: [{start: 200, \
               end: 205}]}";
    let (resolution, backend) = of(all, "");
    let range = StatusRange {
        first: 200,
        last: 204,
    };
    let expected = HealthCheck {
        interval_ms: 1_000,
        timeout_ms: HealthCheck::MAX_TIMEOUT_MS,
        healthy_threshold: 4,
        unhealthy_threshold: 5,
        ..check("h", vec![range])
    };
    assert_eq!(backend.health_check.as_deref(), Some(&expected));
    let invalid = ["RouteError/HealthCheckPolicyInvalid"];
    assert_eq!(warnings(&resolution, "r"), invalid);
    for fault in [
        "path: ok",
        "path: '/a b'",
        "path: /, intervalSeconds: -1",
        "path: /, healthyThresholdCount: 5000",
        "path: /, host: 'a b'",
        "path: /, expectedStatuses: [{start: 300, end: 300}]",
        "path: /, expectedStatuses: [{start: 99, end: 300}]",
    ] {
        let (resolution, backend) = of(&format!(", healthCheckPolicy: {{{fault}}}"), "");
        assert_eq!(backend.health_check, None, "{fault}");
        assert_eq!(warnings(&resolution, "r"), invalid, "{fault}");
    }
}

#[test]
fn slow_start_requires_supporting_strategy() {
    let random = ", loadBalancerPolicy: {strategy: Random}";
    let slow = |aggression_per_mille, min_weight_percent| {
        Some(SlowStart {
            window_ms: 10_000,
            aggression_per_mille,
            min_weight_percent,
        })
    };
    for (route, policy, expected) in [
        ("", "window: 10s", slow(1_000, 10)),
        (
            ", loadBalancerPolicy: {strategy: WeightedLeastRequest}",
            "window: 10s, aggression: '1.5', minWeightPercent: 0",
            slow(1_500, 0),
        ),
        (random, "window: 10s", None),
        ("", "window: soon", None),
        ("", "window: 0s", None),
        ("", "window: 10s, aggression: '0'", None),
        ("", "window: 10s, aggression: 'NaN'", None),
        ("", "window: 10s, minWeightPercent: 101", None),
    ] {
        let (resolution, backend) = of(route, &format!(", slowStartPolicy: {{{policy}}}"));
        let got = backend.load_balancer.and_then(|it| it.slow_start);
        assert_eq!(got, expected, "{policy}");
        let reported = warnings(&resolution, "r");
        let is_reported = reported == ["ServiceError/SlowStartInvalid"];
        assert_eq!(is_reported, expected.is_none(), "{policy}: {reported:?}");
    }
}

#[test]
fn equal_settings_share_a_backend() {
    let service = "services: [{name: a, port: 80}]";
    let route = |prefix: &str, path: &str| {
        format!(
            "{{conditions: [{{prefix: {prefix}}}], {service}, healthCheckPolicy: {{path: {path}}}}}"
        )
    };
    let spec = format!(
        "routes: [{}, {}, {}]",
        route("/one", "/ok"),
        route("/two", "/ok"),
        route("/three", "/other")
    );
    let resolution = with(&[root("r", &spec)]);
    assert_eq!(backends(&resolution).len(), 2);
    assert_eq!(resolution.gateways[0].snapshot.endpoints.len(), 1);
}

fn annotated(annotations: &str) -> String {
    format!(
        "---\nkind: Service\nmetadata: {{name: d, namespace: web, annotations: {{{annotations}}}}}\n\
         spec: {{ports: [{{port: 80}}]}}\n"
    )
}

#[test]
fn annotations_of_services_limit_all_references() {
    let proxy = root("r", "routes: [{services: [{name: d, port: 80}]}]");
    let ingress_yaml = ingress("i", &rule("i.test", &[path("/", "Prefix", "d")]));
    let route_yaml = "---\nkind: HTTPRoute\nmetadata: {name: r, namespace: web}\nspec: {parentRefs: [{name: \
                    gw}], rules: [{backendRefs: [{name: d, port: 80}]}]}\n";
    let limits = "projectcontour.io/max-connections: '1', projectcontour.io/max-pending-requests: '2', \
                  projectcontour.io/max-requests: '3', projectcontour.io/max-retries: '4', \
                  projectcontour.io/per-host-max-connections: '5'";
    let expected = CircuitBreaker {
        max_connections: 1,
        max_pending_requests: 2,
        max_requests: 3,
        max_retries: 4,
        max_connections_per_endpoint: 5,
        retry_budget: None,
    };
    for object in [&proxy, &ingress_yaml, route_yaml] {
        let resolution = with(&[annotated(limits), object.to_owned()]);
        let [backend] = backends(&resolution) else {
            panic!("expected one Backend for {object}");
        };
        assert_eq!(backend.breaker.as_deref(), Some(&expected), "{object}");
    }
    for (text, is_reported) in [("0", false), ("many", true), ("-1", true)] {
        let annotation = format!("projectcontour.io/max-requests: '{text}'");
        let resolution = with(&[annotated(&annotation), proxy.clone()]);
        assert_eq!(backends(&resolution)[0].name, "Service/web/d/80", "{text}");
        let problems = format!("{:?}", resolution.problems);
        assert_eq!(problems.contains("max-requests"), is_reported, "{problems}");
    }
}
