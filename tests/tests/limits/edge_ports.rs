//! Limits and timeouts of clients, each on one port with its opposite on another.

use std::io::ErrorKind;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    edge_with, http_listener, http_route, https_listener, rule_to, served, yaml,
};
use sesame_tests::wait::{eventually, holds};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::edge::client_hello;

fn objects(spec: &Value, listeners: &[Value], backend: &Backend) -> Vec<Value> {
    let mut all = edge_with(spec, listeners);
    all.extend(served("a", &[backend.address()]));
    all.push(http_route("a", &["a.test"], &[rule_to("a", &[])]));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_requests_apply_to_their_port() {
    let backend = Backend::start("a").await;
    let port = |port: u16, edge: Value| json!({"port": port, "edge": edge});
    let spec = json!({"edgePorts": [
        port(81, json!({"maxRequestHeaders": 20, "escapedSlashes": "Reject"})),
        port(82, json!({"maxRequestHeadersKib": 200})),
        port(83, json!({"maxRequestHeadersKib": 1, "escapedSlashes": "Unescape"})),
    ]});
    let listeners = [80, 81, 82, 83].map(|port| http_listener(&format!("on-{port}"), port, ""));
    let all = yaml(&objects(&spec, &listeners, &backend));
    let agent = Setup::with_ports(&[80, 81, 82, 83]).start(&[("all.yaml", &all)]);
    for port in [80, 81, 82, 83] {
        agent.wait_ok(&agent.get(port, "a.test", "/")).await;
    }
    let mut checks = Checks::default();
    for (port, count, size, status) in [
        (80, 50, 10, 200),
        (80, 150, 10, 431),
        (80, 2, 35_000, 431),
        (81, 50, 10, 431),
        (81, 2, 10, 200),
        (82, 2, 35_000, 200),
        (83, 2, 10, 200),
        (83, 2, 700, 431),
    ] {
        let mut request = agent.get(port, "a.test", "/");
        for i in 0..count {
            request = request.header(&format!("x-{i}"), &"y".repeat(size));
        }
        let found = request.send().await.map(|reply| reply.status).ok();
        let label = format!("{count} headers of {size} bytes to {port}");
        checks.same(&label, found, Some(status));
    }
    for (port, status) in [(80, 307), (81, 400), (83, 200)] {
        let request = agent.get(port, "a.test", "/a%2Fb");
        let found = request.send().await.map(|reply| reply.status).ok();
        checks.same(format!("an escaped slash to {port}"), found, Some(status));
    }
    checks.finish();
}

async fn connect(address: SocketAddr, head: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(head).await.expect("the bytes are sent");
    stream
}

/// Skips responses.
fn is_open(stream: &TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match stream.try_read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_close_connections_of_their_port() {
    let authority = Authority::new("edge");
    let backend = Backend::start("a").await;
    let timeouts = |time: &str| {
        json!({
            "streamIdleTimeout": time, "connectionIdleTimeout": time,
            "requestHeadersTimeout": time, "tlsHandshakeTimeout": time,
        })
    };
    let short = |port: u16| json!({"port": port, "edge": timeouts("1s")});
    let spec = json!({"edge": timeouts("0s"), "edgePorts": [short(81), short(444)]});
    let listeners = [
        http_listener("long", 80, ""),
        http_listener("short", 81, ""),
        https_listener("long-tls", 443, "", "cert"),
        https_listener("short-tls", 444, "", "cert"),
    ];
    let mut all = objects(&spec, &listeners, &backend);
    all.push(authority.issue(&["a.test"]).secret("cert"));
    let agent = Setup::with_ports(&[80, 81, 443, 444]).start(&[("all.yaml", &yaml(&all))]);
    for port in [80, 81] {
        agent.wait_ok(&agent.get(port, "a.test", "/")).await;
        let over_tls = agent.get(port + 363, "a.test", "/");
        agent
            .wait_ok(&over_tls.tls("a.test", &authority.trust()))
            .await;
    }
    let hello = client_hello(&authority.trust());
    let (mut stays, mut ends) = (Vec::new(), Vec::new());
    for (port, connections) in [(80, &mut stays), (81, &mut ends)] {
        for head in [
            "GET / HTTP/1.1\r\nhost: a.test\r\n",
            "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 10\r\n\r\nx",
        ] {
            connections.push(connect(agent.address(port), head.as_bytes()).await);
        }
        connections.push(connect(agent.address(port + 363), &hello).await);
    }
    eventually("silent connections end", TEST_TIMEOUT, async || {
        let left = ends.iter().filter(|it| is_open(it)).count();
        holds(left == 0, || format!("{left} are open"))
    })
    .await;
    let open: Vec<bool> = stays.iter().map(is_open).collect();
    assert_eq!(open, [true; 4]);
}
