//! Key sets that an agent fetches from token issuers: rotation, outages and untrusted servers.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::issuing::Issuing;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{access_policy, edge, http_listener, plain_route, yaml};
use sesame_tests::tokens::Issuer;

use crate::access_tokens::bearer;

const ISSUER: &str = "https://id.test";

/// The agent fetches the keys from `remote`.
fn policy(route: &str, remote: &Value) -> Value {
    let provider = json!({"name": "corp", "issuer": ISSUER, "jwks": {"remote": remote}});
    let target = json!({"kind": "HTTPRoute", "name": route});
    access_policy(route, target, &json!({"jwt": {"providers": [provider]}}))
}

fn trusted(uri: &str) -> Value {
    json!({"uri": uri, "cacheDuration": "10s", "caCertificateRef": {"name": "ca"}})
}

fn with_token(agent: &AgentUnderTest, issuer: &Issuer) -> Request {
    let token = issuer.token(&json!({"sub": "ann"}));
    bearer(agent.get(80, "shop.test", "/"), &token)
}

fn errors(status: &Value) -> Vec<&str> {
    let sets = status["source"]["keySets"].as_array();
    let sets = sets.into_iter().flatten();
    sets.filter_map(|it| it["error"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fetched_keys_rotate_and_survive_outages() {
    let authority = Authority::new("issuer");
    let [old, new] = ["a", "b"].map(|name| Issuer::new(ISSUER, name));
    let server = Issuing::start(&authority, &Issuer::jwks(&[&old])).await;
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend([
        plain_route("shop", "shop.test", "a"),
        Authority::config_map("ca", &[&authority]),
        policy("shop", &trusted(&server.uri())),
    ]);
    let mut agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let [by_old, by_new] = [&old, &new].map(|issuer| with_token(&agent, issuer));
    agent.wait_ok(&by_old).await;
    let rejected = by_new.send().await.expect("a reply");
    assert_eq!(rejected.status, 401);

    let load = Load::start(&Plan::new(vec![by_old.clone(), by_old.clone().http2()]));
    server.publish(200, &Issuer::jwks(&[&old, &new]));
    agent.wait_ok(&by_new).await;
    load.stop().await.clean("a new key");
    server.publish(200, &Issuer::jwks(&[&new]));
    agent
        .wait_served(&by_old, |reply| reply.status == 401)
        .await;

    // The last good keys must stay in use.
    let load = Load::start(&Plan::new(vec![by_new.clone()]));
    server.publish(200, r#"{"keys": []}"#);
    let no_key = |status: &Value| errors(status).iter().any(|it| it.contains("no usable key"));
    agent.wait_status("the error is reported", no_key).await;
    server.stop();
    load.stop().await.clean("an invalid key set");
    agent.end();
    agent.restart();
    agent.wait_ok(&by_new).await;
    let refused = |status: &Value| {
        let mut errors = errors(status).into_iter();
        errors.any(|it| it.contains("refused") || it.contains("no usable key"))
    };
    agent.wait_status("the error is reported", refused).await;
    let rejected = by_old.send().await.expect("a reply");
    assert_eq!(rejected.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_key_sets_reject_only_their_requests() {
    let [authority, other] = ["issuer", "other"].map(Authority::new);
    let issuer = Issuer::new(ISSUER, "a");
    let keys = Issuer::jwks(&[&issuer]);
    let secret = r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#;
    let servers = [
        ("untrusted", 200, &*keys, "invalid peer certificate"),
        ("missing", 404, &*keys, "status 404"),
        ("redirect", 302, &*keys, "redirects are not followed"),
        ("secret", 200, secret, "keys[0] is secret"),
        ("large", 200, &*" ".repeat(70_000), "more than 65536 bytes"),
    ];
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.push(plain_route("open", "open.test", "a"));
    all.push(Authority::config_map("ca", &[&authority]));
    let mut running = Vec::new();
    for (name, status, body, _) in servers {
        let signer = if name == "untrusted" {
            &other
        } else {
            &authority
        };
        let server = Issuing::start(signer, "").await;
        server.publish(status, body);
        all.push(plain_route(name, &format!("{name}.test"), "a"));
        all.push(policy(name, &trusted(&server.uri())));
        running.push(server);
    }
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    for (name, _, _, why) in servers {
        let is_reported = |status: &Value| errors(status).iter().any(|it| it.contains(why));
        agent.wait_status(why, is_reported).await;
        let request = agent.get(80, &format!("{name}.test"), "/");
        let reply = bearer(request, &issuer.token(&json!({}))).send().await;
        assert_eq!(reply.expect("a reply").status, 500, "{name}");
    }
    let status = agent.status().expect("a status").to_string();
    assert!(!status.contains("c2VjcmV0"));
}
