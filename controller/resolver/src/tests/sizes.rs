//! Limits on the size of a route's configuration. A rule's filters are copied for each match and
//! hostname.

use std::fmt::Write as _;

use sesame_proto::digest;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::{Snapshot, VirtualHost, route};
use sesame_proto::sizes::{self, MAX_PER_GATEWAY, MAX_PER_ROUTE, MAX_PER_VIRTUAL_HOST};

use super::router::{GET, Request, answer};
use super::{ConditionState, HTTP, gateway, holds, objects, resolved, route, world};
use crate::incremental;
use crate::{Options, Resolution, Resolver, resolve};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionType, Reason};
use sesame_kinds::world::{Kind, ObjectKey};

fn matches(count: usize) -> String {
    let all: Vec<String> = (0..count)
        .map(|i| format!("{{path: {{type: Exact, value: /{i}}}}}"))
        .collect();
    format!("[{}]", all.join(", "))
}

fn hostnames(prefix: &str) -> String {
    let all: Vec<String> = (0..16).map(|i| format!("{prefix}{i}.test")).collect();
    format!("[{}]", all.join(", "))
}

fn headers(name: &str, count: usize) -> String {
    let value = "v".repeat(4096);
    let all: Vec<String> = (0..count)
        .map(|i| format!("{{name: x-{name}-{i}, value: {value}}}"))
        .collect();
    format!("[{}]", all.join(", "))
}

fn filter(count: usize) -> String {
    format!(
        "{{type: RequestHeaderModifier, requestHeaderModifier: {{set: {}}}}}",
        headers("a", count)
    )
}

fn large_filters() -> String {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| headers(name, 16));
    format!(
        "[{{type: RequestHeaderModifier, requestHeaderModifier: {{set: {a}, add: {b}}}}}, \
         {{type: ResponseHeaderModifier, responseHeaderModifier: {{set: {c}, add: {d}}}}}]"
    )
}

const BACKEND: &str = "{name: a, port: 80}";

fn rule(matches: &str, filters: &str, backends: &str) -> String {
    format!("- matches: {matches}\n  filters: {filters}\n  backendRefs: [{backends}]\n")
}

fn multiplied(filters: &str, backends: &str) -> Resolution {
    let rules = rule(&matches(64), filters, backends);
    let spec = format!("hostnames: {}\nrules:\n{rules}", hostnames("h"));
    resolved(&(gateway(HTTP) + &route("r", &spec)))
}

fn snapshot(resolution: &Resolution) -> &Snapshot {
    &resolution.gateways[0].snapshot
}

fn encoded(resolution: &Resolution) -> usize {
    let mut canonical = snapshot(resolution).clone();
    digest::canonicalize(&mut canonical);
    EncodedSnapshot::new(&canonical, Vec::new()).size_of_route_tables()
}

fn hosts(resolution: &Resolution) -> impl Iterator<Item = &VirtualHost> {
    let tables = snapshot(resolution).route_tables.iter();
    tables.flat_map(|table| &table.virtual_hosts)
}

fn size(host: &VirtualHost) -> u64 {
    host.routes.iter().map(sizes::of_route).sum()
}

fn assert_refused(resolution: &Resolution) {
    let conditions = resolution.route_conditions("r");
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::False(Reason::UnsupportedValue)
    );
    let message = &conditions[0].message;
    assert!(message.contains("8192 KiB"), "{message}");
    assert!(message.contains("16 hostnames"), "{message}");
    assert!(encoded(resolution) < 4096, "{}", encoded(resolution));
}

#[test]
fn header_filters_for_many_matches_are_refused() {
    let resolution = multiplied(&large_filters(), BACKEND);
    assert_refused(&resolution);
    let request = Request {
        host: "h0.test",
        path: "/0",
        ..GET
    };
    assert_eq!(answer(snapshot(&resolution), &request), "404");
}

#[test]
fn cors_origins_for_many_matches_are_refused() {
    let origins: Vec<String> = (0..64)
        .map(|i| format!("'https://*.{}{i}.test'", "a".repeat(50)))
        .collect();
    let cors = format!(
        "[{{type: CORS, cors: {{allowOrigins: [{}]}}}}]",
        origins.join(", ")
    );
    assert_refused(&multiplied(&cors, BACKEND));
}

#[test]
fn backends_with_filters_for_many_matches_are_refused() {
    let backend = format!("{{name: a, port: 80, filters: [{}]}}", filter(1));
    assert_refused(&multiplied("[]", &vec![backend; 16].join(", ")));
    // A backend with a rewrite becomes a separate Envoy route, which has its own copy of the rule's
    // filters.
    let rewriting =
        "{name: a, port: 80, filters: [{type: URLRewrite, urlRewrite: {hostname: x.test}}]}";
    assert_refused(&multiplied(
        "[{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [x-a]}}]",
        &vec![rewriting; 16].join(", "),
    ));
}

#[test]
fn authorization_for_many_matches_refuses_all_requests() {
    let names: Vec<String> = (0..64)
        .map(|i| format!("x-{}-{i}", "a".repeat(200)))
        .collect();
    let auth = format!(
        "[{{type: ExternalAuth, externalAuth: {{protocol: HTTP, backendRef: {BACKEND}, http: {{allowedHeaders: [{}]}}}}}}]",
        names.join(", ")
    );
    let resolution = multiplied(&auth, BACKEND);
    let message = &resolution.route_conditions("r")[0].message;
    assert!(message.contains("get 500"), "{message}");
    assert_eq!(
        hosts(&resolution)
            .filter(|host| host.domain == "h0.test")
            .count(),
        1
    );
    for host in hosts(&resolution).filter(|host| host.domain != "*") {
        assert!(
            matches!(
                &host.routes[..],
                [only] if matches!(&only.action, Some(route::Action::DirectResponse(it)) if it.status == 500)
            ),
            "{host:?}"
        );
    }
}

#[test]
fn sessions_for_many_matches_are_within_bounds() {
    let rules = rule(&matches(64), "[]", BACKEND) + "  sessionPersistence: {sessionName: s}\n";
    let spec = format!("hostnames: {}\nrules:\n{rules}", hostnames("h"));
    let resolution = resolved(&(gateway(HTTP) + &route("r", &spec)));
    let total: u64 = hosts(&resolution).map(size).sum();
    assert!(total <= MAX_PER_ROUTE, "{total}");
}

/// Returns a route of about 4 MiB. Its name determines its precedence, because it has no timestamp.
fn large_route(name: &str, filters: &str) -> String {
    let spec = format!(
        "hostnames: [a.test]\nrules:\n{}",
        rule(
            &matches(64).replace("value: /", &format!("value: /{name}-")),
            filters,
            BACKEND
        )
    );
    route(name, &spec)
}

#[test]
fn youngest_routes_of_a_full_hostname_are_displaced() {
    let plain = format!("[{}]", filter(15));
    let auth = format!(
        "[{}, {{type: ExternalAuth, externalAuth: {{protocol: HTTP, backendRef: {BACKEND}}}}}]",
        filter(15)
    );
    let mut yaml = gateway(HTTP);
    for i in 0..6 {
        yaml += &large_route(&format!("r{i}"), &plain);
    }
    let small = "hostnames: [a.test]\nrules: [{matches: [{path: {value: /small}}], backendRefs: [{name: b, port: 80}]}]";
    yaml += &route("s", small);
    let resolution = resolved(&yaml);
    let displaced = |resolution: &Resolution, name: &str| {
        let conditions = resolution.route_conditions(name);
        let is_displaced = |it: &&Condition| it.type_ == ConditionType::Displaced;
        let condition = conditions.iter().find(is_displaced)?;
        assert_eq!(condition.reason, Reason::TooLarge);
        Some(condition.message.clone())
    };
    let lost = ["r0", "r3", "r4", "r5", "s"].map(|name| displaced(&resolution, name).is_some());
    assert_eq!(lost, [false, false, true, true, false]);
    let message = displaced(&resolution, "r4").expect("the route is displaced");
    for part in ["\"a.test\"", "port 80", "16384 KiB"] {
        assert!(message.contains(part), "{message}");
    }
    let host = hosts(&resolution).find(|host| host.domain == "a.test");
    let host = host.expect("the hostname");
    assert!(size(host) <= MAX_PER_VIRTUAL_HOST, "{}", size(host));
    assert_eq!(host.routes.len(), 4 * 64 + 1);

    let resolution = resolved(&(yaml + &large_route("t", &auth)));
    let message = displaced(&resolution, "t").expect("the route is displaced");
    assert!(message.contains("get 500"), "{message}");
    let host = hosts(&resolution).find(|host| host.domain == "a.test");
    let refusing = host.and_then(|host| host.routes.last());
    let refusing = refusing.expect("a route");
    assert_eq!(refusing.name, "HTTPRoute/web/t/rules/0/matches/0");
    assert!(
        matches!(&refusing.action, Some(route::Action::DirectResponse(it)) if it.status == 500)
    );
}

fn crowded(routes: usize) -> String {
    let mut yaml = gateway(
        "- {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}",
    );
    yaml += &route(
        "small",
        "hostnames: [small.test]\nrules: [{backendRefs: [{name: a, port: 80}]}]",
    );
    for i in 0..routes {
        let rules = rule(&matches(8), &format!("[{}]", filter(15)), BACKEND);
        let _ = write!(
            yaml,
            "---\nkind: HTTPRoute\nmetadata: {{name: r{i:02}, namespace: greedy}}\nspec:\n  parentRefs: [{{name: gw, \
             namespace: web}}]\n  hostnames: {}\n  rules:\n{}\n",
            hostnames(&format!("h{i}-")),
            super::indent(&rules, 4)
        );
    }
    yaml
}

fn greedy(resolution: &Resolution, name: &str) -> Option<String> {
    let name = NamespacedName::new("greedy", name);
    let key = Kind::HttpRoute.named(name);
    let conditions = &resolution.statuses.routes[&key].parents[0].conditions;
    let condition = conditions
        .iter()
        .find(|it| it.type_ == ConditionType::Displaced)?;
    assert_eq!(condition.reason, Reason::TooLarge);
    Some(condition.message.clone())
}

#[test]
fn namespace_over_share_displaces_own_youngest_routes() {
    let resolution = resolved(&crowded(16));
    let total: u64 = hosts(&resolution).map(size).sum();
    assert!(total <= MAX_PER_GATEWAY, "{total}");
    assert!(total > MAX_PER_GATEWAY * 9 / 10, "{total}");
    let small = resolution.route_conditions("small");
    assert_eq!(
        holds(small, ConditionType::Displaced),
        ConditionState::Absent
    );
    assert!(hosts(&resolution).any(|host| host.domain == "small.test"));
    assert_eq!(greedy(&resolution, "r00"), None);
    let message = greedy(&resolution, "r15").expect("the route is displaced");
    for part in ["namespace greedy", "98304 KiB"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!hosts(&resolution).any(|host| host.domain == "h15-0.test"));
}

#[test]
fn gateways_share_limit_of_controller() {
    let listeners = "- {name: http, port: 80, protocol: HTTP}";
    let other = gateway(listeners).replace("name: gw", "name: other")
        + &route(
            "beside",
            "parentRefs: [{name: other}]\nhostnames: [beside.test]\nrules: [{backendRefs: [{name: a, port: 80}]}]",
        );
    let options = Options {
        max_route_bytes: 40 << 20,
        ..Options::default()
    };
    let world = world(&(crowded(8) + &other));
    let resolution = resolve(&world, &options);
    let [of_gw, of_other] = &resolution.gateways[..] else {
        panic!("{:?}", resolution.statuses);
    };
    let hosts_of = |of: &crate::ResolvedGateway| -> Vec<(String, u64)> {
        let tables = of.snapshot.route_tables.iter();
        let hosts = tables.flat_map(|table| &table.virtual_hosts);
        hosts
            .map(|host| (host.domain.clone(), size(host)))
            .collect()
    };
    let hosts = hosts_of(of_gw);
    let total: u64 = hosts.iter().map(|(_, size)| size).sum();
    assert!(total <= 40 << 20, "{total}");
    assert!(total > 30 << 20, "{total}");
    // Neither the other Gateway nor the other namespace loses routes.
    assert!(hosts.iter().any(|(domain, _)| domain == "small.test"));
    assert_eq!(hosts_of(of_other)[0].0, "beside.test");
    assert_eq!(greedy(&resolution, "r00"), None);
    let message = greedy(&resolution, "r07").expect("the route is displaced");
    for part in ["namespace greedy", "40960 KiB", "--memory-mib"] {
        assert!(message.contains(part), "{message}");
    }
    // Without the limit on the total of all Gateways, every route fits.
    assert_eq!(greedy(&resolve(&world, &Options::default()), "r07"), None);
}

#[test]
fn full_gateway_changes_need_full_resolution() {
    let key = ObjectKey {
        kind: Kind::HttpRoute,
        name: NamespacedName::new("web", "small"),
    };
    let change = |yaml: &str, max_route_bytes: u64| {
        let before = world(yaml);
        let mut after = before.clone();
        let changed = "hostnames: [small.test]\nrules: [{matches: [{path: {value: /new}}], backendRefs: [{name: a, port: 80}]}]";
        for object in objects(&route("small", changed)) {
            after.insert(object);
        }
        let mut resolver = Resolver::default();
        let options = Options {
            max_route_bytes,
            ..Options::default()
        };
        resolver.resolve(&before, &options);
        let delta = incremental::resolve(
            &before,
            &after,
            std::slice::from_ref(&key),
            &mut resolver,
            &options,
        );
        let sizes = resolver.sizes.clone();
        let mut fresh = Resolver::default();
        fresh.resolve(&after, &options);
        (delta.is_some(), sizes == fresh.sizes)
    };
    assert_eq!(change(&crowded(1), u64::MAX), (true, true));
    assert!(!change(&crowded(16), u64::MAX).0);
    assert_eq!(change(&crowded(1), 16 << 20), (true, true));
    assert!(!change(&crowded(1), 1 << 20).0);
}

#[test]
fn wide_route_is_charged_to_hostname_owners() {
    let mut yaml = gateway(
        "- {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}",
    );
    // This rule takes about 512 KiB per listener hostname.
    let wide = rule(&matches(8), &format!("[{}]", filter(15)), BACKEND);
    yaml += &route("wide", &format!("rules:\n{wide}"));
    for i in 0..16 {
        let _ = write!(
            yaml,
            "---\nkind: HTTPRoute\nmetadata: {{name: r{i:02}, namespace: greedy}}\nspec:\n  parentRefs: [{{name: gw, \
             namespace: web}}]\n  hostnames: {}\n  rules: [{{matches: [{{path: {{value: /x}}}}]}}]\n",
            hostnames(&format!("h{i}-"))
        );
    }
    let resolution = resolved(&yaml);
    let total: u64 = hosts(&resolution).map(size).sum();
    assert!(total <= MAX_PER_GATEWAY, "{total}");
    let wide = resolution.route_conditions("wide");
    assert_eq!(
        holds(wide, ConditionType::Displaced),
        ConditionState::Absent
    );
    assert_eq!(greedy(&resolution, "r00"), None);
    assert!(greedy(&resolution, "r15").is_some());
    let again = resolve(&world(&yaml), &Options::default());
    assert_eq!(again, resolution);
}
