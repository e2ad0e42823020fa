//! Rate limits that a service decides, in TrafficPolicies and HTTPProxies.

use sesame_proto::schema::rate_limit_key::Kind as KeyKind;
use sesame_proto::schema::{RateLimit, RateLimitService};

use super::http_proxies::{NONE, ask, errors, proxy, warnings, with};
use super::http_proxy_roots::configured;
use super::ingresses::CLASS;
use super::traffic_policies::{SCOPES, conditions, first, is_refused, policy, served};
use crate::Resolution;

const SERVICE: &str = "service: {backendRef: {name: b, port: 80}, domain: shop}";

fn limits(resolution: &Resolution) -> &[RateLimit] {
    &resolution.gateways[0].snapshot.rate_limits
}

fn limited(fields: &str) -> Resolution {
    let limit = format!("rateLimits: [{{name: a, scope: Service, {fields}}}]");
    served(&policy("p", SCOPES[0], &limit))
}

#[test]
fn service_gets_name_of_limit_and_keys() {
    let resolution = limited(&format!("{SERVICE}, keys: [{{type: Path}}]"));
    let [limit] = limits(&resolution) else {
        panic!("{:?}", limits(&resolution));
    };
    let service = limit.service.as_ref().expect("a service");
    let expected = RateLimitService {
        backend: service.backend.clone(),
        domain: "shop".into(),
        ..RateLimitService::default()
    };
    assert_eq!(*service, expected);
    let backends = &resolution.gateways[0].snapshot.backends;
    assert!(backends.iter().any(|it| it.name == service.backend));
    let [own, path] = limit.keys.as_slice() else {
        panic!("{:?}", limit.keys);
    };
    assert_eq!(path.kind, Some(KeyKind::Path(true)));
    let Some(KeyKind::Entry(entry)) = &own.kind else {
        panic!("{own:?}");
    };
    assert_eq!((&*entry.key, &*entry.value), ("limit", "web/p/a"));
    assert_eq!(
        first(&resolution).rate_limits,
        std::slice::from_ref(&limit.name)
    );
}

#[test]
fn invalid_service_limit_refuses_requests() {
    for (fields, why) in [
        ("keys: []", "service is missing"),
        (
            &format!("requests: 1, {SERVICE}"),
            "requests must not be set",
        ),
        (&format!("per: Hour, {SERVICE}"), "per must not be set"),
        (&format!("burst: 1, {SERVICE}"), "burst must not be set"),
        (
            "service: {backendRef: {name: b, port: 80}, domain: ''}",
            "service.domain \"\": expected a domain",
        ),
        (
            "service: {backendRef: {name: b, port: 80}, domain: '%A%'}",
            "expected a domain without %",
        ),
        (
            "service: {backendRef: {name: b, port: 80}, domain: a, timeout: 0s}",
            "service.timeout \"0s\": expected 1ms to 1h",
        ),
        (
            "service: {backendRef: {name: b, port: 80}, domain: a, timeout: soon}",
            "service.timeout: \"soon\" is not a duration",
        ),
        (
            "service: {backendRef: {name: absent, port: 80}, domain: a}",
            "service.backendRef: ",
        ),
        (
            "service: {backendRef: {name: b, namespace: other, port: 80}, domain: a}",
            "service.backendRef: ",
        ),
    ] {
        let resolution = limited(fields);
        assert!(is_refused(&resolution), "{fields}");
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains(why), "{fields}: {message}");
    }
    let rate = format!("rateLimits: [{{name: a, requests: 1, per: Hour, {SERVICE}}}]");
    for limit in [&rate, "rateLimits: [{name: a, per: Hour}]"] {
        assert!(
            is_refused(&served(&policy("p", SCOPES[0], limit))),
            "{limit}"
        );
    }
}

#[test]
fn limit_that_fails_open_needs_no_service() {
    for more in ["service: {failOpen: true, ", "mode: Report, service: {"] {
        let fields = format!("{more}backendRef: {{name: absent, port: 80}}, domain: a}}");
        let resolution = limited(&fields);
        assert!(!is_refused(&resolution), "{fields}");
        assert_eq!(limits(&resolution), []);
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains("the limit has no effect"), "{message}");
    }
}

#[test]
fn rule_with_several_services_is_refused() {
    let of = |name: &str, scope: &str, domain: &str, mode: &str| {
        let limit = format!(
            "rateLimits: [{{name: a, scope: Service, mode: {mode}, service: {{backendRef: {{name: \
             b, port: 80}}, domain: {domain}}}}}]"
        );
        policy(name, scope, &limit)
    };
    let all = of("gateway", SCOPES[3], "edge", "Enforce");
    let same = of("route", SCOPES[1], "edge", "Enforce");
    let other = of("route", SCOPES[1], "other", "Enforce");
    let report = of("route", SCOPES[1], "other", "Report");
    assert!(!is_refused(&served(&(all.clone() + &same))));
    assert!(is_refused(&served(&(all.clone() + &other))));
    let resolution = served(&(all + &report));
    assert!(!is_refused(&resolution));
    assert_eq!(first(&resolution).rate_limits.len(), 1);
}

const EXTENSION: &str = "---\nkind: ExtensionService\nmetadata: {name: x, namespace: ops}\nspec: \
                         {services: [{name: b, port: 80}], protocol: h2c, timeoutPolicy: \
                         {response: 50ms}}\n---\nkind: Service\nmetadata: {name: b, namespace: \
                         ops}\nspec: {ports: [{port: 80}]}\n";

const SETTINGS: &str = "{rateLimitService: {extensionService: {namespace: ops, name: x}}}";

fn global(descriptors: &str) -> String {
    format!(", rateLimitPolicy: {{global: {{descriptors: [{descriptors}]}}}}")
}

fn root(host: &str, route: &str) -> String {
    let routes = format!("routes: [{{services: [{{name: a, port: 80}}]{route}}}]");
    proxy(
        "r",
        &format!("virtualhost: {{fqdn: h.test{host}}}\n{routes}"),
    )
}

fn of_proxy(settings: &str, host: &str, route: &str) -> Resolution {
    configured(
        settings,
        &format!("{CLASS}{}{EXTENSION}", root(host, route)),
    )
}

#[test]
fn descriptors_of_route_replace_those_of_host() {
    let host = global("{entries: [{remoteAddress: {}}]}, {entries: [{genericKey: {value: v}}]}");
    let own = global("{entries: [{requestHeader: {headerName: X-User, descriptorKey: user}}]}");
    let disabled = ", rateLimitPolicy: {global: {disabled: true}}";
    let empty = ", rateLimitPolicy: {global: {}}";
    for (route, names) in [
        ("", &["rateLimit/global/0", "rateLimit/global/1"][..]),
        (empty, &["rateLimit/global/0", "rateLimit/global/1"]),
        (own.as_str(), &["routes/0/rateLimit/global/0"]),
        (disabled, &[]),
    ] {
        let resolution = of_proxy(SETTINGS, &host, route);
        assert_eq!(errors(&resolution, "r"), NONE, "{route}");
        let names: Vec<String> = names
            .iter()
            .map(|it| format!("HTTPProxy/web/r/{it}"))
            .collect();
        assert_eq!(first(&resolution).rate_limits, names);
        for limit in limits(&resolution) {
            let service = limit.service.as_ref().expect("a service");
            assert_eq!((&*service.domain, service.timeout_ms), ("contour", 50));
        }
    }
    let resolution = of_proxy(SETTINGS, &host, &own);
    let [limit] = limits(&resolution) else {
        panic!("{:?}", limits(&resolution));
    };
    let Some(KeyKind::Header(header)) = &limit.keys[0].kind else {
        panic!("{:?}", limit.keys);
    };
    assert_eq!((&*header.key, &*header.name), ("user", "x-user"));
}

#[test]
fn unusable_descriptors_refuse_requests() {
    let invalid = "RouteError/RateLimitPolicyNotValid";
    let unset = "RouteError/NotSupported";
    let address = "{entries: [{remoteAddress: {}}]}";
    let many = vec![address; RateLimit::MAX_OF_ROUTE].join(", ");
    let matching = |header: &str| {
        format!("{{entries: [{{requestHeaderValueMatch: {{value: v, headers: [{header}]}}}}]}}")
    };
    for (settings, descriptors, error) in [
        ("{}", address, unset),
        (
            "{rateLimitService: {extensionService: {namespace: ops, name: absent}}}",
            address,
            invalid,
        ),
        (SETTINGS, "{entries: []}", invalid),
        (SETTINGS, "{entries: [{}]}", invalid),
        (SETTINGS, "{entries: [{genericKey: {value: ''}}]}", invalid),
        (
            SETTINGS,
            "{entries: [{genericKey: {value: '%A%'}}]}",
            invalid,
        ),
        (
            SETTINGS,
            "{entries: [{remoteAddress: {}, genericKey: {value: a}}]}",
            invalid,
        ),
        (
            SETTINGS,
            "{entries: [{requestHeader: {headerName: 'a b', descriptorKey: a}}]}",
            invalid,
        ),
        (SETTINGS, &matching("{name: a, regex: b}"), invalid),
        (SETTINGS, &matching(""), invalid),
        (SETTINGS, &matching("{name: a}"), invalid),
        (SETTINGS, &many, invalid),
    ] {
        let policy = global(descriptors);
        for (host, route) in [("", policy.as_str()), (policy.as_str(), "")] {
            let resolution = of_proxy(settings, host, route);
            assert_eq!(ask(&resolution, "/"), "500", "{descriptors}");
            assert_eq!(errors(&resolution, "r"), [error], "{descriptors}");
            assert_eq!(limits(&resolution), [], "{descriptors}");
        }
    }
}

#[test]
fn missing_service_that_fails_open_limits_nothing() {
    let settings = "{rateLimitService: {extensionService: {namespace: ops, name: absent}, failOpen: \
                    true}}";
    let resolution = of_proxy(settings, "", &global("{entries: [{remoteAddress: {}}]}"));
    assert_eq!(limits(&resolution), []);
    assert_eq!(errors(&resolution, "r"), NONE);
    assert_eq!(warnings(&resolution, "r"), ["SpecError/IgnoredField"]);
    assert_ne!(ask(&resolution, "/"), "500");
    let unset = with(&[root("", "")]);
    assert_eq!(errors(&unset, "r"), NONE);
}
