//! Changes of every policy kind under load drain no connection and fail no request, and changed
//! routes refill no limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::client::{Connection, Request};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    NAMESPACE, access_policy, backend_policy, edge, http_listener, http_route, numbered, path,
    rule_to, traffic_policy, yaml,
};
use sesame_tests::seeded::count;

use crate::access_tokens::{gateway_target, route_target};

/// Without `fault`, which would fail requests.
fn traffic(number: usize) -> Value {
    let limit = json!({"name": "all", "requests": 1_000_000 + number, "per": "Second"});
    match number % 8 {
        0 => json!({"rateLimits": [limit]}),
        1 => json!({"requestBody": {"maxSize": format!("{}Ki", number + 64)}}),
        2 => json!({"timeouts": {"request": format!("{}s", number % 100 + 60)}}),
        3 => json!({"retry": {"codes": [503], "attempts": number % 4}}),
        4 => json!({"compression": {"types": ["Gzip"], "minSize": (number + 30).to_string()}}),
        5 => json!({"errorPages": [{"codes": ["5xx"], "body": number.to_string()}]}),
        6 => {
            json!({"headers": {"request": {"set": [{"name": "x-number", "value": number.to_string()}]}}})
        }
        _ => json!({"bandwidth": {"response": format!("{}Mi", number + 512)}, "grpcWeb": true}),
    }
}

fn access(number: usize) -> Value {
    match number % 3 {
        0 => {
            json!({"ipFilter": {"allow": ["127.0.0.0/8"], "deny": [format!("192.0.2.{}/32", number % 250)]}})
        }
        1 => json!({"csrf": {"additionalOrigins": [format!("n{number}.test")]}}),
        _ => json!({"authorization": {"rules": [{"action": "Allow", "methods": ["GET"]}]}}),
    }
}

fn backend(number: usize) -> Value {
    match number % 4 {
        0 => json!({"loadBalancer": {"type": "LeastRequest"}}),
        1 => json!({"healthCheck": {"active": {"tcp": {}}, "passive": {}}}),
        2 => json!({"circuitBreaker": {"maxRequests": 10_000 + number}}),
        _ => json!({"connection": {"timeout": format!("{}s", number % 20 + 5)}}),
    }
}

fn filters(number: usize) -> Vec<Value> {
    let spec = match number % 2 {
        0 => json!({"credentialInjection": {"credential": {"name": "partner"}}}),
        _ => {
            json!({"urlRewrite": {"regex": {"pattern": "^/a", "substitution": format!("/{number}")}}})
        }
    };
    let object = |api_version: &str, kind: &str, name: &str| {
        json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE}})
    };
    let mut filter = object("projectsesame.io/v1alpha1", "RouteFilter", "shop");
    filter["spec"] = spec;
    let mut secret = object("v1", "Secret", "partner");
    secret["stringData"] = json!({"credential": format!("Bearer {number}")});
    vec![filter, secret]
}

/// Each step changes the policies of one kind; the numbered route shows when they are served.
fn step(number: usize, backend_address: std::net::SocketAddr) -> String {
    let of = |kind: usize| (number + 4 - kind) / 4;
    let target = |number: usize| match number % 2 {
        0 => gateway_target(),
        _ => route_target("shop"),
    };
    let mut objects = vec![
        traffic_policy("traffic", target(of(0)), &traffic(of(0))),
        access_policy("access", target(of(1)), &access(of(1))),
        backend_policy("a", &backend(of(2))),
    ];
    objects.extend(filters(of(3)));
    let route = numbered("number.test", number, backend_address);
    format!("{}---\n{route}", yaml(&objects))
}

async fn still_open(open: &mut [(Connection, Request)], number: usize) {
    for (connection, request) in open {
        let reply = connection.send(request).await;
        let reply = reply.expect("a response on the open connection");
        assert_eq!(reply.status, 200, "{request} after change {number}");
    }
}

async fn opened(requests: &[Request]) -> Vec<(Connection, Request)> {
    let mut open = Vec::new();
    for request in requests {
        let connection = Connection::open(request).await.expect("a connection");
        open.push((connection, request.clone()));
    }
    open
}

fn requests(agent: &AgentUnderTest) -> Vec<Request> {
    let request = agent.get(80, "shop.test", "/a");
    let plain = agent.get(80, "plain.test", "/");
    vec![request.clone(), request.http2(), plain]
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_changes_drain_nothing_and_fail_nothing() {
    let changes = count("SESAME_POLICY_CHANGES", 64, 1_000);
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    let address = backends[0].address();
    let mut rule = rule_to("a", &[path("PathPrefix", "/")]);
    let filter = json!({"group": "projectsesame.io", "kind": "RouteFilter", "name": "shop"});
    rule["filters"] = json!([{"type": "ExtensionRef", "extensionRef": filter}]);
    all.push(http_route("shop", &["shop.test"], &[rule]));
    all.push(sesame_tests::manifests::plain_route(
        "plain",
        "plain.test",
        "a",
    ));
    let files = [("all.yaml", yaml(&all)), ("step.yaml", step(0, address))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let requests = requests(&agent);
    agent.wait_ok(&requests[0]).await;
    let load = Load::start(&Plan::new(requests.clone()));
    let mut open = opened(&requests).await;
    for number in 1..=changes {
        agent.write("step.yaml", &step(number, address));
        agent.wait_numbered("number.test", number).await;
        still_open(&mut open, number).await;
    }
    for (connection, request) in &mut open {
        assert!(connection.is_open().await, "{request}");
    }
    load.stop().await.clean("changes of all policy kinds");
}

/// Requests per second.
const LIMIT: u64 = 12;

#[derive(Debug, Default)]
struct Seen {
    passed: u64,
    rejected: u64,
    others: u64,
    within: Duration,
}

async fn ask(request: Request, ends: Arc<AtomicBool>) -> Seen {
    let mut seen = Seen::default();
    let start = Instant::now();
    let mut connection = Connection::open(&request).await.expect("a connection");
    while !ends.load(Ordering::Relaxed) {
        let reply = connection.send(&request).await.expect("a response");
        match reply.status {
            200 => seen.passed += 1,
            429 => seen.rejected += 1,
            _ => seen.others += 1,
        }
    }
    seen.within = start.elapsed();
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_per_second_holds_while_routes_change() {
    let changes = count("SESAME_ROUTE_CHANGES", 64, 1_000);
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    let limit = json!({"name": "all", "requests": LIMIT, "per": "Second"});
    let limit = json!({"rateLimits": [limit]});
    all.push(traffic_policy("limited", route_target("limited"), &limit));
    // Each step changes the limited route and another one.
    let step = |number: usize| {
        let mut rule = rule_to("a", &[path("PathPrefix", "/")]);
        let header = json!({"name": "x-number", "value": number.to_string()});
        rule["filters"] = json!([
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [header]}},
        ]);
        let limited = http_route("limited", &["limited.test"], &[rule]);
        let other = numbered("number.test", number, backends[0].address());
        format!("{}---\n{other}", yaml(&[limited]))
    };
    let files = [("all.yaml", yaml(&all)), ("step.yaml", step(0))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    agent.wait_numbered("number.test", 0).await;
    let ends = Arc::new(AtomicBool::new(false));
    let request = agent.get(80, "limited.test", "/");
    let asking = tokio::spawn(ask(request, Arc::clone(&ends)));
    for number in 1..=changes {
        agent.write("step.yaml", &step(number));
        agent.wait_numbered("number.test", number).await;
    }
    ends.store(true, Ordering::Relaxed);
    let seen = asking.await.expect("a count");
    eprintln!("{changes} changes: {seen:?}");
    // A full bucket, one refill per second, and a second that has only begun.
    let most = LIMIT * (seen.within.as_secs() + 2);
    assert!(seen.passed <= most, "at most {most}: {seen:?}");
    assert!(seen.rejected > 0 && seen.others == 0, "{seen:?}");
}
