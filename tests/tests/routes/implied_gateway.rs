//! `spec.ingress.listeners` on a real Envoy: Ingresses and HTTPProxies without a Gateway object.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{http_proxy, ingress, ingress_rule, yaml};

fn configuration(listeners: &Value) -> Value {
    json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"ingress": {"listeners": listeners,
            "gatewayRef": {"namespace": "default", "name": "implied"}}}})
}

fn objects(authority: &Authority) -> Vec<Value> {
    let class = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": {"name": "edge"}, "spec": {"controller": "projectsesame.io/ingress-controller"}});
    let routes = json!([{"services": [{"name": "a", "port": 80}]}]);
    let host = json!({"fqdn": "proxy.test", "tls": {"secretName": "own"}});
    let rules = json!({"rules": [ingress_rule("ingress.test", &[("/", "Prefix", "b")])]});
    vec![
        class,
        authority.issue(&["proxy.test"]).secret("own"),
        authority.issue(&["ingress.test"]).secret("shared"),
        http_proxy("proxy", &json!({"virtualhost": host, "routes": routes})),
        ingress("ingress", &json!({}), &rules),
    ]
}

fn https(agent: &AgentUnderTest, authority: &Authority, host: &str) -> Request {
    agent.get(443, host, "/").tls(host, &authority.trust())
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_in_configuration_serve_both_kinds() {
    let authority = Authority::new("servers");
    let mut all = objects(&authority);
    let _backends = start_served(&["a", "b"], &mut all).await;
    let plain = json!({"port": 80});
    let shared = json!({"port": 443, "protocol": "HTTPS", "hostname": "ingress.test",
        "secretName": "shared"});
    let agent = Setup::with_ports(&[80, 443]).start(&[
        ("objects.yaml", &yaml(&all)),
        ("edge.yaml", &yaml(&[configuration(&json!([plain]))])),
    ]);
    agent.wait_ok(&agent.get(80, "ingress.test", "/")).await;
    agent
        .wait_ok(&https(&agent, &authority, "proxy.test"))
        .await;
    let mut checks = Checks::default();
    checks
        .backend(agent.get(80, "ingress.test", "/"), "b")
        .await;
    checks.status(agent.get(80, "proxy.test", "/"), 301).await;
    checks.status(agent.get(80, "other.test", "/"), 404).await;
    checks
        .backend(https(&agent, &authority, "proxy.test"), "a")
        .await;

    // A further listener disturbs no host.
    agent.write(
        "edge.yaml",
        &yaml(&[configuration(&json!([plain, shared]))]),
    );
    agent
        .wait_ok(&https(&agent, &authority, "ingress.test"))
        .await;
    checks
        .backend(https(&agent, &authority, "ingress.test"), "b")
        .await;
    checks
        .backend(https(&agent, &authority, "proxy.test"), "a")
        .await;

    // An invalid change withdraws nothing.
    let invalid = json!([{"port": 0}]);
    agent.write("edge.yaml", &yaml(&[configuration(&invalid)]));
    agent
        .wait_status("the invalid port is reported", |status| {
            status.to_string().contains("listeners[0].port")
        })
        .await;
    checks
        .backend(agent.get(80, "ingress.test", "/"), "b")
        .await;
    checks
        .backend(https(&agent, &authority, "ingress.test"), "b")
        .await;
    checks
        .backend(https(&agent, &authority, "proxy.test"), "a")
        .await;
    checks.finish();
}
