//! AccessPolicies on a real Envoy. A request must pass every filter for its rule.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::Connection;
use sesame_tests::grpc;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    access_policy, edge, http_listener, http_proxy, http_route, ingress_class, numbered, path,
    plain_route, route, rule_to, traffic_policy, yaml,
};

fn filter(allow: &[&str], deny: &[&str]) -> Value {
    json!({"ipFilter": {"allow": allow, "deny": deny}})
}

fn objects() -> Vec<Value> {
    let route_target = |name: &str| json!({"kind": "HTTPRoute", "name": name});
    let mut guarded = rule_to("a", &[path("PathPrefix", "/admin")]);
    guarded["name"] = json!("admin");
    let open = rule_to("a", &[path("PathPrefix", "/")]);
    let to = json!([{"name": "a", "port": 80}]);
    let from = |cidr: &str| json!([{"source": "Remote", "cidr": cidr}]);
    let proxy = json!({
        "virtualhost": {"fqdn": "proxy.test", "ipDenyPolicy": from("203.0.113.0/24")},
        "routes": [
            {"services": to},
            {"conditions": [{"prefix": "/admin"}], "services": to,
                "ipAllowPolicy": from("203.0.113.9")},
        ],
    });
    let mut exempting = filter(&[], &["192.0.2.0/24"]);
    exempting["exemptions"] = json!([{"kind": "HTTPRoute", "name": "exempt"}]);
    vec![
        ingress_class(),
        http_proxy("proxy", &proxy),
        plain_route("open", "open.test", "a"),
        plain_route("inside", "inside.test", "a"),
        plain_route("outside", "outside.test", "a"),
        plain_route("wrong", "wrong.test", "a"),
        plain_route("unreadable", "unreadable.test", "a"),
        http_route("shop", &["shop.test"], &[guarded, open]),
        route("GRPCRoute", "calls", &["calls.test"], &[rule_to("a", &[])]),
        access_policy(
            "edge",
            json!({"kind": "Gateway", "name": "edge"}),
            &exempting,
        ),
        plain_route("exempt", "exempt.test", "a"),
        plain_route("listed", "listed.test", "a"),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "offices", "namespace": "default"},
            "data": {"networks": "# Offices\n203.0.113.0/28\n\n203.0.113.77 # a home\n"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "blocked", "namespace": "default"},
            "data": {"networks": "198.51.100.7\n"}}),
        access_policy(
            "listed",
            route_target("listed"),
            &json!({"ipFilter": {"allow": ["198.51.100.0/24"], "allowRefs": [{"name": "offices"}],
                "denyRefs": [{"name": "blocked"}]}}),
        ),
        access_policy(
            "inside",
            route_target("inside"),
            &filter(&["127.0.0.0/8"], &[]),
        ),
        // A wider network must not relax the Gateway's policy.
        access_policy(
            "outside",
            route_target("outside"),
            &filter(&["0.0.0.0/0"], &[]),
        ),
        access_policy(
            "admin",
            json!({"kind": "HTTPRoute", "name": "shop", "sectionName": "admin"}),
            &filter(&["198.51.100.0/24"], &["198.51.100.66/32"]),
        ),
        access_policy("wrong", route_target("wrong"), &filter(&["127.0.0.1"], &[])),
        // This field has the wrong type.
        access_policy(
            "unreadable",
            route_target("unreadable"),
            &json!({"ipFilter": {"deny": "192.0.2.0/24"}}),
        ),
        access_policy(
            "calls",
            json!({"kind": "GRPCRoute", "name": "calls"}),
            &filter(&["203.0.113.0/24"], &[]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn address_filters_pass_requests_or_return_403() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects());
    let setup = Setup::with_ports(&[80]).flag("--trusted-hops=1");
    let agent = setup.start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    let mut checks = Checks::default();
    for (host, path, client, expected) in [
        ("exempt.test", "/", "192.0.2.9", 200),
        ("open.test", "/", "198.51.100.1", 200),
        ("open.test", "/", "192.0.2.9", 403),
        ("proxy.test", "/", "192.0.2.9", 403),
        ("proxy.test", "/", "198.51.100.1", 200),
        ("proxy.test", "/", "203.0.113.9", 403),
        ("proxy.test", "/admin", "203.0.113.9", 200),
        ("proxy.test", "/admin", "198.51.100.1", 403),
        ("proxy.test", "/admin", "192.0.2.9", 403),
        ("none.test", "/", "192.0.2.9", 403),
        ("none.test", "/", "198.51.100.1", 404),
        ("outside.test", "/", "192.0.2.9", 403),
        ("outside.test", "/", "198.51.100.1", 200),
        ("listed.test", "/", "198.51.100.1", 200),
        ("listed.test", "/", "203.0.113.15", 200),
        ("listed.test", "/", "203.0.113.77", 200),
        ("listed.test", "/", "203.0.113.16", 403),
        ("listed.test", "/", "198.51.100.7", 403),
        ("inside.test", "/", "127.0.0.1", 200),
        ("inside.test", "/", "198.51.100.1", 403),
        ("wrong.test", "/", "127.0.0.1", 500),
        ("unreadable.test", "/", "127.0.0.1", 500),
        ("shop.test", "/", "203.0.113.1", 200),
        ("shop.test", "/admin", "198.51.100.1", 200),
        ("shop.test", "/admin", "198.51.100.66", 403),
        ("shop.test", "/admin", "203.0.113.1", 403),
        ("shop.test", "/admin/x", "203.0.113.1", 403),
        ("shop.test", "/x/../admin", "203.0.113.1", 403),
        ("shop.test", "//admin", "203.0.113.1", 403),
        ("shop.test", "/%61dmin", "203.0.113.1", 403),
        ("shop.test", "/./admin?x=/", "203.0.113.1", 403),
        ("shop.test.", "/admin", "203.0.113.1", 403),
        ("SHOP.test:80", "/admin", "203.0.113.1", 403),
    ] {
        let request = agent.get(80, host, path);
        // Envoy trusts only the address that the last proxy added.
        let forwarded = format!("198.51.100.1, {client}");
        let request = request.header("x-forwarded-for", &forwarded);
        if let Some(reply) = checks.reply(&request).await {
            checks.same(
                format_args!("{request} from {client}"),
                &reply.status,
                &expected,
            );
        }
        for method in ["POST", "OPTIONS"] {
            let request = request.clone().method(method);
            if let Some(reply) = checks.reply(&request).await {
                let is_refused = reply.status == 403;
                checks.same(&request, is_refused, expected == 403);
            }
        }
    }
    let upgraded = agent.get(80, "shop.test", "/admin");
    let upgraded = upgraded.header("x-forwarded-for", "203.0.113.1");
    checks.same("websocket", &upgraded.websocket(b"a").await.is_err(), &true);
    for (client, expected) in [("203.0.113.1", 0), ("198.51.100.1", 7)] {
        let call = grpc::call(agent.address(80), "calls.test", "shop.Cart/Add");
        let call = call.header("x-forwarded-for", client);
        if let Some(reply) = checks.reply(&call).await {
            checks.same(client, &grpc::status(&reply), &Some(expected));
        }
    }
    checks.finish();
}

const CHANGES: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn policy_changes_fail_and_close_nothing() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    all.push(plain_route("shop", "shop.test", "a"));
    let gateway_target = || json!({"kind": "Gateway", "name": "edge"});
    let route_target = || json!({"kind": "HTTPRoute", "name": "shop"});
    let policies = |number: usize| {
        let third = number % 250;
        let denied = format!("192.0.{third}.0/24");
        let mut policies = vec![access_policy(
            "a",
            gateway_target(),
            &filter(&[], &[&denied]),
        )];
        let spec = match number % 4 {
            0 => json!({"compression": {"types": ["Gzip"]}}),
            1 => json!({"requestBody": {"maxSize": "1Mi"}, "bandwidth": {"response": "1Gi"}}),
            2 => json!({"errorPages": [{"codes": ["5xx"], "body": number.to_string()}]}),
            _ => json!({"headers": {"response": {"set": [{"name": "x-a", "value": denied}]}}}),
        };
        policies.push(traffic_policy("t", gateway_target(), &spec));
        if !number.is_multiple_of(3) {
            policies.push(traffic_policy("r", route_target(), &spec));
            let allowed = filter(&["127.0.0.0/8"], &[]);
            policies.push(access_policy("r", route_target(), &allowed));
        }
        let numbered_route = numbered("number.test", number, backends[0].address());
        format!("{}---\n{numbered_route}", yaml(&policies))
    };
    let files = [("all.yaml", yaml(&all)), ("policies.yaml", policies(0))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let request = agent.get(80, "shop.test", "/");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone(), request.clone().http2()]));
    let mut open = Connection::open(&request).await.expect("a connection");
    for number in 1..=CHANGES {
        agent.write("policies.yaml", &policies(number));
        agent.wait_numbered("number.test", number).await;
        let reply = open
            .send(&request)
            .await
            .expect("a response on the open connection");
        assert_eq!(reply.status, 200, "after change {number}");
    }
    assert!(open.is_open().await);
    load.stop().await.clean("AccessPolicy changes");
}
