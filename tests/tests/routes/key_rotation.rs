//! Keys of token issuers change under load. No request with a valid token may fail.

use serde_json::json;
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::client::Reply;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{access_policy, edge, http_listener, plain_route, yaml};
use sesame_tests::tokens::Issuer;

use crate::access_tokens::{bearer, gateway_target, route_target};
use crate::red_team::{ISSUER, key_map, staff};

const ROTATIONS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_without_rejecting_valid_tokens() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.push(plain_route("shop", "shop.test", "a"));
    let policy = staff(&json!({"configMapRef": {"name": "keys"}}));
    all.push(access_policy("edge", gateway_target(), &policy));
    all.push(access_policy("shop", route_target("shop"), &policy));
    let keys = |issuers: &[&Issuer]| yaml(&[key_map("keys", &Issuer::jwks(issuers))]);
    let issuers: Vec<Issuer> = (0..=ROTATIONS)
        .map(|i| Issuer::new(ISSUER, &format!("k-{i}")))
        .collect();
    let files = [
        ("all.yaml", yaml(&all)),
        ("keys.yaml", keys(&[&issuers[0]])),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let request = |issuer: &Issuer| {
        let token = issuer.token(&json!({"sub": "ann", "groups": ["staff"]}));
        bearer(agent.get(80, "shop.test", "/"), &token)
    };
    let start = |issuer: &Issuer| {
        let request = request(issuer);
        Load::start(&Plan::new(vec![request.clone(), request.http2()]))
    };
    agent.wait_ok(&request(&issuers[0])).await;
    let mut load = start(&issuers[0]);
    for pair in issuers.windows(2) {
        let [old, new] = pair else {
            unreachable!("pairs")
        };
        agent.write("keys.yaml", &keys(&[new, old]));
        agent.wait_ok(&request(new)).await;
        let next = start(new);
        load.stop().await.clean("the old key");
        load = next;
        agent.write("keys.yaml", &keys(&[new]));
        let is_refused = |reply: &Reply| reply.status == 401;
        agent.wait_served(&request(old), is_refused).await;
    }
    load.stop().await.clean("the new key");
}
