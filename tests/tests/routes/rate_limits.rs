//! Limits of requests on a real Envoy: counts are exact, and survive changes of other routes.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{edge, http_listener, http_proxy, ingress_class, yaml};

/// Requests until the limit, and changes of another route after half of them.
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

/// Returns an HTTPProxy whose only route answers with a number.
fn changing(number: usize) -> String {
    let answer = json!({"statusCode": 200, "body": number.to_string()});
    let spec = json!({"virtualhost": {"fqdn": "other.test"},
        "routes": [{"directResponsePolicy": answer}]});
    yaml(&[http_proxy("other", &spec)])
}

async fn statuses(agent: &AgentUnderTest, host: &str, path: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        let reply = agent.get(80, host, path).send().await;
        statuses.push(reply.map(|reply| reply.status).unwrap_or_default());
    }
    statuses
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
    let half = statuses(&agent, "shop.test", "/limited", ALLOWED / 2).await;
    checks.same("first half", &half, &vec![200; ALLOWED / 2]);
    let other = agent.get(80, "other.test", "/");
    for number in 1..=CHANGES {
        agent.write("other.yaml", &changing(number));
        let number = number.to_string();
        agent
            .wait_served(&other, |reply| reply.body == number.as_bytes())
            .await;
    }
    let rest = statuses(&agent, "shop.test", "/limited", ALLOWED).await;
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
        let found = statuses(&agent, host, path, expected.len()).await;
        checks.same(
            format_args!("{host}{path}"),
            found.as_slice(),
            &expected[..],
        );
    }
    let told = checks.reply(&agent.get(80, "shop.test", "/told")).await;
    let header = told.and_then(|reply| reply.header("x-limit").map(str::to_owned));
    checks.same("header", &header.as_deref(), &Some("100%"));
    checks.finish();
}
