//! Objects of an implied Gateway that left the configuration while no controller ran. Their owner is
//! only an annotation, which anyone can write, so they are reported instead of deleted.

use std::collections::BTreeSet;

use super::kinds::OwnedKey;
use super::owned::{controller_of, is_implied};
use super::plan::Inventory;

fn find(inventory: &Inventory) -> BTreeSet<&OwnedKey> {
    let known: BTreeSet<&str> = inventory.bases().map(|basis| &*basis.uid).collect();
    let abandoned = inventory.objects.iter().filter(|(key, found)| {
        let is_unknown = |uid: &String| {
            is_implied(uid) && !known.contains(uid.as_str()) && !inventory.gone.contains(uid)
        };
        !key.0.is_remote()
            && found.owner.as_ref().is_some_and(is_unknown)
            && controller_of(&found.value) == inventory.controller
    });
    abandoned.map(|(key, _)| key).collect()
}

/// Logs each object once.
pub(super) fn report(inventory: &Inventory, reported: &mut BTreeSet<OwnedKey>) {
    let found = find(inventory);
    reported.retain(|key| found.contains(key));
    for key in found {
        if reported.insert(key.clone()) {
            let (kind, name) = key;
            tracing::warn!(
                %kind, %name,
                "left by a Gateway that spec.ingress.listeners no longer declares; delete it, or \
                 declare the Gateway again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::implied_tests::left_behind;
    use super::*;

    #[test]
    fn object_of_unknown_implied_gateway_is_reported() {
        let (mut inventory, uid) = left_behind();
        let mut reported = BTreeSet::new();
        report(&inventory, &mut reported);
        assert_eq!(reported.len(), 1);
        // The plan deletes it instead.
        inventory.gone.insert(uid);
        report(&inventory, &mut reported);
        assert!(reported.is_empty());
    }
}
