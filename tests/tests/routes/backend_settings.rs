//! Load balancing, health checks and endpoint limits on a real Envoy.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_policy, edge, http_listener, http_proxy, ingress_class, numbered, plain_route, served,
    yaml,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SLOW: Duration = Duration::from_secs(2);
const POLICY_CHANGES: usize = 200;
const HEALTH_TIMEOUT: Duration = Duration::from_secs(15);

/// Tests can change the status of `/health`.
struct Endpoint {
    address: SocketAddr,
    health: Arc<AtomicU16>,
}

impl Endpoint {
    async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let health = Arc::new(AtomicU16::new(200));
        let shared_health = Arc::clone(&health);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let health = Arc::clone(&shared_health);
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let read = stream.read(&mut request).await.unwrap_or_default();
                    let request = String::from_utf8_lossy(&request[..read]);
                    let status = if request.starts_with("GET /health") {
                        health.load(Ordering::Relaxed)
                    } else {
                        200
                    };
                    if request.starts_with("GET /slow") {
                        tokio::time::sleep(SLOW).await;
                    }
                    let answer = format!(
                        "HTTP/1.1 {status} -\r\nx-end: {name}\r\nconnection: close\r\n\
                         content-length: 0\r\n\r\n"
                    );
                    // The client may disconnect at any time.
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Self { address, health }
    }
}

fn silent() -> (std::net::TcpListener, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn root(routes: &Value) -> Value {
    http_proxy(
        "shop",
        &json!({"virtualhost": {"fqdn": "shop.test"}, "routes": routes}),
    )
}

async fn ends(
    agent: &AgentUnderTest,
    path: &str,
    header: (&str, &str),
    checks: &mut Checks,
) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        let request = agent.get(80, "shop.test", path).header(header.0, header.1);
        if let Some(reply) = checks.reply(&request).await {
            let end = reply.header("x-end").map(ToString::to_string);
            seen.insert(end.unwrap_or_else(|| reply.status.to_string()));
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn hash_keeps_clients_and_checks_remove_endpoints() {
    let (one, two) = (Endpoint::start("one").await, Endpoint::start("two").await);
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.push(ingress_class());
    all.extend(served("a", &[one.address, two.address]));
    let to = json!([{"name": "a", "port": 80, "slowStartPolicy": {"window": "1s"}}]);
    let plain = json!([{"name": "a", "port": 80}]);
    let hash = json!([{"headerHashOptions": {"headerName": "x-user"}, "terminal": true},
        {"queryParameterHashOptions": {"parameterName": "User"}}, {"hashSourceIP": true}]);
    let check = json!({"path": "/health", "intervalSeconds": 1, "timeoutSeconds": 1,
        "unhealthyThresholdCount": 1, "healthyThresholdCount": 1});
    all.push(root(&json!([
        {"conditions": [{"prefix": "/hash"}], "services": plain,
            "loadBalancerPolicy": {"strategy": "RequestHash", "requestHashPolicies": hash}},
        {"conditions": [{"prefix": "/checked"}], "services": plain, "healthCheckPolicy": check},
        {"conditions": [{"prefix": "/kept"}], "services": plain, "healthCheckPolicy": check,
            "loadBalancerPolicy": {"strategy": "Cookie"}},
        {"conditions": [{"prefix": "/least"}], "services": to,
            "loadBalancerPolicy": {"strategy": "WeightedLeastRequest"}},
        {"conditions": [{"prefix": "/random"}], "services": plain,
            "loadBalancerPolicy": {"strategy": "Random"}},
    ])));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/hash")).await;
    let mut checks = Checks::default();
    let mut by_user = BTreeSet::new();
    for user in 0..12 {
        let user = format!("user-{user}");
        let seen = ends(&agent, "/hash", ("x-user", &user), &mut checks).await;
        checks.same("endpoints of a user", seen.len(), 1);
        by_user.extend(seen);
    }
    checks.same("endpoints of all users", by_user.len(), 2);
    let both = BTreeSet::from(["one".to_owned(), "two".to_owned()]);
    for path in ["/least", "/random", "/checked"] {
        // After a slow start, several requests in a row may go to one endpoint, so `turn` retries.
        turn(&agent, path, "", &both, &mut checks).await;
    }
    let path = "/kept";
    let reply = checks.reply(&agent.get(80, "shop.test", path)).await;
    let cookie = reply.as_ref().and_then(|it| it.header("set-cookie"));
    let cookie = cookie.and_then(|it| it.split(';').next().map(ToString::to_string));
    let cookie = cookie.unwrap_or_default();
    let kept = ends(&agent, path, ("cookie", &cookie), &mut checks).await;
    checks.same("endpoints of a session", kept.len(), 1);
    let (failing, other) = if kept.contains("one") {
        (&one, "two")
    } else {
        (&two, "one")
    };
    failing.health.store(500, Ordering::Relaxed);
    for path in ["/checked", "/kept"] {
        let only = BTreeSet::from([other.to_owned()]);
        turn(&agent, path, &cookie, &only, &mut checks).await;
    }
    failing.health.store(200, Ordering::Relaxed);
    turn(&agent, "/checked", &cookie, &both, &mut checks).await;
    checks.finish();
}

async fn turn(
    agent: &AgentUnderTest,
    path: &str,
    cookie: &str,
    expected: &BTreeSet<String>,
    checks: &mut Checks,
) {
    let start = Instant::now();
    let mut seen = ends(agent, path, ("cookie", cookie), checks).await;
    while seen != *expected && start.elapsed() < HEALTH_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(200)).await;
        seen = ends(agent, path, ("cookie", cookie), checks).await;
    }
    checks.same(path, &seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn annotation_limits_the_requests_of_a_service() {
    let end = Endpoint::start("one").await;
    let mut all = edge(&[http_listener("http", 80, "")]);
    let mut limited = served("limited", &[end.address]);
    limited[0]["metadata"]["annotations"] = json!({"projectcontour.io/max-requests": "1"});
    all.extend(limited);
    all.extend(served("free", &[end.address]));
    all.push(plain_route("limited", "limited.test", "limited"));
    all.push(plain_route("free", "free.test", "free"));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let mut checks = Checks::default();
    for (host, fails) in [("limited.test", true), ("free.test", false)] {
        agent.wait_ok(&agent.get(80, host, "/")).await;
        let requests: Vec<_> = (0..6).map(|_| agent.get(80, host, "/slow")).collect();
        let replies = join_all(requests.iter().map(Request::send)).await;
        let statuses: Vec<u16> = replies.iter().flatten().map(|it| it.status).collect();
        let served = statuses.contains(&200) && statuses.contains(&503) == fails;
        checks.that(served, format_args!("{host}: {statuses:?}"));
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_backend_does_not_hold_up_a_change() {
    let live = Backend::start("live").await;
    let (_listener, dead) = silent();
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.push(ingress_class());
    all.extend(served("live", &[live.address()]));
    all.extend(served("dead", &[dead]));
    let to = |service: &str| json!([{"name": service, "port": 80}]);
    let proxy = |routes: Value| yaml(&[root(&routes)]);
    let first = proxy(json!([{"services": to("live")}]));
    let files = [("all.yaml", yaml(&all)), ("proxy.yaml", first)];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let get = |path: &str| agent.get(80, "shop.test", path);
    agent.wait_backend(&get("/"), "live").await;
    let check = json!({"path": "/", "timeoutSeconds": 2});
    agent.write(
        "proxy.yaml",
        &proxy(json!([
            {"services": to("live"), "requestHeadersPolicy": {"set": [{"name": "x-new", "value": "1"}]}},
            {"conditions": [{"prefix": "/dead"}], "services": to("dead"), "healthCheckPolicy": check,
                "timeoutPolicy": {"response": "1s"}},
        ])),
    );
    let start = Instant::now();
    let is_new = |reply: &sesame_tests::client::Reply| {
        reply.status == 200 && reply.echo().value("x-new").is_some()
    };
    agent.wait_served(&get("/"), is_new).await;
    agent.wait_stored().await;
    let mut checks = Checks::default();
    let took = start.elapsed();
    checks.that(
        took < Duration::from_secs(10),
        format_args!("took {took:?}"),
    );
    // Envoy uses all endpoints if all have failed.
    checks.status(get("/dead"), 504).await;
    checks.finish();
}

/// Responds to each connection with the first line that it received.
async fn first_lines() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap_or_default();
                let text = String::from_utf8_lossy(&request[..read]);
                let line = text.lines().next().unwrap_or_default();
                let answer = format!(
                    "HTTP/1.1 200 -\r\nx-line: {line}\r\nconnection: close\r\n\
                     content-length: 0\r\n\r\n"
                );
                // The client may disconnect at any time.
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_policy_applies_to_every_route() {
    let (one, two) = (Endpoint::start("one").await, Endpoint::start("two").await);
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.extend(served("a", &[one.address, two.address]));
    all.extend(served("lines", &[first_lines().await]));
    let check = json!({"http": {"path": "/health"}, "interval": "1s", "unhealthyThreshold": 1,
        "healthyThreshold": 1});
    let hash = json!([{"type": "Cookie", "name": "user"}]);
    all.push(backend_policy(
        "a",
        &json!({"loadBalancer": {"type": "Maglev", "hash": hash},
            "healthCheck": {"active": check}}),
    ));
    all.push(backend_policy(
        "lines",
        &json!({"connection": {"proxyProtocol": "V1"}}),
    ));
    all.push(plain_route("shop", "shop.test", "a"));
    all.push(plain_route("lines", "lines.test", "lines"));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/")).await;
    let mut checks = Checks::default();
    let mut by_user = BTreeSet::new();
    for user in 0..12 {
        let cookie = format!("user={user}");
        let seen = ends(&agent, "/", ("cookie", &cookie), &mut checks).await;
        checks.same("endpoints of a user", seen.len(), 1);
        by_user.extend(seen);
    }
    checks.same("endpoints of all users", by_user.len(), 2);
    one.health.store(500, Ordering::Relaxed);
    let only = BTreeSet::from(["two".to_owned()]);
    turn(&agent, "/", "", &only, &mut checks).await;
    let reply = checks.reply(&agent.get(80, "lines.test", "/")).await;
    let line = reply.as_ref().and_then(|it| it.header("x-line"));
    let line = line.unwrap_or_default();
    checks.that(line.starts_with("PROXY TCP4 127.0.0.1 "), line);
    let programmed = |status: &Value| {
        let objects = status["objects"].as_array().into_iter().flatten();
        let policies = objects.filter(|it| it["kind"] == "BackendPolicy");
        let conditions = policies.flat_map(|it| {
            let all = it["status"]["ancestors"][0]["conditions"].as_array();
            all.cloned().unwrap_or_default()
        });
        let holds = conditions.filter(|it| it["status"] == "True");
        holds.count() == 4
    };
    agent.wait_status("programmed policies", programmed).await;
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn health_checks_use_their_own_port() {
    let (end, health) = (Endpoint::start("one").await, Endpoint::start("-").await);
    let port = health.address.port();
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.push(ingress_class());
    all.extend(served("a", &[end.address]));
    let mut proxied = served("b", &[end.address]);
    proxied[0]["spec"]["ports"] = json!([{"name": "http", "port": 80},
        {"name": "health", "port": 81, "targetPort": port}]);
    all.extend(proxied);
    let check = json!({"http": {"path": "/health"}, "port": port, "interval": "1s",
        "unhealthyThreshold": 1, "healthyThreshold": 1});
    all.push(backend_policy(
        "a",
        &json!({"healthCheck": {"active": check, "panicThreshold": 0}}),
    ));
    // Its health check comes from the HTTPProxy.
    all.push(backend_policy(
        "b",
        &json!({"healthCheck": {"panicThreshold": 0}}),
    ));
    let check = json!({"path": "/health", "intervalSeconds": 1, "unhealthyThresholdCount": 1,
        "healthyThresholdCount": 1});
    all.push(root(&json!([
        {"services": [{"name": "a", "port": 80}]},
        {"conditions": [{"prefix": "/proxied"}], "healthCheckPolicy": check,
            "services": [{"name": "b", "port": 80, "healthPort": 81}]},
    ])));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/")).await;
    let mut checks = Checks::default();
    for (status, expected) in [(500, "503"), (200, "one")] {
        health.health.store(status, Ordering::Relaxed);
        let only = BTreeSet::from([expected.to_owned()]);
        for path in ["/", "/proxied"] {
            turn(&agent, path, "", &only, &mut checks).await;
        }
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_changes_under_load_fail_nothing() {
    let backends = [Backend::start("one").await, Backend::start("two").await];
    let mut all = Vec::new();
    all.extend(served("a", &backends.each_ref().map(Backend::address)));
    all.push(plain_route("shop", "shop.test", "a"));
    let policy = |number: usize| {
        let spec = match number % 4 {
            0 => json!({"loadBalancer": {"type": "LeastRequest"}}),
            1 => json!({"loadBalancer": {"type": "RingHash", "hash": [{"type": "ClientAddress"}]}}),
            2 => json!({"healthCheck": {"active": {"tcp": {}}, "passive": {}}}),
            _ => json!({"connection": {"maxRequests": 3}}),
        };
        let numbered_route = numbered("number.test", number, backends[0].address());
        format!(
            "{}---\n{numbered_route}",
            yaml(&[backend_policy("a", &spec)])
        )
    };
    let files = [("all.yaml", yaml(&all)), ("policy.yaml", policy(0))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let request = agent.get(80, "shop.test", "/");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request]));
    for number in 1..=POLICY_CHANGES {
        agent.write("policy.yaml", &policy(number));
        agent.wait_numbered("number.test", number).await;
    }
    load.stop().await.clean("BackendPolicy changes");
}
