//! Limits on untrusted clients must never disconnect a client that makes progress.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    GATEWAY, edge, http_listener, http_route, https_listener, route, rule_to, served, service, yaml,
};
use sesame_tests::streams::{self, Kind, LongStream};
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const DRIPS: usize = 20;
const BETWEEN: Duration = Duration::from_millis(300);
/// Shorter than a whole body takes, but longer than one byte takes on a busy machine.
const TIMEOUT: &str = "3s";

fn annotated(objects: &mut [Value], annotations: &[(&str, &str)]) {
    for object in objects {
        if object["kind"] == "Gateway" && object["metadata"]["name"] == GATEWAY {
            for (name, value) in annotations {
                object["metadata"]["annotations"][format!("projectsesame.io/{name}")] =
                    json!(value);
            }
        }
    }
}

/// Sends bytes that client libraries refuse to send. The response may be empty.
async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("the request is sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn get(address: SocketAddr, path: &str, header: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n{header}\r\n");
    raw(address, &request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_normalizes_paths_and_rejects_underscores_by_default() {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let address = agent.address(80);
    let mut checks = Checks::default();
    for (path, to) in [
        ("/public/..%2fadmin", "/admin"),
        ("/public/..%5cadmin", "/admin"),
        ("/a%2Fb", "/a/b"),
    ] {
        let answer = get(address, path, "").await.to_ascii_lowercase();
        let redirected = answer.starts_with("http/1.1 307")
            && answer.lines().any(|line| {
                line.strip_prefix("location: ")
                    .is_some_and(|location| location.trim_end().ends_with(to))
            });
        checks.that(redirected, format!("{path}: {answer}"));
    }
    let answer = get(address, "/a//b///c", "").await;
    checks.that(answer.contains(r#""path":"/a/b/c""#), answer);
    let answer = get(address, "/", "x_user: root\r\n").await;
    checks.that(answer.starts_with("HTTP/1.1 400"), answer);

    annotated(
        &mut objects,
        &[
            ("escaped-slashes", "keep"),
            ("repeated-slashes", "keep"),
            ("header-underscores", "allow"),
            ("stream-idle-timeout", "soon"),
        ],
    );
    agent.write("all.yaml", &yaml(&objects));
    let status = agent
        .wait_status("the invalid annotation is reported", |status| {
            accepted(status).contains("stream-idle-timeout")
        })
        .await;
    checks.that(
        accepted(&status).contains("\"soon\" is not a duration"),
        status.to_string(),
    );
    eventually("escaped slashes pass", TEST_TIMEOUT, async || {
        let answer = get(address, "/a%2Fb//c", "x_user: root\r\n").await;
        let passed = answer.contains(r#""path":"/a%2Fb//c""#) && answer.contains("x_user");
        holds(passed, || answer)
    })
    .await;
    checks.finish();
}

/// Returns the message of the `Accepted` condition if its status is `True`.
fn accepted(status: &Value) -> String {
    let objects = status["objects"].as_array().into_iter().flatten();
    let conditions = objects
        .filter(|object| object["kind"] == "Gateway")
        .filter_map(|gateway| gateway["status"]["conditions"].as_array())
        .flatten();
    conditions
        .filter(|condition| condition["type"] == "Accepted" && condition["status"] == "True")
        .map(|condition| condition["message"].to_string().replace("\\\"", "\""))
        .collect()
}

async fn answering(answer: String) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let address = listener.local_addr().expect("the socket is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_but_valid_messages_pass() {
    let (backend, any) = (Backend::start("a").await, Backend::start("any").await);
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        http_listener("wild", 80, "*.test"),
    ]);
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </s.css>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let headers: Vec<String> = (0..300)
        .map(|i| format!("x-{i}: {}\r\n", "y".repeat(300)))
        .collect();
    let headers = headers.concat();
    let many = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n");
    for (name, address) in [
        ("a", backend.address()),
        ("any", any.address()),
        ("hints", answering(hints.to_owned()).await),
        ("many", answering(many).await),
    ] {
        objects.extend(served(name, &[address]));
    }
    for name in ["a", "hints", "many"] {
        let host = format!("{name}.test");
        objects.push(http_route(name, &[&host], &[rule_to(name, &[])]));
    }
    objects.push(http_route("any", &[], &[rule_to("any", &[])]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let mut checks = Checks::default();
    for (name, lines, expected, absent) in [
        (
            "a name with a final dot",
            "Host: A.test.:80",
            r#""backend":"a""#,
            "A.test.",
        ),
        (
            "two Hosts",
            "Host: a.test\r\nHost: b.test",
            "HTTP/1.1 400",
            "backend",
        ),
        (
            "an offer",
            "Host: a.test\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2",
            "HTTP/1.1 200",
            "TLS/1.2",
        ),
        (
            "offers",
            "Host: a.test\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1",
            "HTTP/1.1 200",
            "TLS/1.0",
        ),
        (
            "headers of Envoy",
            "Host: a.test\r\nX-Envoy-Peer-Metadata: x\r\nx-envoy-attempt-count: 7",
            "HTTP/1.1 200",
            "x-envoy-attempt-count",
        ),
        (
            "other headers of Envoy",
            "Host: a.test\r\nX-Envoy-Peer-Metadata: x",
            "HTTP/1.1 200",
            "x-envoy-peer-metadata",
        ),
        (
            "many response headers",
            "Host: many.test",
            "HTTP/1.1 200",
            "HTTP/1.1 502",
        ),
        (
            "early hints",
            "Host: hints.test",
            "HTTP/1.1 103",
            "HTTP/1.1 502",
        ),
        (
            "a response after early hints",
            "Host: hints.test",
            "HTTP/1.1 200",
            "HTTP/1.1 502",
        ),
    ] {
        let request = format!("GET / HTTP/1.1\r\n{lines}\r\nConnection: close\r\n\r\n");
        let answer = raw(agent.address(80), &request).await;
        let right = answer.contains(expected) && !answer.contains(absent);
        checks.that(right, format!("{name}: {answer}"));
    }
    let malformed =
        "other,a.test user@a.test a.test.. a.test..:80 a.test:1:2 a.test:1.:2 [::1]:1:2";
    for host in malformed.split(' ') {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = raw(agent.address(80), &request).await;
        let rejected = answer.starts_with("HTTP/1.1 400");
        checks.that(rejected, format!("{host}: {answer}"));
    }
    for (name, request, status) in [
        (
            "HTTP/1.0",
            "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n",
            "HTTP/1.0 200",
        ),
        (
            "HTTP/1.0 without a host",
            "GET / HTTP/1.0\r\n\r\n",
            "HTTP/1.0 400",
        ),
    ] {
        // `raw` returns only after the server closes the connection.
        let answer = raw(agent.address(80), request).await;
        checks.that(answer.starts_with(status), format!("{name}: {answer}"));
    }
    let expecting = "POST / HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx";
    let answer = raw(agent.address(80), expecting).await;
    let continued = answer.matches("HTTP/1.1 100").count();
    checks.same("times 100 Continue", continued, 1);
    checks.that(answer.contains("HTTP/1.1 200"), answer);
    checks.finish();
}

async fn dripping() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let address = listener.local_addr().expect("the socket is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {DRIPS}\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).await;
                drip(&mut stream).await;
            });
        }
    });
    address
}

async fn drip(stream: &mut TcpStream) {
    for _ in 0..DRIPS {
        tokio::time::sleep(BETWEEN).await;
        let _ = stream.write_all(b"x").await;
    }
}

async fn upload(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = format!(
        "POST / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\ncontent-length: {DRIPS}\r\n\r\n"
    );
    let _ = stream.write_all(head.as_bytes()).await;
    drip(&mut stream).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Stays silent until the server disconnects.
async fn silent(address: SocketAddr, head: &[u8]) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(head).await.expect("the request is sent");
    let mut answer = Vec::new();
    let gone = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await;
    assert!(gone.is_ok(), "still connected after {head:?}");
}

pub(super) fn client_hello(trust: &Arc<rustls::RootCertStore>) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(Arc::clone(trust))
        .with_no_client_auth();
    let name = "a.test".try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("written");
    hello
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_close_only_silent_connections() {
    let authority = Authority::new("edge");
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "", "cert"),
    ]);
    objects.push(authority.issue(&["a.test"]).secret("cert"));
    let backend = Backend::start("a").await;
    objects.extend(served("a", &[backend.address()]));
    objects.extend(served("drips", &[dripping().await]));
    let mut calls = served("calls", &[streams::grpc_echo().await]);
    calls[0] = service("calls", "kubernetes.io/h2c");
    objects.extend(calls);
    let hosts = ["a.test", "ws.test"];
    objects.push(http_route("a", &hosts, &[rule_to("a", &[])]));
    objects.push(http_route("d", &["drips.test"], &[rule_to("drips", &[])]));
    let rule = json!({"backendRefs": [{"name": "calls", "port": 80}]});
    objects.push(route("GRPCRoute", "g", &["grpc.test"], &[rule]));
    annotated(
        &mut objects,
        &[
            ("stream-idle-timeout", TIMEOUT),
            ("connection-idle-timeout", TIMEOUT),
            ("request-headers-timeout", TIMEOUT),
            ("tls-handshake-timeout", TIMEOUT),
        ],
    );
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&objects))]);
    let reach = |port| agent.get(port, "a.test", "/");
    let over_tls = reach(443).tls("a.test", &authority.trust());
    agent.wait_ok(&reach(80)).await;
    agent.wait_ok(&over_tls).await;

    let (http, https) = (agent.address(80), agent.address(443));
    let long: Vec<LongStream> = [
        Kind::WebSocket("ws.test".to_owned()),
        Kind::Grpc("grpc.test".to_owned()),
    ]
    .map(|kind| LongStream::start(kind, http))
    .into();
    let hello = client_hello(&authority.trust());
    let download = "GET / HTTP/1.1\r\nhost: drips.test\r\nconnection: close\r\n\r\n";
    let (up, down, ..) = tokio::join!(
        upload(http),
        raw(http, download),
        silent(https, &hello),
        silent(http, b"GET / HTTP/1.1\r\nhost: a.test\r\n"),
        silent(http, b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n"),
        silent(
            http,
            b"POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 10\r\n\r\nx"
        ),
    );
    assert!(up.starts_with("HTTP/1.1 200"), "{up}");
    assert!(down.ends_with(&"x".repeat(DRIPS)), "{down}");
    for stream in long {
        let report = stream.stop().await;
        assert!(
            report.lives.is_empty() && report.failures.is_empty(),
            "{report:?}"
        );
    }
    bodies_may_have_an_end(&agent, objects).await;
}

async fn bodies_may_have_an_end(agent: &AgentUnderTest, mut objects: Vec<Value>) {
    annotated(&mut objects, &[("request-timeout", "1s")]);
    agent.write("all.yaml", &yaml(&objects));
    eventually("a trickling body is rejected", TEST_TIMEOUT, async || {
        let answer = upload(agent.address(80)).await;
        holds(answer.starts_with("HTTP/1.1 408"), || answer)
    })
    .await;
}
