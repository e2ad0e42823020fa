//! Annotations of other controllers' objects, and what becomes of them in copies.

use serde_json::{Map, Value};
use sesame_kinds::api::{ALLOW_HTTP, CONTOUR_PREFIX, FORCE_SSL_REDIRECT, NGINX_PREFIX};

use super::copies::{CLASS_ANNOTATIONS, text};

/// The resolver reads these, or reports that it does not.
const COPIED_PREFIXES: [&str; 3] = [CONTOUR_PREFIX, NGINX_PREFIX, "projectsesame.io/"];
const COPIED: [&str; 2] = [ALLOW_HTTP, FORCE_SSL_REDIRECT];
/// Domains of annotations that do not affect requests. Copying them would make other programs act
/// on the copies.
const HARMLESS_DOMAINS: [&str; 7] = [
    "app.kubernetes.io",
    "argocd.argoproj.io",
    "cert-manager.io",
    "external-dns.alpha.kubernetes.io",
    "helm.sh",
    "kubectl.kubernetes.io",
    "meta.helm.sh",
];
const TLS_ACME: &str = "kubernetes.io/tls-acme";
const SERVER_ALIAS: &str = "nginx.ingress.kubernetes.io/server-alias";
const CANARY: &str = "nginx.ingress.kubernetes.io/canary";

fn is_copied(name: &str) -> bool {
    let has_prefix = COPIED_PREFIXES.iter().any(|it| name.starts_with(it));
    (has_prefix || COPIED.contains(&name)) && !CLASS_ANNOTATIONS.contains(&name)
}

fn is_harmless(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |of: &&str| {
        let rest = domain.strip_suffix(*of);
        rest.is_some_and(|it| it.is_empty() || it.ends_with('.'))
    };
    name == TLS_ACME || HARMLESS_DOMAINS.iter().any(is_of)
}

fn all(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let annotations = object["metadata"]["annotations"].as_object();
    annotations.into_iter().flatten()
}

/// Returns the annotations of the copy for `host`.
pub(super) fn copied(object: &Value, host: &str) -> Map<String, Value> {
    let rules = super::copies::items(object, "/spec/rules").iter();
    let mut hosts = rules.map(|it| text(it, "/host"));
    let first = hosts.find(|it| !it.is_empty());
    // Like the resolver, which applies aliases to the first host only.
    let has_aliases = first.is_none_or(|it| it.eq_ignore_ascii_case(host));
    all(object)
        .filter(|(name, _)| is_copied(name) && (has_aliases || *name != SERVER_ALIAS))
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect()
}

/// Returns the Ingress's annotations that may affect requests, but that no copy has.
pub(super) fn unread(object: &Value) -> impl Iterator<Item = &str> {
    let is_ingress = text(object, "/kind") == "Ingress";
    let names = all(object).map(|(name, _)| name.as_str());
    names.filter(move |name| {
        let is_known = is_copied(name) || CLASS_ANNOTATIONS.contains(name) || is_harmless(name);
        is_ingress && !is_known
    })
}

pub(super) fn is_canary(object: &Value) -> bool {
    let value = object["metadata"]["annotations"][CANARY].as_str();
    value.is_some_and(|it| ["1", "t", "true"].contains(&&*it.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unread_annotations_may_protect() {
        for (name, expected) in [
            ("konghq.com/plugins", true),
            ("nginx.org/basic-auth-secret", true),
            ("haproxy.org/allow-list", true),
            ("traefik.ingress.kubernetes.io/router.middlewares", true),
            ("ingress.kubernetes.io/whitelist-source-range", true),
            ("notcert-manager.io/x", true),
            ("owner", true),
            ("ingress.kubernetes.io/force-ssl-redirect", false),
            ("kubernetes.io/ingress.allow-http", false),
            ("kubernetes.io/ingress.class", false),
            ("nginx.ingress.kubernetes.io/auth-url", false),
            ("acme.cert-manager.io/http01-edit-in-place", false),
            ("cert-manager.io/issuer", false),
            ("kubectl.kubernetes.io/last-applied-configuration", false),
        ] {
            let object = json!({"kind": "Ingress", "metadata": {"annotations": {name: "x"}}});
            assert_eq!(unread(&object).next().is_some(), expected, "{name}");
        }
    }

    #[test]
    fn only_first_host_keeps_aliases() {
        let object = json!({"metadata": {"annotations": {SERVER_ALIAS: "c.test", ALLOW_HTTP: "false"}},
            "spec": {"rules": [{}, {"host": "A.test"}, {"host": "b.test"}]}});
        for (host, expected) in [("a.test", 2), ("b.test", 1), ("", 1)] {
            assert_eq!(copied(&object, host).len(), expected, "{host}");
        }
    }
}
