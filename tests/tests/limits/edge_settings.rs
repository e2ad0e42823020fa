//! Every setting in `spec.edge` that clients notice, with its default and its opposite, and the
//! presets.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary, arguments, words};
use sesame_tests::checks::Checks;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::manifests::{
    class_with_parameters, gateway, http_listener, plain_route, served, yaml,
};
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];

/// Starts a server whose responses contain the head of the request, byte for byte.
async fn mirror(more: String) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("the socket is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let more = more.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        let length = head.len();
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\nServer: origin\r\nX-Kept-Case: yes\r\n{more}\
                             Content-Length: {length}\r\n\r\n{}",
                            String::from_utf8_lossy(&head)
                        );
                        let _ = stream.write_all(answer.as_bytes()).await;
                        head.clear();
                    }
                }
            });
        }
    });
    address
}

/// Returns everything that the server sends until it closes the connection.
async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("the request is sent");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "still connected after {request:?}");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads frames until one has this type, and returns its payload.
async fn frame(stream: &mut TcpStream, wanted: u8) -> Vec<u8> {
    let read = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await.expect("a payload");
            if head[3] == wanted {
                break payload;
            }
        }
    };
    let read = tokio::time::timeout(TEST_TIMEOUT, read).await;
    read.unwrap_or_else(|_| panic!("no frame of type {wanted}"))
}

async fn http2(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream
        .write_all(PREFACE)
        .await
        .expect("the preface is sent");
    stream
}

async fn streams(address: SocketAddr) -> Option<u32> {
    let settings = frame(&mut http2(address).await, SETTINGS).await;
    let mut settings = settings.chunks_exact(6);
    let found = settings.find(|it| it[..2] == MAX_CONCURRENT_STREAMS)?;
    Some(u32::from_be_bytes([found[2], found[3], found[4], found[5]]))
}

/// Starts Gateways on these ports, each with its settings, that serve the same routes.
async fn start(gateways: &[(&str, u16, Value)]) -> AgentUnderTest {
    let mut all = Vec::new();
    for (name, port, settings) in gateways {
        all.extend(class_with_parameters(
            name,
            name,
            &json!({"edge": settings}),
        ));
        all.push(gateway(name, &[http_listener("http", *port, "")]));
    }
    let many: Vec<String> = (0..60)
        .map(|i| format!("X-{i}: {}\r\n", "y".repeat(30)))
        .collect();
    for (name, headers) in [("mirror", String::new()), ("many", many.concat())] {
        all.extend(served(name, &[mirror(headers).await]));
        let mut route = plain_route(name, &format!("{name}.test"), name);
        let parents = gateways.iter().map(|(name, ..)| json!({"name": name}));
        route["spec"]["parentRefs"] = parents.collect();
        all.push(route);
    }
    let ports: Vec<u16> = gateways.iter().map(|(_, port, _)| *port).collect();
    let agent = Setup::with_ports(&ports).start(&[("all.yaml", &yaml(&all))]);
    for port in ports {
        agent.wait_ok(&agent.get(port, "mirror.test", "/")).await;
    }
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn each_edge_setting_has_its_opposite() {
    let opposite = json!({
        "http10": "Reject", "headerCase": "Preserve", "expectContinue": "Answer",
        "otherUpgrades": "Reject", "trailingDots": "Reject", "requestId": "Keep",
        "serverHeader": "Replace", "viaHeader": "Append", "maxResponseHeaders": 20,
        "maxConnectionAge": "1s", "maxConnectionRequests": 2, "keepaliveInterval": "1s",
        "maxConcurrentStreams": 3, "connectionBufferKib": 64,
    });
    let off = json!({"requestId": "Off", "serverHeader": "Add", "maxResponseHeadersKib": 1});
    let gateways = [
        ("default", 80, json!({})),
        ("opposite", 81, opposite),
        ("off", 82, off),
    ];
    let agent = start(&gateways).await;
    let mut checks = Checks::default();
    let host = "GET / HTTP/1.1\r\nHost: mirror.test\r\nConnection: close\r\n";
    let plain = format!("{host}X-Sent-Case: a\r\nX-Request-ID: mine\r\n\r\n");
    let many = "GET / HTTP/1.1\r\nHost: many.test\r\nConnection: close\r\n\r\n";
    let dot = "GET / HTTP/1.1\r\nHost: mirror.test.\r\nConnection: close\r\n\r\n";
    let upgrade = "GET / HTTP/1.1\r\nHost: mirror.test\r\nConnection: upgrade, close\r\n\
                   Upgrade: TLS/1.2\r\n\r\n";
    let expecting = "POST / HTTP/1.1\r\nHost: mirror.test\r\nConnection: close\r\n\
                     Expect: 100-continue\r\nContent-Length: 0\r\n\r\n";
    let old = "GET / HTTP/1.0\r\nHost: mirror.test\r\n\r\n";
    for (port, request, expected, absent) in [
        (80, old, " 200 OK", " 426 "),
        (81, old, " 426 ", " 200 OK"),
        (80, &plain, "x-sent-case: a", "X-Sent-Case"),
        (81, &plain, "X-Sent-Case: a", "x-sent-case"),
        (80, &plain, "x-kept-case: yes", "X-Kept-Case"),
        (81, &plain, "X-Kept-Case: yes", "x-kept-case"),
        (80, expecting, "expect: 100-continue", " 100 Continue"),
        (81, expecting, " 100 Continue", "xpect: 100-continue"),
        (80, upgrade, " 200 OK", "TLS/1.2"),
        (81, upgrade, " 403 ", " 200 OK"),
        (80, dot, " 200 OK", " 400 "),
        (81, dot, " 400 ", " 200 OK"),
        (80, &plain, "x-request-id: ", "mine"),
        (81, &plain, ": mine", "x-request-id: "),
        (82, &plain, "x-request-id: mine", " 502 "),
        (80, many, "server: origin", "server: envoy"),
        (81, &plain, "erver: envoy", "origin"),
        (82, &plain, "server: origin", "server: envoy"),
        (82, many, "server: envoy", "origin"),
        (80, &plain, " 200 OK", "1.1 sesame"),
        (81, &plain, "1.1 sesame", " 502 "),
        (80, many, " 200 OK", " 502 "),
        (81, many, " 502 ", " 200 OK"),
        (82, many, " 502 ", " 200 OK"),
    ] {
        let answer = raw(agent.address(port), request).await;
        let right = answer.contains(expected) && !answer.contains(absent);
        checks.that(
            right,
            format!("{port}: no {expected:?}, or {absent:?}: {answer}"),
        );
    }
    let kept = "GET / HTTP/1.1\r\nHost: mirror.test\r\n\r\n";
    // Closed after a second, although no response said so.
    let answer = raw(agent.address(81), kept).await;
    checks.that(answer.contains(" 200 OK"), answer);
    // Only the second response is the last.
    let answer = raw(agent.address(81), &kept.repeat(2)).await;
    checks.same("responses", answer.matches(" 200 OK").count(), 2);
    checks.that(
        answer.to_ascii_lowercase().contains("connection: close"),
        answer,
    );
    let closing = format!("{}{host}\r\n", kept.repeat(3));
    let answer = raw(agent.address(80), &closing).await;
    checks.same("responses", answer.matches(" 200 OK").count(), 4);

    checks.same("streams", streams(agent.address(80)).await, Some(100));
    checks.same("streams", streams(agent.address(81)).await, Some(3));
    let ping = frame(&mut http2(agent.address(81)).await, PING).await;
    checks.same("bytes of a ping", ping.len(), 8);
    checks.finish();
}

/// `diff` compares two directories, and `validate` a directory with the running configuration.
#[tokio::test(flavor = "multi_thread")]
async fn drained_connections_are_counted_before_a_change() {
    let agent = start(&[("edge", 80, json!({}))]).await;
    let old = std::fs::read_to_string(agent.manifests().join("all.yaml")).expect("manifests");
    let (changed, same) = (tempfile::tempdir(), tempfile::tempdir());
    let (changed, same) = (changed.expect("a directory"), same.expect("a directory"));
    let settings = "requestId: Keep";
    let new = old.replacen("edge: {}", &format!("edge: {{{settings}}}"), 1);
    assert_ne!(new, old);
    std::fs::write(changed.path().join("all.yaml"), new).expect("manifests");
    let routes = old.replace("many.test", "more.test");
    std::fs::write(same.path().join("all.yaml"), routes).expect("manifests");
    let mut idle = TcpStream::connect(agent.address(80))
        .await
        .expect("a connection");
    let request = b"GET / HTTP/1.1\r\nHost: mirror.test\r\n\r\n";
    idle.write_all(request).await.expect("the request is sent");
    idle.read_u8().await.expect("a response");

    // `validate` compares with the stored configuration.
    agent.wait_stored().await;
    let manifests = agent.manifests();
    let of = |directory: &Path| {
        let (manifests, directory) = (manifests.display(), directory.display());
        [
            format!("diff --manifests {manifests} {directory}"),
            format!(
                "validate --manifests {directory} --state-dir {}",
                agent.state().display()
            ),
        ]
    };
    let run = |line: &str| {
        let mut command = Command::new(agent_binary());
        command
            .args(arguments(line))
            .env("ENVOY", envoy_binary())
            .env("SESAME_ALLOW_LOCAL_ENDPOINTS", "true")
            .env("SESAME_RUNTIME_DIR", agent.runtime());
        words(&command.output().expect("the agent's binary runs"))
    };
    let port = "the change of Gateway default/edge drains port 80/TCP";
    let counted = format!("{port}: 1 open connections");
    let [diff, validate] = of(changed.path());
    eventually("the connection is counted", TEST_TIMEOUT, async || {
        let printed = run(&diff);
        holds(printed.contains(&counted), || printed)
    })
    .await;
    let printed = run(&validate);
    assert!(printed.contains(&counted), "{printed}");
    for command in of(same.path()) {
        let printed = run(&command);
        assert!(!printed.contains("drains"), "{command}: {printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn presets_serve_clients_like_other_gateways() {
    let preset = |name: &str| json!({"preset": name});
    let own = json!({"preset": "Contour", "headerUnderscores": "Reject"});
    let agent = start(&[
        ("hardened", 80, preset("Hardened")),
        ("contour", 81, preset("Contour")),
        ("nginx", 82, preset("Nginx")),
        ("own", 83, own),
    ])
    .await;
    let mut checks = Checks::default();
    let request = "GET /a%2Fb HTTP/1.1\r\nHost: mirror.test\r\nConnection: close\r\n\
                   x_user: root\r\n\r\n";
    let slashes = request.replace("x_user: root\r\n", "");
    for (port, request, expected, absent) in [
        (80, request, " 400 ", "GET"),
        (80, slashes.as_str(), " 307 ", "GET"),
        (81, request, "x_user: root", " 400 "),
        (81, &slashes, "GET /a%2Fb HTTP", " 307 "),
        (82, request, "GET /a/b HTTP", "x_user"),
        (82, &slashes, "GET /a/b HTTP", " 307 "),
        (83, request, " 400 ", "GET"),
        (83, &slashes, "GET /a%2Fb HTTP", " 307 "),
    ] {
        let answer = raw(agent.address(port), request).await;
        let right = answer.contains(expected) && !answer.contains(absent);
        checks.that(
            right,
            format!("{port}: no {expected:?}, or {absent:?}: {answer}"),
        );
    }
    for (port, number) in [(80, 100), (81, 1024), (82, 128)] {
        let label = format!("streams on {port}");
        checks.same(&label, streams(agent.address(port)).await, Some(number));
    }
    checks.finish();
}
