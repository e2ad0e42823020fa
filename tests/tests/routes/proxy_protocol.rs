//! `spec.edge.proxyProtocol`: client addresses from PROXY protocol headers, version 1 and 2.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, arguments, words};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::datagrams::{self, DatagramBackend};
use sesame_tests::manifests::{
    access_policy, backend_ref, class_with_parameters, gateway, http_listener, http_route,
    https_listener, l4_listener, on_listener, over_udp, route, rule_to, served, tls_listener, yaml,
};
use sesame_tests::wait::eventually;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

fn version_1(client: &str) -> Vec<u8> {
    let (family, server) = if client.contains(':') {
        ("TCP6", "2001:db8::1")
    } else {
        ("TCP4", "192.0.2.1")
    };
    format!("PROXY {family} {client} {server} 4711 80\r\n").into_bytes()
}

fn version_2(client: Ipv4Addr) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend([0x21, 0x11, 0, 12]);
    header.extend(client.octets());
    header.extend([192, 0, 2, 1]);
    header.extend(4711_u16.to_be_bytes());
    header.extend(80_u16.to_be_bytes());
    header
}

fn local_version_2() -> Vec<u8> {
    [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat()
}

fn request(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").into_bytes()
}

/// Returns the response, or an empty string if the connection is closed.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    let mut answer = Vec::new();
    if stream.write_all(bytes).await.is_ok() {
        let read = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(TEST_TIMEOUT, read).await;
    }
    String::from_utf8_lossy(&answer).into_owned()
}

async fn plain(address: SocketAddr, header: &[u8], host: &str) -> String {
    let stream = TcpStream::connect(address).await.expect("a connection");
    exchange(stream, &[header, &request(host)].concat()).await
}

async fn over_tls(
    address: SocketAddr,
    header: &[u8],
    host: &str,
    trust: &Arc<RootCertStore>,
) -> Result<String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(trust))
        .with_no_client_auth();
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(header).await?;
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = stream.await.context("handshake")?;
    Ok(exchange(stream, &request(host)).await)
}

/// Returns how an echo shows this client. Envoy sets `x-forwarded-for` differently for loopback.
fn from(client: &str) -> String {
    format!("[\"x-envoy-external-address\",\"{client}\"]")
}

fn objects(mode: &Value, listeners: &[Value]) -> Vec<Value> {
    let direct = json!({"port": 81, "edge": {"proxyProtocol": {"mode": "Disabled"}}});
    let settings = json!({"edge": {"proxyProtocol": mode}, "edgePorts": [direct]});
    let [parameters, class] = class_with_parameters("edge", "parameters", &settings);
    vec![parameters, class, gateway("edge", listeners)]
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_header_determines_client_address() {
    let (ours, theirs) = (Authority::new("gateway"), Authority::new("backends"));
    let listeners = [
        http_listener("http", 80, ""),
        http_listener("direct", 81, ""),
        https_listener("https", 443, "a.test", "cert"),
        tls_listener("pass", 444, "a.pass.test", None),
        l4_listener("tcp", 5001, "TCP"),
        l4_listener("udp", 53, "UDP"),
    ];
    let mut all = objects(&json!({}), &listeners);
    all.push(ours.issue(&["a.test"]).secret("cert"));
    let secure = Backend::start_tls("secure", &theirs.issue(&["a.pass.test"])).await;
    let dns = DatagramBackend::start("dns").await;
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(served("secure", &[secure.address()]));
    all.extend(over_udp(served("dns", &[dns.address()])));
    all.push(http_route("web", &["a.test"], &[rule_to("a", &[])]));
    let on = |kind: &str, name: &str, hostnames: &[&str], service: &str| {
        let rule = json!({"backendRefs": [backend_ref(service)]});
        on_listener(route(kind, name, hostnames, &[rule]), name)
    };
    all.extend([
        on("TCPRoute", "tcp", &[], "a"),
        on("TLSRoute", "pass", &["a.pass.test"], "secure"),
        on("UDPRoute", "udp", &[], "dns"),
    ]);
    let denied = json!({"ipFilter": {"deny": ["203.0.113.66/32"]}});
    let target = json!({"kind": "HTTPRoute", "name": "web"});
    all.push(access_policy("web", target, &denied));
    let agent = Setup::with_ports(&[53, 80, 81, 443, 444, 5001])
        .flag("--access-log-free-mib=0")
        .start(&[("all.yaml", &yaml(&all))]);
    // A setting of port 81 disables the header.
    agent.wait_ok(&agent.get(81, "a.test", "/")).await;

    let mut checks = Checks::default();
    let own = agent.address(80).ip().to_string();
    for (header, expected) in [
        (version_1("203.0.113.7"), from("203.0.113.7")),
        (version_1("2001:db8::7"), from("2001:db8::7")),
        (version_2([203, 0, 113, 8].into()), from("203.0.113.8")),
        (version_1("203.0.113.66"), "HTTP/1.1 403".to_owned()),
        (
            version_2([203, 0, 113, 66].into()),
            "HTTP/1.1 403".to_owned(),
        ),
        // These headers carry no address, so the connection's own address applies.
        (b"PROXY UNKNOWN\r\n".to_vec(), from(&own)),
        (local_version_2(), from(&own)),
    ] {
        let answer = plain(agent.address(80), &header, "a.test").await;
        checks.that(answer.contains(&expected), format!("{expected}: {answer}"));
        let trust = ours.trust();
        let answer = over_tls(agent.address(443), &header, "a.test", &trust).await;
        let answer = answer.unwrap_or_else(|error| format!("{error:#}"));
        checks.that(answer.contains(&expected), format!("{expected}: {answer}"));
    }
    let header = version_2([203, 0, 113, 9].into());
    let answer = plain(agent.address(5001), &header, "any.test").await;
    checks.that(answer.starts_with("HTTP/1.1 200"), answer);
    let trust = theirs.trust();
    let answer = over_tls(agent.address(444), &header, "a.pass.test", &trust).await;
    checks.that(
        matches!(&answer, Ok(answer) if answer.starts_with("HTTP/1.1 200")),
        format!("{answer:?}"),
    );
    let answer = datagrams::ask(agent.address(53), "x", TEST_TIMEOUT).await;
    checks.same("datagram", answer.ok().as_deref(), Some("dns: x"));
    // Connections without a valid header are closed.
    for header in [
        &b""[..],
        b"PROXY TCP4 203.0.113.7\r\n",
        b"PROXY TCP4 a b 1 2\r\n",
    ] {
        for port in [80, 5001] {
            let answer = plain(agent.address(port), header, "a.test").await;
            checks.same(format!("{header:?} on {port}"), answer.as_str(), "");
        }
    }
    // Without the setting, a header is an invalid request.
    let answer = plain(agent.address(81), &version_1("203.0.113.7"), "a.test").await;
    checks.that(answer.starts_with("HTTP/1.1 400"), answer);
    checks.finish();
    addresses_are_logged(&agent).await;
}

async fn addresses_are_logged(agent: &AgentUnderTest) {
    let runtime = agent.runtime();
    let runtime = runtime.display();
    let line = format!("logs --runtime-dir {runtime} --output json --lines 1000");
    let request = eventually("client addresses are logged", TEST_TIMEOUT, async || {
        let printed = words(&agent.command(&arguments(&line)));
        let lines = printed.lines().map(serde_json::from_str);
        let lines: Vec<Value> = lines.filter_map(Result::ok).collect();
        let of = |client: &str| {
            let client = json!(client);
            let found = lines.iter().find(|line| line["client_address"] == client);
            found
                .cloned()
                .ok_or_else(|| format!("no {client} in {printed}"))
        };
        // The connections to the TCPRoute and the TLSRoute have this address.
        of("203.0.113.9:4711")?;
        of("203.0.113.8:4711")
    })
    .await;
    let peer = request["peer_address"].as_str().unwrap_or_default();
    let own = agent.address(80).ip().to_string();
    assert!(peer.starts_with(&own), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn optional_proxy_header_may_be_missing() {
    let mut all = objects(
        &json!({"mode": "Optional"}),
        &[http_listener("http", 80, "")],
    );
    let _backends = start_served(&["a"], &mut all).await;
    all.push(http_route("web", &["a.test"], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let own = agent.address(80).ip().to_string();
    let mut checks = Checks::default();
    for (header, client) in [
        (Vec::new(), own.as_str()),
        (version_1("203.0.113.7"), "203.0.113.7"),
        (version_2([203, 0, 113, 8].into()), "203.0.113.8"),
    ] {
        let answer = plain(agent.address(80), &header, "a.test").await;
        checks.that(answer.contains(&from(client)), answer);
    }
    checks.finish();
}
