//! Finds the parts of a layered object's status that only this controller wrote. A new process also
//! removes an earlier process's statuses, and managed fields are their only record.

use std::borrow::Cow;

use serde_json::Value;
use sesame_kinds::api::CONTROLLER_NAME;
use sesame_proto::digest::sha256;
use sesame_published::names::DEFAULT_NAMESPACE;

use super::other_writer::owns_valid;

/// Writes all statuses of a controller with the default name in the default namespace.
const FIELD_MANAGER: &str = "sesame-controller";

/// Controllers must not remove each other's statuses. Controllers in one namespace with the same name
/// are replicas, which elect a leader.
pub(crate) fn field_manager(controller_name: &str, namespace: &str) -> Cow<'static, str> {
    if (controller_name, namespace) == (CONTROLLER_NAME, DEFAULT_NAMESPACE) {
        return FIELD_MANAGER.into();
    }
    let digest = sha256(format!("{controller_name} {namespace}").as_bytes());
    let short: String = digest.chars().take(16).collect();
    format!("{FIELD_MANAGER}-{short}").into()
}

/// Parts of the status of an Ingress or HTTPProxy that no other field manager owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnStatus {
    pub(crate) load_balancer: bool,
    pub(crate) valid: bool,
    /// `currentStatus` and `description` of an HTTPProxy.
    pub(crate) summary: bool,
}

impl OwnStatus {
    /// Reads `metadata.managedFields`.
    pub(super) fn of(managed: &Value, own_name: &str) -> Self {
        let entries = managed.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_own = |owns: fn(&Value) -> bool| {
            let owners = entries.iter();
            let owners = owners.filter(|entry| owns(&entry["fieldsV1"]["f:status"]));
            let mut owners = owners.peekable();
            owners.peek().is_some() && owners.all(|entry| entry["manager"] == own_name)
        };
        Self {
            load_balancer: is_own(|status| !status["f:loadBalancer"]["f:ingress"].is_null()),
            valid: is_own(owns_valid),
            summary: is_own(|status| !status["f:currentStatus"].is_null())
                && is_own(|status| !status["f:description"].is_null()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shared_and_foreign_parts_are_not_own() {
        let ours = field_manager(CONTROLLER_NAME, DEFAULT_NAMESPACE);
        let valid = || json!({".": {}, r#"k:{"type":"Valid"}"#: {".": {}}});
        let entry = |manager: &str, status: Value| json!({"manager": manager, "fieldsV1": {"f:status": status}});
        let all = json!({"f:conditions": valid(), "f:currentStatus": {}, "f:description": {},
            "f:loadBalancer": {"f:ingress": {}}});
        let whole = OwnStatus {
            load_balancer: true,
            valid: true,
            summary: true,
        };
        let found = |entries: &[Value]| OwnStatus::of(&json!(entries), &ours);
        assert_eq!(found(&[entry(&ours, all.clone())]), whole);
        let other = entry("contour", json!({"f:conditions": valid()}));
        let without_valid = OwnStatus {
            valid: false,
            ..whole
        };
        assert_eq!(found(&[entry(&ours, all.clone()), other]), without_valid);
        assert_eq!(
            found(&[entry("contour", all.clone())]),
            OwnStatus::default()
        );
        assert_eq!(
            found(&[entry(
                &field_manager("example.com/b", DEFAULT_NAMESPACE),
                all
            )]),
            OwnStatus::default()
        );
        assert_eq!(found(&[]), OwnStatus::default());
        assert_eq!(OwnStatus::of(&Value::Null, &ours), OwnStatus::default());
    }

    #[test]
    fn field_manager_is_specific_to_the_installation() {
        let other = field_manager("example.com/a", DEFAULT_NAMESPACE);
        assert_ne!(other, field_manager(CONTROLLER_NAME, DEFAULT_NAMESPACE));
        assert_ne!(other, field_manager("example.com/b", DEFAULT_NAMESPACE));
        assert_ne!(other, field_manager("example.com/a", "elsewhere"));
        let second = field_manager(CONTROLLER_NAME, "elsewhere");
        assert_ne!(second, field_manager(CONTROLLER_NAME, DEFAULT_NAMESPACE));
        assert!(field_manager(&"x".repeat(253), DEFAULT_NAMESPACE).len() <= 128);
    }
}
