//! TrafficPolicy filters on a real Envoy.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::grpc;
use sesame_tests::manifests::{
    edge, http_listener, http_route, path, plain_route, route, rule_to, served_at, traffic_policy,
    yaml,
};

const PAGE: &str = "<h1>Sorry: 100 %</h1>";

fn gateway_spec() -> Value {
    json!({
        "requestBody": {"maxSize": "1Ki"},
        "bandwidth": {"request": "1Gi", "response": "1Gi"},
        "compression": {"types": ["Brotli", "Gzip"]},
        "errorPages": [
            {"codes": ["5xx", "404"], "body": PAGE},
            {"codes": ["413"], "body": "{}", "contentType": "application/json", "statusCode": 400},
        ],
        "headers": {
            "request": {
                "set": [{"name": "x-client", "valueFrom": "ClientAddress"}],
                "remove": ["x-debug"],
            },
            "response": {"set": [{"name": "x-frame-options", "value": "DENY"}]},
        },
    })
}

fn objects() -> Vec<Value> {
    let framed = json!([{"type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"set": [{"name": "X-Frame-Options", "value": "SAMEORIGIN"}]}}]);
    let mut rule = rule_to("a", &[path("PathPrefix", "/framed")]);
    rule["filters"] = framed;
    let large = rule_to("a", &[path("PathPrefix", "/large")]);
    let route_target = |name: &str| json!({"kind": "HTTPRoute", "name": name});
    let mut objects = vec![
        plain_route("plain", "plain.test", "a"),
        plain_route("aborted", "aborted.test", "a"),
        plain_route("wrong", "wrong.test", "a"),
        plain_route("dead", "dead.test", "dead"),
        http_route("some", &["some.test"], &[rule, large]),
        route("GRPCRoute", "calls", &["calls.test"], &[rule_to("a", &[])]),
        traffic_policy(
            "edge",
            json!({"kind": "Gateway", "name": "edge"}),
            &gateway_spec(),
        ),
        traffic_policy(
            "plain",
            route_target("plain"),
            &json!({"compression": {"types": []}, "requestBody": {"maxSize": "1Mi"}}),
        ),
        traffic_policy(
            "aborted",
            route_target("aborted"),
            &json!({"fault": {"abort": {"statusCode": 418}}}),
        ),
        traffic_policy(
            "wrong",
            route_target("wrong"),
            &json!({"requestBody": {"maxSize": "much"}}),
        ),
        traffic_policy(
            "calls",
            json!({"kind": "GRPCRoute", "name": "calls"}),
            &json!({"grpcWeb": true}),
        ),
    ];
    objects.extend(served_at("dead", "127.0.0.1:1"));
    objects
}

async fn seen(checks: &mut Checks, request: &Request) -> (u16, String, String) {
    let Some(reply) = checks.reply(request).await else {
        return Default::default();
    };
    let encoding = reply.header("content-encoding").unwrap_or_default();
    let is_page = !reply.body.starts_with(b"{\"") && encoding.is_empty();
    let body = if is_page { &reply.body[..] } else { b"" };
    let body = String::from_utf8_lossy(body).into_owned();
    (reply.status, encoding.to_owned(), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_of_policies_apply_to_requests_and_responses() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let get = |host: &str, path: &str| agent.get(80, host, path);
    agent.wait_ok(&get("plain.test", "/")).await;
    let mut checks = Checks::default();

    let all = "gzip, br";
    for (host, path, accepted, expected) in [
        ("some.test", "/framed", "", (200, "", "")),
        ("some.test", "/framed", all, (200, "br", "")),
        ("some.test", "/framed", "gzip", (200, "gzip", "")),
        ("plain.test", "/", all, (200, "", "")),
        ("some.test", "/none", all, (404, "", PAGE)),
        ("dead.test", "/", all, (503, "", PAGE)),
        ("aborted.test", "/", "", (418, "", "fault filter abort")),
        ("wrong.test", "/", "", (500, "", PAGE)),
        ("none.test", "/", "", (404, "", PAGE)),
    ] {
        let request = get(host, path).header("accept-encoding", accepted);
        let (status, encoding, body) = seen(&mut checks, &request).await;
        checks.same(
            &request,
            (status, encoding.as_str(), body.as_str()),
            expected,
        );
    }
    let upload = |host: &str, path: &str, bytes: usize| {
        get(host, path).method("POST").body(vec![b'a'; bytes])
    };
    for (request, expected) in [
        (upload("some.test", "/large", 1024), (200, "", "")),
        (upload("some.test", "/large", 1025), (400, "", "{}")),
        (upload("some.test", "/large", 1025).http2(), (400, "", "{}")),
        // A tenant must not be able to raise the Gateway's limit.
        (upload("plain.test", "/", 1025), (400, "", "{}")),
    ] {
        let (status, encoding, body) = seen(&mut checks, &request).await;
        checks.same(
            &request,
            (status, encoding.as_str(), body.as_str()),
            expected,
        );
    }
    for (host, path, frame) in [
        ("plain.test", "/", "DENY"),
        ("some.test", "/framed", "SAMEORIGIN"),
    ] {
        let request = get(host, path)
            .header("x-debug", "1")
            .header("x-client", "me");
        if let Some(reply) = checks.reply(&request).await {
            let echo = reply.echo();
            let found = (
                reply.header("x-frame-options"),
                echo.value("x-client"),
                echo.value("x-debug"),
            );
            checks.same(&request, found, (Some(frame), Some("127.0.0.1"), None));
        }
    }
    let echoed = get("plain.test", "/").websocket(b"hello").await;
    checks.same("websocket", &echoed.ok().as_deref(), &Some(&b"hello"[..]));
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_web_calls_reach_backends_as_grpc() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let call = grpc::call(agent.address(80), "calls.test", "shop.Cart/Add");
    agent
        .wait_served(&call, |reply| grpc::status(reply) == Some(grpc::code::OK))
        .await;
    let mut checks = Checks::default();
    let web = grpc::web_call(agent.address(80), "calls.test", "shop.Cart/Add");
    if let Some(reply) = checks.reply(&web).await {
        let content_type = reply.header("content-type");
        checks.same(&web, content_type, Some("application/grpc-web+proto"));
        let end = reply.body.ends_with(b"grpc-status:0\r\n");
        checks.same("trailers in the body", &end, &true);
    }
    // Without the policy, no route matches a gRPC-Web call.
    let plain = grpc::web_call(agent.address(80), "none.test", "shop.Cart/Add");
    if let Some(reply) = checks.reply(&plain).await {
        checks.same(&plain, reply.status, 404);
    }
    checks.finish();
}
