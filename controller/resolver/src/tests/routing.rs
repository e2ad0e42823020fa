//! Request routing: listeners, hostnames, matches and their precedence.

use super::router::{GET, Request, answer, find};
use super::{HTTP, gateway, resolved, route};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::Kind;

fn forward(to: &str) -> String {
    format!("rules: [{{backendRefs: [{{name: {to}, port: 80}}]}}]")
}

#[test]
fn snapshot_holds_only_backends_that_routes_use() {
    let resolution = resolved(&format!("{}{}", gateway(HTTP), route("r", &forward("a"))));
    let snapshot = &resolution.gateways[0].snapshot;
    assert_eq!(answer(snapshot, &GET), "web/a/80");
    assert_eq!(snapshot.gateway, "Gateway/web/gw");
    assert_eq!(
        snapshot.ports[0].listeners[0].name,
        "Gateway/web/gw/listeners/http"
    );
    assert_eq!(snapshot.route_tables[0].name, "http/80");
    assert_eq!(
        snapshot.route_tables[0].virtual_hosts[0].routes[0].name,
        "HTTPRoute/web/r/rules/0/matches/0"
    );
    let names: Vec<&str> = snapshot.backends.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names, ["Service/web/a/80"]);
    let endpoint = &snapshot.endpoints[0].endpoints[0];
    assert_eq!(
        (endpoint.address.as_str(), endpoint.port),
        ("10.0.0.1", 8080)
    );
}

#[test]
fn listeners_are_isolated() {
    let listeners = r#"
- {name: any, port: 80, protocol: HTTP}
- {name: wild, port: 80, protocol: HTTP, hostname: "*.example.com"}
- {name: deep, port: 80, protocol: HTTP, hostname: "*.foo.example.com"}
- {name: one, port: 80, protocol: HTTP, hostname: "abc.foo.example.com"}
"#;
    let mut yaml = gateway(listeners);
    for (name, path) in [
        ("any", "/any"),
        ("wild", "/wild"),
        ("deep", "/deep"),
        ("one", "/one"),
    ] {
        let spec = format!(
            "parentRefs: [{{name: gw, sectionName: {name}}}]\nrules: [{{matches: [{{path: {{value: {path}}}}}], \
             backendRefs: [{{name: a, port: 80}}]}}]"
        );
        yaml += &route(name, &spec);
    }
    // This route attaches only to the catch-all listener, but more specific listeners match its
    // hostnames.
    yaml += &route(
        "stray",
        "parentRefs: [{name: gw, sectionName: any}]\nhostnames: [abc.foo.example.com, x.example.com]\nrules: \
         [{backendRefs: [{name: b, port: 80}]}]",
    );
    let resolution = resolved(&yaml);
    let snapshot = &resolution.gateways[0].snapshot;
    for (host, owner) in [
        ("bar.com", "/any"),
        ("example.com", "/any"),
        ("x.example.com", "/wild"),
        ("a.b.example.com", "/wild"),
        ("foo.example.com", "/wild"),
        ("x.foo.example.com", "/deep"),
        ("x.abc.foo.example.com", "/deep"),
        ("abc.foo.example.com", "/one"),
    ] {
        for path in ["/any", "/wild", "/deep", "/one"] {
            let expected = if path == owner { "web/a/80" } else { "404" };
            assert_eq!(
                answer(snapshot, &Request { host, path, ..GET }),
                expected,
                "{host}{path}"
            );
        }
    }
}

#[test]
fn hostnames_intersect_and_most_specific_comes_first() {
    let listeners = r#"
- {name: exact, port: 80, protocol: HTTP, hostname: very.specific.com}
- {name: wild, port: 80, protocol: HTTP, hostname: "*.wildcard.io"}
"#;
    let mut yaml = gateway(listeners);
    yaml += &route(
        "all",
        "rules: [{matches: [{path: {value: /all}}], backendRefs: [{name: a, port: 80}]}]",
    );
    yaml += &route(
        "wider",
        &format!("hostnames: ['*.specific.com', other.com]\n{}", forward("b")),
    );
    yaml += &route(
        "exact",
        "hostnames: [foo.wildcard.io, wildcard.io]\nrules: [{matches: [{path: {value: /x}}], backendRefs: \
         [{name: c, port: 80}]}]",
    );
    yaml += &route(
        "wild",
        &format!("hostnames: ['*.wildcard.io']\n{}", forward("b")),
    );
    let resolution = resolved(&yaml);
    let snapshot = &resolution.gateways[0].snapshot;
    for (host, path, expected) in [
        // The route for `*.specific.com` takes precedence over the route without a hostname.
        ("very.specific.com", "/all", "web/b/80"),
        ("other.com", "/", "404"),
        ("not.specific.com", "/", "404"),
        ("foo.wildcard.io", "/x", "web/c/80"),
        // No route for the exact hostname matches, so routes for the wildcard apply.
        ("foo.wildcard.io", "/y", "web/b/80"),
        ("bar.wildcard.io", "/x", "web/b/80"),
        ("a.b.wildcard.io", "/x", "web/b/80"),
        ("wildcard.io", "/x", "404"),
    ] {
        assert_eq!(
            answer(snapshot, &Request { host, path, ..GET }),
            expected,
            "{host}{path}"
        );
    }
}

#[test]
fn matches_compete_across_routes_by_path_element() {
    let mut yaml = gateway(HTTP);
    yaml += &route(
        "r1",
        r#"
rules:
- matches: [{path: {type: PathPrefix, value: /api/}}]
  backendRefs: [{name: a, port: 80}]
- matches: [{path: {type: RegularExpression, value: "/regex/[0-9]+"}}]
  backendRefs: [{name: c, port: 80}]
"#,
    );
    yaml += &route(
        "r2",
        r#"
rules:
- matches: [{path: {type: Exact, value: /api/x}}, {path: {value: /api}, method: POST}]
  backendRefs: [{name: b, port: 80}]
- matches: [{path: {value: /api}, headers: [{name: Version, value: "2"}, {name: version, value: "3"}]}]
  backendRefs: [{name: c, port: 80}]
- matches: [{path: {value: /api}, queryParams: [{name: Q, value: "1"}]}]
  backendRefs: [{name: b, port: 80}]
"#,
    );
    let resolution = resolved(&yaml);
    let snapshot = &resolution.gateways[0].snapshot;
    let get = |path| Request { path, ..GET };
    for (request, expected) in [
        (get("/api"), "web/a/80"),
        (get("/api/"), "web/a/80"),
        (get("/api/y"), "web/a/80"),
        (get("/apix"), "404"),
        (get("/API"), "404"),
        (get("/api/x"), "web/b/80"),
        (get("/regex/12"), "web/c/80"),
        (get("/regex/x"), "404"),
        (
            Request {
                method: "POST",
                headers: &[("version", "2")],
                ..get("/api")
            },
            "web/b/80",
        ),
        (
            Request {
                headers: &[("version", "2")],
                query: &[("Q", "1")],
                ..get("/api")
            },
            "web/c/80",
        ),
        (
            Request {
                headers: &[("version", "3")],
                ..get("/api")
            },
            "web/a/80",
        ),
        (
            Request {
                query: &[("Q", "1")],
                ..get("/api")
            },
            "web/b/80",
        ),
        (
            Request {
                query: &[("q", "1")],
                ..get("/api")
            },
            "web/a/80",
        ),
    ] {
        assert_eq!(answer(snapshot, &request), expected, "{request:?}");
    }
}

#[test]
fn oldest_route_wins_and_hidden_ones_are_omitted() {
    let aged = |name: &str, second: u32, to: &str| {
        route(name, &forward(to)).replace(
            "generation: 3",
            &format!("generation: 3, creationTimestamp: '2026-01-01T00:00:{second:02}Z'"),
        )
    };
    let yaml =
        gateway(HTTP) + &aged("young", 9, "a") + &aged("old", 1, "b") + &aged("middle", 5, "c");
    let resolution = resolved(&yaml);
    let snapshot = &resolution.gateways[0].snapshot;
    assert_eq!(answer(snapshot, &GET), "web/b/80");
    assert_eq!(snapshot.route_tables[0].virtual_hosts[0].routes.len(), 1);
    assert_eq!(snapshot.backends.len(), 1);
    assert_eq!(resolution.attached("http"), 3);

    let tied = gateway(HTTP) + &aged("z", 1, "a") + &aged("v", 1, "b");
    assert_eq!(
        answer(&resolved(&tied).gateways[0].snapshot, &GET),
        "web/b/80"
    );
}

#[test]
fn without_rules_every_path_is_500() {
    let resolution = resolved(&(gateway(HTTP) + &route("r", "hostnames: [example.com]")));
    assert_eq!(
        answer(
            &resolution.gateways[0].snapshot,
            &Request { path: "/x", ..GET }
        ),
        "500"
    );
}

#[test]
fn redirects_use_external_port_of_listener() {
    let listeners =
        "- {name: http, port: 80, protocol: HTTP}\n- {name: alt, port: 8080, protocol: HTTP}";
    let redirect = |filter: &str| {
        format!("rules: [{{filters: [{{type: RequestRedirect, requestRedirect: {filter}}}]}}]")
    };
    for (filter, on_80, on_8080) in [
        ("{}", "302 :0", "302 :8080"),
        ("{scheme: https}", "302 https:0", "302 https:0"),
        (
            "{scheme: https, port: 8443, statusCode: 308}",
            "308 https:8443",
            "308 https:8443",
        ),
        ("{port: 80}", "302 :0", "302 :0"),
    ] {
        let resolution = resolved(&(gateway(listeners) + &route("r", &redirect(filter))));
        let snapshot = &resolution.gateways[0].snapshot;
        assert_eq!(answer(snapshot, &GET), on_80, "{filter}");
        assert_eq!(
            answer(snapshot, &Request { port: 8080, ..GET }),
            on_8080,
            "{filter}"
        );
    }
}

#[test]
fn listener_on_other_port_has_own_routes() {
    let listeners =
        "- {name: http, port: 80, protocol: HTTP}\n- {name: alt, port: 8080, protocol: HTTP}";
    let yaml = gateway(listeners)
        + &route(
            "r1",
            &format!("parentRefs: [{{name: gw, port: 8080}}]\n{}", forward("a")),
        )
        + &route(
            "r2",
            &format!(
                "parentRefs: [{{name: gw, sectionName: http, port: 80}}]\n{}",
                forward("b")
            ),
        );
    let resolution = resolved(&yaml);
    let snapshot = &resolution.gateways[0].snapshot;
    assert_eq!(answer(snapshot, &GET), "web/b/80");
    assert_eq!(answer(snapshot, &Request { port: 8080, ..GET }), "web/a/80");
}

#[test]
fn names_carry_rule_and_match() {
    let spec = "rules: [{backendRefs: [{name: a, port: 80}], matches: [{path: {value: /x}}]}, {matches: [{path: \
                {value: /a}}, {path: {value: /b}}], backendRefs: [{name: a, port: 80}]}]";
    let resolution = resolved(&(gateway(HTTP) + &route("r", spec)));
    let found = find(
        &resolution.gateways[0].snapshot,
        &Request {
            path: "/b/c",
            ..GET
        },
    );
    assert_eq!(
        found.map(|route| route.name.as_str()),
        Some("HTTPRoute/web/r/rules/1/matches/1")
    );
}

#[test]
fn only_matches_hidden_everywhere_are_reported() {
    let all = "rules: [{backendRefs: [{name: a, port: 80}]}]";
    let on = |port: u16| format!("parentRefs: [{{name: gw, port: {port}}}]\n{all}");
    let listeners =
        "- {name: http, port: 80, protocol: HTTP}\n- {name: alt, port: 8080, protocol: HTTP}";
    let problems = |routes: String| {
        let resolution = resolved(&(gateway(listeners) + &routes));
        let messages: Vec<String> = resolution
            .problems
            .iter()
            .map(|problem| format!("{}: {}", problem.object, problem.message))
            .collect();
        messages
    };
    // `b` is unreachable on port 80, but reachable on port 8080.
    assert_eq!(
        problems(route("a", &on(80)) + &route("b", all)),
        Vec::<String>::new()
    );
    let messages = problems(route("a", all) + &route("b", all));
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].starts_with("HTTPRoute/web/b: rules[0].matches[0] is never reached")
            && messages[0].ends_with(
                "of HTTPRoute/web/a, which comes first because both have the same age, and its name sorts first"
            ),
        "{messages:?}"
    );
    let resolution = resolved(&(gateway(listeners) + &route("a", all) + &route("b", all)));
    let hidden_by: Vec<_> = resolution.problems.iter().map(|it| &it.hidden_by).collect();
    let taker = Some("HTTPRoute/web/a/rules/0/matches/0".to_owned());
    assert_eq!(hidden_by, [&taker]);
    let statuses = &resolution.statuses.routes;
    let accepted = |name: &str| {
        let key = Kind::HttpRoute.named(NamespacedName::new("web", name));
        statuses[&key].parents[0].conditions[0].message.clone()
    };
    assert_eq!(accepted("a"), "the route is attached");
    assert_eq!(accepted("b"), "the route is attached");
    let rule = "{matches: [{path: {value: /x}}, {path: {value: /x/}}, {path: {value: /x}}]}";
    let messages = problems(route("a", &format!("rules: [{rule}]")));
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("rules[0].matches[1] is never reached")
            && messages[0].contains("rules[0].matches[0] of this route")
            && messages[0].contains("other unreachable matches of the route: 1"),
        "{messages:?}"
    );
}
