//! `HTTPProxy` on a real Envoy, together with Ingresses and HTTPRoutes for the same hosts. Moving a
//! host between kinds must not fail a request.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge, http_listener, http_proxy, http_route, ingress, ingress_class, ingress_rule, path,
    rule_to, yaml,
};

fn to(service: &str) -> Value {
    json!([{"name": service, "port": 80}])
}

fn objects() -> Vec<Value> {
    let routes = json!([
        {"services": to("a")},
        {"conditions": [{"prefix": "/api"}], "services": to("b"),
            "pathRewritePolicy": {"replacePrefix": [{"replacement": "/"}]}},
        {"conditions": [{"exact": "/exact"}], "services": to("b")},
        {"conditions": [{"regex": "/v[0-9]+(/long)?"}], "services": to("b")},
        {"conditions": [{"prefix": "/h"}, {"header": {"name": "x-in", "contains": "b", "ignoreCase": true}}],
            "services": to("b")},
        {"conditions": [{"prefix": "/h"}, {"header": {"name": "x-out", "notcontains": "b", "treatMissingAsEmpty": true}},
            {"header": {"name": "x-in", "notpresent": true}}], "services": to("c")},
        {"conditions": [{"prefix": "/q"}, {"queryParameter": {"name": "v", "prefix": "one"}}], "services": to("b")},
        {"conditions": [{"prefix": "/q"}, {"queryParameter": {"name": "w", "present": true}}], "services": to("c")},
        {"conditions": [{"prefix": "/moved"}], "requestRedirectPolicy": {"hostname": "new.test", "statusCode": 308}},
        {"conditions": [{"prefix": "/teapot"}], "directResponsePolicy": {"statusCode": 418}},
        {"conditions": [{"prefix": "/gone"}], "services": to("absent")},
        {"conditions": [{"prefix": "/limited"}], "services": to("a"),
            "rateLimitPolicy": {"global": {"descriptors": [{"entries": []}]}}},
        {"conditions": [{"prefix": "/headers"}], "services": to("b"),
            "requestHeadersPolicy": {"set": [{"name": "x-ns", "value": "%CONTOUR_NAMESPACE%"}]}},
    ]);
    let includes = json!([
        {"name": "team", "conditions": [{"prefix": "/team"}]},
        {"name": "absent", "conditions": [{"prefix": "/nowhere"}]},
    ]);
    let team = json!({"routes": [{"conditions": [{"prefix": "/x"}], "services": to("c")},
        {"conditions": [{"regex": "/r|/admin"}], "services": to("c")}]});
    let all = ("/", "Prefix", "c");
    vec![
        ingress_class(),
        http_proxy(
            "shop",
            &json!({"virtualhost": {"fqdn": "shop.test"}, "routes": routes, "includes": includes}),
        ),
        http_proxy("team", &team),
        http_proxy(
            "wild",
            &json!({"virtualhost": {"fqdn": "*.wild.test"}, "routes": [{"services": to("b")}]}),
        ),
        ingress(
            "shop",
            &json!({}),
            &json!({"rules": [ingress_rule("shop.test", &[all, ("/ingress", "Prefix", "c")])]}),
        ),
        http_route(
            "equal",
            &["shop.test"],
            &[
                rule_to("a", &[path("Exact", "/exact")]),
                rule_to("c", &[path("PathPrefix", "/v12/long")]),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_backends_of_proxy() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a", "b", "c"], &mut all).await;
    all.extend(objects());
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let get = |host: &str, path: &str| agent.get(80, host, path);
    let shop = |path: &str| get("shop.test", path);
    agent.wait_ok(&shop("/")).await;
    let mut checks = Checks::default();
    for (request, expected) in [
        (shop("/"), "a"),
        (shop("/apiary"), "b"),
        (shop("/exact"), "a"),
        (shop("/v12"), "b"),
        (shop("/v12/x"), "a"),
        (shop("/v12/long"), "b"),
        (shop("/v12/long/x"), "c"),
        (shop("/h").header("x-in", "aBc"), "b"),
        (shop("/h"), "c"),
        (shop("/h").header("x-out", "abc"), "a"),
        (shop("/h").header("x-in", "c"), "a"),
        (shop("/q?v=oneself"), "b"),
        (shop("/q?w=1"), "c"),
        (shop("/q"), "a"),
        (shop("/team/x/y"), "c"),
        (shop("/team/admin"), "c"),
        (shop("/admin"), "a"),
        (shop("/ingress/x"), "c"),
        (get("x.wild.test", "/"), "b"),
    ] {
        checks.backend(request, expected).await;
    }
    for (path, expected) in [
        ("/moved/x", 308),
        ("/teapot", 418),
        ("/gone", 503),
        ("/limited", 500),
        ("/nowhere/x", 502),
    ] {
        checks.status(shop(path), expected).await;
    }
    checks.status(get("y.x.wild.test", "/"), 404).await;
    for (path, expected) in [("/api/users", "/users"), ("/api", "/"), ("/apiary", "/ary")] {
        let reply = checks.reply(&shop(path)).await;
        let seen = reply.map(|reply| reply.echo().path).unwrap_or_default();
        checks.same(path, &seen.as_str(), &expected);
    }
    status(&agent, &mut checks);
    checks.finish();
}

fn status(agent: &AgentUnderTest, checks: &mut Checks) {
    let status = agent.status().unwrap_or_default();
    let objects = status["objects"].as_array().into_iter().flatten();
    let mut proxies = objects.filter(|object| object["kind"] == "HTTPProxy");
    let shop = proxies.find(|object| object["name"] == "shop");
    let shown = shop
        .map(|shop| shop["status"].to_string())
        .unwrap_or_default();
    checks.that(
        shown.contains("ServiceUnresolvedReference") && shown.contains("IncludeNotFound"),
        format_args!("the HTTPProxy's status contains its errors: {shown}"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn host_moves_between_layers_without_failed_request() {
    let authority = Authority::new("tests");
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.push(ingress_class());
    all.push(authority.issue(&["shop.test"]).secret("pair"));
    let _backends = start_served(&["a", "b", "c"], &mut all).await;
    let ingress_spec = json!({"tls": [{"hosts": ["shop.test"], "secretName": "pair"}],
        "rules": [ingress_rule("shop.test", &[("/", "Prefix", "a")])]});
    let proxy_spec = json!({
        "virtualhost": {"fqdn": "shop.test", "tls": {"secretName": "pair"}},
        "routes": [{"permitInsecure": true, "services": to("b")}],
    });
    let ingress_yaml = yaml(&[ingress("shop", &json!({}), &ingress_spec)]);
    let proxy_yaml = yaml(&[http_proxy("shop", &proxy_spec)]);
    let route_yaml = yaml(&[http_route("shop", &["shop.test"], &[rule_to("c", &[])])]);
    let setup = Setup::with_ports(&[80, 443]).flag("--drain-seconds=20");
    let agent = setup.start(&[("all.yaml", &yaml(&all)), ("ingress.yaml", &ingress_yaml)]);
    let secure = agent
        .get(443, "shop.test", "/")
        .tls("shop.test", &authority.trust());
    let plain = agent.get(80, "shop.test", "/");
    agent.wait_backend(&secure, "a").await;
    let load = Load::start(&Plan::new(vec![
        plain.clone(),
        secure.clone(),
        secure.clone().http2(),
    ]));
    load.pass(200).await;
    agent.write("proxy.yaml", &proxy_yaml);
    agent.wait_backend(&secure, "b").await;
    agent.wait_backend(&plain, "b").await;
    load.pass(200).await;
    agent.write("route.yaml", &route_yaml);
    agent.wait_backend(&plain, "c").await;
    agent.remove("ingress.yaml");
    load.pass(200).await;
    agent.remove("route.yaml");
    agent.wait_backend(&plain, "b").await;
    agent.write("ingress.yaml", &ingress_yaml);
    agent.remove("proxy.yaml");
    agent.wait_backend(&secure, "a").await;
    load.pass(200).await;
    let report = load.stop().await;
    report.print("a TLS host moves from Ingress to HTTPProxy to HTTPRoute and back");
    report.assert_clean();
}
