//! Conditions of GatewayMeshPolicies, for each targeted Gateway.

use std::collections::BTreeMap;

use super::policies::{ancestor, applied};
use crate::gateways::CheckedGateway;
use crate::gateways::mesh_policies::MeshPolicies;
use crate::gateways::mesh_trust::MeshTrust;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{PolicyStatus, Reason, Verdict};

pub(crate) fn statuses(
    gateways: &[CheckedGateway<'_>],
    policies: &MeshPolicies<'_>,
    mesh_trust: &MeshTrust<'_>,
    controller_name: &str,
) -> BTreeMap<NamespacedName, PolicyStatus> {
    let mut statuses: BTreeMap<NamespacedName, PolicyStatus> = BTreeMap::new();
    // Gateways are sorted by name, so the entries are sorted too.
    for gateway in gateways {
        let Some(mesh) = &gateway.mesh else {
            continue;
        };
        for policy in policies.for_gateway(gateway.metadata) {
            let metadata = &policy.object.metadata;
            let generation = metadata.generation;
            let conditions = if mesh.is_configured_by(policy) {
                let mut conditions = applied(metadata, &mesh.accepted, &mesh.resolved);
                conditions.extend(mesh_trust.of_gateway(gateway, generation));
                conditions
            } else {
                let mut verdict = Verdict::default();
                let why = format!(
                    "Gateway {} already has a mesh, configured by {}",
                    gateway.name(),
                    mesh.source
                );
                verdict.refuse(Reason::Conflicted, why);
                vec![verdict.accepted("", generation)]
            };
            let status = statuses.entry(metadata.key()).or_default();
            let ancestor = ancestor(&gateway.name(), controller_name, conditions);
            status.ancestors.push(ancestor);
        }
    }
    statuses
}
