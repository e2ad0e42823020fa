//! Fields of TrafficPolicies and RouteFilters on a real Envoy that other tests do not cover.

use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::grpc;
use sesame_tests::manifests::{
    edge, endpoint_slices, http_listener, plain_route, service, traffic_policy, yaml,
};

use crate::access_tokens::route_target;

const FILTERS: &str = include_str!("../../golden/route-filters-redirects/input.yaml");
const SHORT: Duration = Duration::from_secs(2);
const PAGE: &str = "<h1>Sorry</h1>";

/// Starts an agent with a route for each policy, and waits until they are served.
async fn start(policies: &[(&str, Value)]) -> (AgentUnderTest, Vec<Backend>) {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut objects).await;
    for (name, spec) in policies {
        objects.push(plain_route(name, &format!("{name}.test"), "a"));
        objects.push(traffic_policy(name, route_target(name), spec));
    }
    objects.push(plain_route("ready", "ready.test", "a"));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "ready.test", "/")).await;
    (agent, backends)
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_of_policies_end_requests() {
    let (agent, _backends) = start(&[
        ("request", json!({"timeouts": {"request": "100ms"}})),
        (
            "attempt",
            json!({"timeouts": {"request": "0s", "backendRequest": "100ms"}}),
        ),
        (
            "idle",
            json!({"timeouts": {"request": "0s", "streamIdle": "100ms"}}),
        ),
    ])
    .await;
    let mut checks = Checks::default();
    for host in ["request.test", "attempt.test", "idle.test"] {
        // Without the policy, the client would give up.
        let request = agent.get(80, host, "/delay/30000ms");
        checks.status(request, 504).await;
        checks.status(agent.get(80, host, "/"), 200).await;
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_depends_on_type_and_size() {
    let compressed = |fields: Value| {
        let mut compression = json!({"types": ["Gzip"]});
        compression
            .as_object_mut()
            .expect("an object")
            .extend(fields.as_object().cloned().unwrap_or_default());
        json!({"compression": compression})
    };
    let json_type = json!({"contentTypes": ["application/json"]});
    let (agent, _backends) = start(&[
        ("json", compressed(json_type)),
        ("html", compressed(json!({"contentTypes": ["text/html"]}))),
        ("large", compressed(json!({"minSize": "1Mi"}))),
        ("small", compressed(json!({"minSize": "30"}))),
    ])
    .await;
    let mut checks = Checks::default();
    for (host, encoding) in [
        ("json.test", Some("gzip")),
        ("html.test", None),
        ("large.test", None),
        ("small.test", Some("gzip")),
    ] {
        let request = agent.get(80, host, "/").header("accept-encoding", "gzip");
        if let Some(reply) = checks.reply(&request).await {
            checks.same(host, reply.header("content-encoding"), encoding);
        }
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_headers_apply_as_configured() {
    let page =
        |source: &str| json!({"errorPages": [{"codes": ["503"], "body": PAGE, "source": source}]});
    let headers = json!({"headers": {
        "request": {
            "set": [{"name": "x-fixed", "value": "a"}],
            "add": [{"name": "x-more", "value": "b"}, {"name": "x-protocol", "valueFrom": "Protocol"}],
        },
        "response": {
            "add": [{"name": "x-via", "value": "edge"}],
            "remove": ["x-backend"],
        },
    }});
    let policies = [
        ("all", page("All")),
        ("own", page("Gateway")),
        ("headers", headers),
    ];
    let (agent, _backends) = start(&policies).await;
    let mut checks = Checks::default();
    for (host, is_page) in [("all.test", true), ("own.test", false)] {
        let request = agent.get(80, host, "/status/503");
        if let Some(reply) = checks.reply(&request).await {
            let seen = (reply.status, reply.body == PAGE);
            checks.same(host, seen, (503, is_page));
        }
    }
    let request = agent.get(80, "headers.test", "/");
    let request = request.header("x-fixed", "mine").header("x-more", "mine");
    if let Some(reply) = checks.reply(&request).await {
        let echo = reply.echo();
        checks.same("set", echo.values("x-fixed"), vec!["a"]);
        checks.same("added", echo.values("x-more"), vec!["mine", "b"]);
        checks.same("protocol", echo.value("x-protocol"), Some("HTTP/1.1"));
        let response = ["x-via", "x-backend"].map(|name| reply.header(name));
        checks.same("response", response, [Some("edge"), None]);
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_and_bandwidth_hold_up_requests() {
    let slow = |field: &str| {
        let mut bandwidth = json!({"request": "1Gi", "response": "1Gi"});
        bandwidth[field] = json!("1Ki");
        json!({"bandwidth": bandwidth})
    };
    let delay =
        json!({"fault": {"delay": {"duration": "1h"}}, "timeouts": {"streamIdle": "100ms"}});
    let (agent, _backends) = start(&[
        ("delay", delay),
        (
            "fast",
            json!({"bandwidth": {"request": "1Gi", "response": "1Gi"}}),
        ),
        ("request", slow("request")),
        ("response", slow("response")),
    ])
    .await;
    let mut checks = Checks::default();
    checks.status(agent.get(80, "delay.test", "/"), 504).await;
    let large = "a".repeat(32 * 1024);
    let upload = |host: &str| agent.get(80, host, "/").method("POST").body(large.clone());
    // The response contains the request's headers.
    let download = |host: &str| agent.get(80, host, "/").header("x-large", &large);
    checks.status(upload("fast.test"), 200).await;
    checks.status(download("fast.test"), 200).await;
    for request in [upload("request.test"), download("response.test")] {
        // The limit allows 1 KiB per second.
        let reply = request.clone().timeout(SHORT).send().await;
        checks.that(
            reply.is_err(),
            format_args!("{}: {reply:?}", request.address()),
        );
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_and_json_have_their_options() {
    let backend = Backend::start("backend").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.push(service("backend", "kubernetes.io/h2c"));
    objects.extend(endpoint_slices("backend", &[backend.address()]));
    let filters = FILTERS.replace("{name: gateway}", "{name: edge}");
    let agent = Setup::with_ports(&[80])
        .start(&[("all.yaml", &yaml(&objects)), ("filters.yaml", &filters)]);
    let get = |path: &str| -> Request { agent.get(80, "a.test", path) };
    agent.wait_ok(&get("/")).await;
    let mut checks = Checks::default();
    for (path, status, location) in [
        ("/host/a?b=c", 308, "http://new.example.com/new/a?b=c"),
        ("/port/a", 307, "https://a.test:8443/new/a"),
    ] {
        if let Some(reply) = checks.reply(&get(path)).await {
            let seen = (reply.status, reply.header("location"));
            checks.same(path, seen, (status, Some(location)));
        }
    }
    let request = get("/v1/books/a?page_count=7").header(grpc::RETURNED, "1");
    if let Some(reply) = checks.reply(&request).await {
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let expected = "{\n \"name\": \"a\",\n \"page_count\": 7\n}\n";
        checks.same("JSON", text.as_str(), expected);
    }
    checks.finish();
}
