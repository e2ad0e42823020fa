//! Which unknown fields may protect something: the table.
//!
//! A release of the API that is newer than this one has fields that nobody here has seen. To serve an object without one
//! that authorizes, validates, encrypts or narrows opens what its author closed. So the name decides, and the place: too
//! many are taken for protecting rather than too few. Only what is below `spec` counts: the API has nothing else that is
//! configuration.

use crate::api::FieldPath;

/// Parts of the names of fields that protect, in lower case.
const WORDS: &[&str] = &[
    // Who may.
    "acl",
    "allow",
    "auth",
    "block",
    "cors",
    "credential",
    "csrf",
    "deny",
    "exclud",
    "except",
    "firewall",
    "forbid",
    "jwt",
    "oidc",
    "permission",
    "permit",
    "polic",
    "restrict",
    "token",
    "waf",
    // Of whom, and by what.
    "cert",
    "cipher",
    "crypt",
    "hsts",
    "insecure",
    "password",
    "private",
    "secret",
    "secur",
    "ssl",
    "tls",
    "trust",
    "valid",
    "verif",
    // How much, and where.
    "filter",
    "internal",
    "limit",
    "only",
    "protect",
    "quota",
    "require",
    "routability",
    "scope",
    "selector",
    "tenant",
    // Sessions that must stay apart.
    "cookie",
    "persist",
    "session",
];

/// Fields below which everything protects: what is left out of them opens more than it says.
const PLACES: &[&str] = &[
    "allowedListeners",
    "allowedRoutes",
    "cors",
    "externalAuth",
    "filters",
    "from",
    "matches",
    "parentRef",
    "parentRefs",
    "sessionPersistence",
    "targetRefs",
    "tls",
    "to",
    "validation",
];

/// Whether the unknown field at this path may protect something; `similar` is the field that was perhaps meant.
pub(super) fn is_protecting(path: &FieldPath, similar: Option<&str>) -> bool {
    let mut fields = path.fields();
    if fields.next() != Some("spec") {
        return false;
    }
    let fields: Vec<&str> = fields.collect();
    let Some((own, above)) = fields.split_last() else {
        return false;
    };
    let named = |name: &str| {
        let name = name.to_lowercase();
        WORDS.iter().any(|word| name.contains(word))
            || PLACES.iter().any(|place| name == place.to_lowercase())
    };
    named(own) || similar.is_some_and(named) || above.iter().any(|name| PLACES.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Step;

    fn path(text: &str) -> FieldPath {
        FieldPath(
            text.split('.')
                .map(|name| Step::Field(name.into()))
                .collect(),
        )
    }

    #[test]
    fn names_and_places() {
        for protects in [
            "spec.listeners.filters",
            "spec.listeners.filtersV2",
            "spec.listeners.tls.minVersion",
            "spec.tls.frontend.default.validation.crl",
            "spec.addresses.routability",
            "spec.rules.externalAuthorization",
            "spec.rules.rateLimit",
            "spec.rules.sessionAffinity",
            "spec.rules.sessionPersistence.cookie",
            "spec.rules.filters.jwt",
            "spec.rules.filters.requestMirror.zone",
            "spec.rules.matches.sourceIP",
            "spec.rules.backendRefs.tls",
            "spec.validation.subject",
            "spec.from.labels",
            "spec.clientValidation",
        ] {
            assert!(is_protecting(&path(protects), None), "{protects}");
        }
        for harmless in [
            "spec.rules.zone",
            "spec.rules.retry.jitter",
            "spec.rules.backendRefs.zone",
            "spec.listeners.description",
            "spec.infrastructure.replicas",
            "spec.rules.timeouts.idle",
            "x-tls",
            "filters",
        ] {
            assert!(!is_protecting(&path(harmless), None), "{harmless}");
        }
        assert!(is_protecting(&path("spec.listeners.tsl"), Some("tls")));
        assert!(is_protecting(&path("spec.rules.mathces"), Some("matches")));
        assert!(!is_protecting(
            &path("spec.rules.backendRef"),
            Some("backendRefs")
        ));
    }
}
