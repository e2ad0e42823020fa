//! Rate limits in HTTPProxies.

use sesame_proto::schema::RateLimit;

use super::http_proxies::{NONE, ask, errors, proxy, warnings, with};
use crate::Resolution;

fn root(policy: &str, routes: &str) -> String {
    proxy(
        "r",
        &format!("virtualhost: {{fqdn: h.test{policy}}}\nroutes: [{routes}]"),
    )
}

fn at(prefix: &str, fields: &str) -> String {
    format!("{{conditions: [{{prefix: {prefix}}}], services: [{{name: a, port: 80}}]{fields}}}")
}

fn local(fields: &str) -> String {
    format!(", rateLimitPolicy: {{local: {{{fields}}}}}")
}

fn limits(resolution: &Resolution) -> &[RateLimit] {
    &resolution.gateways[0].snapshot.rate_limits
}

fn of_routes(resolution: &Resolution) -> Vec<Vec<String>> {
    let tables = &resolution.gateways[0].snapshot.route_tables;
    let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
    let routes = hosts.flat_map(|host| &host.routes);
    let mut routes: Vec<_> = routes
        .map(|it| (&it.name, it.rate_limits.clone()))
        .collect();
    routes.sort();
    routes.into_iter().map(|(_, limits)| limits).collect()
}

#[test]
fn route_replaces_limit_of_its_host() {
    let own = local(
        "requests: 10, unit: second, burst: 5, responseStatusCode: 503, responseHeadersToAdd: \
         [{name: x-ns, value: '%CONTOUR_NAMESPACE%'}]",
    );
    let routes = [at("/a", ""), at("/b", &own), at("/c", "")].join(", ");
    let resolution = with(&[root(&local("requests: 3, unit: hour"), &routes)]);
    assert_eq!(errors(&resolution, "r"), NONE);
    let (host, route) = (
        "HTTPProxy/web/r/rateLimit",
        "HTTPProxy/web/r/routes/1/rateLimit",
    );
    assert_eq!(of_routes(&resolution), [[host], [route], [host]]);
    let [of_host, of_route] = limits(&resolution) else {
        panic!("{:?}", limits(&resolution));
    };
    let expected = RateLimit {
        name: host.into(),
        requests: 3,
        per_ms: 3_600_000,
        ..RateLimit::default()
    };
    assert_eq!(*of_host, expected);
    let numbers = (
        of_route.requests,
        of_route.per_ms,
        of_route.burst,
        of_route.status,
    );
    assert_eq!(numbers, (10, 1_000, 5, 503));
    assert_eq!(of_route.response_headers[0].value, "web");
}

#[test]
fn invalid_or_global_limit_refuses_requests() {
    let global = ", rateLimitPolicy: {global: {descriptors: [{entries: [{remoteAddress: {}}]}]}}";
    let both = ", rateLimitPolicy: {local: {requests: 1, unit: hour}, global: {descriptors: \
                [{entries: [{remoteAddress: {}}]}]}}";
    let invalid = "RouteError/RateLimitPolicyNotValid";
    for (policy, error) in [
        (local("requests: 0, unit: hour"), invalid),
        (local("requests: -1, unit: hour"), invalid),
        (local("unit: hour"), invalid),
        (local("requests: 1, unit: day"), invalid),
        (local("requests: 1, unit: hour, burst: -1"), invalid),
        (
            local("requests: 1, unit: hour, responseStatusCode: 200"),
            invalid,
        ),
        (
            local("requests: 1, unit: hour, responseStatusCode: 418"),
            invalid,
        ),
        (
            local("requests: 1, unit: hour, responseHeadersToAdd: [{name: 'a b', value: x}]"),
            invalid,
        ),
        (global.to_owned(), "RouteError/NotSupported"),
        (both.to_owned(), "RouteError/NotSupported"),
    ] {
        let route_resolution = with(&[root("", &at("/", &policy))]);
        let host_resolution = with(&[root(&policy, &at("/", ""))]);
        for resolution in [route_resolution, host_resolution] {
            assert_eq!(ask(&resolution, "/"), "500", "{policy}");
            assert_eq!(errors(&resolution, "r"), [error], "{policy}");
            assert_eq!(limits(&resolution), [], "{policy}");
        }
    }
}

#[test]
fn disabled_global_limit_leaves_the_local_one() {
    let host = ", rateLimitPolicy: {local: {requests: 1, unit: minute}, global: {descriptors: \
                [{entries: [{remoteAddress: {}}]}]}}";
    let disabled = ", rateLimitPolicy: {global: {disabled: true}}";
    let resolution = with(&[root(host, &at("/", disabled))]);
    assert_eq!(errors(&resolution, "r"), NONE);
    assert_eq!(of_routes(&resolution), [["HTTPProxy/web/r/rateLimit"]]);
}

#[test]
fn limit_of_an_answer_has_no_effect() {
    let own = local("requests: 1, unit: hour");
    let route = format!("{{directResponsePolicy: {{statusCode: 204}}{own}}}");
    let resolution = with(&[root("", &route)]);
    assert_eq!(ask(&resolution, "/"), "204");
    assert_eq!(warnings(&resolution, "r"), ["SpecError/IgnoredField"]);
    assert_eq!(limits(&resolution), []);
}
