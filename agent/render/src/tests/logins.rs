//! Tests the rendering of logins.

use serde_json::{Value, json};
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::external_auth::Protocol;
use sesame_proto::schema::oidc_login::Token;
use sesame_proto::schema::{
    ExternalAuth, ExternalAuthGrpc, KeyRef, OidcLogin, Route, route::Action,
};

use super::envoy::{envoy, validate};
use super::everything::everything;
use super::parts::{API, WEB, forward, options, route, to};
use crate::{RenderProblem, Rendered, dump, render, static_bootstrap};

const LOGIN: &str = "AccessPolicy/ns/login";

fn every_login() -> ExternalAuth {
    ExternalAuth {
        backend: API.into(),
        policy: LOGIN.into(),
        timeout_ms: 1_000,
        protocol: Some(Protocol::Oidc(OidcLogin {
            client_id: "shop".into(),
            authorization_endpoint: "https://id.test/auth?a=b".into(),
            token_endpoint: "https://id.test/token".into(),
            end_session_endpoint: "https://id.test/end".into(),
            hostnames: vec!["shop.test".into(), "*.shop.test".into()],
            scopes: vec!["openid".into(), "email".into()],
            redirect_path: "/oauth2/callback".into(),
            logout_path: "/logout".into(),
            api_paths: vec!["/api/v1.0".into()],
            no_refresh: true,
            forwarded: Token::IdToken.into(),
        })),
        ..ExternalAuth::default()
    }
}

fn login(change: impl FnOnce(&mut OidcLogin)) -> ExternalAuth {
    let mut auth = every_login();
    if let Some(Protocol::Oidc(login)) = &mut auth.protocol {
        change(login);
    }
    auth
}

/// Renders one route. `before` contains the listener's authorizations.
fn rendered(auths: &[ExternalAuth], before: &[ExternalAuth], files: usize) -> Rendered {
    let (mut snapshot, mut keys) = everything();
    let secrets = "client-secret:hush-hush-hush-hush\nhmac-secret:cookies-cookies-cookies\n";
    let pair = KeyPair {
        name: OidcLogin::key(LOGIN),
        private_key: secrets.into(),
        ..KeyPair::default()
    };
    snapshot.keys.push(KeyRef {
        name: pair.name.clone(),
        digest: pair.digest(),
        ..KeyRef::default()
    });
    keys.push(pair);
    snapshot.route_tables.truncate(1);
    snapshot.route_tables[0].virtual_hosts.truncate(1);
    let host = &mut snapshot.route_tables[0].virtual_hosts[0];
    host.external_auth = before.to_vec();
    host.routes = vec![Route {
        external_auth: auths.to_vec(),
        ..route("r", "/", Action::Forward(forward(&[to(WEB, 1)])))
    }];
    let mut options = options();
    options.subscription_budget = files;
    render(&snapshot, &keys, &options)
}

fn printed(rendered: &Rendered) -> Value {
    dump::resources(rendered, dump::Redact::PrivateKeys).unwrap()
}

fn first_route(rendered: &Rendered) -> Value {
    printed(rendered)["routes"][0]["virtual_hosts"][0]["routes"][0].clone()
}

const MANY_FILES: usize = 1000;

#[test]
fn login_uses_own_cookies_and_secret_files() {
    let rendered = rendered(&[every_login()], &[], MANY_FILES);
    let route = first_route(&rendered);
    let config = &route["typed_per_filter_config"]["oidc"]["config"];
    let names = config["credentials"]["cookie_names"].as_object().unwrap();
    assert_eq!(names.len(), 7);
    for name in names.values() {
        assert!(name.as_str().unwrap().starts_with("__Host-oidc-"), "{name}");
    }
    assert_eq!(config["credentials"]["cookie_domain"], Value::Null);
    assert_eq!(
        config["allowed_redirect_domains"],
        json!(["shop.test", "*.shop.test"])
    );
    assert_eq!(
        config["redirect_uri"],
        json!("https://%REQ(:AUTHORITY)%/oauth2/callback")
    );
    assert_eq!(config["disable_access_token_set_cookie"], json!(true));
    let secrets = rendered.secrets.iter().map(|it| it.name.as_str());
    let secrets: Vec<&str> = secrets.filter(|it| it.starts_with(LOGIN)).collect();
    let expected = ["client", "cookies"].map(|it| format!("{LOGIN}/oidc/{it}"));
    assert_eq!(secrets, expected);
    let [client, cookies] =
        ["token_secret", "hmac_secret"].map(|it| &config["credentials"][it]["name"]);
    assert_eq!(
        [client, cookies],
        [&json!(expected[0]), &json!(expected[1])]
    );
    assert!(!printed(&rendered).to_string().contains("hush"));
    if let Some(envoy) = envoy() {
        validate(&envoy, "pb", &static_bootstrap(&rendered).unwrap()).unwrap();
    }
}

#[test]
fn invalid_login_refuses_requests() {
    let many = |text: &str| vec![text.to_owned(); 17];
    let mut other = every_login();
    other.policy = "AccessPolicy/ns/other".into();
    let mut nowhere = every_login();
    nowhere.backend = "Service/ns/none/80".into();
    let mut open = every_login();
    open.fail_open = true;
    assert_eq!(
        first_route(&rendered(&[open], &[], MANY_FILES))["direct_response"],
        Value::Null
    );
    for (auths, before) in [
        (vec![every_login(), every_login()], vec![]),
        (
            vec![every_login()],
            vec![ExternalAuth {
                protocol: Some(Protocol::Grpc(ExternalAuthGrpc::default())),
                backend: API.into(),
                ..ExternalAuth::default()
            }],
        ),
        (vec![other], vec![]),
        (vec![nowhere], vec![]),
        (vec![login(|it| it.client_id = String::new())], vec![]),
        (
            vec![login(|it| it.authorization_endpoint = "https://".into())],
            vec![],
        ),
        (
            vec![login(|it| it.token_endpoint = "/token".into())],
            vec![],
        ),
        (
            vec![login(|it| it.end_session_endpoint = "javascript:a".into())],
            vec![],
        ),
        (vec![login(|it| it.hostnames = Vec::new())], vec![]),
        (vec![login(|it| it.hostnames = many("a.test"))], vec![]),
        (vec![login(|it| it.hostnames = vec!["*".into()])], vec![]),
        (vec![login(|it| it.scopes = vec!["email".into()])], vec![]),
        (
            vec![login(|it| it.redirect_path = "/%REQ(x)%".into())],
            vec![],
        ),
        (
            vec![login(|it| it.logout_path = "/oauth2/callback".into())],
            vec![],
        ),
        (vec![login(|it| it.api_paths = many("/a"))], vec![]),
        (vec![login(|it| it.forwarded = 9)], vec![]),
    ] {
        let route = first_route(&rendered(&auths, &before, MANY_FILES));
        assert_eq!(route["direct_response"]["status"], json!(500), "{auths:?}");
    }
    // Without files for the secrets, Envoy could not check cookies.
    let problems = rendered(&[every_login()], &[], 0).problems;
    let is_refused = |it: &RenderProblem| it.message.contains("Envoy may not watch a file");
    assert!(problems.iter().any(is_refused), "{problems:?}");
}
