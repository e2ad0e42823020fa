//! Builds the ServiceAccount for a fleet's agents, and its permissions.

use serde_json::json;

use crate::provision::Basis;
use crate::provision::kinds::OwnedKind;
use crate::provision::owned::{OwnedObject, local_object, remote_object};
use sesame_kinds::api::NamespacedName;
use sesame_published::host_access::{AGENTS_ROLE, fleet_agents, gateway_rules};

/// Only the agent's Pod requests a token.
pub(super) fn account(basis: &Basis, name: &str) -> OwnedObject {
    let value = json!({"automountServiceAccountToken": false});
    local_object(basis, OwnedKind::ServiceAccount, name, &[], value)
}

/// Returns the Role for the Gateway's keys and reports, and bindings to it and to the shared Role.
pub(super) fn rights(basis: &Basis, account: &str, namespace: &str) -> [OwnedObject; 3] {
    let gateway = &basis.gateway;
    let name = |text: &str| NamespacedName::new(namespace, text);
    let own = fleet_agents(gateway);
    let rules = gateway_rules(std::slice::from_ref(gateway));
    let role = json!({"rules": rules});
    let binding = |to: &str| {
        json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": to},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": gateway.namespace}],
        })
    };
    let agents_binding = name(&format!("{own}.agents"));
    [
        remote_object(basis, OwnedKind::Role, &name(&own), role),
        remote_object(basis, OwnedKind::RoleBinding, &name(&own), binding(&own)),
        remote_object(
            basis,
            OwnedKind::RoleBinding,
            &agents_binding,
            binding(AGENTS_ROLE),
        ),
    ]
}
