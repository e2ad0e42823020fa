//! AccessPolicies with passwords and API keys.

use sesame_proto::keys::KeyPair;
use sesame_proto::salts::{SaltKey, without_salt};
use sesame_proto::schema::CredentialSet;
use sesame_proto::schema::shared_filter::Kind as Shared;

use super::access_policies::{conditions, policy};
use super::traffic_policies::{SCOPES, first, is_refused, served, served_with};
use crate::Options;

const SECRETS: &str = "---
kind: Secret
metadata: {name: users, namespace: web}
type: Opaque
stringData:
  .htpasswd: |
    bob:{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=
    ann:{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=
  wrong: ann:$2y$05$hush
  costly: ann:$2y$13$abcdefghijklmnopqrstuuA0vov2GDneHB3.8.cv9UF9g.RdvScIW
---
kind: Secret
metadata: {name: keys, namespace: web}
stringData: {app: \"hush-1\\n\", till: hush-2}
---
kind: Secret
metadata: {name: same, namespace: web}
stringData: {a: hush, b: hush}
---
kind: Secret
metadata: {name: lines, namespace: web}
stringData: {a: \"hush\\nhush\"}
---
kind: Secret
metadata: {name: tls, namespace: web}
type: kubernetes.io/tls
stringData: {tls.key: hush}
";

const BASIC: &str = ", basicAuth: {users: {name: users}, usernameHeader: X-User}";

fn keys(more: &str) -> String {
    format!(", apiKeyAuth: {{credentials: [{{name: keys}}]{more}}}")
}

#[test]
fn invalid_credentials_refuse_requests() {
    let basic = |spec: &str| format!(", basicAuth: {{{spec}}}");
    let key = |spec: &str| format!(", apiKeyAuth: {{{spec}}}");
    for (spec, why) in [
        (
            basic("users: {name: none}"),
            "Secret web/none does not exist",
        ),
        (basic("users: {name: tls}"), "Secret web/tls has type"),
        (
            basic("users: {name: users, key: x}"),
            "Secret web/users has no \"x\"",
        ),
        (
            basic("users: {name: users, key: wrong}"),
            "user \"ann\": expected a digest as `htpasswd",
        ),
        (
            basic("users: {name: users, key: costly}"),
            "user \"ann\": bcrypt with cost 13; 4 to 12 are allowed",
        ),
        (
            basic("users: {name: users}, usernameHeader: user"),
            "usernameHeader \"user\" is not allowed",
        ),
        (key("credentials: []"), "apiKeyAuth.credentials has 0"),
        (
            key("credentials: [{name: same}]"),
            "clients \"a\" and \"b\" have the same key",
        ),
        (
            key("credentials: [{name: lines}]"),
            "Secret web/lines: the key of client \"a\" has several lines",
        ),
        (
            key("credentials: [{name: keys}, {name: keys}]"),
            "client \"app\" is also in another Secret",
        ),
        (
            keys(", sources: [{header: a, cookie: b}]"),
            "sources[0]: expected exactly one of",
        ),
        (keys(", sources: [{header: a b}]"), "sources[0].header"),
        (
            keys(", clientHeader: X-Api-Key"),
            "clientHeader \"x-api-key\" is also one of the sources",
        ),
        (
            keys(", clientHeader: x-forwarded-for"),
            "clientHeader \"x-forwarded-for\" is not allowed",
        ),
    ] {
        let resolution = served(&(policy("p", SCOPES[1], &spec) + SECRETS));
        assert!(is_refused(&resolution), "{spec}");
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains(why), "{message}");
        assert!(!message.contains("hush"), "{message}");
    }
}

#[test]
fn checks_of_all_policies_form_one_set() {
    let all = policy("all", SCOPES[3], BASIC);
    let own = policy("own", SCOPES[1], &keys(""));
    let resolution = served(&(all + &own + SECRETS));
    let gateway = &resolution.gateways[0];
    let set = "AccessPolicy/web/all/basicAuth,AccessPolicy/web/own/apiKeyAuth";
    let filters = first(&resolution).filters.as_deref().unwrap();
    assert_eq!(filters.credentials, set);
    assert_eq!(filters.reserved_headers, ["x-user"]);
    assert_eq!(filters.token_headers, ["authorization", "x-api-key"]);
    let shared = &gateway.snapshot.shared_filters;
    let checks = |name: &str| {
        let found = shared.iter().find(|it| it.name == name);
        match found.and_then(|it| it.kind.as_ref()) {
            Some(Shared::Credentials(CredentialSet { checks })) => checks.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(checks(set), 2);
    assert_eq!(checks("AccessPolicy/web/all/basicAuth"), 1);
    let names: Vec<&str> = gateway.keys.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, set.split(',').collect::<Vec<_>>());
    let keys = &gateway.snapshot.keys;
    assert!(
        keys.iter()
            .zip(&gateway.keys)
            .all(|(key, pair)| key.digest == pair.digest())
    );
    let encoded = format!("{:?}", gateway.snapshot);
    assert!(!encoded.contains("hush") && !encoded.contains("SHA"));
}

#[test]
fn route_may_be_exempt_from_passwords_alone() {
    let mut spec = BASIC.to_owned() + &keys("");
    spec += ", exemptions: [{kind: HTTPRoute, name: r, parts: [basicAuth]}]";
    let resolution = served(&(policy("all", SCOPES[3], &spec) + SECRETS));
    let filters = first(&resolution).filters.as_deref().unwrap();
    assert_eq!(filters.credentials, "AccessPolicy/web/all/apiKeyAuth");
    assert_eq!(filters.exempt_from, ["AccessPolicy/web/all/basicAuth"]);
}

#[test]
fn exempt_route_keeps_its_own_checks() {
    let exempt = ", exemptions: [{kind: HTTPRoute, name: r, parts: [basicAuth]}]";
    let all = policy("all", SCOPES[3], &(BASIC.to_owned() + exempt));
    let own = policy("own", SCOPES[1], &keys(""));
    let resolution = served(&(all + &own + SECRETS));
    let filters = first(&resolution).filters.as_deref().unwrap();
    assert_eq!(filters.credentials, "AccessPolicy/web/own/apiKeyAuth");
    let shared = &resolution.gateways[0].snapshot.shared_filters;
    assert!(shared.iter().any(|it| it.name == filters.credentials));
}

#[test]
fn credentials_beyond_share_are_dropped_with_their_sets() {
    let users = (0..456).map(|i| format!("    {i:0>250}:{{SHA}}tiY7sUhYKUwI5L3866kDY+ENcrQ=\n"));
    let users = users.collect::<Vec<_>>().concat();
    let secret = format!(
        "---\nkind: Secret\nmetadata: {{name: users, namespace: web}}\ntype: Opaque\nstringData:\n  \
         .htpasswd: |\n{users}"
    );
    let policies = |count: usize| {
        let policies = (0..count).map(|i| policy(&format!("p{i}"), SCOPES[1], BASIC));
        served(&(policies.collect::<String>() + &secret))
    };
    let resolution = policies(60);
    assert_eq!(resolution.gateways[0].keys.len(), 60);
    let resolution = policies(70);
    let gateway = &resolution.gateways[0];
    assert_eq!((gateway.keys.len(), gateway.snapshot.keys.len()), (0, 0));
    assert_eq!(gateway.snapshot.shared_filters, []);
    let filters = first(&resolution).filters.as_deref().unwrap();
    assert_ne!(filters.credentials, "");
    let said = format!("{:?}", resolution.problems);
    assert!(said.contains("its credentials are dropped"), "{said}");
}

#[test]
fn published_digests_cannot_be_guessed_from_credentials() {
    let digests = |salt_key: Option<u8>| {
        let options = Options {
            salt_key: salt_key.map(|byte| SaltKey::new([byte; SaltKey::BYTES])),
            ..Options::default()
        };
        let own = policy("own", SCOPES[1], &keys(""));
        let gateway = served_with(&(own + SECRETS), &options).gateways.remove(0);
        let pair = &gateway.keys[0];
        assert_eq!(gateway.snapshot.keys[0].digest, pair.digest());
        let text = std::str::from_utf8(&pair.private_key).unwrap();
        assert_eq!(without_salt(text), "app:hush-1\ntill:hush-2\n");
        gateway.snapshot.keys[0].digest.clone()
    };
    let guess = KeyPair {
        private_key: b"app:hush-1\ntill:hush-2\n".to_vec(),
        ..KeyPair::default()
    };
    assert_eq!(digests(None), guess.digest());
    assert_ne!(digests(Some(1)), guess.digest());
    assert_eq!(digests(Some(1)), digests(Some(1)));
    assert_ne!(digests(Some(1)), digests(Some(2)));
}
