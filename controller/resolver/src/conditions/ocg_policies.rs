//! Conditions of MeshOCGPolicies, for each targeted XMesh.

use std::collections::BTreeMap;

use super::policies::applied;
use crate::gateways::mesh_trust::MeshTrust;
use sesame_kinds::api::{EXPERIMENTAL_GATEWAY_GROUP, NamespacedName, ParentRef};
use sesame_kinds::status::{PolicyAncestorStatus, PolicyStatus};
use sesame_kinds::world::Kind;

pub(crate) fn statuses(
    mesh_trust: &MeshTrust<'_>,
    controller_name: &str,
) -> BTreeMap<NamespacedName, PolicyStatus> {
    let mut statuses: BTreeMap<NamespacedName, PolicyStatus> = BTreeMap::new();
    for mesh in &mesh_trust.meshes {
        let Some(metadata) = mesh.policy else {
            continue;
        };
        let mut conditions = applied(metadata, &mesh.accepted, &mesh.resolved);
        conditions.extend(mesh.of_all(metadata.generation));
        let status = statuses.entry(metadata.key()).or_default();
        status.ancestors.push(PolicyAncestorStatus {
            ancestor_ref: ParentRef {
                group: Some(EXPERIMENTAL_GATEWAY_GROUP.into()),
                kind: Some(Kind::XMesh.as_str().into()),
                name: mesh.mesh.to_owned(),
                ..ParentRef::default()
            },
            controller_name: controller_name.to_owned(),
            conditions,
        });
    }
    statuses
}
