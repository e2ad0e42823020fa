//! GatewayClasses that serve a single Gateway or merge their Gateways (`spec.fleet.gateways`).

use super::router::{self, GET, Request};
use super::{ConditionState, HTTP, gateway, holds, route, world};
use crate::incremental;
use crate::{Options, Resolution, Resolver, resolve};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionType, Reason};
use sesame_kinds::world::{Kind, ObjectKey, World};

fn class(gateways: &str) -> String {
    format!(
        "---\nkind: SesameConfiguration\nmetadata: {{name: fleet, namespace: infra}}\nspec: {{fleet: {{gateways: {gateways}}}}}\n\
         ---\nkind: GatewayClass\nmetadata: {{name: sesame}}\nspec: {{controllerName: projectsesame.io/gateway-controller, \
         parametersRef: {{group: projectsesame.io, kind: SesameConfiguration, name: fleet, namespace: infra}}}}\n"
    )
}

pub(super) fn created(name: &str, day: u8, listeners: &str) -> String {
    let metadata = format!("name: {name}, creationTimestamp: 2026-01-{day:02}T00:00:00Z,");
    gateway(listeners).replace("name: gw,", &metadata)
}

pub(super) fn name(name: &str) -> NamespacedName {
    NamespacedName::new("web", name)
}

pub(super) fn conditions<'r>(resolution: &'r Resolution, gateway: &str) -> &'r [Condition] {
    &resolution.statuses.gateways[&name(gateway)].conditions
}

pub(super) fn accepted(resolution: &Resolution, gateway: &str) -> ConditionState {
    holds(conditions(resolution, gateway), ConditionType::Accepted)
}

fn published(resolution: &Resolution) -> Vec<String> {
    let gateways = resolution.gateways.iter();
    gateways.map(|it| it.gateway.to_string()).collect()
}

fn parent(name: &str, backend: &str) -> String {
    format!(
        "parentRefs: [{{name: {name}}}]\nrules: [{{backendRefs: [{{name: {backend}, port: 80}}]}}]"
    )
}

/// Changes a route, and asserts that incremental and full resolution agree.
fn change(world: &mut World, route_name: &str, spec: &str) {
    let options = Options::default();
    let key = Kind::HttpRoute.named(name(route_name));
    let mut resolver = Resolver::default();
    let (before, then) = (world.clone(), resolver.resolve(world, &options));
    for object in super::objects(&route(route_name, spec)) {
        world.insert(object);
    }
    let delta = incremental::resolve(&before, world, &[key], &mut resolver, &options);
    let delta = delta.expect("an outcome").routes;
    assert_eq!(
        super::incremental::after(then, delta),
        resolve(world, &options)
    );
}

#[test]
fn single_serves_oldest_gateway_until_it_goes() {
    let yaml = class("Single")
        + &created("b-old", 1, HTTP)
        + &created("a-new", 2, HTTP)
        + &created("c-old", 1, HTTP)
        + &route("r", &parent("a-new", "a"));
    let mut world = world(&yaml);
    let resolution = resolve(&world, &Options::default());
    assert_eq!(published(&resolution), ["web/b-old"]);
    assert_eq!(accepted(&resolution, "b-old"), ConditionState::True);
    for other in ["a-new", "c-old"] {
        let refused = ConditionState::False(Reason::OlderGatewayExists);
        assert_eq!(accepted(&resolution, other), refused);
        let programmed = holds(conditions(&resolution, other), ConditionType::Programmed);
        assert_eq!(programmed, refused);
        let message = &conditions(&resolution, other)[0].message;
        assert!(message.ends_with("is served: web/b-old"), "{message}");
        assert!(resolution.unserved.contains(&name(other)));
        assert!(!resolution.services.contains_key(&name(other)));
    }
    assert!(resolution.statuses.routes.is_empty());

    world.remove(&ObjectKey {
        kind: Kind::Gateway,
        name: name("b-old"),
    });
    let next = resolve(&world, &Options::default());
    assert_eq!(published(&next), ["web/c-old"]);
}

#[test]
fn single_is_for_each_class_by_itself() {
    let other = class("Single").replace("sesame}", "other}") + &created("other", 9, HTTP);
    let other = other.replace("gatewayClassName: sesame", "gatewayClassName: other");
    let yaml = class("Single") + &created("gw", 1, HTTP) + &other;
    let resolution = resolve(&world(&yaml), &Options::default());
    assert_eq!(published(&resolution), ["web/gw", "web/other"]);
}

#[test]
fn route_of_unserved_gateway_changes_nothing() {
    let yaml = class("Single")
        + &created("old", 1, HTTP)
        + &created("new", 2, HTTP)
        + &route("r", &parent("new", "a"));
    change(&mut world(&yaml), "r", &parent("new", "b"));
}

pub(super) fn two(gateways: &str) -> String {
    class(gateways)
        + &created("old", 1, &http("old.example.com"))
        + &created("new", 2, &http("new.example.com"))
        + &route("old", &parent("old", "a"))
        + &route("new", &parent("new", "b"))
}

pub(super) fn http(hostname: &str) -> String {
    format!("- {{name: http, port: 80, protocol: HTTP, hostname: {hostname}}}")
}

pub(super) fn answer_of(resolution: &Resolution, host: &str) -> String {
    let [published] = resolution.gateways.as_slice() else {
        panic!("{:?}", published(resolution));
    };
    router::answer(&published.snapshot, &Request { host, ..GET })
}

fn listener<'r>(resolution: &'r Resolution, gateway: &str) -> &'r [Condition] {
    let status = &resolution.statuses.gateways[&name(gateway)];
    &status.listeners[0].conditions
}

pub(super) fn message(conditions: &[Condition], type_: ConditionType) -> &str {
    let condition = conditions.iter().find(|it| it.type_ == type_);
    &condition.expect("the condition").message
}

#[test]
fn merged_gateways_publish_under_class_and_keep_routes() {
    let both = two("Merged")
        + &route(
            "elsewhere",
            &format!("hostnames: [old.example.com]\n{}", parent("new", "c")),
        );
    let mut world = world(&both);
    let resolution = resolve(&world, &Options::default());
    assert_eq!(published(&resolution), ["sesame-system/sesame"]);
    assert_eq!(
        resolution.gateways[0].snapshot.gateway,
        "Gateway/sesame-system/sesame"
    );
    assert!(answer_of(&resolution, "old.example.com").starts_with("web/a"));
    assert!(answer_of(&resolution, "new.example.com").starts_with("web/b"));
    for gateway in ["old", "new"] {
        assert_eq!(accepted(&resolution, gateway), ConditionState::True);
        let status = &resolution.statuses.gateways[&name(gateway)];
        assert_eq!(status.listeners[0].attached_routes, 1);
        assert_eq!(
            resolution.merged[&name(gateway)].published_as.to_string(),
            "sesame-system/sesame"
        );
    }
    // The snapshot keeps its name when the oldest Gateway is deleted.
    world.remove(&Kind::Gateway.named(name("old")));
    let resolution = resolve(&world, &Options::default());
    assert_eq!(published(&resolution), ["sesame-system/sesame"]);
    assert_eq!(answer_of(&resolution, "old.example.com"), "404");
    assert!(answer_of(&resolution, "new.example.com").starts_with("web/b"));
}

#[test]
fn older_merged_gateway_wins_hostname_conflict() {
    let yaml = two("Merged").replace("new.example.com", "old.example.com");
    let mut world = world(&yaml);
    let resolution = resolve(&world, &Options::default());
    assert_eq!(accepted(&resolution, "old"), ConditionState::True);
    let lost = listener(&resolution, "new");
    assert_eq!(
        holds(lost, ConditionType::Accepted),
        ConditionState::False(Reason::HostnameConflict)
    );
    assert_eq!(holds(lost, ConditionType::Conflicted), ConditionState::True);
    let why = message(lost, ConditionType::Conflicted);
    assert!(why.contains("are used by Gateway web/old, which"), "{why}");
    assert!(answer_of(&resolution, "old.example.com").starts_with("web/a"));
    world.remove(&Kind::Gateway.named(name("old")));
    let resolution = resolve(&world, &Options::default());
    assert_eq!(accepted(&resolution, "new"), ConditionState::True);
    assert!(answer_of(&resolution, "old.example.com").starts_with("web/b"));
}

#[test]
fn of_merged_gateways_one_protocol_has_a_port() {
    let tcp = "- {name: tcp, port: 80, protocol: TCP}";
    let yaml = two("Merged").replace(
        &super::indent(&http("new.example.com"), 2),
        &super::indent(tcp, 2),
    );
    let resolution = resolve(&world(&yaml), &Options::default());
    let lost = listener(&resolution, "new");
    assert_eq!(
        holds(lost, ConditionType::Accepted),
        ConditionState::False(Reason::ProtocolConflict)
    );
    let why = message(lost, ConditionType::Accepted);
    assert!(
        why.contains("port 80 is used by Gateway web/old, which"),
        "{why}"
    );
    assert!(answer_of(&resolution, "old.example.com").starts_with("web/a"));
}

#[test]
fn merged_gateway_with_conflicting_settings_harms_only_itself() {
    let own = "kind: SesameConfiguration\nmetadata: {name: own, namespace: web}\nspec: {edge: {requestTimeout: 9s}}\n---\n";
    let parameters = "infrastructure: {parametersRef: {group: projectsesame.io, kind: SesameConfiguration, name: own}}";
    let cases = [
        (
            "name: new,",
            "name: new, annotations: {projectsesame.io/request-timeout: 9s},",
            "spec.edge.requestTimeout (metadata.annotations",
        ),
        (
            "name: new,",
            "name: new, labels: {projectsesame.io/fleet: other},",
            "metadata.labels[projectsesame.io/fleet]",
        ),
        (
            "spec:\n",
            "spec:\n  infrastructure: {labels: {team: a}}\n",
            "spec.infrastructure.labels",
        ),
        (
            "spec:\n",
            &format!("spec:\n  {parameters}\n"),
            "spec.edge.requestTimeout (SesameConfiguration web/own)",
        ),
        (
            "spec:\n",
            "spec:\n  addresses: [{value: 192.0.2.1}]\n",
            "remove spec.addresses",
        ),
    ];
    for (from, to, words) in cases {
        let new = created("new", 2, &http("new.example.com"));
        let yaml = two("Merged").replace(&new, &new.replacen(from, to, 1)) + "---\n" + own;
        let resolution = resolve(&world(&yaml), &Options::default());
        let reason = if words.ends_with("addresses") {
            Reason::UnsupportedAddress
        } else {
            Reason::InvalidParameters
        };
        assert_eq!(
            accepted(&resolution, "new"),
            ConditionState::False(reason),
            "{words}"
        );
        let why = message(conditions(&resolution, "new"), ConditionType::Accepted);
        assert!(why.contains(words), "{words}: {why}");
        assert_eq!(accepted(&resolution, "old"), ConditionState::True);
        assert!(answer_of(&resolution, "old.example.com").starts_with("web/a"));
        assert_eq!(answer_of(&resolution, "new.example.com"), "404");
    }
}

#[test]
fn harmless_parameters_of_merged_gateway_have_no_effect() {
    let own = "---\nkind: SesameConfiguration\nmetadata: {name: own, namespace: web}\nspec: {ports: {allowed: ['80']}}\n";
    let parameters = "spec:\n  infrastructure: {parametersRef: {group: projectsesame.io, kind: SesameConfiguration, name: own}}\n";
    let new = created("new", 2, &http("new.example.com"));
    let yaml = two("Merged").replace(&new, &new.replacen("spec:\n", parameters, 1)) + own;
    let resolution = resolve(&world(&yaml), &Options::default());
    assert_eq!(accepted(&resolution, "new"), ConditionState::True);
    assert!(answer_of(&resolution, "new.example.com").starts_with("web/b"));
}

#[test]
fn gateway_named_like_published_class_is_refused() {
    let own = created("sesame", 1, &http("own.example.com"))
        .replace("namespace: web", "namespace: sesame-system");
    let resolution = resolve(&world(&(two("Merged") + &own)), &Options::default());
    let refused = &resolution.statuses.gateways[&NamespacedName::new("sesame-system", "sesame")];
    let verdict = holds(&refused.conditions, ConditionType::Accepted);
    assert_eq!(verdict, ConditionState::False(Reason::Invalid));
    assert_eq!(answer_of(&resolution, "own.example.com"), "404");
    assert!(answer_of(&resolution, "new.example.com").starts_with("web/b"));
}

#[test]
fn merged_gateways_are_retained_while_class_parameters_fail() {
    let resolution = resolve(&world(&two("Sometimes")), &Options::default());
    assert!(resolution.gateways.is_empty());
    let class = NamespacedName::new("sesame-system", "sesame");
    assert_eq!(
        resolution.retained,
        [class, name("new"), name("old")].into()
    );
}

#[test]
fn merged_route_change_matches_full_resolution() {
    let at = |path: &str, hostname: &str, gateway: &str, backend: &str| {
        let rule = format!("rules: [{{matches: [{{path: {{value: {path}}}}}], ");
        format!("hostnames: [{hostname}]\n{}", parent(gateway, backend)).replace("rules: [{", &rule)
    };
    let before = at("/one", "x.example.com", "old", "a");
    let yaml = two("Merged").replace("old.example.com", "'*.example.com'") + &route("r", &before);
    change(
        &mut world(&yaml),
        "r",
        &at("/two", "x.example.com", "old", "a"),
    );
    let before = at("/one", "new.example.com", "new", "b");
    let yaml = two("Merged") + &route("r", &before);
    change(
        &mut world(&yaml),
        "r",
        &at("/two", "new.example.com", "new", "b"),
    );
}

#[test]
fn merged_gateways_open_one_port_for_one() {
    let map = "{gateways: Merged}, ports: {map: [{outside: 80, inside: 8080}]}";
    let yaml = two("Merged").replace("{gateways: Merged}", map).replace(
        "new.example.com}",
        "new.example.com}\n  - {name: own, port: 8080, protocol: HTTP}",
    );
    let resolution = resolve(&world(&yaml), &Options::default());
    let status = &resolution.statuses.gateways[&name("new")];
    let own = &status.listeners[1].conditions;
    assert_eq!(
        holds(own, ConditionType::Accepted),
        ConditionState::False(Reason::PortUnavailable)
    );
    let services = &resolution.services[&NamespacedName::new("sesame-system", "sesame")];
    assert_eq!(services.ports.len(), 1);
}

#[test]
fn merged_certificate_expiries_belong_to_naming_gateway() {
    let names: Vec<_> = resolve(&world(&two("Merged")), &Options::default())
        .expiries()
        .into_keys()
        .collect();
    assert_eq!(names, [name("new"), name("old")]);
}
