//! Istio's objects.

use serde_json::{Value, json};

use super::super::Conversion;
use super::equivalence::from;
use super::foreign::{Source, summary};
use super::{find, parse};

pub(super) const SOURCE: Source = Source {
    format: "istio",
    class: "ingressgateway",
    objects: include_str!("istio.yaml"),
    fields: include_str!("istio-fields.txt"),
};
const EXAMPLES: &str = include_str!("istio-examples.yaml");

fn example() -> Conversion {
    from("istio", &parse(SOURCE.objects), &[])
}

#[test]
fn every_field_has_a_verdict() {
    SOURCE.every_field_has_a_verdict(150);
}

#[test]
fn unknown_field_stops_routes() {
    let tuning = [
        "trafficPolicy/loadBalancer",
        "trafficPolicy/connectionPool",
        "trafficPolicy/outlierDetection",
        "retries",
        // Any labels and headers.
        "abels",
        "headers/request/set",
        "headers/response/add",
        "Gateway/spec/selector",
    ];
    SOURCE.unknown_field_has_a_verdict(&tuning);
}

#[test]
fn lost_protection_is_found() {
    SOURCE.finds_every_lost_protection(&["AuthorizationPolicy", "RequestAuthentication"]);
}

#[test]
fn header_match_wins_over_later_prefix() {
    let conversion = example();
    let route = find(&conversion, "HTTPRoute", "shop").expect("a route");
    let rules = route["spec"]["rules"].as_array().expect("rules");
    let canary = rules
        .iter()
        .find(|it| it["backendRefs"][0]["name"] == "reviews-v2");
    let matches = canary.expect("a rule")["matches"]
        .as_array()
        .expect("matches");
    let has = |path: &str| {
        matches
            .iter()
            .any(|it| it["path"]["value"] == path && it["headers"][0]["name"] == "end-user")
    };
    assert!(has("/") && has("/api/") && has("/old"), "{matches:?}");
    // The earlier answer stays in front.
    assert!(!has("/admin"), "{matches:?}");
}

#[test]
fn subset_becomes_a_service() {
    let conversion = example();
    let service = find(&conversion, "Service", "reviews-v1").expect("a Service");
    assert_eq!(
        service["spec"]["selector"],
        json!({"app": "reviews", "version": "v1"})
    );
    let policy = find(&conversion, "BackendPolicy", "reviews").expect("a policy");
    assert_eq!(policy["spec"]["loadBalancer"]["type"], "LeastRequest");
    let targets = policy["spec"]["targetRefs"].to_string();
    assert!(
        targets.contains("reviews-v1") && targets.contains("reviews-v2"),
        "{targets}"
    );
}

pub(super) fn without_routes(text: &str) -> bool {
    let conversion = from("istio", &parse(text), &[]);
    let written = conversion
        .objects
        .iter()
        .any(|it| it["kind"] == "HTTPRoute");
    !conversion.is_complete() && !written
}

pub(super) const HELLO: &str = "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: hello, namespace: hello}
spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: hello, namespace: hello}
spec: {hosts: ['*'], gateways: [hello], http: [{route: [{destination: {host: hello, port: {number: 80}}}]}]}
---
";

/// Returns a Deployment.
pub(super) fn workload(namespace: &str, labels: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: it, namespace: {namespace}}}\nspec: {{template: \
         {{metadata: {{labels: {{{labels}}}}}}}}}\n---\n"
    )
}

#[test]
fn foreign_code_for_gateway_stops_routes() {
    let filter = |selector: &str| {
        format!(
            "{HELLO}{}apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: f, \
             namespace: istio-system}}\nspec: {{{selector}configPatches: []}}\n",
            workload("cart", "app: cart")
        )
    };
    assert!(without_routes(&filter("")));
    assert!(without_routes(&filter(
        "workloadSelector: {labels: {istio: ingressgateway}}, "
    )));
    assert!(!without_routes(&filter(
        "workloadSelector: {labels: {app: cart}}, "
    )));
}

#[test]
fn policy_of_workload_is_not_needed() {
    let policy = |namespace: &str, selector: &str| {
        format!(
            "{HELLO}{}apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: p, \
             namespace: {namespace}}}\nspec: {{{selector}action: CUSTOM, provider: {{name: x}}, rules: [{{}}]}}\n",
            workload("cart", "app: cart")
        )
    };
    assert!(!without_routes(&policy("cart", "")));
    assert!(!without_routes(&policy(
        "cart",
        "selector: {matchLabels: {app: cart}}, "
    )));
    assert!(without_routes(&policy(
        "hello",
        "selector: {matchLabels: {istio: ingressgateway}}, "
    )));
    assert!(without_routes(&policy("istio-system", "")));
    // Gateway pods may run there.
    assert!(without_routes(&policy("hello", "")));
}

#[test]
fn empty_policy_denies_all_requests() {
    let text = format!(
        "{HELLO}apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: none, \
         namespace: istio-system}}\nspec: {{}}\n"
    );
    let conversion = from("istio", &parse(&text), &[]);
    let policy = find(&conversion, "AccessPolicy", "ingressgateway").expect("a policy");
    let rules = &policy["spec"]["authorization"]["rules"];
    assert_eq!(
        *rules,
        json!([{"action": "Deny", "paths": [{"value": "/"}]}])
    );
}

#[test]
fn routes_of_sidecars_are_left_to_istio() {
    let text = HELLO.replace("gateways: [hello]", "gateways: [mesh]");
    let conversion = from("istio", &parse(&text), &[]);
    assert!(conversion.is_complete());
    let routes = conversion
        .objects
        .iter()
        .filter(|it| it["kind"] == "HTTPRoute");
    assert_eq!(routes.count(), 0);
}

#[test]
fn delegate_narrows_its_route() {
    let text = HELLO.replace(
        "[{route: [{destination: {host: hello, port: {number: 80}}}]}]",
        "[{match: [{uri: {prefix: /a}}], delegate: {name: team}}]",
    ) + "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: team, namespace: hello}\nspec: {http: [{match: [{uri: {prefix: /a/b}}, {uri: {prefix: /c}}], route: [{destination: {host: hello, port: {number: 80}}}]}]}\n";
    let conversion = from("istio", &parse(&text), &[]);
    assert!(
        conversion.is_complete(),
        "{}",
        super::super::as_table(&conversion)
    );
    let route = find(&conversion, "HTTPRoute", "hello").expect("a route");
    let paths: Vec<&Value> = route["spec"]["rules"][0]["matches"]
        .as_array()
        .expect("matches")
        .iter()
        .map(|it| &it["path"]["value"])
        .collect();
    assert_eq!(paths, ["/a/b"]);
}

#[test]
fn verdicts_on_public_examples_are_current() {
    let path = "controller/convert/src/tests/istio-examples.txt";
    sesame_kit::generated::check(path, |_| summary("istio", EXAMPLES));
}

#[test]
fn accepted_loss_never_widens_a_permission() {
    let text = format!(
        "{HELLO}apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: p, namespace: \
         istio-system}}\nspec: {{rules: [{{from: [{{source: {{principals: [a]}}}}], to: [{{operation: {{paths: \
         [/a]}}}}]}}]}}\n"
    );
    let conversion = from("istio", &parse(&text), &["rules.from.source.principals"]);
    assert!(
        conversion.is_complete(),
        "{}",
        super::super::as_table(&conversion)
    );
    let policy = find(&conversion, "AccessPolicy", "ingressgateway").expect("a policy");
    let rules = policy["spec"]["authorization"]["rules"]
        .as_array()
        .expect("rules");
    assert!(rules.iter().all(|it| it["action"] == "Deny"), "{rules:?}");
}
