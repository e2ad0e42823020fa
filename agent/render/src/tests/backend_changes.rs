//! Incrementally rendered backends and endpoints match a full rendering.

use proptest::prelude::*;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::{
    Backend, Endpoint, EndpointSet, L4Route, Listener, Port, Route, RouteTable, Snapshot,
    VirtualHost, route::Action,
};

use super::parts::{forward, options, prefix, to};
use crate::changes::backend_patch;
use crate::{MIN_SUBSCRIPTIONS, RenderOptions, Rendered, backends_after, render};

/// Index of the endpoint set, and whether the backend has sessions.
type AnyBackend = Option<(usize, bool)>;
/// The last byte of each address.
type AnySet = Vec<u8>;

const BACKENDS: usize = 6;
const SETS: usize = 4;

fn version() -> impl Strategy<Value = (Vec<AnyBackend>, Vec<AnySet>)> {
    let backend = proptest::option::weighted(0.8, (0..SETS, proptest::bool::weighted(0.2)));
    let set = proptest::collection::vec(1_u8..4, 0..3);
    let backends = proptest::collection::vec(backend, BACKENDS);
    (backends, proptest::collection::vec(set, SETS))
}

fn versions() -> impl Strategy<Value = [(Vec<AnyBackend>, Vec<AnySet>); 2]> {
    let differs = proptest::collection::vec(proptest::bool::weighted(0.2), BACKENDS + SETS);
    (version(), version(), differs).prop_map(|(before, other, differs)| {
        let mut now = before.clone();
        for (place, _) in differs.iter().enumerate().filter(|(_, differs)| **differs) {
            match place.checked_sub(BACKENDS) {
                None => now.0[place] = other.0[place],
                Some(set) => now.1[set].clone_from(&other.1[set]),
            }
        }
        [before, now]
    })
}

fn snapshot((backends, sets): &(Vec<AnyBackend>, Vec<AnySet>)) -> Snapshot {
    let there = || {
        let all = backends.iter().enumerate();
        all.filter_map(|(place, backend)| Some((place, (*backend)?)))
    };
    let host = |(place, _): (usize, (usize, bool))| VirtualHost {
        domain: format!("h{place}.example.com"),
        routes: vec![Route {
            name: format!("HTTPRoute/ns/r{place}/rules/0/matches/0"),
            path: Some(prefix("/")),
            action: Some(Action::Forward(forward(&[to(&format!("b{place}"), 1)]))),
            ..Route::default()
        }],
        ..VirtualHost::default()
    };
    let set = |(number, last): (usize, &AnySet)| EndpointSet {
        name: format!("set{number}"),
        endpoints: last
            .iter()
            .map(|last| Endpoint {
                address: format!("192.0.2.{last}"),
                port: 80,
                ..Endpoint::default()
            })
            .collect(),
        ..EndpointSet::default()
    };
    let used = |number: usize| there().any(|(_, (set, _))| set == number);
    let mut snapshot = Snapshot {
        gateway: "Gateway/ns/gw".to_owned(),
        ports: vec![Port {
            port: 80,
            listeners: vec![Listener {
                name: "http".to_owned(),
                route_table: "http/80".to_owned(),
                ..Listener::default()
            }],
            ..Port::default()
        }],
        route_tables: vec![RouteTable {
            name: "http/80".to_owned(),
            virtual_hosts: there().map(host).collect(),
        }],
        backends: there()
            .map(|(place, (set, with_sessions))| Backend {
                name: format!("b{place}"),
                endpoints: format!("set{set}"),
                session_key: if with_sessions {
                    vec![7; 32]
                } else {
                    Vec::new()
                },
                ..Backend::default()
            })
            .collect(),
        endpoints: sets
            .iter()
            .enumerate()
            .filter(|(number, _)| used(*number))
            .map(set)
            .collect(),
        ..Snapshot::default()
    };
    sesame_proto::digest::canonicalize(&mut snapshot);
    snapshot
}

fn patched(
    rendered: &Rendered,
    before: &EncodedSnapshot,
    now: &EncodedSnapshot,
    options: &RenderOptions,
) -> Option<Rendered> {
    backend_patch::render(rendered, [before, now], options)
}

proptest! {
    #[test]
    fn patched_backend_changes_match_full_rendering(
        versions in versions(),
        budget in 4_usize..15,
    ) {
        let [before, now] = versions.map(|version| snapshot(&version));
        let options = RenderOptions { subscription_budget: budget, ..options() };
        let rendered = render(&before, &[], &options);
        prop_assert!(rendered.problems.is_empty(), "{:?}", rendered.problems);
        let encode = |snapshot| EncodedSnapshot::new(snapshot, Vec::new());
        let (old, new) = (encode(&before), encode(&now));
        let whole = render(&now, &[], &options);
        if let Some(patched) = patched(&rendered, &old, &new, &options) {
            prop_assert_eq!(&patched, &whole);
        }
        if let Some(after) = backends_after(&rendered, &old, &new, &options) {
            prop_assert_eq!(&after, &whole);
        }
    }
}

#[test]
fn replaced_backend_leaves_other_clusters_unchanged() {
    let all: Vec<AnyBackend> = (0..BACKENDS)
        .map(|place| Some((place % SETS, false)))
        .collect();
    let sets = vec![vec![1]; SETS];
    let with = |left_out: usize| {
        let mut backends = all.clone();
        backends[left_out] = None;
        snapshot(&(backends, sets.clone()))
    };
    let (before, now) = (with(1), with(2));
    // The first budget keeps all endpoints in files; the second inlines them all.
    for budget in [100, MIN_SUBSCRIPTIONS + 1] {
        let options = RenderOptions {
            subscription_budget: budget,
            ..options()
        };
        let rendered = render(&before, &[], &options);
        let encode = |snapshot| EncodedSnapshot::new(snapshot, Vec::new());
        let after = patched(&rendered, &encode(&before), &encode(&now), &options);
        assert_eq!(after, Some(render(&now, &[], &options)), "{budget}");
    }
}

#[test]
fn l4_backend_change_needs_full_rendering() {
    let sets = vec![vec![1]; SETS];
    let version = |backend: AnyBackend| {
        let mut snapshot = snapshot(&(vec![Some((0, false)), backend], sets.clone()));
        let route = L4Route {
            backends: vec![to("b1", 1)],
            ..L4Route::default()
        };
        snapshot.ports[0].listeners[0].l4_routes.push(route);
        EncodedSnapshot::new(&snapshot, Vec::new())
    };
    let (without, with) = (version(None), version(Some((0, false))));
    for (before, now) in [(&without, &with), (&with, &without)] {
        let rendered = render(&before.snapshot(), &[], &options());
        let after = patched(&rendered, before, now, &options());
        assert_eq!(after, None);
    }
}
