//! HTTPProxies: roots, precedence over Ingresses, and invalid routes.

use super::ingresses::{CLASS, ingress, path, rule};
use super::router::{GET, Request, answer};
use super::{HTTP, gateway, indent, resolved, route};
use crate::Resolution;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::RouteStatus;
use sesame_kinds::world::Kind;

pub(super) fn proxy(name: &str, spec: &str) -> String {
    format!(
        "---\nkind: HTTPProxy\nmetadata: {{name: {name}, namespace: web}}\nspec:\n  \
         ingressClassName: edge\n{}\n",
        indent(spec, 2)
    )
}

pub(super) fn root(name: &str, spec: &str) -> String {
    proxy(name, &format!("virtualhost: {{fqdn: h.test}}\n{spec}"))
}

pub(super) fn with(objects: &[String]) -> Resolution {
    resolved(&format!("{}{CLASS}{}", gateway(HTTP), objects.concat()))
}

pub(super) fn send(
    resolution: &Resolution,
    port: u32,
    path: &str,
    headers: &[(&str, &str)],
) -> String {
    let request = Request {
        port,
        sni: "h.test",
        host: "h.test",
        path,
        headers,
        ..GET
    };
    answer(&resolution.gateways[0].snapshot, &request)
}

pub(super) fn ask(resolution: &Resolution, path: &str) -> String {
    send(resolution, 80, path, &[])
}

fn status<'r>(resolution: &'r Resolution, name: &str) -> &'r RouteStatus {
    let key = Kind::HttpProxy.named(NamespacedName::new("web", name));
    resolution.statuses.routes.get(&key).expect("a status")
}

pub(super) fn errors(resolution: &Resolution, name: &str) -> Vec<String> {
    let details = status(resolution, name).details.iter();
    let errors = details.filter(|detail| !detail.warning);
    errors
        .map(|it| format!("{}/{}", it.type_, it.reason))
        .collect()
}

pub(super) fn messages(resolution: &Resolution, name: &str) -> Vec<String> {
    let details = status(resolution, name).details.iter();
    details.map(|detail| detail.message.clone()).collect()
}

pub(super) fn warnings(resolution: &Resolution, name: &str) -> Vec<String> {
    let details = status(resolution, name).details.iter();
    let warnings = details.filter(|detail| detail.warning);
    warnings
        .map(|it| format!("{}/{}", it.type_, it.reason))
        .collect()
}

pub(super) const NONE: [&str; 0] = [];

#[test]
fn warnings_are_problems_of_their_proxy() {
    let spec = "
routes:
- {services: [{name: a, port: 80}], loadBalancerPolicy: {strategy: Nearest}}
- {conditions: [{prefix: /gone}], services: [{name: gone, port: 80}]}
";
    let resolution = with(&[root("r", spec)]);
    assert_eq!(warnings(&resolution, "r"), ["SpecError/IgnoredField"]);
    let [problem] = resolution.problems.as_slice() else {
        panic!("one problem: {:?}", resolution.problems);
    };
    assert_eq!(problem.object.to_string(), "HTTPProxy/web/r");
    let expected = "routes[0]: loadBalancerPolicy.strategy \"Nearest\" is unknown";
    assert!(problem.message.starts_with(expected), "{problem:?}");
}

#[test]
fn longest_textual_prefix_wins_after_exact_path() {
    let spec = "
routes:
- {conditions: [{prefix: /}], services: [{name: a, port: 80}]}
- {conditions: [{prefix: /foo}], services: [{name: b, port: 80}]}
- {conditions: [{exact: /foo}], services: [{name: c, port: 80}]}
- {conditions: [{regex: '/v[0-9]+/xy.*'}], services: [{name: b, port: 80}]}
- {conditions: [{regex: '/v[0-9]+/x.'}], services: [{name: a, port: 80}]}
- {conditions: [{regex: '/v[0-9]+/.*'}], services: [{name: c, port: 80}]}
";
    let resolution = with(&[root("r", spec)]);
    for (path, expected) in [
        ("/", "web/a/80"),
        // The longest expression wins, or the alphabetically last one of the same length.
        ("/v1/xyz", "web/b/80"),
        ("/v1/xa", "web/a/80"),
        ("/foo", "web/c/80"),
        ("/foobar", "web/b/80"),
        ("/v1/x", "web/c/80"),
    ] {
        assert_eq!(ask(&resolution, path), expected, "{path}");
    }
    assert_eq!(errors(&resolution, "r"), NONE);
    let conditions = &status(&resolution, "r").parents[0].conditions;
    assert_eq!(conditions[0].message, "Valid HTTPProxy");
}

#[test]
fn last_of_equal_routes_wins_over_included_ones() {
    let parent = "
includes: [{name: child}]
routes:
- {conditions: [{prefix: /x}], services: [{name: a, port: 80}]}
- {conditions: [{prefix: /x}], services: [{name: b, port: 80}]}
";
    let child = "routes:\n- {conditions: [{prefix: /x}], services: [{name: c, port: 80}]}\n- {conditions: \
                 [{prefix: /y}], services: [{name: c, port: 80}]}";
    let resolution = with(&[root("r", parent), proxy("child", child)]);
    assert_eq!(ask(&resolution, "/x"), "web/b/80");
    assert_eq!(ask(&resolution, "/y"), "web/c/80");
    assert_eq!(warnings(&resolution, "r"), ["RouteError/DuplicateMatch"]);
    assert_eq!(
        warnings(&resolution, "child"),
        ["RouteError/DuplicateMatch"]
    );
}

#[test]
fn oldest_of_several_roots_has_the_host() {
    let to = |service: &str| format!("routes: [{{services: [{{name: {service}, port: 80}}]}}]");
    let aged = |name: &str, created: &str, service: &str| {
        let created = format!("metadata: {{creationTimestamp: \"{created}\", ");
        root(name, &to(service)).replacen("metadata: {", &created, 1)
    };
    let resolution = with(&[
        aged("a", "2026-02-01T00:00:00Z", "a"),
        aged("b", "2026-01-01T00:00:00Z", "b"),
    ]);
    assert_eq!(ask(&resolution, "/"), "web/b/80");
    assert_eq!(
        errors(&resolution, "a"),
        ["VirtualHostError/DuplicateVhost"]
    );
    assert_eq!(errors(&resolution, "b"), NONE);
}

#[test]
fn response_that_sets_host_withholds_its_route() {
    let policy = "responseHeadersPolicy: {set: [{name: host, value: x.test}]}";
    let spec = format!(
        "routes:\n- {{conditions: [{{prefix: /route}}], services: [{{name: a, port: 80}}], {policy}}}\n\
         - {{conditions: [{{prefix: /service}}], services: [{{name: a, port: 80, {policy}}}]}}"
    );
    let resolution = with(&[root("r", &spec)]);
    for path in ["/route", "/service"] {
        assert_eq!(ask(&resolution, path), "500", "{path}");
    }
    let expected = [
        "ServiceError/ResponseHeadersPolicyInvalid",
        "RouteError/ResponseHeaderPolicyInvalid",
    ];
    assert_eq!(errors(&resolution, "r"), expected);
}

#[test]
fn missing_services_answer_503_for_their_share() {
    let spec = "
routes:
- {conditions: [{prefix: /none}], services: [{name: gone, port: 80}]}
- {conditions: [{prefix: /some}], services: [{name: gone, port: 80, weight: 1}, {name: a, port: 80, weight: 3}]}
- {conditions: [{prefix: /port}], services: [{name: a, port: 81}]}
- {conditions: [{prefix: /tls}], services: [{name: a, port: 80, protocol: h3}]}
";
    let resolution = with(&[root("r", spec)]);
    assert_eq!(ask(&resolution, "/none"), "503");
    assert_eq!(ask(&resolution, "/some"), "1x500 3xweb/a/80");
    assert_eq!(ask(&resolution, "/port"), "503");
    assert_eq!(ask(&resolution, "/tls"), "503");
    let expected = [
        "ServiceError/UnsupportedProtocol",
        "ServiceError/ServiceUnresolvedReference",
    ];
    let mut found = errors(&resolution, "r");
    found.sort();
    found.dedup();
    found.reverse();
    assert_eq!(found, expected);
}

#[test]
fn layers_share_a_host_by_rank_and_specificity() {
    let ingress_rule = rule(
        "h.test",
        &[
            path("/foo", "Exact", "a"),
            path("/api", "Prefix", "a"),
            path("/bar", "Prefix", "a"),
        ],
    );
    let proxy_spec = "
routes:
- {conditions: [{exact: /foo}], services: [{name: b, port: 80}]}
- {conditions: [{prefix: /bar}], services: [{name: b, port: 80}]}
- {services: [{name: b, port: 80}]}
";
    let route_spec = "hostnames: [h.test]\nrules: [{matches: [{path: {type: Exact, value: /foo}}], \
                    backendRefs: [{name: c, port: 80}]}]";
    let two = [ingress("i", &ingress_rule), root("r", proxy_spec)];
    let resolution = with(&two);
    for (path, expected) in [
        ("/foo", "web/b/80"),
        ("/api/x", "web/a/80"),
        // The Ingress matches whole path elements, so it precedes the HTTPProxy's equal prefix.
        ("/bar", "web/a/80"),
        ("/barx", "web/b/80"),
        ("/x", "web/b/80"),
    ] {
        assert_eq!(ask(&resolution, path), expected, "{path}");
    }
    let [one, other] = two;
    let resolution = with(&[one, other, route("top", route_spec)]);
    assert_eq!(ask(&resolution, "/foo"), "web/c/80");
    assert_eq!(warnings(&resolution, "r"), ["RouteError/Overridden"]);
}
