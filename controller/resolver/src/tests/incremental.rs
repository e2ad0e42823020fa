//! Incremental resolution gives the same result as full resolution.

use proptest::prelude::*;
use proptest::sample::Index;

use super::any_routes::{OBJECTS, any_place, any_rules, version};
use super::any_slices::{self, any_slice};
use super::properties::{any_objects, http_route};
use super::world_of;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::Snapshot;

use crate::incremental::{self, Delta, RouteDelta, RouteStatusChange};
use crate::{Options, Resolution, Resolver};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::decode::{self, DecodeLimits};
use sesame_kinds::world::{AnyObject, Kind, ObjectKey, World};

fn read(yaml: &str) -> Vec<AnyObject> {
    let documents = decode::split(yaml);
    let outcomes = documents
        .into_iter()
        .flat_map(|document| decode::decode(document.text, &DecodeLimits::default()));
    outcomes
        .map(|outcome| outcome.expect("an object").object)
        .collect()
}

fn replace(world: &mut World, changed: &mut Vec<ObjectKey>, route: AnyObject) {
    let key = route.key();
    if world.contains(&key) {
        changed.push(key);
        world.insert(route);
    }
}

fn put(world: &mut World, changed: &mut Vec<ObjectKey>, there: bool, yaml: &str) {
    for object in read(yaml) {
        changed.push(object.key());
        if there {
            world.insert(object);
        } else {
            world.remove(&object.key());
        }
    }
}

fn snapshot<'r>(resolution: &'r mut Resolution, gateway: &NamespacedName) -> &'r mut Snapshot {
    let mut gateways = resolution.gateways.iter_mut();
    let resolved = gateways.find(|resolved| resolved.gateway == *gateway);
    &mut resolved.expect("the Gateway").snapshot
}

pub(super) fn after(mut resolution: Resolution, delta: RouteDelta) -> Resolution {
    let RouteDelta { gateways, statuses } = delta;
    for (gateway, delta) in gateways {
        let snapshot = snapshot(&mut resolution, &gateway);
        let encoded = EncodedSnapshot::new(snapshot, Vec::new());
        let changed = encoded.with_changes(&delta);
        *snapshot = changed.expect("a delta for this snapshot").snapshot();
    }
    for RouteStatusChange {
        route,
        before,
        after,
    } in statuses
    {
        let replaced = resolution.statuses.routes.insert(route, after);
        assert_eq!(replaced, Some(before));
    }
    resolution
}

/// If incremental resolution is possible, asserts that it gives the same result as full resolution.
fn compare(
    before: &World,
    world: &World,
    changed: &[ObjectKey],
    mut then: Resolution,
    resolver: &mut Resolver,
) -> Resolution {
    let options = Options::default();
    let mut fresh = Resolver::default();
    let whole = fresh.resolve(world, &options);
    let delta = incremental::resolve(before, world, changed, resolver, &options);
    if let Some(Delta { routes, endpoints }) = delta {
        then = after(then, routes);
        let gateways = then.gateways.iter_mut();
        for set in gateways.flat_map(|gateway| &mut gateway.snapshot.endpoints) {
            if let Some(changed) = endpoints.iter().find(|changed| changed.name == set.name) {
                set.clone_from(changed);
            }
        }
        assert_eq!(then, whole);
        assert_eq!(resolver.sizes, fresh.sizes);
    }
    resolver.sizes = fresh.sizes;
    whole
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_routes_match_full_resolution(
        first in prop::collection::vec((any_place(), any_rules()), 6),
        batches in prop::collection::vec(
            prop::collection::vec((0..20_usize, 0..6_usize, any_place(), any_rules()), 1..3),
            1..16,
        ),
    ) {
        let mut world = world_of(read(OBJECTS));
        for (name, (place, rules)) in first.iter().enumerate() {
            for route in read(&version(name, place, rules)) {
                world.insert(route);
            }
        }
        let mut resolver = Resolver::default();
        let mut resolution = resolver.resolve(&world, &Options::default());
        for batch in batches {
            let (before, mut changed) = (world.clone(), Vec::new());
            for (event, name, other_place, rules) in batch {
                let place = if event == 0 { &other_place } else { &first[name].0 };
                for route in read(&version(name, place, &rules)) {
                    replace(&mut world, &mut changed, route);
                }
            }
            resolution = compare(&before, &world, &changed, resolution, &mut resolver);
        }
    }

    #[test]
    fn route_changes_match_full_resolution_with_any_objects(
        (objects, routes) in (any_objects(), prop::collection::vec((http_route(), any::<Index>()), 1..8)),
    ) {
        let mut world = world_of(objects);
        let mut resolver = Resolver::default();
        let mut resolution = resolver.resolve(&world, &Options::default());
        for (route, index) in routes {
            let names = world.names(Kind::HttpRoute);
            let (before, mut changed) = (world.clone(), Vec::new());
            for mut route in super::objects(&route) {
                if !names.is_empty() {
                    route.metadata_mut().name.clone_from(&index.get(&names).name);
                }
                replace(&mut world, &mut changed, route);
            }
            resolution = compare(&before, &world, &changed, resolution, &mut resolver);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_endpoints_match_full_resolution(
        batches in prop::collection::vec(prop::collection::vec(any_change_of_slices(), 1..4), 1..12)
    ) {
        let mut world = world_of(read(any_slices::OBJECTS));
        let mut resolver = Resolver::default();
        let mut resolution = resolver.resolve(&world, &Options::default());
        for batch in batches {
            let before = world.clone();
            let mut changed = Vec::new();
            for (there, yaml) in batch {
                put(&mut world, &mut changed, there, &yaml);
            }
            resolution = compare(&before, &world, &changed, resolution, &mut resolver);
        }
    }

    #[test]
    fn changed_services_match_full_resolution(
        first in prop::collection::vec((any_place(), any_rules()), 6),
        batches in prop::collection::vec(
            (
                prop::collection::vec((0..6_usize, any_rules()), 0..3),
                prop::collection::vec(any_service(), 0..3),
                prop::collection::vec(any_change_of_slices(), 0..2),
            ),
            1..16,
        ),
    ) {
        let mut world = world_of(read(OBJECTS));
        for (name, (place, rules)) in first.iter().enumerate() {
            for route in read(&version(name, place, rules)) {
                world.insert(route);
            }
        }
        let mut resolver = Resolver::default();
        let mut resolution = resolver.resolve(&world, &Options::default());
        for (routes, services, slices) in batches {
            let (before, mut changed) = (world.clone(), Vec::new());
            for (name, rules) in routes {
                for route in read(&version(name, &first[name].0, &rules)) {
                    replace(&mut world, &mut changed, route);
                }
            }
            for (there, yaml) in services.into_iter().chain(slices) {
                put(&mut world, &mut changed, there, &yaml);
            }
            resolution = compare(&before, &world, &changed, resolution, &mut resolver);
        }
    }
}

fn any_service() -> impl Strategy<Value = (bool, String)> {
    let ports = prop::sample::select(vec![
        "{port: 80}",
        "{name: a, port: 80}",
        "{name: a, port: 80}, {name: b, port: 81}",
        "{port: 81, protocol: UDP}",
    ]);
    (prop::bool::weighted(0.7), 0..6_usize, ports).prop_map(|(there, name, ports)| {
        let yaml = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: s{name}}}, spec: {{ports: [{ports}]}}}}"
        );
        (there, yaml)
    })
}

/// A few slices are invalid, and only full resolution reports their problems.
fn any_change_of_slices() -> impl Strategy<Value = (bool, String)> {
    prop_oneof![
        9 => any_slice(&["10.0.0.1", "10.0.0.2", "10.0.0.10"], &["IPv4"]),
        1 => any_slice(any_slices::ADDRESSES, any_slices::KINDS),
    ]
}

/// Asserts that incremental and full resolution agree. Returns false if the change requires full
/// resolution.
fn resolves_incrementally(routes: &str, place: &str, [old, new]: [(&str, &str); 2]) -> bool {
    let version = |(path, service): (&str, &str)| route("a", 1, place, path, service);
    let mut world = world_of(read(&format!("{OBJECTS}{routes}{}", version(old))));
    let options = Options::default();
    let mut resolver = Resolver::default();
    let resolution = resolver.resolve(&world, &options);
    let (before, mut changed) = (world.clone(), Vec::new());
    for route in read(&version(new)) {
        replace(&mut world, &mut changed, route);
    }
    compare(&before, &world, &changed, resolution, &mut resolver);
    resolver.resolve(&before, &options);
    incremental::resolve(&before, &world, &changed, &mut resolver, &options).is_some()
}

fn route(name: &str, age: u8, place: &str, path: &str, service: &str) -> String {
    format!(
        "---\n{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}, \
         creationTimestamp: '202{age}-01-01T00:00:00Z'}}, spec: {{{place}, \
         rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: {service}, port: 80}}]}}]}}}}\n"
    )
}

#[test]
fn hidden_route_beyond_changed_hosts_needs_full_resolution() {
    let only_a = "parentRefs: [{name: edge}], hostnames: [a.example.com]";
    let only_b = "parentRefs: [{name: edge}], hostnames: [b.example.com]";
    let both = "parentRefs: [{name: edge}], hostnames: [a.example.com, b.example.com]";
    // `far` hides `wide` on `b.example.com`. If `a` also hides `wide` on `a.example.com`, `wide`
    // becomes unreachable.
    let far = route("far", 1, only_b, "/", "s0");
    for service in ["s0", "s1"] {
        let wide = route("wide", 2, both, "/", service);
        let routes = format!("{far}{wide}");
        assert!(resolves_incrementally(
            &routes,
            only_a,
            [("/a", "s0"), ("/b", "s0")]
        ));
        assert!(!resolves_incrementally(
            &routes,
            only_a,
            [("/a", "s0"), ("/", "s0")]
        ));
    }
}

#[test]
fn apparent_backend_use_is_verified_with_few_references() {
    let one = "parentRefs: [{name: wide, sectionName: one}], hostnames: [a.example.com]";
    let other = "parentRefs: [{name: wide, sectionName: other}], hostnames: [a.example.com]";
    let all = "parentRefs: [{name: wide, sectionName: all}]";
    // `near` references Service `s1`, but receives no requests: another listener owns its first
    // hostname, and `far` hides `near` on the second.
    let far = route(
        "far",
        0,
        &format!("{all}, hostnames: [b.example.com]"),
        "/",
        "s0",
    );
    let near = route(
        "near",
        2,
        &format!("{all}, hostnames: [a.example.com, b.example.com]"),
        "/",
        "s1",
    );
    let user = route("user", 0, other, "/", "s0");
    let routes = format!("{far}{near}{user}");
    // Incremental resolution checks all references to the Service, unless there are too many.
    assert!(resolves_incrementally(
        &routes,
        one,
        [("/", "s1"), ("/", "s0")]
    ));
    let many: String = (0..40)
        .map(|n| route(&format!("b{n}"), 1, "parentRefs: [{name: none}]", "/", "s1"))
        .collect();
    let routes = format!("{routes}{many}");
    assert!(!resolves_incrementally(
        &routes,
        one,
        [("/", "s1"), ("/", "s0")]
    ));
    assert!(resolves_incrementally(
        &routes,
        one,
        [("/", "s1"), ("/a", "s1")]
    ));
}

#[test]
fn backend_switch_with_few_users_resolves_as_delta() {
    let place = "parentRefs: [{name: edge}], hostnames: [a.example.com]";
    assert!(resolves_incrementally(
        "",
        place,
        [("/", "s0"), ("/", "s3")]
    ));
    let other = route("b", 1, "parentRefs: [{name: wide}]", "/", "s0");
    assert!(resolves_incrementally(
        &other,
        place,
        [("/", "s0"), ("/", "s3")]
    ));
    // A policy targets `s2`, so the change affects more than a Backend.
    assert!(!resolves_incrementally(
        "",
        place,
        [("/", "s0"), ("/", "s2")]
    ));
    let many: String = (0..40)
        .map(|n| route(&format!("b{n}"), 1, "parentRefs: [{name: wide}]", "/", "s0"))
        .collect();
    assert!(!resolves_incrementally(
        &many,
        place,
        [("/", "s0"), ("/", "s3")]
    ));
}
