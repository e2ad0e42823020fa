//! Tokens (JWT) that HTTPProxies require: invalid providers, and copies of key sets.

use super::http_proxies::{errors, proxy, send, with};
use super::http_proxy_services::authorities;
use super::ingresses::CLASS;
use super::tls::{certificate, secret};
use super::{HTTP, gateway, world};
use crate::policies::key_sets::RemoteKeySets;
use crate::{Options, Resolution};

const ROUTES: &str = "
routes:
- {services: [{name: a, port: 80}]}
- {conditions: [{prefix: /open}], jwtVerificationPolicy: {disabled: true}, services: [{name: a, port: 80}]}
";

fn host(name: &str, fqdn: &str, providers: &str) -> String {
    let host = format!("fqdn: {fqdn}, tls: {{secretName: s}}, jwtProviders: [{providers}]");
    proxy(name, &format!("virtualhost: {{{host}}}{ROUTES}"))
}

fn resolved(providers: &str) -> Resolution {
    let pem = certificate(&["h.test"]);
    let keys = "---\nkind: Secret\ntype: Opaque\nmetadata: {name: keys, namespace: web}\nstringData: {broken: x}\n";
    with(&[
        secret("web", "s", &pem.certificate, &pem.key),
        authorities("web", "ca", "Opaque"),
        authorities("certs", "ca", "Opaque"),
        keys.to_owned(),
        host("r", "h.test", providers),
    ])
}

#[test]
fn faulty_provider_withholds_routes_that_need_it() {
    let remote = |fields: &str| {
        format!("{{name: j, default: true, remoteJWKS: {{uri: 'https://i.test/k', {fields}}}}}")
    };
    let at = |uri: &str| format!("{{name: j, default: true, remoteJWKS: {{uri: '{uri}'}}}}");
    let local = |secret: &str, key: &str| {
        format!("{{name: j, default: true, localJWKS: {{secretName: {secret}, key: {key}}}}}")
    };
    let verified = |secret: &str, name: &str| {
        remote(&format!(
            "validation: {{caSecret: {secret}, subjectName: {name}}}"
        ))
    };
    let both = "remoteJWKS: {uri: 'https://i.test/k'}, localJWKS: {secretName: keys, key: x}";
    for (providers, reason) in [
        ("{name: j, default: true}".to_owned(), "JWKSSourceMissing"),
        (
            format!("{{name: j, default: true, {both}}}"),
            "JWKSSourceConflict",
        ),
        (
            "{name: j, default: true}, {name: k, default: true}".to_owned(),
            "MultipleDefaultProvidersSpecified",
        ),
        (
            "{name: j, default: true}, {name: j}".to_owned(),
            "DuplicateProviderName",
        ),
        (at(""), "RemoteJWKSURIInvalid"),
        (at("i.test/k"), "RemoteJWKSURIInvalid"),
        (at("http://i.test/k"), "RemoteJWKSSchemeInvalid"),
        (at("https://i.test:65536/k"), "RemoteJWKSPortInvalid"),
        (at("https://i.test:0/k"), "RemoteJWKSPortInvalid"),
        (at("https://i.test/k"), "RemoteJWKSUnavailable"),
        (remote("timeout: soon"), "RemoteJWKSTimeoutInvalid"),
        (
            remote("cacheDuration: -1s"),
            "RemoteJWKSCacheDurationInvalid",
        ),
        (
            remote("dnsLookupFamily: v5"),
            "RemoteJWKSDNSLookupFamilyInvalid",
        ),
        (
            verified("ca", "o.test"),
            "RemoteJWKSUpstreamValidationInvalid",
        ),
        (
            verified("gone", "i.test"),
            "RemoteJWKSUpstreamValidationInvalid",
        ),
        (
            verified("certs/ca", "i.test"),
            "RemoteJWKSCACertificateNotDelegated",
        ),
        (verified("ca", "i.test"), "RemoteJWKSUnavailable"),
        (local("gone", "jwks"), "LocalJWKSInvalid"),
        // The Secret has another type.
        (local("s", "tls.crt"), "LocalJWKSInvalid"),
        (local("keys", "gone"), "LocalJWKSInvalid"),
        (local("keys", "broken"), "LocalJWKSInvalid"),
    ] {
        let resolution = resolved(&providers);
        assert_eq!(send(&resolution, 443, "/", &[]), "500", "{providers}");
        let open = send(&resolution, 443, "/open", &[]);
        assert_eq!(open, "web/a/80", "{providers}");
        let found = errors(&resolution, "r");
        let expected = format!("JWTVerificationError/{reason}");
        assert!(
            !found.is_empty() && found.iter().all(|it| *it == expected),
            "{providers}: {found:?}"
        );
    }
}

#[test]
fn copies_differ_by_uri_and_authority() {
    let of = |uri: &str, authority: &str| {
        let validation = format!(", validation: {{caSecret: {authority}, subjectName: i.test}}");
        let validation = Some(validation).filter(|_| !authority.is_empty());
        let validation = validation.unwrap_or_default();
        format!("{{name: j, remoteJWKS: {{uri: '{uri}'{validation}}}}}")
    };
    let providers = [
        of("https://i.test/k", ""),
        of("https://i.test:8443/k", ""),
        of("https://i.test/k", "one"),
        of("https://i.test/k", "two"),
        // The same copy as the first.
        of("https://i.test/k", ""),
    ];
    let hosts = providers.iter().enumerate();
    let hosts = hosts.map(|(i, it)| host(&format!("r{i}"), &format!("h{i}.test"), it));
    let secrets = ["one", "two"].map(|name| authorities("web", name, "Opaque"));
    let all = [
        gateway(HTTP),
        CLASS.to_owned(),
        secrets.concat(),
        hosts.collect(),
    ];
    let world = world(&all.concat());
    let options = Options::default();
    let requests = RemoteKeySets::of(&world, &options).requests();
    let found: Vec<String> = requests.values().map(|it| format!("{it:?}")).collect();
    assert_eq!(found.len(), 4, "{found:?}");
    for (i, request) in found.iter().enumerate() {
        assert!(
            !found.iter().take(i).any(|before| before == request),
            "{request}"
        );
    }
}
