//! Health checks, connections and limits of BackendPolicies on a real Envoy.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{backend_policy, edge, http_listener, plain_route, served, yaml};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

const DEADLINE: Duration = Duration::from_secs(30);

/// Keeps connections open, and reports when Envoy closes them. Responds once `released` is true.
struct Keeping {
    address: SocketAddr,
    closed: mpsc::UnboundedReceiver<()>,
    released: watch::Sender<bool>,
}

impl Keeping {
    /// Health checks succeed only with status 418, and only for the host `checked.test`.
    async fn start(status: u16, is_released: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (report, closed) = mpsc::unbounded_channel();
        let (released, waiting) = watch::channel(is_released);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (report, mut waiting) = (report.clone(), waiting.clone());
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    while let Ok(read @ 1..) = stream.read(&mut request).await {
                        let text = String::from_utf8_lossy(&request[..read]);
                        let status = match text.contains("GET /health") {
                            true if text.contains("host: checked.test") => 418,
                            true => 200,
                            false => status,
                        };
                        // The test may have ended.
                        let _ = waiting.wait_for(|it| *it).await;
                        let answer = format!("HTTP/1.1 {status} -\r\ncontent-length: 0\r\n\r\n");
                        // Envoy may disconnect at any time.
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                    let _ = report.send(());
                });
            }
        });
        Self {
            address,
            closed,
            released,
        }
    }
}

fn with_policy(name: &str, endpoints: &[SocketAddr], spec: &Value) -> Vec<Value> {
    let mut objects = served(name, endpoints);
    objects.push(backend_policy(name, spec));
    objects.push(plain_route(name, &format!("{name}.test"), name));
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_and_errors_decide_which_endpoints_serve() {
    let good = Keeping::start(200, true).await;
    let bad = Keeping::start(503, true).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let ejecting = |errors: &str| {
        let mut passive = json!({"consecutiveServerErrors": 0, "interval": "100ms",
            "baseEjectionTime": "1h", "maxEjectionPercent": 50});
        passive[errors] = json!(1);
        json!({"healthCheck": {"passive": passive, "panicThreshold": 0}})
    };
    let both = [good.address, bad.address];
    for (name, errors) in [
        ("server", "consecutiveServerErrors"),
        ("gateway", "consecutiveGatewayErrors"),
    ] {
        objects.extend(with_policy(name, &both, &ejecting(errors)));
    }
    let checking = |http: Value| {
        let active = json!({"http": http, "interval": "100ms",
            "healthyThreshold": 1, "unhealthyThreshold": 1});
        json!({"healthCheck": {"active": active, "panicThreshold": 0}})
    };
    let teapot = json!([{"first": 418}]);
    for (name, http) in [
        (
            "checked",
            json!({"path": "/health", "hostname": "checked.test", "statuses": teapot}),
        ),
        ("failing", json!({"path": "/health", "statuses": teapot})),
    ] {
        objects.extend(with_policy(name, &[good.address], &checking(http)));
    }
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let get = |host: &str| agent.get(80, host, "/");
    agent.wait_ok(&get("checked.test")).await;
    let mut checks = Checks::default();
    checks.status(get("failing.test"), 503).await;
    for host in ["server.test", "gateway.test"] {
        agent
            .wait_served(&get(host), |reply| reply.status == 503)
            .await;
        // Without an ejection, every second response would be an error.
        let mut successes = 0;
        for _ in 0..500 {
            let reply = checks.reply(&get(host)).await;
            let is_good = reply.is_some_and(|it| it.status == 200);
            successes = if is_good { successes + 1 } else { 0 };
            if successes == 20 {
                break;
            }
        }
        checks.same(host, successes, 20);
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_and_requests_are_limited() {
    let mut idle = Keeping::start(200, true).await;
    let mut old = Keeping::start(200, true).await;
    let held = Keeping::start(200, false).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let idle_spec = json!({"connection": {"idleTimeout": "100ms"}});
    let old_spec = json!({"connection": {"maxDuration": "100ms"}});
    let mut used = Keeping::start(200, true).await;
    let used_spec = json!({"connection": {"maxRequests": 1}});
    objects.extend(with_policy("used", &[used.address], &used_spec));
    let held_spec = json!({"circuitBreaker": {"maxConnections": 1, "maxPendingRequests": 1}});
    objects.extend(with_policy("idle", &[idle.address], &idle_spec));
    objects.extend(with_policy("old", &[old.address], &old_spec));
    objects.extend(with_policy("held", &[held.address], &held_spec));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let mut checks = Checks::default();
    for (host, end) in [
        ("idle.test", &mut idle),
        ("old.test", &mut old),
        ("used.test", &mut used),
    ] {
        agent.wait_ok(&agent.get(80, host, "/")).await;
        let closed = tokio::time::timeout(DEADLINE, end.closed.recv()).await;
        checks.that(closed.is_ok(), format_args!("{host}: connection closed"));
    }
    let refused = |reply: &sesame_tests::client::Reply| reply.status == 503;
    let request = agent.get(80, "held.test", "/").timeout(DEADLINE);
    let replies = (0..8).map(|_| {
        let (request, released) = (request.clone(), &held.released);
        async move {
            let reply = request.send().await.expect("a response");
            if refused(&reply) {
                // The limit is reached, so the other requests may end.
                released.send_replace(true);
            }
            reply.status
        }
    });
    let statuses = join_all(replies).await;
    checks.that(statuses.contains(&503), format_args!("{statuses:?}"));
    checks.that(statuses.contains(&200), format_args!("{statuses:?}"));
    checks.finish();
}
