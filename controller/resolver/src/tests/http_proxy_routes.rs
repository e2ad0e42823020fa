//! HTTPProxy route settings that affect requests and responses.

use sesame_proto::schema::header_part::Kind;
use sesame_proto::schema::retry::Condition;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{Forward, Header, Route};

use super::http_proxies::{NONE, ask, errors, proxy, root, warnings, with};
use super::ingresses::{ingress, path, rule};
use crate::Resolution;

fn route(resolution: &Resolution, index: usize) -> &Route {
    let tables = &resolution.gateways[0].snapshot.route_tables;
    let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
    let name = format!("HTTPProxy/web/r/rules/{index}/matches/0");
    let mut routes = hosts.flat_map(|host| &host.routes);
    routes.find(|route| route.name == name).expect("a route")
}

#[test]
fn direct_response_has_body_up_to_limit() {
    let spec = |body: &str| {
        format!(
            "routes: [{{directResponsePolicy: {{statusCode: 404, body: {body:?}}}}}, {{conditions: \
             [{{prefix: /none}}], directResponsePolicy: {{statusCode: 200}}}}]"
        )
    };
    let resolution = with(&[root("r", &spec("100% gone"))]);
    let bodies = [0, 1].map(|index| match &route(&resolution, index).action {
        Some(Action::DirectResponse(it)) => (it.status, it.body.as_str()),
        other => panic!("{other:?}"),
    });
    assert_eq!(bodies, [(404, "100% gone"), (200, "")]);
    assert_eq!(errors(&resolution, "r"), NONE);
    let resolution = with(&[root("r", &spec(&"x".repeat(4097)))]);
    assert_eq!(ask(&resolution, "/"), "500");
    assert_eq!(
        errors(&resolution, "r"),
        ["RouteError/DirectResponseNotValid"]
    );
}

pub(super) fn forwarding(fields: &str) -> String {
    format!("routes: [{{services: [{{name: a, port: 80}}], {fields}}}]")
}

#[test]
fn header_values_have_only_known_variables() {
    for (value, expected, warned) in [
        ("plain 100%", "plain 100%", false),
        ("%%", "%%", false),
        ("%CONTOUR_NAMESPACE%-x", "web-x", false),
        ("%CONTOUR_SERVICE_NAME%", "%CONTOUR_SERVICE_NAME%", true),
        ("%REQ(:path)%", "%REQ(:path)%", true),
        ("%START_TIME(%s)%", "%START_TIME(%s)%", true),
        ("%UNKNOWN%", "%UNKNOWN%", true),
        ("%HOSTNAME%", "<20>", false),
        ("5%%PROTOCOL%%", "5%<21>%", false),
        ("a %REQ(X-In)% b", "a <x-in> b", false),
        ("%TLS_JA3_FINGERPRINT%", "<25>", true),
    ] {
        let fields = format!("requestHeadersPolicy: {{set: [{{name: x, value: {value:?}}}]}}");
        let resolution = with(&[root("r", &forwarding(&fields))]);
        let changes = route(&resolution, 0).request_headers.as_deref();
        let Header {
            value: literal,
            parts,
            ..
        } = &changes.expect("changes").set[0];
        let parts = parts
            .iter()
            .map(|part| match part.kind.as_ref().expect("a kind") {
                Kind::Literal(text) => text.clone(),
                Kind::Fact(fact) => format!("<{fact}>"),
                Kind::RequestHeader(name) => format!("<{name}>"),
            });
        let found = literal.clone() + &parts.collect::<String>();
        assert_eq!(found, expected, "{value}");
        assert_eq!(!warnings(&resolution, "r").is_empty(), warned, "{value}");
        assert_eq!(errors(&resolution, "r"), NONE);
    }
}

#[test]
fn host_becomes_literal_or_whole_request_header() {
    for (value, expected) in [
        ("other.test", Some(("other.test", ""))),
        ("%REQ(X-Host)%", Some(("", "x-host"))),
        ("%REQ(x-host)%.test", None),
        ("%HOSTNAME%", None),
    ] {
        let fields = format!("requestHeadersPolicy: {{set: [{{name: Host, value: {value:?}}}]}}");
        let resolution = with(&[root("r", &forwarding(&fields))]);
        let rewrite = match &route(&resolution, 0).action {
            Some(Action::Forward(forward)) => forward.rewrite.as_deref(),
            _ => None,
        };
        let found = rewrite.map(|it| (it.host.as_str(), it.host_header.as_str()));
        assert_eq!(found, expected, "{value}");
        let withheld = errors(&resolution, "r") == ["RouteError/RequestHeadersPolicyInvalid"];
        assert_eq!(withheld, expected.is_none(), "{value}");
    }
}

#[test]
fn invalid_header_policies_withhold_their_route() {
    let set = |name: &str| format!("{{name: {name}, value: \"%REQ(x)%\"}}");
    for policy in [
        "remove: [host]".to_owned(),
        "remove: [x-a, X-A]".to_owned(),
        format!("set: [{}, {}]", set("x-a"), set("X-A")),
        format!("set: [{}]", set("content-length")),
        format!("set: [{}]", set("\"a b\"")),
    ] {
        let policy = format!("requestHeadersPolicy: {{{policy}}}");
        let resolution = with(&[root("r", &forwarding(&policy))]);
        assert_eq!(ask(&resolution, "/"), "500", "{policy}");
        let expected = ["RouteError/RequestHeadersPolicyInvalid"];
        assert_eq!(errors(&resolution, "r"), expected, "{policy}");
    }
    let policy = format!("requestHeadersPolicy: {{set: [{}]}}", set("Host"));
    let service_spec = format!("routes: [{{services: [{{name: a, port: 80, {policy}}}]}}]");
    let resolution = with(&[root("r", &service_spec)]);
    let expected = ["ServiceError/RequestHeadersPolicyInvalid"];
    assert_eq!(errors(&resolution, "r"), expected);
}

#[test]
fn cors_policy_covers_tree_but_no_other_layer() {
    let spec = |policy: &str| {
        format!(
            "virtualhost: {{fqdn: h.test, corsPolicy: {{{policy}}}}}\nincludes: [{{name: child, \
             conditions: [{{prefix: /x}}]}}]\nroutes: [{{services: [{{name: a, port: 80}}]}}]"
        )
    };
    let child = proxy("child", "routes: [{services: [{name: b, port: 80}]}]");
    let ingress_yaml = ingress("i", &rule("h.test", &[path("/foo", "Exact", "a")]));
    let policies = |policy: &str| {
        let objects = [
            proxy("r", &spec(policy)),
            child.clone(),
            ingress_yaml.clone(),
        ];
        let resolution = with(&objects);
        let tables = &resolution.gateways[0].snapshot.route_tables;
        let routes = tables.iter().flat_map(|table| &table.virtual_hosts);
        let routes = routes.flat_map(|host| &host.routes);
        let found = routes.map(|route| (route.name.clone(), route.cors.clone()));
        (found.collect::<Vec<_>>(), errors(&resolution, "r"))
    };
    let good = "allowOrigin: [\"*\", \"https://a.test\"], allowMethods: [GET], exposeHeaders: [x-e], maxAge: 1h30m, \
                allowPrivateNetwork: true";
    let (routes, found) = policies(good);
    assert_eq!(found, NONE);
    assert_eq!(routes.len(), 3);
    for (name, cors) in routes {
        assert_eq!(cors.is_some(), name.starts_with("HTTPProxy/"), "{name}");
        let Some(cors) = cors else { continue };
        assert_eq!(cors.max_age_seconds, Some(5400));
        assert!(cors.allow_private_network && !cors.allow_credentials);
    }
    for bad in [
        "allowOrigin: [], allowMethods: [GET]",
        "allowOrigin: [\"*\"]",
        "allowOrigin: [\"(\"], allowMethods: [GET]",
        "allowOrigin: [\"*\"], allowMethods: [\"a b\"]",
        "allowOrigin: [\"*\"], allowMethods: [GET], maxAge: -1s",
    ] {
        let (routes, found) = policies(bad);
        assert_eq!(found, ["CORSError/PolicyDidNotParse"], "{bad}");
        assert_eq!(routes.len(), 3);
        assert!(routes.iter().all(|(_, cors)| cors.is_none()), "{bad}");
    }
}

pub(super) fn forward(resolution: &Resolution) -> &Forward {
    match &route(resolution, 0).action {
        Some(Action::Forward(forward)) => forward,
        other => panic!("{other:?}"),
    }
}

#[test]
fn retries_have_conditions_and_own_statuses() {
    for (policy, attempts, conditions, statuses, warned) in [
        ("", 1, "5xx", vec![], false),
        ("count: -1", 0, "5xx", vec![], false),
        (
            "count: 0, retryOn: [reset, cancelled]",
            1,
            "reset,cancelled",
            vec![],
            false,
        ),
        (
            "count: 3, retryOn: [retriable-status-codes], retriableStatusCodes: [404, 200, 404]",
            3,
            "retriable-status-codes",
            vec![200, 404],
            false,
        ),
        ("retryOn: [retriable-status-codes]", 1, "", vec![], true),
        ("retriableStatusCodes: [404]", 1, "5xx", vec![404], true),
        ("retryOn: [retriable-headers]", 1, "", vec![], true),
        (
            "retryOn: [odd, unavailable]",
            1,
            "unavailable",
            vec![],
            true,
        ),
        ("perTryTimeout: infinity", 1, "5xx", vec![], true),
    ] {
        let count = if policy.contains("count") {
            ""
        } else {
            "count: 1, "
        };
        let spec = forwarding(&format!("retryPolicy: {{{count}{policy}}}"));
        let resolution = with(&[root("r", &spec)]);
        let retry = forward(&resolution).retry.as_deref().expect("retries");
        let names = retry.conditions().filter_map(Condition::name);
        let names = names.collect::<Vec<_>>().join(",");
        assert_eq!(retry.attempts, attempts, "{policy}");
        assert_eq!(
            (names.as_str(), &retry.statuses),
            (conditions, &statuses),
            "{policy}"
        );
        assert_eq!(!warnings(&resolution, "r").is_empty(), warned, "{policy}");
        assert_eq!(errors(&resolution, "r"), NONE);
    }
}

#[test]
fn timeouts_are_default_disabled_or_set() {
    for (policy, request, idle) in [
        ("", (15_000, false), None),
        ("response: 0s, idle: 0s", (15_000, false), None),
        ("response: infinity, idle: infinity", (0, true), Some(0)),
        ("response: 1.5m, idle: 500ms", (90_000, false), Some(500)),
    ] {
        let resolution = with(&[root(
            "r",
            &forwarding(&format!("timeoutPolicy: {{{policy}}}")),
        )]);
        let forward = forward(&resolution);
        let found = (forward.request_timeout_ms, forward.request_timeout_disabled);
        assert_eq!(
            (found, forward.stream_idle_timeout_ms),
            (request, idle),
            "{policy}"
        );
    }
    for policy in ["response: soon", "idle: soon", "idle: -1s"] {
        let resolution = with(&[root(
            "r",
            &forwarding(&format!("timeoutPolicy: {{{policy}}}")),
        )]);
        assert_eq!(ask(&resolution, "/"), "500", "{policy}");
        let expected = ["RouteError/TimeoutPolicyNotValid"];
        assert_eq!(errors(&resolution, "r"), expected, "{policy}");
    }
}

#[test]
fn regex_precedes_prefixes_of_all_layers() {
    let proxy_spec = "routes:\n- {conditions: [{regex: '/a.*'}], services: [{name: a, port: 80}]}\n- {conditions: \
                    [{prefix: /a/very/long/prefix}], services: [{name: b, port: 80}]}";
    let to = |type_: &str, path: &str, service: &str| {
        format!(
            "{{matches: [{{path: {{type: {type_}, value: {path}}}}}], backendRefs: [{{name: {service}, \
             port: 80}}]}}"
        )
    };
    let rules = [
        to("PathPrefix", "/a/long/prefix", "c"),
        to("Exact", "/a/exact", "c"),
        to("RegularExpression", "/r/.*", "c"),
        to("PathPrefix", "/r/longer", "b"),
    ];
    let route_spec = format!("hostnames: [h.test]\nrules: [{}]", rules.join(", "));
    let resolution = with(&[root("r", proxy_spec), super::route("top", &route_spec)]);
    for (path, expected) in [
        ("/a/long/prefix", "web/a/80"),
        ("/a/very/long/prefix", "web/a/80"),
        ("/a/exact", "web/c/80"),
        // Only the HTTPRoute matches these paths. Its longer path takes precedence.
        ("/r/longer/x", "web/b/80"),
        ("/r/x", "web/c/80"),
    ] {
        assert_eq!(ask(&resolution, path), expected, "{path}");
    }
}

#[test]
fn internal_redirects_are_bounded() {
    for (policy, expected) in [
        ("", Some((0, vec![], 0, false))),
        (
            "maxInternalRedirects: 3, redirectResponseCodes: [307, 301], allowCrossSchemeRedirect: SafeOnly, \
             denyRepeatedRouteRedirect: true",
            Some((3, vec![301, 307], 2, true)),
        ),
        ("maxInternalRedirects: 17", None),
        ("redirectResponseCodes: [200]", None),
        ("allowCrossSchemeRedirect: Sometimes", None),
    ] {
        let spec = forwarding(&format!("internalRedirectPolicy: {{{policy}}}"));
        let resolution = with(&[root("r", &spec)]);
        let found = forward(&resolution).internal_redirect.as_deref();
        let found = found.map(|it| {
            (
                it.max,
                it.statuses.clone(),
                it.cross_scheme,
                it.denies_repeated_route,
            )
        });
        assert_eq!(found, expected, "{policy}");
        assert_eq!(
            warnings(&resolution, "r").is_empty(),
            expected.is_some(),
            "{policy}"
        );
    }
}
