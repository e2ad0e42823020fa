//! The versions that Envoy reports as accepted, by subscription.

use std::collections::HashMap;

use super::Subscription;

/// The versions that one Envoy reports as accepted, by subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionTexts {
    /// Versions by the statistic's name without `.version_text`.
    /// A version is empty if Envoy has not accepted any.
    pub by_scope: HashMap<String, String>,
}

impl VersionTexts {
    /// Returns the accepted version, empty if Envoy has not accepted any, or `None` without a
    /// subscription. If several statistics match, prefers one that reports `wanted`.
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
