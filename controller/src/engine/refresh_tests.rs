//! Endpoints that are current without a resolution are those of a resolution.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::bundles::{Bundles, Refresh};
use super::cluster_state::ClusterState;
use super::cluster_state::tests::observed;
use crate::publish::{Bundle, Desired, DesiredPublications};
use crate::serve::Metrics;
use crate::watch::{Input, WatchEvent, WatchedObject};
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::decode;
use sesame_gateway_api::resolve::{self, Options};
use sesame_gateway_api::world::Kind;

/// Two Gateways, whose routes share Services; ports of one number, of one name, and for datagrams.
const OBJECTS: &str = r"
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: sesame},
 spec: {controllerName: projectsesame.io/gateway-controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge},
 spec: {gatewayClassName: sesame, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: udp},
 spec: {gatewayClassName: sesame, listeners: [{name: dns, port: 53, protocol: UDP}, {name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web},
 spec: {parentRefs: [{name: edge}, {name: udp}], rules: [{backendRefs: [{name: s0, port: 80}, {name: s1, port: 53}]}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: api},
 spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: s0, port: 81}, {name: s2, port: 80}, {name: none, port: 80}]}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: UDPRoute, metadata: {name: dns},
 spec: {parentRefs: [{name: udp}], rules: [{backendRefs: [{name: s1, port: 53}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s0},
 spec: {ports: [{name: a, port: 80}, {name: b, port: 80}, {name: b, port: 81}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s1},
 spec: {ports: [{name: a, port: 53, protocol: UDP}, {name: b, port: 53, protocol: TCP}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s2}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s3}, spec: {ports: [{port: 80}]}}
";

fn take(
    state: &mut ClusterState,
    kind: Kind,
    event: WatchEvent<WatchedObject>,
) -> (bool, Vec<NamespacedName>) {
    let effect = state.take(Input::Watched { kind, event }, &Metrics::new());
    (effect.world_changed, effect.services)
}

/// Returns the publications of a whole resolution.
fn whole(state: &ClusterState, bundles: &mut Bundles) -> DesiredPublications {
    let resolution = resolve::resolve(state.world(), &Options::default());
    let (desired, unpublishable) = bundles.build(
        resolution.gateways,
        &resolution.statuses,
        &BTreeSet::new(),
        state,
    );
    assert!(unpublishable.is_empty());
    desired
}

fn published(desired: &DesiredPublications) -> Vec<Arc<Bundle>> {
    let bundle = |desired: &Desired| match desired {
        Desired::Publish(bundle) => Arc::clone(bundle),
        Desired::Retain => panic!("both Gateways are published"),
    };
    desired.values().map(bundle).collect()
}

/// A slice of some Service: any ports, any addresses, whether ready or not.
fn slice() -> impl Strategy<Value = (bool, WatchedObject)> {
    let endpoint = (0..6_usize, 0..4_usize).prop_map(|(address, state)| {
        let address = [
            "10.0.0.1",
            "10.0.0.2",
            "127.0.0.1",
            "10.0.0.3",
            "no address",
            "10.1.0.1",
        ][address];
        let conditions = [
            "{}",
            "{ready: true}",
            "{ready: false}",
            "{ready: false, serving: true, terminating: true}",
        ][state];
        format!("{{addresses: [\"{address}\"], conditions: {conditions}}}")
    });
    let port = (0..3_usize, 0..3_usize, 8000..8003).prop_map(|(name, protocol, number)| {
        let (name, protocol) = (["\"\"", "a", "b"][name], ["\"\"", "TCP", "UDP"][protocol]);
        format!("{{name: {name}, protocol: {protocol}, port: {number}}}")
    });
    let kind = prop::sample::select(vec!["IPv4", "IPv4", "IPv4", "FQDN"]);
    (
        any::<bool>(),
        0..8_usize,
        0..5_usize,
        kind,
        prop::collection::vec(endpoint, 0..40),
        prop::collection::vec(port, 0..4),
    )
        .prop_map(|(there, name, service, kind, endpoints, ports)| {
            let (endpoints, ports) = (endpoints.join(", "), ports.join(", "));
            let yaml = format!(
                "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: slice-{name}, \
                 labels: {{kubernetes.io/service-name: s{service}}}}}, addressType: {kind}, \
                 endpoints: [{endpoints}], ports: [{ports}]}}"
            );
            (there, observed(&yaml))
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_refresh_offers_the_same_bytes_as_a_whole_resolution(
        batches in prop::collection::vec(prop::collection::vec(slice(), 1..6), 1..6)
    ) {
        let mut state = ClusterState::default();
        for document in decode::split(OBJECTS) {
            let object = observed(document.text);
            let kind = object.object.as_ref().expect("an object").kind();
            take(&mut state, kind, WatchEvent::Applied(object));
        }
        let mut bundles = Bundles::default();
        let mut current = whole(&state, &mut bundles);
        state.note_resolved();
        for batch in batches {
            let mut services = BTreeSet::new();
            for (there, object) in batch {
                let event = if there { WatchEvent::Applied(object) } else { WatchEvent::Deleted(object) };
                let (world_changed, changed) = take(&mut state, Kind::EndpointSlice, event);
                prop_assert!(!world_changed);
                services.extend(changed);
            }
            let sets = state.endpoint_sets(&services, &Options::default());
            match bundles.refresh(&sets) {
                Refresh::Same => {}
                Refresh::Changed(desired) => current = desired,
                Refresh::Whole => current = whole(&state, &mut bundles),
            }
            let expected = whole(&state, &mut Bundles::default());
            prop_assert_eq!(published(&current), published(&expected));
        }
    }
}
