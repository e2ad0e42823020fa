//! BackendPolicies: errors, precedence over other policies, and statuses.

use sesame_proto::schema::Backend;
use sesame_proto::schema::load_balancer::Strategy;

use super::http_proxies::{root, with};
use super::{ConditionState, HTTP, gateway, holds, resolved, route};
use crate::Resolution;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionType, Reason};
use sesame_kinds::world::Kind;

fn policy(name: &str, target: &str, spec: &str) -> String {
    format!(
        "---\nkind: BackendPolicy\nmetadata: {{name: {name}, namespace: web, generation: 4}}\n\
         spec: {{targetRefs: [{{group: '', kind: Service, {target}}}], {spec}}}\n"
    )
}

fn served(policies: &str) -> Resolution {
    let route = route("r", "rules: [{backendRefs: [{name: a, port: 80}]}]");
    resolved(&(gateway(HTTP) + &route + policies))
}

fn backend(resolution: &Resolution) -> &Backend {
    &resolution.gateways[0].snapshot.backends[0]
}

fn conditions<'r>(resolution: &'r Resolution, name: &str) -> &'r [Condition] {
    let key = Kind::BackendPolicy.named(NamespacedName::new("web", name));
    let status = resolution.statuses.policies.get(&key).expect("a status");
    &status.ancestors[0].conditions
}

#[test]
fn policy_with_fault_has_no_effect() {
    for (spec, why) in [
        ("loadBalancer: {type: Best}", "loadBalancer.type \"Best\""),
        (
            "loadBalancer: {type: Maglev}",
            "loadBalancer.hash is required",
        ),
        (
            "loadBalancer: {type: Random, hash: [{type: ClientAddress}]}",
            "loadBalancer.hash has no effect",
        ),
        (
            "loadBalancer: {type: Maglev, hash: [{type: Header, name: 'a b'}]}",
            "loadBalancer.hash[0].name",
        ),
        (
            "loadBalancer: {type: Maglev, hash: [{type: ClientAddress}, {type: ClientAddress}]}",
            "loadBalancer.hash[1]: an earlier entry",
        ),
        (
            "loadBalancer: {type: Random, slowStart: {window: 1s}}",
            "loadBalancer.slowStart has no effect",
        ),
        (
            "loadBalancer: {type: Random, zonePreference: {minEndpoints: 0}}",
            "loadBalancer.zonePreference.minEndpoints 0: expected 1 to 1000",
        ),
        (
            "loadBalancer: {type: RoundRobin, slowStart: {window: 0s}}",
            "loadBalancer.slowStart.window \"0s\": expected 1ms to 24h",
        ),
        (
            "loadBalancer: {type: RoundRobin, slowStart: {window: 1s, minWeightPercent: 101}}",
            "loadBalancer.slowStart.minWeightPercent 101: expected 0 to 100",
        ),
        (
            "loadBalancer: {type: RingHash, hash: [{type: Host}]}",
            "loadBalancer.hash[0].type \"Host\"",
        ),
        (
            "healthCheck: {active: {http: {path: /, statuses: [{first: 99}]}}}",
            "healthCheck.active.http.statuses[0].first 99",
        ),
        (
            "healthCheck: {active: {http: {path: a}}}",
            "healthCheck.active.http.path \"a\"",
        ),
        (
            "healthCheck: {active: {http: {path: /, statuses: [{first: 300, last: 200}]}}}",
            "healthCheck.active.http.statuses[0].last 200: expected 300 to 599",
        ),
        (
            "healthCheck: {active: {tcp: {}, grpc: {}}}",
            "healthCheck.active.http, grpc or tcp",
        ),
        (
            "healthCheck: {active: {timeout: 11s}}",
            "healthCheck.active.timeout \"11s\": expected 1ms to 10s",
        ),
        (
            "healthCheck: {passive: {maxEjectionPercent: 0}}",
            "healthCheck.passive.maxEjectionPercent 0",
        ),
        (
            "healthCheck: {panicThreshold: 101}",
            "healthCheck.panicThreshold 101",
        ),
        (
            "circuitBreaker: {maxRetries: 1, retryBudget: {percent: 1}}",
            "circuitBreaker.maxRetries or retryBudget",
        ),
        (
            "circuitBreaker: {maxRequests: 0}",
            "circuitBreaker.maxRequests 0",
        ),
        (
            "healthCheck: {active: {port: 65536}}",
            "healthCheck.active.port 65536",
        ),
        (
            "healthCheck: {active: {interval: 0s}}",
            "healthCheck.active.interval \"0s\"",
        ),
        (
            "healthCheck: {active: {healthyThreshold: 0}}",
            "healthCheck.active.healthyThreshold 0",
        ),
        (
            "healthCheck: {active: {unhealthyThreshold: 1001}}",
            "healthCheck.active.unhealthyThreshold 1001",
        ),
        (
            "healthCheck: {active: {http: {path: /, hostname: a b}}}",
            "healthCheck.active.http.host",
        ),
        (
            "healthCheck: {active: {grpc: {service: \"a\\nb\"}}}",
            "healthCheck.active.grpc.service",
        ),
        (
            "healthCheck: {passive: {consecutiveServerErrors: -1}}",
            "healthCheck.passive.consecutiveServerErrors -1",
        ),
        (
            "healthCheck: {passive: {consecutiveGatewayErrors: 1001}}",
            "healthCheck.passive.consecutiveGatewayErrors 1001",
        ),
        (
            "healthCheck: {passive: {interval: 25h}}",
            "healthCheck.passive.interval \"25h\"",
        ),
        (
            "healthCheck: {passive: {baseEjectionTime: 0s}}",
            "healthCheck.passive.baseEjectionTime \"0s\"",
        ),
        (
            "circuitBreaker: {maxConnections: 0}",
            "circuitBreaker.maxConnections 0",
        ),
        (
            "circuitBreaker: {maxConnectionsPerEndpoint: 0}",
            "circuitBreaker.maxConnectionsPerEndpoint 0",
        ),
        (
            "circuitBreaker: {maxPendingRequests: -1}",
            "circuitBreaker.maxPendingRequests -1",
        ),
        (
            "circuitBreaker: {retryBudget: {percent: 101}}",
            "circuitBreaker.retryBudget.percent 101",
        ),
        (
            "circuitBreaker: {retryBudget: {percent: 1, minRetries: 1025}}",
            "circuitBreaker.retryBudget.minRetries 1025",
        ),
        ("connection: {timeout: 0s}", "connection.timeout \"0s\""),
        (
            "connection: {idleTimeout: 25h}",
            "connection.idleTimeout \"25h\"",
        ),
        (
            "connection: {maxDuration: 0s}",
            "connection.maxDuration \"0s\"",
        ),
        ("connection: {maxRequests: 0}", "connection.maxRequests 0"),
        (
            "connection: {keepalive: {probes: 128}}",
            "connection.keepalive.probes 128",
        ),
        (
            "connection: {proxyProtocol: V3}",
            "connection.proxyProtocol \"V3\"",
        ),
        (
            "connection: {keepalive: {interval: 0s}}",
            "connection.keepalive.interval",
        ),
        (
            "connection: {keepalive: {idle: 1500ms}}",
            "connection.keepalive.idle: expected whole seconds",
        ),
    ] {
        let resolution = served(&policy("p", "name: a", spec));
        assert_eq!(backend(&resolution).name, "Service/web/a/80", "{spec}");
        let conditions = conditions(&resolution, "p");
        let accepted = holds(conditions, ConditionType::Accepted);
        assert_eq!(accepted, ConditionState::False(Reason::Invalid), "{spec}");
        let message = &conditions[0].message;
        assert!(message.contains(&format!("spec.{why}")), "{message}");
        assert_eq!(
            holds(conditions, ConditionType::Programmed),
            ConditionState::Absent
        );
    }
}

#[test]
fn own_setting_of_a_proxy_precedes_the_policy() {
    let spec = "loadBalancer: {type: LeastRequest}, connection: {timeout: 1s, idleTimeout: 5s}";
    let proxy =
        "routes: [{services: [{name: a, port: 80}], loadBalancerPolicy: {strategy: Random}}]";
    let resolution = with(&[root("r", proxy), policy("p", "name: a", spec)]);
    let backend = backend(&resolution);
    let strategy = backend.load_balancer.as_ref().map(|it| it.strategy());
    assert_eq!(strategy, Some(Strategy::Random));
    let connections = backend.connections.as_ref().map(|it| it.connect_timeout_ms);
    assert_eq!(
        (connections, backend.idle_timeout_ms),
        (Some(1_000), Some(5_000))
    );
    let applies = holds(conditions(&resolution, "p"), ConditionType::Accepted);
    assert_eq!(applies, ConditionState::True);
}

#[test]
fn check_without_http2_is_omitted_and_reported() {
    let spec = "healthCheck: {active: {grpc: {}}, panicThreshold: 20}";
    let resolution = served(&policy("p", "name: a", spec));
    let backend = backend(&resolution);
    assert_eq!(
        (&backend.health_check, backend.panic_percent),
        (&None, Some(20))
    );
    let conditions = conditions(&resolution, "p");
    let accepted = holds(conditions, ConditionType::Accepted);
    assert_eq!(accepted, ConditionState::False(Reason::UnsupportedValue));
    let message = &conditions[0].message;
    assert!(
        message.contains("port 80 of Service web/a: healthCheck.active.grpc"),
        "{message}"
    );
}

#[test]
fn port_policy_precedes_and_oldest_wins_ties() {
    let timeout = |name, target: &str, seconds: u64| {
        policy(
            name,
            target,
            &format!("connection: {{timeout: {seconds}s}}"),
        )
    };
    let all = timeout("first", "name: a", 1) + &timeout("second", "name: a", 2);
    let of = |resolution: &Resolution| {
        let connections = backend(resolution).connections.clone().unwrap_or_default();
        connections.connect_timeout_ms
    };
    let resolution = served(&all);
    assert_eq!(of(&resolution), 1_000);
    let loser = holds(conditions(&resolution, "second"), ConditionType::Accepted);
    assert_eq!(loser, ConditionState::False(Reason::Conflicted));
    let winner = conditions(&resolution, "first");
    assert_eq!(
        holds(winner, ConditionType::Programmed),
        ConditionState::Unknown
    );
    let port = timeout("z", "name: a, sectionName: http", 3);
    assert_eq!(of(&served(&(all + &port))), 3_000);
    let missing = timeout("z", "name: a, sectionName: none", 3);
    let resolution = served(&missing);
    let found = holds(conditions(&resolution, "z"), ConditionType::Accepted);
    assert_eq!(
        (of(&resolution), found),
        (0, ConditionState::False(Reason::TargetNotFound))
    );
}
