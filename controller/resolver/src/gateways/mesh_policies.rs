//! Finds the GatewayMeshPolicies that target each Gateway.

use super::gateway_policies::{CheckedPolicy, GatewayPolicies, GatewayPolicy};
use crate::context::ResolveContext;
use sesame_kinds::api::{GatewayMeshPolicy, GatewayMeshPolicySpec, LocalPolicyTargetRef, Metadata};
use sesame_kinds::world::Kind;

pub(crate) type MeshPolicy<'w> = CheckedPolicy<'w, GatewayMeshPolicy>;

pub(crate) type MeshPolicies<'w> = GatewayPolicies<'w, GatewayMeshPolicy>;

impl GatewayPolicy for GatewayMeshPolicy {
    const KIND: Kind = Kind::GatewayMeshPolicy;

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn targets(&self) -> &[LocalPolicyTargetRef] {
        let GatewayMeshPolicySpec {
            target_refs,
            // The mesh settings are checked separately for each targeted Gateway.
            mesh: _,
        } = &self.spec;
        target_refs
    }
}

pub(crate) fn check_all<'w>(cx: &mut ResolveContext<'w, '_>) -> MeshPolicies<'w> {
    let objects = cx.world.gateway_mesh_policies.iter();
    let objects = objects.map(AsRef::as_ref).collect();
    GatewayPolicies::check_all(objects, cx, |_, _| {})
}
