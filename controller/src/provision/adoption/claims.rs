//! Plans the adoption of existing fleets.

use super::{AdoptionState, assess};
use crate::provision::Basis;
use crate::provision::kinds::OwnedKind;
use crate::provision::owned::{OwnedObject, with_controller};
use crate::provision::plan::{Claims, Inventory, OwnedPlan, claim};

/// Returns true if any object exists without an owner. In that case, plans the approved adoption or
/// a preview, and claims only objects that the Gateway already owns.
pub(in crate::provision) fn claim_fleet<'a>(
    plan: &mut OwnedPlan,
    claims: &mut Claims<'a>,
    inventory: &Inventory,
    basis: &'a Basis,
    objects: Vec<OwnedObject>,
) -> bool {
    let controller = &inventory.controller;
    let objects = objects.into_iter();
    let mut objects: Vec<_> = objects
        .map(|object| with_controller(object, controller))
        .collect();
    let state = assess(inventory, basis, &objects);
    let ours = |object: &OwnedObject| {
        let found = inventory.objects.get(&object.key);
        found.is_some_and(|found| found.is_owned_by(basis))
    };
    let is_settled = match state {
        AdoptionState::Settled => true,
        AdoptionState::Agreed(writes) => {
            plan.writes.extend(writes);
            false
        }
        AdoptionState::Open { why, preview } => {
            plan.problem(OwnedKind::DaemonSet, &basis.gateway, why);
            claim(claims, inventory, basis, vec![preview]);
            false
        }
    };
    objects.retain(|object| is_settled || ours(object));
    claim(claims, inventory, basis, objects);
    !is_settled
}
