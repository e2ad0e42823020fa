//! Checks that resolving only the changed routes and their neighbors gives the same result as a
//! full resolution.

#[path = "../../resolver/src/tests/any_routes.rs"]
mod any_routes;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::cluster_state::tests::{observed, watched};
use super::cluster_state::{ClusterState, Effect};
use super::publications::Publications;
use crate::publish::{DesiredPublication, Publication};
use crate::serve::Metrics;
use crate::watch::{WatchEvent, WatchedObject};
use any_routes::{OBJECTS, any_place, any_rules, version};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::decode;
use sesame_kinds::status::Statuses;
use sesame_kinds::world::Kind;
use sesame_resolver::incremental::{
    PreviousObjects, PreviousRoutes, PreviousServices, RouteDelta, RouteStatusChange,
    resolve_routes,
};
use sesame_resolver::{Options, Resolver};

fn state() -> ClusterState {
    let mut state = ClusterState::default();
    for document in decode::split(OBJECTS) {
        apply(&mut state, WatchEvent::Applied(observed(document.text)));
    }
    state
}

fn apply(state: &mut ClusterState, event: WatchEvent<WatchedObject>) -> Effect {
    let (WatchEvent::Applied(object) | WatchEvent::Deleted(object)) = &event else {
        panic!("one object at a time");
    };
    let kind = object.object.as_ref().expect("an object").kind();
    state.apply(watched(kind, event), &Metrics::new())
}

fn whole(
    state: &ClusterState,
    publications: &mut Publications,
    resolver: &mut Resolver,
) -> (Vec<Publication>, Statuses) {
    let resolution = resolver.resolve(state.world(), &Options::default());
    let statuses = resolution.statuses;
    let names = statuses.gateways.keys().cloned().collect();
    let (desired, _) = publications.build(
        resolution.gateways,
        names,
        &resolution.settings,
        state.world(),
    );
    (published(desired.values()), statuses)
}

fn published<'o>(desired: impl Iterator<Item = &'o DesiredPublication>) -> Vec<Publication> {
    let publication = |desired: &DesiredPublication| match desired {
        DesiredPublication::Publish(publication) => Publication::clone(publication),
        DesiredPublication::Retain => panic!("both Gateways are published"),
    };
    desired.map(publication).collect()
}

fn route(name: &str, kind: &str, spec: &str) -> WatchedObject {
    observed(&format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{name: {name}}}, spec: {spec}}}"
    ))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn route_changes_match_full_resolution(
        places in prop::collection::vec(any_place(), 6),
        batches in prop::collection::vec(
            prop::collection::vec((0..40_usize, 0..6_usize, any_place(), any_rules()), 1..4),
            1..12,
        ),
    ) {
        let mut state = state();
        for (name, place) in places.iter().enumerate() {
            apply(&mut state, WatchEvent::Applied(observed(&version(name, place, &[]))));
        }
        let (mut publications, mut resolver) = (Publications::default(), Resolver::default());
        let (_, mut known_statuses) = whole(&state, &mut publications, &mut resolver);
        state.record_resolved();
        for batch in batches {
            let mut before = PreviousRoutes::new();
            let mut world_changed = false;
            for (event, name, other_place, rules) in batch {
                let place = if event == 1 { &other_place } else { &places[name] };
                let route = observed(&version(name, place, &rules));
                let event = match event {
                    0 => WatchEvent::Deleted(route),
                    _ => WatchEvent::Applied(route),
                };
                let effect = apply(&mut state, event);
                world_changed |= effect.world_changed;
                for route in effect.routes {
                    before.entry(route.key()).or_insert(route);
                }
            }
            let delta = if world_changed {
                None
            } else {
                resolved(&state, before, &mut resolver)
            };
            let desired = delta.and_then(|RouteDelta { gateways, statuses }| {
                let now = |change: RouteStatusChange| (change.route, change.after);
                known_statuses.routes.extend(statuses.into_iter().map(now));
                publications.change(&gateways)
            });
            let published_now = if let Some(desired) = desired {
                published(desired.values())
            } else {
                let (published_now, statuses) = whole(&state, &mut publications, &mut resolver);
                known_statuses = statuses;
                published_now
            };
            state.record_resolved();
            let (expected, statuses) = whole(&state, &mut Publications::default(), &mut Resolver::default());
            prop_assert_eq!(&published_now, &expected);
            prop_assert_eq!(&known_statuses, &statuses);
        }
    }
}

fn change(state: &mut ClusterState, spec: &str) -> Option<RouteDelta> {
    let mut resolver = Resolver::default();
    resolver.resolve(state.world(), &Options::default());
    let effect = apply(state, WatchEvent::Applied(route("a", "HTTPRoute", spec)));
    assert!(!effect.world_changed);
    let before: PreviousRoutes = effect.routes.into_iter().map(|r| (r.key(), r)).collect();
    state.record_resolved();
    resolved(state, before, &mut resolver)
}

fn resolved(
    state: &ClusterState,
    routes: PreviousRoutes,
    resolver: &mut Resolver,
) -> Option<RouteDelta> {
    let options = Options::default();
    let before = PreviousObjects {
        routes,
        services: PreviousServices::new(),
    };
    let sets_of = |services: &BTreeSet<NamespacedName>| state.sets_of(services, &options);
    resolve_routes(state.world(), before, &sets_of, resolver, &options)
}

#[test]
fn rule_change_affects_own_virtual_hosts_and_backends() {
    let mut state = state();
    let spec = |path: &str, service: &str| {
        format!(
            "{{parentRefs: [{{name: edge}}], hostnames: [a.example.com], rules: [{{matches: [{{path: {{value: {path}}}}}], \
             backendRefs: [{{name: {service}, port: 80}}]}}]}}"
        )
    };
    apply(
        &mut state,
        WatchEvent::Applied(route("a", "HTTPRoute", &spec("/", "s0"))),
    );
    let other = "{parentRefs: [{name: edge}], hostnames: [b.example.com], rules: [{backendRefs: [{name: s1, port: 80}]}]}";
    apply(
        &mut state,
        WatchEvent::Applied(route("b", "HTTPRoute", other)),
    );
    state.record_resolved();
    let delta = change(&mut state, &spec("/a", "s0")).expect("a delta");
    assert!(delta.statuses.is_empty(), "{delta:?}");
    let [(gateway, delta)] = delta.gateways.as_slice() else {
        panic!("one Gateway: {delta:?}");
    };
    assert_eq!(gateway.name, "edge");
    let hosts = delta.route_tables.hosts().iter();
    let domains: Vec<&str> = hosts.map(|host| host.after.domain.as_str()).collect();
    assert_eq!(domains, ["a.example.com"]);
    let delta = change(&mut state, &spec("/a", "s1")).expect("a delta");
    let [(_, delta)] = delta.gateways.as_slice() else {
        panic!("one Gateway: {delta:?}");
    };
    assert_eq!(delta.backends.removed, ["Service/default/s0/80"]);
    assert!(delta.backends.added.is_empty(), "{delta:?}");
    let extra_backend = spec("/a", "s1, port: 80}, {name: none");
    let delta = change(&mut state, &extra_backend).expect("a delta");
    assert_eq!((delta.gateways.len(), delta.statuses.len()), (1, 1));
    assert_eq!(state.world().count(Kind::HttpRoute), 2);
}
