//! Decides whether an unknown field might be security-relevant.
//!
//! Newer API releases may add fields that this version does not know. Ignoring a field that
//! restricts access would expose the resource. If in doubt, treats fields in `spec` as
//! security-relevant. Fields outside `spec` are always harmless.

use crate::api::FieldPath;

/// Lower-case substrings of security-relevant field names.
const WORDS: &[&str] = &[
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
    // Ignoring these fields could make clients share sessions.
    "cookie",
    "persist",
    "session",
];

/// Ignoring an unknown field within these fields could grant more access than intended.
const PLACES: &[&str] = &[
    "allowedListeners",
    "allowedRoutes",
    "conditions",
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

/// `similar` is the known field that the author probably meant.
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
    use crate::api::PathStep;

    fn path(text: &str) -> FieldPath {
        FieldPath(
            text.split('.')
                .map(|name| PathStep::Field(name.into()))
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
            "spec.routes.conditions.queryParam",
            "spec.includes.conditions.queryParam",
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
