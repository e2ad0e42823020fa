//! Ingresses: classes, paths, hosts, precedence, and the effects of errors.

use sesame_proto::schema::retry::Condition as RetryCondition;
use sesame_proto::schema::route::Action;

use super::router::{GET, Request, answer, find};
use super::{ConditionState, HTTP, gateway, holds, indent, resolved, route, world};
use crate::{Options, Resolution, Resolver};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionType, Reason};
use sesame_kinds::world::Kind;

pub(super) const CLASS: &str = r"
---
kind: IngressClass
metadata: {name: edge}
spec:
  controller: projectsesame.io/ingress-controller
  parameters: {apiGroup: gateway.networking.k8s.io, kind: Gateway, scope: Namespace, namespace: web, name: gw}
";

pub(super) fn ingress(name: &str, spec: &str) -> String {
    annotated(name, "{}", spec)
}

pub(super) fn annotated(name: &str, annotations: &str, spec: &str) -> String {
    format!(
        "---\nkind: Ingress\nmetadata: {{name: {name}, namespace: web, annotations: {annotations}}}\nspec:\n  \
         ingressClassName: edge\n{}\n",
        indent(spec, 2)
    )
}

pub(super) fn path(path: &str, type_: &str, service: &str) -> String {
    format!(
        "{{path: \"{path}\", pathType: {type_}, backend: {{service: {{name: {service}, port: {{number: 80}}}}}}}}"
    )
}

pub(super) fn rule(host: &str, paths: &[String]) -> String {
    format!(
        "rules: [{{host: \"{host}\", http: {{paths: [{}]}}}}]",
        paths.join(", ")
    )
}

fn aged(name: &str, created: &str, spec: &str) -> String {
    let created = format!("metadata: {{creationTimestamp: \"{created}\", ");
    ingress(name, spec).replacen("metadata: {", &created, 1)
}

pub(super) fn with(objects: &[String]) -> Resolution {
    resolved(&format!("{}{CLASS}{}", gateway(HTTP), objects.concat()))
}

fn ask(resolution: &Resolution, host: &str, path: &str) -> String {
    let headers = [("host", host)];
    let request = Request {
        host,
        path,
        headers: &headers,
        ..GET
    };
    answer(&resolution.gateways[0].snapshot, &request)
}

pub(super) fn conditions<'r>(resolution: &'r Resolution, name: &str) -> &'r [Condition] {
    let key = Kind::Ingress.named(NamespacedName::new("web", name));
    let status = resolution.statuses.routes.get(&key).expect("a status");
    &status.parents[0].conditions
}

#[test]
fn paths_match_by_type_and_specificity() {
    let spec = rule(
        "h.test",
        &[
            path("/", "Prefix", "a"),
            path("/foo/", "Prefix", "b"),
            path("/foo", "Exact", "c"),
            path("/impl", "ImplementationSpecific", "b"),
        ],
    );
    let resolution = with(&[ingress("i", &spec)]);
    for (path, expected) in [
        ("/", "web/a/80"),
        ("/foo", "web/c/80"),
        ("/foo/", "web/b/80"),
        ("/foo/x", "web/b/80"),
        ("/foobar", "web/a/80"),
        ("/Foo", "web/a/80"),
        ("/impl/x", "web/b/80"),
    ] {
        assert_eq!(ask(&resolution, "h.test", path), expected, "{path}");
    }
    assert_eq!(ask(&resolution, "other.test", "/"), "404");
    assert_eq!(resolution.attached("http"), 0);
    let conditions = conditions(&resolution, "i");
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::True
    );
    assert_eq!(
        holds(conditions, ConditionType::ResolvedRefs),
        ConditionState::True
    );
    assert_eq!(resolution.problems, []);
}

#[test]
fn wildcard_host_covers_exactly_one_label() {
    let wild = rule("*.h.test", &[path("/", "Prefix", "a")]);
    let all = "defaultBackend: {service: {name: b, port: {number: 80}}}";
    let resolution = with(&[ingress("wild", &wild), ingress("all", all)]);
    for (host, expected) in [
        ("x.h.test", "web/a/80"),
        ("y.x.h.test", "web/b/80"),
        ("h.test", "web/b/80"),
    ] {
        assert_eq!(ask(&resolution, host, "/"), expected, "{host}");
    }
}

#[test]
fn default_backend_receives_unmatched_requests() {
    let spec = format!(
        "defaultBackend: {{service: {{name: b, port: {{number: 80}}}}}}\n{}",
        "rules:\n- {host: h.test, http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: a, \
         port: {name: http}}}}]}}\n- {host: bare.test}"
    );
    let resolution = with(&[ingress("i", &spec)]);
    assert_eq!(ask(&resolution, "h.test", "/a"), "web/a/80");
    assert_eq!(ask(&resolution, "h.test", "/x"), "web/b/80");
    assert_eq!(ask(&resolution, "bare.test", "/x"), "web/b/80");
    assert_eq!(ask(&resolution, "any.test", "/x"), "web/b/80");
    let missing = with(&[ingress("i", &spec.replace("name: b,", "name: gone,"))]);
    assert_eq!(ask(&missing, "any.test", "/x"), "503");
    assert_eq!(ask(&missing, "h.test", "/a"), "web/a/80");
}

#[test]
fn oldest_default_backend_receives_requests() {
    let to = |name: &str, created: &str, service: &str| {
        let spec =
            format!("defaultBackend: {{service: {{name: {service}, port: {{number: 80}}}}}}");
        aged(name, created, &spec)
    };
    let resolution = with(&[
        to("a", "2026-02-01T00:00:00Z", "a"),
        to("b", "2026-01-01T00:00:00Z", "b"),
    ]);
    assert_eq!(ask(&resolution, "any.test", "/x"), "web/b/80");
}

#[test]
fn rule_without_host_or_paths_covers_rest() {
    let hosts = |host: &str| rule(host, &[path("/all", "Prefix", "a")]);
    let resolution = with(&[ingress("i", &hosts("")), ingress("j", &hosts("h.test"))]);
    for (host, path, expected) in [
        ("any.test", "/all/x", "web/a/80"),
        ("any.test", "/x", "404"),
        ("h.test", "/all", "web/a/80"),
    ] {
        assert_eq!(ask(&resolution, host, path), expected, "{host}{path}");
    }
    // Without paths and a default backend, a rule has nothing to serve.
    let bare = with(&[ingress("i", "rules: [{host: bare.test}]")]);
    assert_eq!(ask(&bare, "bare.test", "/"), "404");
    let refused = ConditionState::False(Reason::UnsupportedValue);
    let accepted = holds(conditions(&bare, "i"), ConditionType::Accepted);
    assert_eq!(accepted, refused);
}

#[test]
fn edited_ingress_loses_its_old_routes() {
    let mut resolver = Resolver::default();
    let mut edited = |spec: &str| {
        let yaml = format!("{}{CLASS}{}", gateway(HTTP), ingress("i", spec));
        resolver.resolve(&world(&yaml), &Options::default())
    };
    let default = edited("defaultBackend: {service: {name: b, port: {number: 80}}}");
    assert_eq!(ask(&default, "h.test", "/x"), "web/b/80");
    let rules = edited(&rule("h.test", &[path("/x", "Prefix", "a")]));
    assert_eq!(ask(&rules, "h.test", "/x"), "web/a/80");
    assert_eq!(ask(&rules, "any.test", "/x"), "404");
    let moved = edited(&rule("g.test", &[path("/y", "Prefix", "a")]));
    assert_eq!(ask(&moved, "h.test", "/x"), "404");
    assert_eq!(ask(&moved, "g.test", "/x"), "404");
    assert_eq!(ask(&moved, "g.test", "/y"), "web/a/80");
}

#[test]
fn annotations_of_contour_reach_routes() {
    let forward = |annotations: &str| {
        let annotations = annotations.replace('~', "projectcontour.io/");
        let spec = rule("h.test", &[path("/", "Prefix", "a")]);
        let resolution = with(&[annotated("i", &format!("{{{annotations}}}"), &spec)]);
        let request = Request {
            host: "h.test",
            ..GET
        };
        let found = find(&resolution.gateways[0].snapshot, &request).expect("a route");
        match found.action.clone() {
            Some(Action::Forward(forward)) => (forward, resolution.problems.len()),
            other => panic!("{other:?}"),
        }
    };
    let (timed, problems) = forward("~response-timeout: 5s, ~request-timeout: 9s");
    assert_eq!((timed.request_timeout_ms, problems), (5_000, 0));
    let (timed, problems) = forward("~request-timeout: infinite");
    assert!(timed.request_timeout_disabled && problems == 0);
    let (timed, problems) = forward("~response-timeout: soon");
    assert!(!timed.request_timeout_disabled && timed.request_timeout_ms == 0 && problems == 1);
    let retries = "~retry-on: gateway-error, ~num-retries: \"3\", ~per-try-timeout: 2s";
    let (with_retries, problems) = forward(retries);
    let policy = with_retries.retry.expect("retries");
    assert_eq!(policy.conditions, [i32::from(RetryCondition::GatewayError)]);
    assert_eq!((policy.attempts, problems), (3, 0));
    assert_eq!(with_retries.backend_timeout_ms, 2_000);
    // All routes support WebSockets.
    let (plain, problems) = forward("~websocket-routes: /ws");
    assert!(plain.retry.is_none() && problems == 0);
}

#[test]
fn http_route_precedes_equal_ingress_match() {
    let ingress_rule = rule(
        "h.test",
        &[path("/", "Prefix", "a"), path("/api", "Prefix", "a")],
    );
    let route_spec = "hostnames: [h.test]\nrules: [{backendRefs: [{name: b, port: 80}]}]";
    let resolution = with(&[ingress("i", &ingress_rule), route("r", route_spec)]);
    assert_eq!(ask(&resolution, "h.test", "/"), "web/b/80");
    // The Ingress's more specific match still receives requests.
    assert_eq!(ask(&resolution, "h.test", "/api/x"), "web/a/80");
    let hidden: Vec<&str> = resolution.problems.iter().map(|it| &*it.message).collect();
    assert_eq!(
        hidden,
        [
            "rules[0].http.paths[0] is never reached: its requests go to rules[0].matches[0] of \
             HTTPRoute/web/r, which comes first because routes of the Gateway API precede \
             HTTPProxies, which precede Ingresses"
        ]
    );
    let wild = rule("*.h.test", &[path("/x", "Prefix", "a")]);
    let route_spec = "hostnames: [\"*.h.test\"]\nrules: [{matches: [{path: {value: /x}}], \
                    backendRefs: [{name: b, port: 80}]}]";
    let resolution = with(&[ingress("i", &wild), route("r", route_spec)]);
    assert_eq!(ask(&resolution, "a.h.test", "/x"), "web/b/80");
}

#[test]
fn older_ingress_precedes_newer_one() {
    let to = |service: &str| rule("h.test", &[path("/x", "Exact", service)]);
    let resolution = with(&[
        aged("a", "2026-02-01T00:00:00Z", &to("a")),
        aged("b", "2026-01-01T00:00:00Z", &to("b")),
    ]);
    assert_eq!(ask(&resolution, "h.test", "/x"), "web/b/80");
}

#[test]
fn unservable_rule_answers_with_error() {
    let spec = r#"
rules:
- host: h.test
  http:
    paths:
    - {path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}
    - {path: /gone, pathType: Prefix, backend: {service: {name: gone, port: {number: 80}}}}
    - {path: /port, pathType: Prefix, backend: {service: {name: a, port: {name: nope}}}}
    - {path: /bucket, pathType: Prefix, backend: {resource: {apiGroup: k8s.example.com, kind: Bucket, name: b}}}
    - {path: /none, pathType: Prefix, backend: {}}
    - {path: "/re/(.*)", pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 80}}}}
    - {path: /odd, pathType: Odd, backend: {service: {name: a, port: {number: 80}}}}
"#;
    let resolution = with(&[ingress("i", spec)]);
    for (path, expected) in [
        ("/", "web/a/80"),
        ("/gone/x", "503"),
        ("/port", "503"),
        ("/bucket/x", "500"),
        ("/none", "500"),
        ("/re/x", "500"),
        ("/odd", "500"),
    ] {
        assert_eq!(ask(&resolution, "h.test", path), expected, "{path}");
    }
    let conditions = conditions(&resolution, "i");
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::True
    );
    assert_eq!(
        holds(conditions, ConditionType::ResolvedRefs),
        ConditionState::False(Reason::BackendNotFound)
    );
    assert_eq!(
        holds(conditions, ConditionType::PartiallyInvalid),
        ConditionState::True
    );
}

#[test]
fn protecting_annotation_withholds_all_rules() {
    let annotations = "{nginx.ingress.kubernetes.io/auth-url: x}";
    let spec = rule("h.test", &[path("/", "Prefix", "a")]);
    let resolution = with(&[annotated("i", annotations, &spec)]);
    assert_eq!(ask(&resolution, "h.test", "/"), "500");
    let conditions = conditions(&resolution, "i");
    let refused = ConditionState::False(Reason::UnsupportedValue);
    assert_eq!(holds(conditions, ConditionType::Accepted), refused);
}

#[test]
fn plain_text_follows_annotations() {
    let spec = rule("h.test", &[path("/", "Prefix", "a")]);
    let refused = annotated("i", "{kubernetes.io/ingress.allow-http: \"false\"}", &spec);
    let resolution = with(&[refused]);
    assert_eq!(ask(&resolution, "h.test", "/"), "404");
    let conditions = conditions(&resolution, "i");
    let reason = Reason::NotAllowedByListeners;
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::False(reason)
    );
}

#[test]
fn class_decides_whether_ingress_is_served() {
    let spec = rule("h.test", &[path("/", "Prefix", "a")]);
    let of = |class: &str| ingress("i", &spec).replace("ingressClassName: edge", class);
    let served = |class: &str| {
        let resolution = with(&[of(class)]);
        let is_ours = resolution.statuses.routes.len() == 1;
        (ask(&resolution, "h.test", "/"), is_ours)
    };
    assert_eq!(
        served("ingressClassName: edge"),
        ("web/a/80".to_owned(), true)
    );
    assert_eq!(served("ingressClassName: other"), ("404".to_owned(), false));
    assert_eq!(served("ingressClassName: \"\""), ("404".to_owned(), false));
    let by_annotation = annotated("i", "{kubernetes.io/ingress.class: edge}", &spec)
        .replace("ingressClassName: edge", "ingressClassName: other");
    assert_eq!(ask(&with(&[by_annotation]), "h.test", "/"), "web/a/80");

    let default = CLASS.replace(
        "{name: edge}",
        "{name: edge, annotations: {ingressclass.kubernetes.io/is-default-class: \"true\"}}",
    );
    let yaml = format!("{}{default}{}", gateway(HTTP), of("ingressClassName: \"\""));
    assert_eq!(ask(&resolved(&yaml), "h.test", "/"), "web/a/80");

    let missing = CLASS.replace("name: gw}", "name: gone}");
    let yaml = format!("{}{missing}{}", gateway(HTTP), ingress("i", &spec));
    let resolution = resolved(&yaml);
    let reason = Reason::NoMatchingParent;
    assert_eq!(
        holds(conditions(&resolution, "i"), ConditionType::Accepted),
        ConditionState::False(reason)
    );
    let unnamed = CLASS
        .split("  parameters")
        .next()
        .expect("a class")
        .to_owned();
    let yaml = format!("{}{unnamed}{}", gateway(HTTP), ingress("i", &spec));
    let resolution = resolved(&yaml);
    let reason = Reason::InvalidParameters;
    assert_eq!(
        holds(conditions(&resolution, "i"), ConditionType::Accepted),
        ConditionState::False(reason)
    );
    assert_eq!(resolution.problems.len(), 1, "{:?}", resolution.problems);
}

#[test]
fn class_opens_only_listeners_without_hostname_to_others() {
    let spec = rule("h.test", &[path("/", "Prefix", "a")]);
    let elsewhere = ingress("i", &spec).replace("namespace: web", "namespace: apps");
    let accepted = |listeners: &str| {
        let yaml = format!("{}{CLASS}{elsewhere}", gateway(listeners));
        let key = Kind::Ingress.named(NamespacedName::new("apps", "i"));
        let resolution = resolved(&yaml);
        let status = resolution.statuses.routes.get(&key).expect("a status");
        holds(&status.parents[0].conditions, ConditionType::Accepted) == ConditionState::True
    };
    assert!(accepted(HTTP));
    assert!(!accepted(
        "- {name: http, port: 80, protocol: HTTP, hostname: h.test}"
    ));
    assert!(!accepted(
        "- {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, \
         selector: {matchLabels: {a: b}}}}}"
    ));
}
