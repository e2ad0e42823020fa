use std::collections::BTreeMap;

use serde_json::json;
use sesame_published::names::PUBLISHER;

use super::Basis;
use super::kinds::OwnedKind;
use super::owned::{ExistingObject, implied_uid, local_object, with_controller};
use super::plan::{Inventory, OwnedWrite, plan};
use sesame_kinds::api::NamespacedName;

/// Returns an inventory with a Service of an unknown implied Gateway, and the Gateway's UID.
pub(super) fn left_behind() -> (Inventory, String) {
    let gateway = NamespacedName::new("web", "implied");
    let basis = Basis::implied(&gateway, "sesame", false);
    let object = local_object(&basis, OwnedKind::Service, "app", &[], json!({}));
    let object = with_controller(object, "");
    let managed = json!([{"manager": PUBLISHER}]);
    let existing = ExistingObject::new(OwnedKind::Service, "7", object.value, Some(&managed));
    assert_eq!(existing.owner, Some(implied_uid(&gateway)));
    let inventory = Inventory {
        objects: BTreeMap::from([(object.key, existing)]),
        ..Inventory::default()
    };
    (inventory, implied_uid(&gateway))
}

#[test]
fn forged_annotation_of_unknown_gateway_deletes_nothing() {
    let (mut inventory, uid) = left_behind();
    let writes = |inventory: &Inventory| plan(inventory, [].iter(), &BTreeMap::new()).writes;
    assert_eq!(writes(&inventory), []);
    // This process knew the Gateway.
    inventory.gone.insert(uid);
    let deleted = writes(&inventory);
    assert!(
        matches!(deleted.as_slice(), [OwnedWrite::Delete { .. }]),
        "{deleted:?}"
    );
}
