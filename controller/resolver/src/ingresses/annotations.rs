//! Annotations on Ingresses, both Sesame's and other controllers'.

use super::contour;
use super::nginx::{self, NginxSettings};
use crate::context::Problems;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::api::{
    ALLOW_HTTP, FORCE_SSL_REDIRECT, FOREIGN_ANNOTATIONS, IngressSpec, Metadata,
};
use sesame_kinds::world::ObjectKey;

/// An annotation might be security-relevant if its name contains one of these strings.
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

/// Exceptions to `PROTECTING`.
const HARMLESS: [&str; 3] = [
    "nginx.ingress.kubernetes.io/cors-",
    "nginx.ingress.kubernetes.io/limit-rate",
    "nginx.ingress.kubernetes.io/session-cookie-",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainHttp {
    Served,
    /// Status of the redirect.
    Redirected(u32),
    Refused,
}

impl PlainHttp {
    pub(super) fn of(
        metadata: &Metadata,
        nginx: Option<&NginxSettings>,
        (spec, host): (&IngressSpec, &Hostname),
    ) -> Self {
        let is = |name: &str, value: &str| metadata.annotations.get(name) == Some(value);
        if is(FORCE_SSL_REDIRECT, "true") {
            Self::Redirected(301)
        } else if is(ALLOW_HTTP, "false") {
            Self::Refused
        } else {
            nginx.map_or(Self::Served, |nginx| nginx.plain_http(spec, host))
        }
    }
}

/// Returns the reason if the Ingress must not be served.
pub(super) fn withheld(metadata: &Metadata, nginx: Option<&NginxSettings>) -> Option<String> {
    let protecting = of_others(metadata, nginx).filter(|name| protects(name));
    let names: Vec<&str> = protecting.collect();
    if names.is_empty() {
        let invalid = nginx.filter(|nginx| !nginx.withheld.is_empty());
        let invalid = invalid.map(|nginx| nginx.withheld.join("; "));
        return invalid.or_else(|| contour::tls_fault(metadata));
    }
    Some(format!(
        "unsupported metadata.annotations that may be security-relevant: {}; remove them, and \
        protect the application by other means",
        names.join(", ")
    ))
}

pub(super) fn report(
    object: &ObjectKey,
    metadata: &Metadata,
    nginx: Option<&NginxSettings>,
    problems: &mut Problems,
) {
    for note in nginx.iter().flat_map(|nginx| &nginx.notes) {
        problems.add(object.clone(), note.clone());
    }
    let names = of_others(metadata, nginx).filter(|name| !protects(name));
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        let message = format!(
            "unsupported metadata.annotations that have no effect: {}",
            names.join(", ")
        );
        problems.add(object.clone(), message);
    }
}

fn of_others<'m>(
    metadata: &'m Metadata,
    nginx: Option<&NginxSettings>,
) -> impl Iterator<Item = &'m str> {
    let names = metadata.annotations.iter().map(|(name, _)| name);
    let reads_nginx = nginx.is_some();
    names.filter(move |name| {
        FOREIGN_ANNOTATIONS
            .iter()
            .any(|(of, _)| name.starts_with(of))
            && !contour::is_known(name)
            && !(reads_nginx && nginx::is_known(name))
    })
}

fn protects(name: &str) -> bool {
    nginx::guards(name) || looks_protecting(name)
}

pub(super) fn looks_protecting(name: &str) -> bool {
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
    fn protecting_annotations_are_recognized() {
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
