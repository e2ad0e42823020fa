//! AccessPolicies with logins.

use sesame_proto::schema::oidc_login::Token;
use sesame_proto::schema::{ExternalAuth, OidcLogin, external_auth::Protocol};

use super::access_policies::{conditions, policy};
use super::access_reports::reported;
use super::traffic_policies::{SCOPES, first, is_refused, served};
use crate::Resolution;
use sesame_kinds::status::Reason;

const SECRETS: &str = "---
kind: Secret
metadata: {name: client, namespace: web}
stringData: {client-secret: \"hush-hush-hush-hush\\n\", hmac-secret: hush-hush-hush-hush-2, other: x}
---
kind: Secret
metadata: {name: short, namespace: web}
stringData: {client-secret: hush}
---
kind: Secret
metadata: {name: empty, namespace: web}
stringData: {other: hush}
---
kind: Service
metadata: {name: id, namespace: web}
spec: {ports: [{port: 80}]}
";

const PROVIDER: &str = "authorizationEndpoint: 'https://id.test/auth', tokenEndpoint: \
                        'http://id.test/token', backendRef: {name: id, port: 80}";

fn login(more: &str) -> String {
    let own = |field: &str, default: &str| {
        if more.contains(field) {
            String::new()
        } else {
            format!(", {field}: {default}")
        }
    };
    let provider = own("provider", &format!("{{{PROVIDER}}}"));
    let client = own("clientID", "shop") + &own("clientSecret", "{name: client}");
    let hosts = own("hostnames", "[a.test]");
    format!(
        ", oidc: {{{more}{}}}",
        (provider + &client + &hosts).trim_start_matches(", ")
    )
}

fn logins(resolution: &Resolution) -> Vec<(&ExternalAuth, &OidcLogin)> {
    let auths = first(resolution).external_auth.iter();
    let logins = auths.filter_map(|auth| match &auth.protocol {
        Some(Protocol::Oidc(login)) => Some((auth, login)),
        _ => None,
    });
    logins.collect()
}

#[test]
fn invalid_login_refuses_requests() {
    let provider = |text: &str| login(&format!("provider: {{{text}}}, "));
    let with = |text: &str| login(&format!("{text}, "));
    for (spec, why) in [
        (
            with("clientSecret: {name: none}"),
            "Secret web/none does not exist",
        ),
        (with("clientSecret: {name: empty}"), "no credentials"),
        (
            with("clientSecret: {name: short}"),
            "\"client-secret\" has 4 bytes; expected at least 16",
        ),
        (
            with("clientID: 'a b'"),
            "clientID \"a b\": expected visible",
        ),
        (with("hostnames: []"), "hostnames has 0 entries; 1 to 16"),
        (
            with("hostnames: [A.test]"),
            "hostnames \"A.test\" is not valid",
        ),
        (with("hostnames: ['*']"), "hostnames \"*\" is not valid"),
        (with("scopes: ['a b']"), "scopes \"a b\" is not a scope"),
        (
            with("redirectPath: /a%b"),
            "redirectPath \"/a%b\" is not valid",
        ),
        (
            with("redirectPath: /logout"),
            "logoutPath is also redirectPath",
        ),
        (with("apiPaths: [api]"), "apiPaths[0] \"api\" is not valid"),
        (
            with("forwardToken: None"),
            "forwardToken \"None\" is unknown; expected AccessToken or IDToken",
        ),
        (
            login("forwardToken: IDToken, "),
            "forwardToken IDToken needs refresh: false",
        ),
        (
            provider(&PROVIDER.replace("https://id.test/auth", "/auth")),
            "provider.authorizationEndpoint \"/auth\" is not valid",
        ),
        (
            provider(&PROVIDER.replace("http://id.test/token", "https://id.test/token")),
            "tokenEndpoint \"https://id.test/token\": expected https if, and only if,",
        ),
        (
            provider(&PROVIDER.replace("name: id", "name: none")),
            "provider.backendRef: Service web/none does not exist",
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
fn login_refers_to_secrets_without_containing_them() {
    let spec = login("scopes: [email], refresh: false, forwardToken: IDToken, ");
    let resolution = served(&(policy("p", SCOPES[1], &spec) + SECRETS));
    let found = logins(&resolution);
    let [(auth, login)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(auth.policy, "AccessPolicy/web/p");
    assert!(
        auth.backend.starts_with("Service/web/id/80"),
        "{}",
        auth.backend
    );
    assert_eq!(login.scopes, ["openid", "email"]);
    assert_eq!(login.redirect_path, "/oauth2/callback");
    assert_eq!(login.forwarded(), Token::IdToken);
    assert!(login.no_refresh);
    let gateway = &resolution.gateways[0];
    let names: Vec<&str> = gateway.keys.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["AccessPolicy/web/p/oidc"]);
    assert_eq!(gateway.snapshot.keys[0].digest, gateway.keys[0].digest());
    let text = String::from_utf8(gateway.keys[0].private_key.clone()).unwrap();
    let expected = "client-secret:hush-hush-hush-hush\nhmac-secret:hush-hush-hush-hush-2\n";
    assert_eq!(text, expected);
    assert!(!format!("{:?}", gateway.snapshot).contains("hush"));
}

#[test]
fn login_that_only_reports_is_named_as_unsupported() {
    let addresses = ", mode: Report, ipFilter: {deny: [10.0.0.0/8]}";
    for (login, secrets) in [(login(""), SECRETS), (login("clientID: 'a b', "), "")] {
        let spec = format!("{addresses}{login}");
        let resolution = served(&(policy("p", SCOPES[1], &spec) + secrets));
        assert!(!is_refused(&resolution));
        assert!(logins(&resolution).is_empty());
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains("spec.oidc: mode Report"), "{message}");
        // The other parts are still reported.
        assert_eq!(reported(&resolution).len(), 1);
    }
}

#[test]
fn only_exempt_routes_need_no_login() {
    let exempt = |part: &str| {
        login("") + &format!(", exemptions: [{{kind: HTTPRoute, name: r, parts: [{part}]}}]")
    };
    for (spec, expected) in [(exempt("oidc"), 0), (exempt("jwt"), 1), (login(""), 1)] {
        let resolution = served(&(policy("all", SCOPES[3], &spec) + SECRETS));
        assert_eq!(logins(&resolution).len(), expected, "{spec}");
    }
    // A route cannot replace the login of its Gateway.
    let all = policy("all", SCOPES[3], &login("")) + &policy("own", SCOPES[1], &login(""));
    assert_eq!(logins(&served(&(all + SECRETS))).len(), 2);
}

#[test]
fn logins_beyond_the_limit_are_not_accepted() {
    let all = (0..=OidcLogin::MAX_PER_GATEWAY).map(|number| {
        let name = format!("p{number:02}");
        policy(&name, SCOPES[3], &login(""))
    });
    let resolution = served(&(all.collect::<String>() + SECRETS));
    let last = format!("p{}", OidcLogin::MAX_PER_GATEWAY);
    let [accepted, ..] = conditions(&resolution, &last) else {
        panic!("{last} has no conditions");
    };
    let why = "the Gateway's 32 logins; requests that need this login get 500";
    assert!(accepted.message.contains(why), "{accepted:?}");
    assert_eq!(accepted.reason, Reason::Invalid);
    assert!(
        conditions(&resolution, "p31")[0]
            .message
            .contains("the policy applies")
    );
    let keys = resolution.gateways[0].keys.iter();
    assert_eq!(keys.count(), OidcLogin::MAX_PER_GATEWAY);
}
