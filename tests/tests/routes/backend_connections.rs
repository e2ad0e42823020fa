//! Settings of BackendPolicies whose effect only the kernel, Envoy or a gRPC server shows.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use sesame_envoy::admin::Admin;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::grpc::{self, code};
use sesame_tests::manifests::{
    backend_policy, edge, endpoint_slices, http_listener, plain_route, route, rule_to, served,
    service, yaml,
};
use sesame_tests::wait::{eventually, holds};
use tokio::net::TcpListener;

const SERVING: u8 = 1;
const NOT_SERVING: u8 = 2;

/// A gRPC server that knows the health of one service.
struct HealthServer {
    address: SocketAddr,
    status: Arc<AtomicU8>,
}

impl HealthServer {
    async fn start(service: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let status = Arc::new(AtomicU8::new(SERVING));
        let shared = Arc::clone(&status);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let status = Arc::clone(&shared);
                let answer = service_fn(move |request| {
                    let status = status.load(Ordering::Relaxed);
                    async move { Ok::<_, Infallible>(answer(request, service, status).await) }
                });
                // Envoy may disconnect at any time.
                let builder = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { address, status }
    }
}

/// Responds to health checks. Other calls get an empty message.
async fn answer(
    request: hyper::Request<Incoming>,
    service: &str,
    status: u8,
) -> Response<http_body_util::combinators::BoxBody<Bytes, Infallible>> {
    let is_check = request.uri().path() == "/grpc.health.v1.Health/Check";
    let body = request.into_body().collect().await;
    let body = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    // The service's name is the only field of the request, after the prefix of the message.
    let is_known = body.get(7..).unwrap_or_default() == service.as_bytes();
    let message = match is_check {
        // `status` is field 1.
        true if is_known => vec![8, status],
        true => vec![8, NOT_SERVING],
        false => Vec::new(),
    };
    grpc::answer(Response::new(Full::new(message.into()))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_health_checks_decide_which_endpoints_serve() {
    let server = HealthServer::start("shop.Cart").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    for (name, checked) in [
        ("known", json!({"service": "shop.Cart"})),
        ("unknown", json!({"service": "shop.Other"})),
        ("whole", json!({})),
    ] {
        objects.push(service(name, "kubernetes.io/h2c"));
        objects.extend(endpoint_slices(name, &[server.address]));
        let active = json!({"grpc": checked, "interval": "100ms",
            "healthyThreshold": 1, "unhealthyThreshold": 1});
        let check = json!({"healthCheck": {"active": active, "panicThreshold": 0}});
        objects.push(backend_policy(name, &check));
        let host = format!("{name}.test");
        objects.push(route("GRPCRoute", name, &[&host], &[rule_to(name, &[])]));
    }
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let call = |host: &str| grpc::call(agent.address(80), host, "shop.Cart/Add");
    let wait = async |host: &str, expected: u16| {
        let reached = |reply: &_| grpc::status(reply) == Some(expected);
        agent.wait_served(&call(host), reached).await;
    };
    wait("known.test", code::OK).await;
    for host in ["unknown.test", "whole.test"] {
        wait(host, code::UNAVAILABLE).await;
    }
    server.status.store(NOT_SERVING, Ordering::Relaxed);
    wait("known.test", code::UNAVAILABLE).await;
    server.status.store(SERVING, Ordering::Relaxed);
    wait("known.test", code::OK).await;
}

/// Returns the keepalive timers of connections to this address in hundredths of a second, as the
/// kernel shows them.
fn keepalive_timers(address: SocketAddr) -> Vec<u64> {
    let Ok(table) = std::fs::read_to_string("/proc/net/tcp") else {
        return Vec::new();
    };
    let number = u32::from(Ipv4Addr::LOCALHOST).swap_bytes();
    let remote = format!("{number:08X}:{:04X}", address.port());
    let lines = table.lines().map(|line| line.split_whitespace());
    let timers = lines.filter_map(|mut fields| {
        let is_open = fields.nth(2) == Some(&remote) && fields.next() == Some("01");
        let (kind, time) = fields.nth(1)?.split_once(':')?;
        let time = u64::from_str_radix(time, 16).ok()?;
        // Kind 2 includes keepalive timers.
        (is_open && kind == "02").then_some(time)
    });
    timers.collect()
}

async fn clusters(agent: &AgentUnderTest) -> Vec<Value> {
    let status = agent.wait_healthy().await;
    let admin = status["gateways"][0]["envoy"]["admin"].as_str();
    let admin = Admin::new(admin.expect("an admin socket"));
    let dump = admin
        .get("/config_dump?resource=dynamic_active_clusters")
        .await;
    let dump: Value = serde_json::from_slice(&dump.expect("Envoy answers")).expect("JSON");
    let configs = dump["configs"].as_array().cloned().unwrap_or_default();
    configs
        .into_iter()
        .map(|it| it["cluster"].clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kernel_and_envoy_have_connection_settings() {
    let backends = [Backend::start("long").await, Backend::start("usual").await];
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let spec = json!({
        "loadBalancer": {"type": "LeastRequest",
            "slowStart": {"window": "90s", "minWeightPercent": 25}},
        "connection": {"timeout": "2s", "keepalive": {"idle": "2h", "interval": "7s", "probes": 4}},
    });
    objects.push(backend_policy("long", &spec));
    for backend in &backends {
        let name = backend.name();
        objects.extend(served(name, &[backend.address()]));
        objects.push(plain_route(name, &format!("{name}.test"), name));
    }
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let (hour, minute) = (360_000, 6_000);
    for (backend, range) in backends.iter().zip([hour..=2 * hour, 0..=minute]) {
        let request = agent.get(80, &format!("{}.test", backend.name()), "/");
        agent.wait_ok(&request).await;
        eventually("a keepalive timer", TEST_TIMEOUT, async || {
            let timers = keepalive_timers(backend.address());
            let is_expected = timers.iter().any(|time| range.contains(time));
            holds(is_expected, || format!("{}: {timers:?}", backend.name()))
        })
        .await;
    }
    let clusters = clusters(&agent).await;
    let is_long = |cluster: &&Value| cluster.to_string().contains("Service/default/long/80");
    let long = clusters.iter().find(is_long).expect("a cluster");
    let slow_start = &long["least_request_lb_config"]["slow_start_config"];
    let keepalive = &long["upstream_connection_options"]["tcp_keepalive"];
    let mut checks = Checks::default();
    for (what, value, expected) in [
        ("window", &slow_start["slow_start_window"], json!("90s")),
        (
            "share",
            &slow_start["min_weight_percent"],
            json!({"value": 25}),
        ),
        ("timeout", &long["connect_timeout"], json!("2s")),
        ("interval", &keepalive["keepalive_interval"], json!(7)),
        ("probes", &keepalive["keepalive_probes"], json!(4)),
    ] {
        checks.same(what, value, &expected);
    }
    checks.finish();
}
