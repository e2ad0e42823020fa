//! Limits of BackendPolicies on concurrent retries and connections, on a real Envoy.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{
    backend_policy, edge, http_listener, plain_route, served, traffic_policy, yaml,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::access_tokens::gateway_target;

const DEADLINE: Duration = Duration::from_secs(60);
const HELD: usize = 3;

/// Responds with 503 to the first request for each path that starts with `/retried`. All other
/// requests except `/ready` get their response once `released` is true.
struct Holding {
    address: SocketAddr,
    opened: Arc<AtomicUsize>,
    arrivals: mpsc::UnboundedReceiver<()>,
    released: watch::Sender<bool>,
}

#[derive(Clone)]
struct Held {
    failed: Arc<Mutex<BTreeSet<String>>>,
    arrived: mpsc::UnboundedSender<()>,
    released: watch::Receiver<bool>,
}

impl Held {
    async fn serve(mut self, mut stream: TcpStream) {
        let mut request = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut request).await {
            let text = String::from_utf8_lossy(&request[..read]);
            let path = text.split_whitespace().nth(1).unwrap_or_default();
            let is_new = || {
                let mut failed = self.failed.lock().expect("no panic under this lock");
                failed.insert(path.to_owned())
            };
            let status = match path {
                "/ready" => 200,
                path if path.starts_with("/retried") && is_new() => 503,
                _ => {
                    // The test may have ended.
                    let _ = self.arrived.send(());
                    let _ = self.released.wait_for(|it| *it).await;
                    200
                }
            };
            let answer = format!("HTTP/1.1 {status} -\r\ncontent-length: 0\r\n\r\n");
            // Envoy may disconnect at any time.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }
}

impl Holding {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (release, released) = watch::channel(false);
        let held = Held {
            failed: Arc::default(),
            arrived,
            released,
        };
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(held.clone().serve(stream));
            }
        });
        Self {
            address,
            opened,
            arrivals,
            released: release,
        }
    }

    async fn wait_arrivals(&mut self, count: usize) {
        for _ in 0..count {
            let arrival = tokio::time::timeout(DEADLINE, self.arrivals.recv()).await;
            arrival
                .expect("a request arrives")
                .expect("the backend runs");
        }
    }
}

fn sent(request: Request) -> tokio::task::JoinHandle<u16> {
    tokio::spawn(async move {
        let reply = request.timeout(DEADLINE).send().await;
        reply.map_or(0, |reply| reply.status)
    })
}

/// Returns a backend for each policy, and an agent whose routes have the policies' names.
async fn start(policies: &[(&str, Value)], setup: Setup) -> (AgentUnderTest, Vec<Holding>) {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let retry = json!({"retry": {"codes": [503], "attempts": 1, "backoff": "1ms"}});
    objects.push(traffic_policy("retry", gateway_target(), &retry));
    let mut backends = Vec::new();
    for (name, breaker) in policies {
        let backend = Holding::start().await;
        objects.extend(served(name, &[backend.address]));
        objects.push(backend_policy(name, &json!({"circuitBreaker": breaker})));
        objects.push(plain_route(name, &format!("{name}.test"), name));
        backends.push(backend);
    }
    let agent = setup.start(&[("all.yaml", &yaml(&objects))]);
    for (name, _) in policies {
        let ready = agent.get(80, &format!("{name}.test"), "/ready");
        agent.wait_ok(&ready).await;
    }
    (agent, backends)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_retries_are_limited() {
    let budget = |percent: u32, least: u32| json!({"retryBudget": {"percent": percent, "minRetries": least}});
    // Three requests are held, and a retry of a fourth one. May a fifth one be retried?
    let cases = [
        ("default", json!({}), true),
        ("one", json!({"maxRetries": 1}), false),
        ("two", json!({"maxRetries": 2}), true),
        ("share", budget(20, 1), false),
        ("least", budget(20, 2), true),
        ("all", budget(100, 0), true),
    ];
    let policies = cases.clone().map(|(name, breaker, _)| (name, breaker));
    let (agent, mut backends) = start(&policies, Setup::with_ports(&[80])).await;
    let mut checks = Checks::default();
    for ((name, _, retries), backend) in cases.iter().zip(&mut backends) {
        let get = |path: &str| agent.get(80, &format!("{name}.test"), path);
        let mut requests: Vec<_> = (0..HELD)
            .map(|i| sent(get(&format!("/held/{i}"))))
            .collect();
        requests.push(sent(get("/retried/first")));
        backend.wait_arrivals(HELD + 1).await;
        let second = sent(get("/retried/second"));
        if *retries {
            backend.wait_arrivals(1).await;
            requests.push(second);
        } else {
            checks.same(name, second.await.expect("a status"), 503);
        }
        backend.released.send_replace(true);
        for request in requests {
            checks.same(name, request.await.expect("a status"), 200);
        }
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_are_limited() {
    let policies = [("requests", json!({"maxRequests": 3}))];
    let (agent, mut backends) = start(&policies, Setup::with_ports(&[80])).await;
    let request = || agent.get(80, "requests.test", "/");
    let held: Vec<_> = (0..HELD).map(|_| sent(request())).collect();
    backends[0].wait_arrivals(HELD).await;
    let mut checks = Checks::default();
    checks.status(request(), 503).await;
    backends[0].released.send_replace(true);
    for request in held {
        checks.same("held", request.await.expect("a status"), 200);
    }
    checks.status(request(), 200).await;
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_an_endpoint_are_limited() {
    let cases = [
        ("default", json!({}), 6),
        ("two", json!({"maxConnectionsPerEndpoint": 2}), 2),
    ];
    let policies = cases.clone().map(|(name, breaker, _)| (name, breaker));
    // Each worker may open a connection regardless of the limit.
    let setup = Setup::with_ports(&[80]).flag("--concurrency=1");
    let (agent, mut backends) = start(&policies, setup).await;
    let mut checks = Checks::default();
    for ((name, _, connections), backend) in cases.iter().zip(&mut backends) {
        let request = || agent.get(80, &format!("{name}.test"), "/");
        let requests: Vec<_> = (0..6).map(|_| sent(request())).collect();
        backend.wait_arrivals(*connections).await;
        backend.released.send_replace(true);
        for request in requests {
            checks.same(name, request.await.expect("a status"), 200);
        }
        checks.same(name, backend.opened.load(Ordering::Relaxed), *connections);
    }
    checks.finish();
}
