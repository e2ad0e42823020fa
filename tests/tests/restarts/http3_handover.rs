//! Handovers must not interrupt HTTP/3: open connections end only when the first Envoy asks clients to
//! connect again, and new ones reach the second Envoy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::RootCertStore;
use serde_json::json;
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::http3::{Connection, is_unsent};
use sesame_tests::manifests::{edge_with, http_route, https_listener, rule_to, yaml};
use sesame_tests::seeded::count;
use sesame_tests::wait::{eventually, holds};
use tokio::task::JoinSet;

const HOST: &str = "a.test";
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    connections: AtomicUsize,
    stops: AtomicBool,
}

struct Clients {
    counts: Arc<Counts>,
    tasks: JoinSet<Vec<String>>,
}

impl Clients {
    /// Every second client opens a connection for each request.
    fn start(number: usize, server: SocketAddr, trust: &Arc<RootCertStore>) -> Self {
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        for client in 0..number {
            let (counts, trust) = (Arc::clone(&counts), Arc::clone(trust));
            let stays = client % 2 == 0;
            tasks.spawn(async move { run(stays, server, &trust, &counts).await });
        }
        Self { counts, tasks }
    }

    async fn pass(&self, requests: usize) {
        let target = self.counts.requests.load(Ordering::Relaxed) + requests;
        let what = format!("{requests} more requests");
        eventually(&what, TEST_TIMEOUT, async || {
            let now = self.counts.requests.load(Ordering::Relaxed);
            holds(now >= target, || format!("{now} of {target}"))
        })
        .await;
    }

    async fn stop(self) {
        self.counts.stops.store(true, Ordering::Relaxed);
        let failures = self.tasks.join_all().await.concat();
        let requests = self.counts.requests.load(Ordering::Relaxed);
        let connections = self.counts.connections.load(Ordering::Relaxed);
        assert!(
            failures.is_empty(),
            "{requests} requests on {connections} connections: {failures:#?}"
        );
    }
}

async fn run(
    stays: bool,
    server: SocketAddr,
    trust: &Arc<RootCertStore>,
    counts: &Counts,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut open: Option<Connection> = None;
    while !counts.stops.load(Ordering::Relaxed) {
        let kept = open.take().filter(Connection::is_open);
        let mut connection = if let Some(connection) = kept {
            connection
        } else {
            counts.connections.fetch_add(1, Ordering::Relaxed);
            match Connection::open(CLIENT, server, HOST, trust).await {
                Ok(connection) => connection,
                Err(error) => {
                    failures.push(format!("connect: {error:#}"));
                    continue;
                }
            }
        };
        match connection.get(HOST, "/").await {
            Ok(reply) if reply.status == 200 => {
                counts.requests.fetch_add(1, Ordering::Relaxed);
                open = Some(connection).filter(|_| stays);
            }
            Ok(reply) => failures.push(format!("status {}", reply.status)),
            // The next request is sent on another connection.
            Err(error) if stays && is_unsent(&error) => {}
            Err(error) => failures.push(format!(
                "{:?} stays {stays} request: {error:#}",
                jiff::Timestamp::now()
            )),
        }
    }
    failures
}

async fn restarts_fail_nothing(strategy: &str, workers: &str) {
    let settings = json!({"edge": {"http3": {}}});
    let listeners = [https_listener("https", 443, HOST, "cert")];
    let mut all = edge_with(&settings, &listeners);
    let _backends = start_served(&["a"], &mut all).await;
    let servers = Authority::new("gateway");
    all.push(servers.issue(&[HOST]).secret("cert"));
    all.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[443])
        .flag("--drain-seconds=3")
        .flag(workers)
        .start(&[("all.yaml", &yaml(&all))]);
    let (server, trust) = (agent.address(443), servers.trust());
    agent
        .wait_ok(&agent.get(443, HOST, "/").tls(HOST, &trust))
        .await;
    eventually("a connection over QUIC", TEST_TIMEOUT, async || {
        let opened = Connection::open(CLIENT, server, HOST, &trust).await;
        opened.map(drop).map_err(|error| format!("{error:#}"))
    })
    .await;
    let clients = Clients::start(count("SESAME_HTTP3_CLIENTS", 10, 50), server, &trust);
    for _ in 0..count("SESAME_HTTP3_HANDOVERS", 3, 20) {
        clients.pass(200).await;
        agent.envoy_is_replaced(strategy, "handover").await;
        clients.pass(200).await;
        agent.wait_envoys(1).await;
    }
    clients.pass(200).await;
    clients.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handovers_fail_no_request_over_http3() {
    restarts_fail_nothing("handover", "--concurrency=2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handovers_of_single_worker_fail_no_request_over_http3() {
    restarts_fail_nothing("handover", "--concurrency=1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_restarts_fail_no_request_over_http3() {
    restarts_fail_nothing("auto", "--concurrency=1").await;
}
