//! Rate limits by parts of requests on a real Envoy. Clients must not escape them with missing,
//! repeated or differently encoded values.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{edge, http_listener, plain_route, traffic_policy, yaml};

/// Requests of each test that pass before the limit applies.
const ALLOWED: usize = 2;

fn limit(name: &str, requests: usize, more: &Value) -> Value {
    let mut limit = json!({"name": name, "requests": requests, "per": "Hour"});
    let fields = more.as_object().expect("an object");
    limit
        .as_object_mut()
        .expect("an object")
        .extend(fields.clone());
    limit
}

fn on_route(name: &str, limits: &[Value]) -> Value {
    let target = json!({"kind": "HTTPRoute", "name": name});
    traffic_policy(name, target, &json!({"rateLimits": limits}))
}

/// Starts an agent with a route, host and policy for each name.
async fn start(policies: &[(&str, Vec<Value>)], more: Vec<Value>) -> (AgentUnderTest, impl Sized) {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    for (name, limits) in policies {
        all.push(plain_route(name, &format!("{name}.test"), "a"));
        all.push(on_route(name, limits));
    }
    all.push(plain_route("free", "free.test", "a"));
    all.extend(more);
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "free.test", "/")).await;
    (agent, backends)
}

/// Expects that the requests together pass `ALLOWED` times, in this order.
async fn share_a_limit(checks: &mut Checks, what: &str, requests: &[Request]) {
    for (number, request) in requests.iter().enumerate() {
        let expected = if number < ALLOWED { 200 } else { 429 };
        let found = checks.reply(request).await.map(|reply| reply.status);
        checks.same(
            format_args!("request {number} {what}"),
            found,
            Some(expected),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_count_missing_and_encoded_values() {
    let keyed = |key: Value| vec![limit("keyed", ALLOWED, &json!({"keys": [key]}))];
    let policies = [
        ("cookie", keyed(json!({"type": "Cookie", "name": "id"}))),
        ("header", keyed(json!({"type": "Header", "name": "X-User"}))),
        (
            "query",
            keyed(json!({"type": "QueryParameter", "name": "q"})),
        ),
        ("path", keyed(json!({"type": "Path"}))),
        ("method", keyed(json!({"type": "Method"}))),
    ];
    let (agent, _backends) = start(&policies, Vec::new()).await;
    let mut checks = Checks::default();
    let get = |host: &str, path: &str| agent.get(80, &format!("{host}.test"), path);
    let with = |host: &str, name: &str, value: &str| get(host, "/").header(name, value);

    let cookie = |value: &str| with("cookie", "cookie", value);
    let none = [
        get("cookie", "/"),
        cookie("id="),
        cookie("other=1"),
        cookie("id=\"\""),
    ];
    share_a_limit(&mut checks, "without a cookie", &none).await;
    let same = [
        cookie("id=a"),
        cookie("x=1; id=a"),
        cookie("id=a; id=b"),
        cookie("id=\"a\""),
        cookie("x=1").header("cookie", "id=a"),
        cookie("x=1").header("cookie", "id=a").http2(),
    ];
    share_a_limit(&mut checks, "with cookie a", &same).await;
    let long = "z".repeat(600);
    let long = [1, 2, 3].map(|number| cookie(&format!("id={long}{number}")));
    share_a_limit(&mut checks, "with a long cookie", &long).await;

    let header = |value: &str| with("header", "x-user", value);
    let none = [get("header", "/"), header(""), get("header", "/?x-user=1")];
    share_a_limit(&mut checks, "without a header", &none).await;
    let same = [header("a"), header("a").header("x-user", "b"), header("a ")];
    share_a_limit(&mut checks, "with header a", &same).await;

    let none = ["/", "/?q", "/?q=", "/?Q=1", "/?x=q"].map(|path| get("query", path));
    share_a_limit(&mut checks, "without a parameter", &none).await;
    let same = ["/?q=a", "/?x=1&q=a", "/?q=%61", "/?%71=a", "/?q=a&q=b"];
    share_a_limit(
        &mut checks,
        "with q=a",
        &same.map(|path| get("query", path)),
    )
    .await;

    let same = ["/a", "/a?x=1", "/a?x=2", "//a", "/./a", "/%61", "/b/../a"];
    share_a_limit(&mut checks, "for /a", &same.map(|path| get("path", path))).await;
    share_a_limit(
        &mut checks,
        "for /b",
        &["/b"; 3].map(|path| get("path", path)),
    )
    .await;

    let method = |method: &str| get("method", "/").method(method);
    share_a_limit(&mut checks, "GET", &["GET"; 3].map(method)).await;
    share_a_limit(&mut checks, "PUT", &["PUT"; 3].map(method)).await;
    let invented = ["A1", "A2", "A3", "get"].map(|name| method(name).http2());
    for (number, request) in invented.iter().enumerate() {
        let status = checks.reply(request).await.map(|reply| reply.status);
        let limited = status == Some(429);
        checks.same(
            format_args!("invented method {number} is limited"),
            limited,
            number >= ALLOWED,
        );
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn report_mode_counts_but_weakens_no_limit() {
    let report = json!({"mode": "Report", "headers": "DraftVersion03"});
    let policies = [
        ("reported", vec![limit("report", 1, &report)]),
        (
            "both",
            vec![
                limit("report", 1, &report),
                limit("enforce", ALLOWED, &json!({})),
            ],
        ),
    ];
    let (agent, _backends) = start(&policies, Vec::new()).await;
    let mut checks = Checks::default();
    for _ in 0..4 {
        let reply = checks.reply(&agent.get(80, "reported.test", "/")).await;
        checks.same("status", reply.as_ref().map(|it| it.status), Some(200));
        let header = reply.is_some_and(|it| it.header("x-ratelimit-limit").is_some());
        checks.that(!header, "a reported limit is not described");
    }
    let both = ["/"; 5].map(|path| agent.get(80, "both.test", path));
    share_a_limit(&mut checks, "beside a reported limit", &both).await;
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_describe_only_limits_that_allow_it() {
    let told = json!({"headers": "DraftVersion03"});
    let policies = [
        ("told", vec![limit("all", ALLOWED, &told)]),
        (
            "hidden",
            vec![
                limit("slow", ALLOWED, &json!({})),
                limit("fast", 1000, &told),
            ],
        ),
    ];
    let (agent, _backends) = start(&policies, Vec::new()).await;
    let mut checks = Checks::default();
    for (host, left) in [
        ("told", [Some("1"), Some("0"), Some("0")]),
        ("hidden", [None; 3]),
    ] {
        for (number, left) in left.into_iter().enumerate() {
            let request = agent.get(80, &format!("{host}.test"), "/");
            let Some(reply) = checks.reply(&request).await else {
                continue;
            };
            let what = format!("request {number} to {host}");
            let expected = if number < ALLOWED { 200 } else { 429 };
            checks.same(format_args!("status of {what}"), reply.status, expected);
            let header = reply.header("x-ratelimit-remaining");
            checks.same(format_args!("remaining after {what}"), header, left);
            let header = reply.header("x-ratelimit-limit");
            checks.same(format_args!("limit of {what}"), header, left.map(|_| "2"));
        }
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_gateway_and_route_count_apart() {
    let key = json!({"keys": [{"type": "Cookie", "name": "id"}]});
    let gateway = json!({"kind": "Gateway", "name": "edge"});
    let spec = json!({"rateLimits": [limit("all", ALLOWED, &key)]});
    let everywhere = traffic_policy("edge", gateway, &spec);
    let generous = json!({"mode": "Report", "headers": "DraftVersion03",
        "keys": [{"type": "Cookie", "name": "id"}]});
    let policies = [("one", vec![limit("all", 1000, &generous)])];
    let (agent, _backends) = start(&policies, vec![everywhere]).await;
    let mut checks = Checks::default();
    let request = agent.get(80, "one.test", "/").header("cookie", "id=a");
    let requests = [request.clone(), request.clone(), request.clone(), request];
    share_a_limit(&mut checks, "of the Gateway", &requests).await;
    checks.finish();
}
