//! `Ingress` on a real Envoy. Requests for an invalid rule must not fall through to another rule.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, ingress, ingress_backend, ingress_class,
    ingress_rule, path, rule_to, yaml,
};

fn objects() -> Vec<Value> {
    let all = ("/", "Prefix", "a");
    let wild = ingress_rule("*.wild.test", &[all]);
    let mut bucket = ingress_rule("shop.test", &[("/bucket", "Prefix", "a")]);
    bucket["http"]["paths"][0]["backend"] = json!({"resource": {"kind": "Bucket", "name": "b"}});
    let shop = ingress_rule(
        "shop.test",
        &[
            all,
            ("/cart/", "Prefix", "b"),
            ("/cart", "Exact", "c"),
            ("/gone", "Prefix", "absent"),
            ("/equal", "Exact", "a"),
        ],
    );
    let secure = ingress_rule("secure.test", &[("/", "Prefix", "b")]);
    let force = json!({"ingress.kubernetes.io/force-ssl-redirect": "true"});
    vec![
        ingress_class(),
        ingress("shop", &json!({}), &json!({"rules": [shop, bucket, wild]})),
        ingress(
            "rest",
            &json!({}),
            &json!({"defaultBackend": ingress_backend("c")}),
        ),
        ingress("secure", &force, &json!({"rules": [secure]})),
        http_route(
            "equal",
            &["shop.test"],
            &[rule_to("b", &[path("Exact", "/equal")])],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_backends_of_ingress() {
    let mut all = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "", "pair"),
    ]);
    let authority = Authority::new("tests");
    all.push(authority.issue(&["secure.test"]).secret("pair"));
    let _backends = start_served(&["a", "b", "c"], &mut all).await;
    all.extend(objects());
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let get = |host: &str, path: &str| agent.get(80, host, path);
    agent.wait_ok(&get("shop.test", "/")).await;
    let mut checks = Checks::default();
    for (host, path, expected) in [
        ("shop.test", "/", "a"),
        ("shop.test", "/cart", "c"),
        ("shop.test", "/cart/", "b"),
        ("shop.test", "/cart/7", "b"),
        ("shop.test", "/cartoons", "a"),
        ("shop.test", "/CART", "a"),
        ("shop.test", "/equal", "b"),
        ("x.wild.test", "/", "a"),
        ("X.Wild.test", "/", "a"),
        ("x.wild.test:8080", "/", "a"),
        ("y.x.wild.test", "/", "c"),
        ("wild.test", "/", "c"),
        ("any.test", "/cart", "c"),
    ] {
        checks.backend(get(host, path), expected).await;
    }
    for (path, expected) in [("/gone/x", 503), ("/bucket", 500)] {
        checks.status(get("shop.test", path), expected).await;
    }
    checks.status(get("secure.test", "/"), 301).await;
    status(&agent, &mut checks);
    checks.finish();
}

fn status(agent: &AgentUnderTest, checks: &mut Checks) {
    let status = agent.status().unwrap_or_default();
    let objects = status["objects"].as_array().into_iter().flatten();
    let mut ingresses = objects.filter(|object| object["kind"] == "Ingress");
    let shop = ingresses.find(|object| object["name"] == "shop");
    let conditions = shop.map(|shop| shop["status"]["parents"][0]["conditions"].to_string());
    let conditions = conditions.unwrap_or_default();
    checks.that(
        conditions.contains("BackendNotFound") && conditions.contains("absent"),
        format_args!("the Ingress's conditions name the missing Service: {conditions}"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_host_moves_to_gateway_api_without_failure() {
    let authority = Authority::new("tests");
    let mut all = vec![ingress_class()];
    all.push(authority.issue(&["shop.test"]).secret("pair"));
    all.push(authority.issue(&["*.wild.test"]).secret("wild"));
    let _backends = start_served(&["a", "b"], &mut all).await;
    let http = http_listener("http", 80, "");
    let https = https_listener("https", 443, "shop.test", "pair");
    let before = edge(std::slice::from_ref(&http));
    let after = edge(&[http, https]);
    let rules = |host: &str| ingress_rule(host, &[("/", "Prefix", "a")]);
    let shop = json!({"tls": [{"hosts": ["shop.test"], "secretName": "pair"}], "rules": [rules("shop.test")]});
    let wild = json!({"tls": [{"secretName": "wild"}], "rules": [rules("*.wild.test")]});
    let none = json!({});
    let setup = Setup::with_ports(&[80, 443]).flag("--drain-seconds=20");
    let agent = setup.start(&[
        ("all.yaml", &yaml(&all)),
        ("gateway.yaml", &yaml(&before)),
        ("shop.yaml", &yaml(&[ingress("shop", &none, &shop)])),
        ("wild.yaml", &yaml(&[ingress("wild", &none, &wild)])),
    ]);
    let secure = |host: &str| agent.get(443, host, "/").tls(host, &authority.trust());
    let plain = agent.get(80, "shop.test", "/");
    agent.wait_backend(&secure("shop.test"), "a").await;
    agent.wait_backend(&secure("x.wild.test"), "a").await;
    let load = Load::start(&Plan::new(vec![
        plain.clone(),
        secure("shop.test"),
        secure("shop.test").http2(),
        secure("x.wild.test"),
    ]));
    load.pass(200).await;
    // The Gateway has no HTTPS listener yet.
    let to_b = http_route("shop", &["shop.test"], &[rule_to("b", &[])]);
    agent.write("route.yaml", &yaml(&[to_b]));
    agent.wait_backend(&plain, "b").await;
    load.pass(200).await;
    // The Gateway's listener takes over the host.
    agent.write("gateway.yaml", &yaml(&after));
    agent.wait_backend(&secure("shop.test"), "b").await;
    load.pass(200).await;
    agent.remove("shop.yaml");
    agent
        .wait_status("the Ingress is gone", |status| {
            let mut objects = status["objects"].as_array().into_iter().flatten();
            !objects.any(|it| it["kind"] == "Ingress" && it["name"] == "shop")
        })
        .await;
    load.pass(200).await;
    agent.write("shop.yaml", &yaml(&[ingress("shop", &none, &shop)]));
    agent.remove("route.yaml");
    agent.write("gateway.yaml", &yaml(&before));
    agent.wait_backend(&secure("shop.test"), "a").await;
    load.pass(200).await;
    let report = load.stop().await;
    report.print("a TLS host moves from an Ingress to the Gateway API and back");
    report.assert_clean();
}
