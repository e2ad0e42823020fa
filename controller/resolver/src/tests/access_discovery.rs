//! Logins at OpenID providers whose endpoints are discovered.

use std::collections::BTreeMap;

use sesame_proto::key_sets::{FetchedDocument, KeySetCopy};
use sesame_proto::schema::{OidcLogin, external_auth::Protocol};

use super::access_policies::{conditions, policy};
use super::traffic_policies::{SCOPES, first, is_refused, served};
use super::world;
use crate::{Options, RemoteKeySets, Resolution};

const ISSUER: &str = "https://id.test/realm";
const URI: &str = "https://id.test/realm/.well-known/openid-configuration";

/// A verified Service.
const SERVICE: &str = "---
kind: Service
metadata: {name: id, namespace: web}
spec: {ports: [{port: 443}]}
---
kind: BackendTLSPolicy
metadata: {name: id, namespace: web}
spec:
  targetRefs: [{group: '', kind: Service, name: id}]
  validation: {wellKnownCACertificates: System, hostname: id.test}
---
kind: Secret
metadata: {name: client, namespace: web}
stringData: {client-secret: hush-hush-hush-hush}
";

fn login(provider: &str) -> String {
    let spec = format!(
        ", oidc: {{provider: {{{provider}, backendRef: {{name: id, port: 443}}}}, clientID: shop, \
         clientSecret: {{name: client}}, hostnames: [a.test]}}"
    );
    policy("p", SCOPES[1], &spec) + SERVICE
}

fn found(resolution: &Resolution) -> Option<&OidcLogin> {
    let auths = first(resolution).external_auth.iter();
    let mut logins = auths.filter_map(|auth| match &auth.protocol {
        Some(Protocol::Oidc(login)) => Some(login),
        _ => None,
    });
    logins.next()
}

/// Returns the name of the copy, or `None` if nothing is fetched.
fn requested(yaml: &str) -> Option<String> {
    let (world, options) = (world(yaml), Options::default());
    let requests = RemoteKeySets::of(&world, &options).requests();
    let (name, request) = requests.into_iter().next()?;
    assert_eq!(request.uri, URI);
    assert_eq!(
        request.document,
        FetchedDocument::Provider(ISSUER.to_owned())
    );
    Some(name)
}

fn copy(name: &str, document: &str, error: &str) -> String {
    let copy = KeySetCopy {
        uri: URI.to_owned(),
        jwks: document.to_owned(),
        fetched_at: "2026-01-01T00:00:00Z".to_owned(),
        error: error.to_owned(),
    };
    let data: BTreeMap<String, String> = copy.to_data();
    let data = serde_json::to_string(&data).expect("text");
    format!(
        "---\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: sesame-system}}\ndata: {data}\n"
    )
}

fn document(issuer: &str) -> String {
    format!(
        r#"{{"issuer": "{issuer}", "authorization_endpoint": "https://id.test/auth", "token_endpoint": "https://id.test/token", "end_session_endpoint": "https://id.test/end"}}"#
    )
}

#[test]
fn unset_endpoints_come_from_the_document() {
    for (own, authorization) in [
        ("", "https://id.test/auth"),
        (
            ", authorizationEndpoint: 'https://own.test/auth'",
            "https://own.test/auth",
        ),
    ] {
        let policy = login(&format!("issuer: '{ISSUER}'{own}"));
        let name = requested(&policy).expect("a request");
        let resolution = served(&(policy + &copy(&name, &document(ISSUER), "")));
        let login = found(&resolution).expect("a login");
        assert_eq!(login.authorization_endpoint, authorization);
        assert_eq!(login.token_endpoint, "https://id.test/token");
        assert_eq!(login.end_session_endpoint, "https://id.test/end");
    }
}

#[test]
fn explicit_endpoints_need_no_document() {
    let own = "authorizationEndpoint: 'https://own.test/auth', tokenEndpoint: \
               'https://own.test/token'";
    let policy = login(&format!("issuer: '{ISSUER}', {own}"));
    assert_eq!(requested(&policy), None);
    let resolution = served(&policy);
    let login = found(&resolution).expect("a login");
    assert_eq!(login.token_endpoint, "https://own.test/token");
    assert_eq!(login.end_session_endpoint, "");
}

#[test]
fn last_good_document_survives_failed_fetches() {
    let policy = login(&format!("issuer: '{ISSUER}'"));
    let name = requested(&policy).expect("a request");
    let resolution = served(&(policy + &copy(&name, &document(ISSUER), "no route")));
    assert!(found(&resolution).is_some());
    let message = &conditions(&resolution, "p")[0].message;
    assert!(
        message.contains("fetching now fails: no route"),
        "{message}"
    );
}

#[test]
fn missing_or_foreign_document_refuses_requests() {
    let policy = login(&format!("issuer: '{ISSUER}'"));
    let name = requested(&policy).expect("a request");
    for (copy, why) in [
        (String::new(), "has not been fetched yet"),
        (copy(&name, "", "refused"), "cannot be fetched: refused"),
        (
            copy(&name, &document("https://evil.test"), ""),
            "names another issuer",
        ),
        (
            copy(&name, "{}", ""),
            "is not an OpenID provider's configuration",
        ),
        (
            copy(
                &name,
                &document(ISSUER).replace("https://id.test/token", "http://id.test/token"),
                "",
            ),
            "invalid token_endpoint",
        ),
    ] {
        let resolution = served(&(policy.clone() + &copy));
        assert!(is_refused(&resolution), "{why}");
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains(why), "{message}");
    }
    for (provider, why) in [
        (
            "authorizationEndpoint: 'https://id.test/auth'",
            "tokenEndpoint is missing; set it, or issuer",
        ),
        (
            "issuer: 'http://id.test'",
            "issuer \"http://id.test\" is not valid; expected an absolute https URI",
        ),
        ("issuer: 'https://id.test?a=b'", "no query"),
        (
            "issuer: 'https://me@id.test'",
            "must not contain credentials",
        ),
    ] {
        let resolution = served(&login(provider));
        assert!(is_refused(&resolution), "{why}");
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn issuers_with_same_document_have_separate_copies() {
    let other = login(&format!("issuer: '{ISSUER}/'")).replace("namespace: web", "namespace: aaa");
    let both = world(&(login(&format!("issuer: '{ISSUER}'")) + &other));
    let options = Options::default();
    let requests = RemoteKeySets::of(&both, &options).requests();
    for issuer in [ISSUER.to_owned(), format!("{ISSUER}/")] {
        let document = FetchedDocument::Provider(issuer);
        assert!(requests.values().any(|it| it.document == document));
    }
}
