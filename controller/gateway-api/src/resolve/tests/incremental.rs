//! Changed routes and endpoints that are resolved by themselves get what a whole resolution gives them.

use proptest::prelude::*;
use proptest::sample::Index;

use super::any_routes::{OBJECTS, any_place, any_rules, version};
use super::any_slices::{self, any_slice};
use super::properties::{any_objects, http_route};
use super::world_of;
use crate::decode::{self, DecodeLimits};
use crate::resolve::incremental::{self, Delta, PreviousRoutes, RouteDelta, RouteStatusChange};
use crate::resolve::{Options, Resolution, Resolver, resolve};
use crate::world::{AnyObject, Kind, World};

fn read(yaml: &str) -> Vec<AnyObject> {
    let documents = decode::split(yaml);
    let outcomes = documents
        .into_iter()
        .flat_map(|document| decode::decode(document.text, &DecodeLimits::default()));
    outcomes
        .map(|outcome| outcome.expect("an object").object)
        .collect()
}

/// Replaces a route if it is there, and adds it to `before` as it was.
fn replace(world: &mut World, before: &mut PreviousRoutes, route: AnyObject) {
    let key = route.key();
    if let Some(old) = world.get(&key) {
        before.entry(key).or_insert(old);
        world.insert(route);
    }
}

/// Returns the resolution of before, after these changes.
pub(super) fn after(mut resolution: Resolution, delta: RouteDelta) -> Resolution {
    let RouteDelta {
        route_tables,
        statuses,
    } = delta;
    for (gateway, delta) in route_tables {
        let mut gateways = resolution.gateways.iter_mut();
        let resolved = gateways.find(|resolved| resolved.gateway == gateway);
        let tables = &mut resolved.expect("the Gateway").snapshot.route_tables;
        delta.apply(tables).expect("the virtual hosts as they were");
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

/// Returns the outcome of a whole resolution; that of an incremental one since `then` has to be the same, if there is one.
fn compare(
    world: &World,
    before: &PreviousRoutes,
    then: Resolution,
    resolver: &mut Resolver,
) -> Resolution {
    let options = Options::default();
    let whole = resolve(world, &options);
    if let Some(delta) = incremental::resolve_routes(world, before, resolver, &options) {
        assert_eq!(after(then, delta), whole);
    }
    whole
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn routes_that_change_get_what_a_whole_resolution_gives_them(
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
        let mut said = resolve(&world, &Options::default());
        for batch in batches {
            let mut before = PreviousRoutes::new();
            for (event, name, other_place, rules) in batch {
                let place = if event == 0 { &other_place } else { &first[name].0 };
                for route in read(&version(name, place, &rules)) {
                    replace(&mut world, &mut before, route);
                }
            }
            said = compare(&world, &before, said, &mut resolver);
        }
    }

    #[test]
    fn so_they_do_whatever_else_there_is(
        (objects, routes) in (any_objects(), prop::collection::vec((http_route(), any::<Index>()), 1..8)),
    ) {
        let mut world = world_of(objects);
        let mut resolver = Resolver::default();
        let mut said = resolve(&world, &Options::default());
        for (route, index) in routes {
            // Of the name of one that is there, if there is any.
            let names = world.names(Kind::HttpRoute);
            let mut before = PreviousRoutes::new();
            for mut route in super::objects(&route) {
                if !names.is_empty() {
                    route.metadata_mut().name.clone_from(&index.get(&names).name);
                }
                replace(&mut world, &mut before, route);
            }
            said = compare(&world, &before, said, &mut resolver);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn endpoints_that_change_are_those_of_a_whole_resolution(
        batches in prop::collection::vec(prop::collection::vec(any_change_of_slices(), 1..4), 1..12)
    ) {
        let mut world = world_of(read(any_slices::OBJECTS));
        let (mut resolver, options) = (Resolver::default(), Options::default());
        let mut then = resolve(&world, &options);
        for batch in batches {
            let before = world.clone();
            let mut changed = Vec::new();
            for (there, yaml) in batch {
                for slice in read(&yaml) {
                    changed.push(slice.key());
                    if there {
                        world.insert(slice);
                    } else {
                        world.remove(&slice.key());
                    }
                }
            }
            let whole = resolve(&world, &options);
            let delta = incremental::resolve(&before, &world, &changed, &mut resolver, &options);
            if let Some(Delta { routes, endpoints }) = delta {
                let gateways = then.gateways.iter_mut();
                for set in gateways.flat_map(|gateway| &mut gateway.snapshot.endpoints) {
                    if let Some(changed) = endpoints.iter().find(|changed| changed.name == set.name) {
                        set.clone_from(changed);
                    }
                }
                prop_assert_eq!(&after(then, routes), &whole);
            }
            then = whole;
        }
    }
}

/// Returns slices of which a few give problems, which only a whole resolution reports.
fn any_change_of_slices() -> impl Strategy<Value = (bool, String)> {
    prop_oneof![
        9 => any_slice(&["10.0.0.1", "10.0.0.2", "10.0.0.10"], &["IPv4"]),
        1 => any_slice(any_slices::ADDRESSES, any_slices::KINDS),
    ]
}

/// Returns true if a change of route `a`, which sends all below a path to a Service, is resolved incrementally. It then has
/// the outcome of a whole resolution.
fn told(routes: &str, place: &str, [old, new]: [(&str, &str); 2]) -> bool {
    let version = |(path, service): (&str, &str)| route("a", 1, place, path, service);
    let mut world = world_of(read(&format!("{OBJECTS}{routes}{}", version(old))));
    let options = Options::default();
    let then = resolve(&world, &options);
    let mut before = PreviousRoutes::new();
    for route in read(&version(new)) {
        replace(&mut world, &mut before, route);
    }
    let mut resolver = Resolver::default();
    compare(&world, &before, then, &mut resolver);
    let full = Options {
        incremental: false,
        ..Options::default()
    };
    let off = incremental::resolve_routes(&world, &before, &mut resolver, &full);
    assert!(off.is_none(), "it is turned off");
    incremental::resolve_routes(&world, &before, &mut resolver, &options).is_some()
}

fn route(name: &str, age: u8, place: &str, path: &str, service: &str) -> String {
    format!(
        "---\n{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}, \
         creationTimestamp: '202{age}-01-01T00:00:00Z'}}, spec: {{{place}, \
         rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: {service}, port: 80}}]}}]}}}}\n"
    )
}

#[test]
fn what_is_hidden_where_nobody_looks_is_not_taken_for_reached() {
    let only_a = "parentRefs: [{name: edge}], hostnames: [a.example.com]";
    let only_b = "parentRefs: [{name: edge}], hostnames: [b.example.com]";
    let both = "parentRefs: [{name: edge}], hostnames: [a.example.com, b.example.com]";
    // Nothing of `wide` is reached when `a` takes its requests, since `far` has the others.
    let far = route("far", 1, only_b, "/", "s0");
    for service in ["s0", "s1"] {
        let wide = route("wide", 2, both, "/", service);
        let routes = format!("{far}{wide}");
        assert!(told(&routes, only_a, [("/a", "s0"), ("/b", "s0")]));
        assert!(!told(&routes, only_a, [("/a", "s0"), ("/", "s0")]));
    }
}

#[test]
fn a_backend_that_a_neighbour_seems_to_send_to_may_have_no_other_user() {
    let one = "parentRefs: [{name: wide, sectionName: one}], hostnames: [a.example.com]";
    let other = "parentRefs: [{name: wide, sectionName: other}], hostnames: [a.example.com]";
    let all = "parentRefs: [{name: wide, sectionName: all}]";
    // Of the hosts of `near`, the first is for another listener, and in the second `far` comes first.
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
    assert!(!told(&routes, one, [("/", "s1"), ("/", "s0")]));
    assert!(told(&routes, one, [("/", "s1"), ("/a", "s1")]));
}
