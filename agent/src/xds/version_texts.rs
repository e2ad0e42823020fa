//! Versions that Envoy reports as accepted, by subscription.

use std::collections::HashMap;

use super::Subscription;

/// Accepted versions for one Envoy's subscriptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionTexts {
    pub(crate) by_scope: HashMap<String, String>,
}

impl VersionTexts {
    /// Returns the accepted version, which is empty if nothing has been accepted yet. Returns
    /// `None` if Envoy has no such subscription. If a subscription has several statistics, prefers
    /// one that reports `wanted`.
    pub fn of(&self, subscription: &Subscription, wanted: &str) -> Option<&str> {
        if let Some(scope) = subscription.stat_scope() {
            return self.by_scope.get(&scope).map(String::as_str);
        }
        let mut found = None;
        for (scope, version) in &self.by_scope {
            if subscription.owns_stat(scope) {
                found = Some(version.as_str());
                if version == wanted {
                    break;
                }
            }
        }
        found
    }
}
