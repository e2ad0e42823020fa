//! Policies of routes of `HTTPProxy` on a real Envoy.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{edge, http_listener, http_proxy, ingress_class, yaml};

/// Starts an agent that serves these fields of an HTTPProxy for `shop.test`, with the backends `a` and
/// `b`.
async fn serve(spec: &Value) -> (AgentUnderTest, Vec<Backend>) {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a", "b"], &mut all).await;
    all.push(ingress_class());
    let mut spec = spec.clone();
    spec["virtualhost"]["fqdn"] = json!("shop.test");
    all.push(http_proxy("shop", &spec));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/")).await;
    (agent, backends)
}

fn to(service: &str) -> Value {
    json!([{"name": service, "port": 80}])
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_response_has_its_body() {
    let body = "100% gone\n".repeat(400);
    let (agent, _backends) = serve(&json!({"routes": [
        {"services": to("a")},
        {"conditions": [{"prefix": "/gone"}], "directResponsePolicy": {"statusCode": 410, "body": body}},
        {"conditions": [{"prefix": "/long"}],
            "directResponsePolicy": {"statusCode": 200, "body": "x".repeat(4097)}},
    ]}))
    .await;
    let mut checks = Checks::default();
    let reply = checks.reply(&agent.get(80, "shop.test", "/gone")).await;
    let seen = reply.map(|reply| (reply.status, reply.body));
    checks.same("an answer", seen, Some((410, body.into())));
    checks
        .status(agent.get(80, "shop.test", "/long"), 500)
        .await;
    checks.finish();
}
