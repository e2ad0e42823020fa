//! Tokens for HTTPProxy routes, each with its own provider.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::issuing::Issuing;
use sesame_tests::manifests::{edge, http_listener, http_proxy, ingress_class, yaml};
use sesame_tests::tokens::Issuer;

use crate::access_tokens::bearer;
use crate::http_proxy_services::authority_secret;

const CORP: &str = "https://id.test";
const PARTNER: &str = "https://partner.test";

fn secret(name: &str, jwks: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": "default"}, "stringData": {"jwks": jwks}})
}

/// By default, routes require a token from `corp`.
fn shop(uri: &str) -> Value {
    let to = json!([{"name": "a", "port": 80}]);
    let route = |prefix: &str, policy: Value| json!({"conditions": [{"prefix": prefix}], "services": to, "jwtVerificationPolicy": policy});
    let mut insecure = route("/partner", json!({"require": "partner"}));
    insecure["permitInsecure"] = json!(true);
    let validation = json!({"caSecret": "ca", "subjectName": "localhost"});
    let spec = json!({
        "virtualhost": {
            "fqdn": "shop.test",
            "tls": {"secretName": "shop"},
            "jwtProviders": [
                {"name": "corp", "default": true, "issuer": CORP, "audiences": ["shop"],
                    "localJWKS": {"secretName": "keys", "key": "jwks"}},
                {"name": "partner", "forwardJWT": true,
                    "remoteJWKS": {"uri": uri, "validation": validation}},
                {"name": "gone", "localJWKS": {"secretName": "gone", "key": "jwks"}},
            ],
        },
        "routes": [
            {"services": to},
            route("/open", json!({"disabled": true})),
            route("/gone", json!({"require": "gone"})),
            route("/undefined", json!({"require": "undefined"})),
            insecure,
        ],
        "includes": [
            {"name": "child", "conditions": [{"prefix": "/child"}]},
            {"name": "child", "namespace": "team", "conditions": [{"prefix": "/team"}]},
        ],
    });
    http_proxy("shop", &spec)
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_of_proxies_need_tokens_of_their_providers() {
    let authority = Authority::new("test");
    let [corp, partner] = [(CORP, "a"), (PARTNER, "b")].map(|(name, key)| Issuer::new(name, key));
    let server = Issuing::start(&authority, &Issuer::jwks(&[&partner])).await;
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    let to = json!([{"name": "a", "port": 80}]);
    let child = http_proxy("child", &json!({"routes": [{"services": to}]}));
    // The Secret in this namespace contains different keys.
    let team = json!({"routes": [{"services": to, "permitInsecure": true}]});
    let mut team = http_proxy("child", &team);
    let mut keys = secret("keys", &Issuer::jwks(&[&partner]));
    for object in [&mut team, &mut keys] {
        object["metadata"]["namespace"] = json!("team");
    }
    all.extend([
        ingress_class(),
        authority.issue(&["shop.test"]).secret("shop"),
        authority_secret("ca", &authority),
        secret("keys", &Issuer::jwks(&[&corp])),
        shop(&server.uri()),
        child,
        team,
        keys,
    ]);
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let trust = authority.trust();
    let https = |path: &str| agent.get(443, "shop.test", path).tls("shop.test", &trust);
    let by_corp = corp.token(&json!({}));
    let by_partner = partner.token(&json!({}));
    agent.wait_ok(&https("/open")).await;
    agent.wait_ok(&bearer(https("/partner"), &by_partner)).await;
    let mut checks = Checks::default();
    let plain = |path: &str| agent.get(80, "shop.test", path);
    for (request, token, expected) in [
        (https("/"), "", 401),
        (https("/"), &*by_corp, 200),
        (https("/"), &*by_partner, 401),
        (https("/child/x"), "", 401),
        (https("/child/x"), &*by_corp, 200),
        (https("/open/../child"), "", 401),
        (https("/team"), &*by_partner, 401),
        (https("/team"), &*by_corp, 503),
        (https("/partner"), &*by_corp, 401),
        (https("/gone"), &*by_corp, 500),
        (https("/undefined"), &*by_corp, 500),
        // Only a redirect to HTTPS needs no token.
        (plain("/"), "", 301),
        (plain("/partner"), "", 401),
        (plain("/partner"), &*by_partner, 200),
    ] {
        let with = if token.is_empty() {
            request
        } else {
            bearer(request, token)
        };
        checks.status(with, expected).await;
    }
    for (request, token, forwarded) in [
        (https("/"), &by_corp, false),
        (https("/partner"), &by_partner, true),
    ] {
        if let Some(reply) = checks.reply(&bearer(request.clone(), token)).await {
            let seen = reply.echo().value("authorization").is_some();
            checks.same(&request, &seen, &forwarded);
        }
    }
    checks.finish();
}
