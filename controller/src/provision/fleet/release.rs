//! Releases a managed fleet: its objects no longer have an owner, but its Pods keep running.

use serde_json::{Value, json};

use crate::provision::Basis;
use crate::provision::kinds::{OwnedKey, OwnedKind};
use crate::provision::owned::{
    DIGEST_ANNOTATION, ExistingObject, OWNER_ANNOTATION, OwnedObject, is_gateway,
};

/// The value is the Gateway's UID.
pub(crate) const RELEASED_ANNOTATION: &str = "projectsesame.io/released-from";

/// The `spec` is unchanged, so no Pod restarts.
pub(crate) fn released(basis: &Basis, key: &OwnedKey, found: &ExistingObject) -> OwnedObject {
    let mut value = found.value.clone();
    // Items in a list lack `apiVersion` and `kind`.
    value["apiVersion"] = json!(key.0.api_version());
    value["kind"] = json!(key.0.as_str());
    let metadata = &mut value["metadata"];
    if let Some(owners) = metadata["ownerReferences"].as_array_mut() {
        owners.retain(|owner| !is_gateway(owner));
    }
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.remove(DIGEST_ANNOTATION);
        annotations.remove(OWNER_ANNOTATION);
    }
    metadata["annotations"][RELEASED_ANNOTATION] = json!(basis.uid);
    OwnedObject {
        gateway: basis.gateway.clone(),
        key: key.clone(),
        value,
    }
}

pub(crate) fn is_released_from(basis: &Basis, kind: OwnedKind, found: &ExistingObject) -> bool {
    let from: &Value = &found.value["metadata"]["annotations"][RELEASED_ANNOTATION];
    kind.is_workload() && found.owner.is_none() && *from == basis.uid.as_str()
}
