//! Endpoints that are offered without a resolution are those of a resolution.

#[path = "../../gateway-api/src/resolve/tests/any_slices.rs"]
mod any_slices;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::Input;
use super::cluster_state::tests::observed;
use super::cluster_state::{ClusterState, Observed};
use super::offers::{Bundles, Offer, Offers, Refresh};
use crate::publish::Bundle;
use crate::serve::Metrics;
use crate::watch::Seen;
use any_slices::{ADDRESSES, KINDS, OBJECTS, any_slice};
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::decode;
use sesame_gateway_api::resolve::{self, Options};
use sesame_gateway_api::world::Kind;

fn take(state: &mut ClusterState, kind: Kind, seen: Seen<Observed>) -> (bool, Vec<NamespacedName>) {
    let effect = state.take(Input::Seen { kind, seen }, &Metrics::new());
    (effect.world_changed, effect.services)
}

/// Everything that a whole resolution offers.
fn whole(state: &ClusterState, bundles: &mut Bundles) -> Offers {
    let resolution = resolve::resolve(state.world(), &Options::default());
    let (offers, unpublishable) = bundles.offer(
        resolution.gateways,
        &resolution.statuses,
        &BTreeSet::new(),
        state,
    );
    assert!(unpublishable.is_empty());
    offers
}

fn published(offers: &Offers) -> Vec<Arc<Bundle>> {
    let bundle = |offer: &Offer| match offer {
        Offer::Publish(bundle) => Arc::clone(bundle),
        Offer::Keep => panic!("both Gateways are published"),
    };
    offers.values().map(bundle).collect()
}

fn slice() -> impl Strategy<Value = (bool, Observed)> {
    any_slice(ADDRESSES, KINDS).prop_map(|(there, yaml)| (there, observed(&yaml)))
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
            take(&mut state, kind, Seen::One(object));
        }
        let mut bundles = Bundles::default();
        let mut offered = whole(&state, &mut bundles);
        state.note_resolved();
        for batch in batches {
            let mut services = BTreeSet::new();
            for (there, object) in batch {
                let seen = if there { Seen::One(object) } else { Seen::Gone(object) };
                let (world_changed, changed) = take(&mut state, Kind::EndpointSlice, seen);
                prop_assert!(!world_changed);
                services.extend(changed);
            }
            let sets = state.endpoint_sets(&services, &Options::default());
            match bundles.refresh(&sets) {
                Refresh::Same => {}
                Refresh::Offers(offers) => offered = offers,
                Refresh::Whole => offered = whole(&state, &mut bundles),
            }
            let expected = whole(&state, &mut Bundles::default());
            prop_assert_eq!(published(&offered), published(&expected));
        }
    }
}
