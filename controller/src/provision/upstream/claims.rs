//! Plans second Gateways.

use super::objects::{UpstreamObjects, objects};
use crate::provision::Basis;
use crate::provision::kinds::OwnedKind;
use crate::provision::plan::{Claims, Inventory, OwnedPlan, claim};
use sesame_kinds::api::PublishingType;
use sesame_resolver::settings::GatewaySettings;

/// Returns true if the second Gateway cannot be built; its existing objects are then kept.
pub(in crate::provision) fn claim_upstream<'a>(
    plan: &mut OwnedPlan,
    claims: &mut Claims<'a>,
    inventory: &Inventory,
    basis: &'a Basis,
    settings: &GatewaySettings,
) -> bool {
    if *settings.publishing_type() != PublishingType::UpstreamGateway {
        return false;
    }
    match objects(basis, settings, inventory) {
        Ok(UpstreamObjects { objects, left_out }) => {
            if let Some(why) = left_out {
                plan.problem(OwnedKind::Gateway, &basis.gateway, why);
            }
            claim(claims, inventory, basis, objects);
            false
        }
        Err(why) => {
            plan.problem(OwnedKind::Gateway, &basis.gateway, why);
            true
        }
    }
}
