//! Rate limits on a real Envoy. Changes to other routes must not reset counters.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    edge, http_listener, http_proxy, ingress_class, plain_route, traffic_policy, yaml,
};

/// After half of these requests, another route changes `CHANGES` times.
const ALLOWED: usize = 10;
const CHANGES: usize = 50;

fn limit(requests: usize) -> Value {
    json!({"local": {"requests": requests, "unit": "hour"}})
}

fn objects() -> Vec<Value> {
    let to = json!([{"name": "a", "port": 80}]);
    let on = |prefix: &str| json!([{"prefix": prefix}]);
    let shop = json!({"virtualhost": {"fqdn": "shop.test"}, "routes": [
        {"services": to},
        {"conditions": on("/limited"), "services": to, "rateLimitPolicy": limit(ALLOWED)},
        {"conditions": on("/told"), "services": to, "rateLimitPolicy": {"local": {
            "requests": 1, "unit": "hour", "burst": 1, "responseStatusCode": 503,
            "responseHeadersToAdd": [{"name": "x-limit", "value": "100%"}]}}},
        {"conditions": on("/wrong"), "services": to, "rateLimitPolicy": limit(0)},
        {"conditions": on("/global"), "services": to, "rateLimitPolicy": {
            "global": {"descriptors": [{"entries": [{"remoteAddress": {}}]}]}}},
    ]});
    let shared = json!({"virtualhost": {"fqdn": "shared.test", "rateLimitPolicy": limit(3)},
    "routes": [
        {"services": to},
        {"conditions": on("/other"), "services": to},
        {"conditions": on("/own"), "services": to, "rateLimitPolicy": limit(1)},
        {"conditions": on("/moved"), "requestRedirectPolicy": {"hostname": "new.test"}},
    ]});
    vec![
        ingress_class(),
        http_proxy("shop", &shop),
        http_proxy("shared", &shared),
    ]
}

fn changing(number: usize) -> String {
    let answer = json!({"statusCode": 200, "body": number.to_string()});
    let spec = json!({"virtualhost": {"fqdn": "other.test"},
        "routes": [{"directResponsePolicy": answer}]});
    yaml(&[http_proxy("other", &spec)])
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_count_on_while_other_routes_change() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects());
    let setup = Setup::with_ports(&[80]);
    let agent = setup.start(&[("all.yaml", &yaml(&all)), ("other.yaml", &changing(0))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/")).await;
    let mut checks = Checks::default();
    let half = agent.statuses("shop.test", "/limited", ALLOWED / 2).await;
    checks.same("first half", &half, &vec![200; ALLOWED / 2]);
    let other = agent.get(80, "other.test", "/");
    for number in 1..=CHANGES {
        agent.write("other.yaml", &changing(number));
        let number = number.to_string();
        agent
            .wait_served(&other, |reply| reply.body == number.as_bytes())
            .await;
    }
    let rest = agent.statuses("shop.test", "/limited", ALLOWED).await;
    let passed = rest.iter().filter(|status| **status == 200).count();
    checks.same("second half", &passed, &(ALLOWED - ALLOWED / 2));
    checks.same(
        "over the limit",
        &rest[ALLOWED / 2..],
        &[429; ALLOWED / 2][..],
    );
    for (host, path, expected) in [
        ("shop.test", "/", [200; 5]),
        ("shop.test", "/told", [200, 200, 503, 503, 503]),
        ("shop.test", "/wrong", [500; 5]),
        ("shop.test", "/global", [500; 5]),
        ("shared.test", "/own", [200, 429, 429, 429, 429]),
        ("shared.test", "/", [200, 200, 200, 429, 429]),
        ("shared.test", "/other", [429; 5]),
        ("shared.test", "/moved", [302; 5]),
    ] {
        let found = agent.statuses(host, path, expected.len()).await;
        checks.same(
            format_args!("{host}{path}"),
            found.as_slice(),
            &expected[..],
        );
    }
    let reply = checks.reply(&agent.get(80, "shop.test", "/told")).await;
    let header = reply.and_then(|reply| reply.header("x-limit").map(str::to_owned));
    checks.same("header", &header.as_deref(), &Some("100%"));
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_policies_add_up_and_survive_changes() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    for name in ["users", "shop", "tenants", "wrong"] {
        all.push(plain_route(name, &format!("{name}.test"), "a"));
    }
    let limit = |name: &str, requests: usize, keys: Value| json!({"rateLimits": [{"name": name, "requests": requests, "per": "Hour", "keys": keys}]});
    let route = |name: &str| json!({"kind": "HTTPRoute", "name": name});
    let by_user = limit("user", 3, json!([{"type": "Header", "name": "x-user"}]));
    let by_tenant = limit(
        "tenant",
        1,
        json!([{"type": "QueryParameter", "name": "tenant"}]),
    );
    all.push(traffic_policy(
        "edge",
        json!({"kind": "Gateway", "name": "edge"}),
        &limit("client", 1000, json!([{"type": "ClientAddress"}])),
    ));
    all.push(traffic_policy("users", route("users"), &by_user));
    all.push(traffic_policy(
        "shop",
        route("shop"),
        &limit("all", ALLOWED, json!([])),
    ));
    all.push(traffic_policy("tenants", route("tenants"), &by_tenant));
    all.push(traffic_policy(
        "wrong",
        route("wrong"),
        &limit("none", 0, json!([])),
    ));
    let tuned = |number: usize| {
        let timeouts = json!({"timeouts": {"request": format!("{}s", number + 10)}});
        let policy = traffic_policy("tuned", route("shop"), &timeouts);
        format!("{}---\n{}", yaml(&[policy]), changing(number))
    };
    all.push(ingress_class());
    let setup = Setup::with_ports(&[80]);
    let agent = setup.start(&[("all.yaml", &yaml(&all)), ("tuned.yaml", &tuned(0))]);
    let first = agent.get(80, "users.test", "/").header("x-user", "first");
    agent.wait_ok(&first).await;
    let mut checks = Checks::default();
    let half = agent.statuses("shop.test", "/", ALLOWED / 2).await;
    checks.same("first half", &half, &vec![200; ALLOWED / 2]);
    let other = agent.get(80, "other.test", "/");
    for number in 1..=CHANGES {
        agent.write("tuned.yaml", &tuned(number));
        let number = number.to_string();
        agent
            .wait_served(&other, |reply| reply.body == number.as_bytes())
            .await;
    }
    let rest = agent.statuses("shop.test", "/", ALLOWED).await;
    let expected = [[200; ALLOWED / 2], [429; ALLOWED / 2]].concat();
    checks.same("second half", &rest, &expected);
    for (user, expected) in [
        ("a", [200, 200, 200, 429, 429]),
        ("b", [200, 200, 200, 429, 429]),
    ] {
        for (number, status) in expected.into_iter().enumerate() {
            let request = agent.get(80, "users.test", "/").header("x-user", user);
            let seen = checks.reply(&request).await.map(|reply| reply.status);
            checks.same(
                format_args!("request {number} of {user}"),
                seen,
                Some(status),
            );
        }
    }
    for (host, path, expected) in [
        ("users.test", "/", [200, 200, 200, 429, 429]),
        ("tenants.test", "/?tenant=a", [200, 429, 429, 429, 429]),
        ("tenants.test", "/?tenant=b", [200, 429, 429, 429, 429]),
        ("tenants.test", "/", [200, 429, 429, 429, 429]),
        ("wrong.test", "/", [500; 5]),
    ] {
        let found = agent.statuses(host, path, expected.len()).await;
        checks.same(
            format_args!("{host}{path}"),
            found.as_slice(),
            &expected[..],
        );
    }
    checks.finish();
}
