//! Annotations on an Ingress, for Sesame and for other controllers.

use super::contour;
use crate::api::{ALLOW_HTTP, FORCE_SSL_REDIRECT, Metadata, OF_OTHERS};
use crate::resolve::context::Problems;
use crate::world::ObjectKey;

/// Words that occur in the names of security-relevant annotations.
const PROTECTING: [&str; 11] = [
    "allow",
    "auth",
    "deny",
    "limit",
    "modsecurity",
    "satisfy",
    "secure",
    "snippet",
    "tls-",
    "verify",
    "whitelist",
];

/// Annotations that contain such a word but are not security-relevant.
const HARMLESS: [&str; 3] = [
    "nginx.ingress.kubernetes.io/cors-",
    "nginx.ingress.kubernetes.io/limit-rate",
    "nginx.ingress.kubernetes.io/session-cookie-",
];

/// How plaintext requests of an Ingress are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainHttp {
    /// Served, as the API specifies.
    Served,
    /// Redirected to HTTPS.
    Redirected,
    /// Not served.
    Refused,
}

impl PlainHttp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let is = |name: &str, value: &str| metadata.annotations.get(name) == Some(value);
        if is(FORCE_SSL_REDIRECT, "true") {
            Self::Redirected
        } else if is(ALLOW_HTTP, "false") {
            Self::Refused
        } else {
            Self::Served
        }
    }
}

/// Returns an error if no request of the Ingress may be served, because annotations that might be
/// security-relevant have no effect.
pub(super) fn withheld(metadata: &Metadata) -> Option<String> {
    let protecting = of_others(metadata).filter(|name| protects(name));
    let names: Vec<&str> = protecting.collect();
    if names.is_empty() {
        return contour::tls_fault(metadata);
    }
    Some(format!(
        "metadata.annotations {} may be security-relevant and are not supported; remove them, \
         and protect the application otherwise",
        names.join(", ")
    ))
}

/// Reports annotations without effect as a problem.
pub(super) fn tell(object: &ObjectKey, metadata: &Metadata, problems: &mut Problems) {
    let names: Vec<&str> = of_others(metadata).filter(|name| !protects(name)).collect();
    if !names.is_empty() {
        let message = format!(
            "metadata.annotations {} are not supported and have no effect",
            names.join(", ")
        );
        problems.add(object.clone(), message);
    }
}

/// Returns the names of the annotations for other controllers that Sesame does not read.
fn of_others(metadata: &Metadata) -> impl Iterator<Item = &str> {
    let names = metadata.annotations.iter().map(|(name, _)| name);
    names.filter(|name| {
        OF_OTHERS.iter().any(|prefix| name.starts_with(prefix)) && !contour::is_known(name)
    })
}

fn protects(name: &str) -> bool {
    let word = name.split_once('/').map_or(name, |(_, word)| word);
    PROTECTING
        .iter()
        .any(|protecting| word.contains(protecting))
        && !HARMLESS.iter().any(|harmless| name.starts_with(harmless))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protecting_annotations_are_told_from_others() {
        for (name, protecting) in [
            ("nginx.ingress.kubernetes.io/auth-url", true),
            ("nginx.ingress.kubernetes.io/whitelist-source-range", true),
            ("nginx.ingress.kubernetes.io/server-snippet", true),
            ("nginx.ingress.kubernetes.io/rewrite-target", false),
            ("nginx.ingress.kubernetes.io/cors-allow-origin", false),
            ("projectcontour.io/authority", true),
            ("projectcontour.io/odd", false),
        ] {
            assert_eq!(protects(name), protecting, "{name}");
        }
    }
}
