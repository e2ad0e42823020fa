//! Checks that updating endpoints without a resolution gives the same endpoints as a full
//! resolution.

#[path = "../../resolver/src/tests/any_slices.rs"]
mod any_slices;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::cluster_state::ClusterState;
use super::cluster_state::tests::{observed, watched};
use super::publications::{Publications, Refresh};
use crate::publish::{DesiredPublication, DesiredPublications, Publication};
use crate::serve::Metrics;
use crate::watch::{Input, WatchEvent, WatchedObject};
use any_slices::{ADDRESSES, KINDS, OBJECTS, any_slice};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::decode;
use sesame_kinds::world::Kind;
use sesame_proto::schema::{Backend, BackendTls};
use sesame_resolver::Options;

fn apply(
    state: &mut ClusterState,
    kind: Kind,
    event: WatchEvent<WatchedObject>,
) -> (bool, Vec<NamespacedName>) {
    let effect = state.apply(watched(kind, event), &Metrics::new());
    (effect.world_changed, effect.services)
}

fn whole(state: &ClusterState, publications: &mut Publications) -> DesiredPublications {
    let resolution = sesame_resolver::resolve(state.world(), &Options::default());
    let names = resolution.statuses.gateways.keys().cloned().collect();
    let (desired, unpublishable) = publications.build(
        resolution.gateways,
        names,
        &resolution.settings,
        state.world(),
    );
    assert!(unpublishable.is_empty());
    desired
}

fn published(desired: &DesiredPublications) -> Vec<Arc<Publication>> {
    let publication = |desired: &DesiredPublication| match desired {
        DesiredPublication::Publish(publication) => Arc::clone(publication),
        DesiredPublication::Retain => panic!("both Gateways are published"),
    };
    desired.values().map(publication).collect()
}

fn slice() -> impl Strategy<Value = (bool, WatchedObject)> {
    any_slice(ADDRESSES, KINDS).prop_map(|(there, yaml)| (there, observed(&yaml)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn refresh_offers_same_bytes_as_full_resolution(
        batches in prop::collection::vec(prop::collection::vec(slice(), 1..6), 1..6)
    ) {
        let mut state = ClusterState::default();
        for document in decode::split(OBJECTS) {
            let object = observed(document.text);
            let kind = object.object.as_ref().expect("an object").kind();
            apply(&mut state, kind, WatchEvent::Applied(object));
        }
        let mut publications = Publications::default();
        let mut current = whole(&state, &mut publications);
        state.record_resolved();
        for batch in batches {
            let mut services = BTreeSet::new();
            for (there, object) in batch {
                let event = if there { WatchEvent::Applied(object) } else { WatchEvent::Deleted(object) };
                let (world_changed, changed) = apply(&mut state, Kind::EndpointSlice, event);
                prop_assert!(!world_changed);
                services.extend(changed);
            }
            let sets = state.endpoint_sets(&services, &BTreeSet::new(), &Options::default());
            match publications.refresh(sets) {
                Refresh::Same => {}
                Refresh::Changed(desired) => current = desired,
                Refresh::Whole => current = whole(&state, &mut publications),
            }
            let expected = whole(&state, &mut Publications::default());
            prop_assert_eq!(published(&current), published(&expected));
        }
    }
}

#[test]
fn endpoints_do_not_wait_for_oversized_configuration() {
    let mut state = ClusterState::default();
    for document in decode::split(OBJECTS) {
        let object = observed(document.text);
        let kind = object.object.as_ref().expect("an object").kind();
        apply(&mut state, kind, WatchEvent::Applied(object));
    }
    let mut publications = Publications::default();
    let before = whole(&state, &mut publications);
    let slice = observed(
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: new, labels: \
         {kubernetes.io/service-name: s0}}, addressType: IPv4, endpoints: [{addresses: [10.7.7.7]}], \
         ports: [{name: a, port: 8080}]}",
    );
    apply(&mut state, Kind::EndpointSlice, WatchEvent::Applied(slice));
    let mut resolution = sesame_resolver::resolve(state.world(), &Options::default());
    let digits = (0..400_000_u32).map(|i| i.wrapping_mul(2_654_435_761).to_string());
    let large: String = digits.collect();
    for gateway in &mut resolution.gateways {
        let backend = Backend {
            name: "Service/team-b/large/80".to_owned(),
            tls: Some(Box::new(BackendTls {
                sni: large.clone(),
                ..BackendTls::default()
            })),
            ..Backend::default()
        };
        gateway.snapshot.backends.push(backend);
    }
    let names = resolution.statuses.gateways.keys().cloned().collect();
    let (desired, unpublishable) = publications.build(
        resolution.gateways,
        names,
        &resolution.settings,
        state.world(),
    );
    assert_eq!(unpublishable.len(), before.len());
    for why in unpublishable.values() {
        assert!(why.contains("backend Service/team-b/large/80"), "{why}");
    }
    let (before, after) = (published(&before), published(&desired));
    let manifests = |all: &[Arc<Publication>]| -> Vec<_> {
        all.iter().map(|it| Arc::clone(&it.manifest)).collect()
    };
    assert_eq!(manifests(&before), manifests(&after));
    assert_ne!(before, after, "the endpoints have changed");
}

#[test]
fn number_of_hosts_changes_no_revision() {
    let policy = "{apiVersion: projectsesame.io/v1alpha1, kind: TrafficPolicy, metadata: {name: all}, \
         spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}], \
         rateLimits: [{name: all, requests: 1, per: Second, scope: Fleet}]}}";
    let mut state = ClusterState::awaiting_hosts();
    for document in decode::split(OBJECTS)
        .iter()
        .map(|it| it.text)
        .chain([policy])
    {
        let object = observed(document);
        let kind = object.object.as_ref().expect("an object").kind();
        apply(&mut state, kind, WatchEvent::Applied(object));
    }
    let hosts = |count: u32| {
        let edge = NamespacedName::new("default", "edge");
        Input::LiveHosts([(edge, count)].into())
    };
    assert!(state.apply(hosts(0), &Metrics::new()).world_changed);
    state.record_resolved();
    let first = state.apply(hosts(1), &Metrics::new());
    assert!(first.world_changed, "the condition changes");
    let mut publications = Publications::default();
    let before = whole(&state, &mut publications);
    state.record_resolved();
    let effect = state.apply(hosts(3), &Metrics::new());
    assert!(!effect.world_changed);
    let fleets = effect.fleets.into_iter().collect();
    let sets = state.endpoint_sets(&BTreeSet::new(), &fleets, &Options::default());
    let Refresh::Changed(desired) = publications.refresh(sets) else {
        panic!("only endpoints change");
    };
    let expected = whole(&state, &mut Publications::default());
    assert_eq!(published(&desired), published(&expected));
    let revisions = |all: &DesiredPublications| -> Vec<String> {
        published(all)
            .iter()
            .map(|it| it.revision.clone())
            .collect()
    };
    assert_eq!(revisions(&before), revisions(&desired));
    assert_ne!(published(&before), published(&desired));
    for none in [hosts(0), Input::LiveHosts([].into())] {
        let effect = state.apply(none, &Metrics::new());
        assert!(effect.fleets.is_empty(), "silent hosts keep their shares");
    }
}
