//! `spec.edge.clientAddress`: whose headers determine the address of a client. Every check has its
//! opposite: the same request from a peer that is not a known proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use sesame_tests::agent::{Setup, TEST_TIMEOUT, arguments, words};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::echo::Echo;
use sesame_tests::envoy::{envoy_binary, older_envoy_binary};
use sesame_tests::manifests::{
    access_policy, class_with_parameters, gateway, http_listener, https_listener, plain_route,
    traffic_policy, yaml,
};
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8));

/// A response's status and, from the backend, the request as it arrived.
struct Answer {
    status: String,
    echo: Option<Echo>,
}

impl Answer {
    /// Returns the client's address, or the status if the backend did not answer.
    fn client(&self) -> &str {
        self.value("x-envoy-external-address")
            .unwrap_or(&self.status)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.echo.as_ref()?.value(name)
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Answer {
    let mut answer = Vec::new();
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("the request is sent");
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(TEST_TIMEOUT, read).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    Answer {
        status: answer.split(' ').nth(1).unwrap_or_default().to_owned(),
        echo: body.and_then(|body| serde_json::from_str(body).ok()),
    }
}

/// Sends a request from one of this host's addresses. With `trust`, uses TLS.
async fn ask(
    peer: IpAddr,
    server: SocketAddr,
    host: &str,
    header: &str,
    trust: Option<&Arc<RootCertStore>>,
) -> Answer {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((peer, 0).into()).expect("an address");
    let stream = socket.connect(server).await.expect("a connection");
    let request = format!(
        "GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nx-request-id: forged\r\n{header}\r\n\r\n"
    );
    let Some(trust) = trust else {
        return exchange(stream, &request).await;
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(Arc::clone(trust))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream);
    exchange(stream.await.expect("a handshake"), &request).await
}

/// One Gateway per setting, and routes that all of them serve.
fn objects() -> Vec<Value> {
    let networks = json!([format!("{PROXY}/32"), "192.0.2.0/24"]);
    let mut all = Vec::new();
    let mut parents = Vec::new();
    for (name, settings, listeners) in [
        (
            "networks",
            json!({"edge": {"clientAddress": {"networks": networks}}}),
            vec![
                http_listener("http", 80, ""),
                https_listener("https", 443, "a.test", "cert"),
            ],
        ),
        (
            "header",
            json!({"edge": {"clientAddress": {"networks": networks, "header": "CF-Connecting-IP"}}}),
            vec![http_listener("http", 81, "")],
        ),
        (
            "hops",
            json!({"edgePorts": [{"port": 82, "edge": {"clientAddress": {
                "networks": networks, "hops": 2,
            }}}]}),
            vec![
                http_listener("http", 82, ""),
                http_listener("not-listed", 83, ""),
            ],
        ),
        (
            "everyone",
            json!({"edge": {"clientAddress": {"hops": 1}}}),
            vec![http_listener("http", 84, "")],
        ),
    ] {
        all.extend(class_with_parameters(name, name, &settings));
        all.push(gateway(name, &listeners));
        parents.push(json!({"name": name}));
    }
    for name in ["a", "limited"] {
        let mut route = plain_route(name, &format!("{name}.test"), "a");
        route["spec"]["parentRefs"] = json!(parents);
        all.push(route);
    }
    let denied = json!({"ipFilter": {"deny": ["203.0.113.66/32"]}});
    let target = |name: &str| json!({"kind": "HTTPRoute", "name": name});
    all.push(access_policy("a", target("a"), &denied));
    let limit = json!({"rateLimits": [{"name": "one", "requests": 1, "per": "Hour",
        "keys": [{"type": "ClientAddress"}]}]});
    all.push(traffic_policy("limited", target("limited"), &limit));
    all
}

async fn only_known_proxies_are_believed(setup: Setup) {
    let ours = Authority::new("gateway");
    let mut all = objects();
    all.push(ours.issue(&["a.test"]).secret("cert"));
    let _backends = start_served(&["a"], &mut all).await;
    let agent = setup
        .flag("--access-log-free-mib=0")
        .start(&[("all.yaml", &yaml(&all))]);
    for port in [80, 81, 82, 83, 84] {
        agent.wait_ok(&agent.get(port, "a.test", "/")).await;
    }
    let trust = ours.trust();
    agent
        .wait_ok(&agent.get(443, "a.test", "/").tls("a.test", &trust))
        .await;

    let mut checks = Checks::default();
    let behind = "x-forwarded-for: 198.51.100.9, 203.0.113.7, 192.0.2.5";
    let denied = "x-forwarded-for: 203.0.113.66";
    let cloudflare = "cf-connecting-ip: 203.0.113.7";
    let (own, other) = (PROXY.to_string(), OTHER.to_string());
    for (port, header, from_proxy, from_other) in [
        (80, behind, "203.0.113.7", other.as_str()),
        (443, behind, "203.0.113.7", &other),
        (80, denied, "403", &other),
        (80, "x-forwarded-for: 203.0.113.7, none", &own, &other),
        (80, "x-forwarded-for: 192.0.2.5", "192.0.2.5", &other),
        (80, cloudflare, &own, &other),
        (81, cloudflare, "203.0.113.7", &other),
        (81, "cf-connecting-ip: 203.0.113.66", "403", &other),
        (81, "cf-connecting-ip: 203.0.113.7, 1.1.1.1", &own, &other),
        (81, behind, &own, &other),
        (82, behind, "203.0.113.7", &other),
        (82, denied, &own, &other),
        (83, behind, &own, &other),
        (84, behind, "192.0.2.5", "192.0.2.5"),
    ] {
        let trust = (port == 443).then_some(&trust);
        for (peer, expected) in [(PROXY, from_proxy), (OTHER, from_other)] {
            let answer = ask(peer, agent.address(port), "a.test", header, trust).await;
            let what = format!("{header} from {peer} on {port}");
            checks.same(&what, answer.client(), expected);
            if answer.echo.is_some() {
                let id = answer.value("x-request-id");
                checks.that(
                    id.is_some_and(|id| id != "forged"),
                    format!("{what}: {id:?}"),
                );
                // Backends see the peer behind everything that it sent.
                let chain = answer.value("x-forwarded-for").unwrap_or_default();
                let sent = header.strip_prefix("x-forwarded-for: ");
                let extends = sent.is_none_or(|sent| chain.starts_with(&format!("{sent},")));
                checks.that(extends && !chain.is_empty(), format!("{what}: {chain}"));
            }
        }
    }
    let https = "x-forwarded-proto: https";
    for (port, peer, expected) in [
        (80, PROXY, "https"),
        (80, OTHER, "http"),
        (83, PROXY, "http"),
    ] {
        let answer = ask(peer, agent.address(port), "a.test", https, None).await;
        let found = answer.value("x-forwarded-proto");
        checks.same(
            format!("{https} from {peer} on {port}"),
            found,
            Some(expected),
        );
    }
    // Other peers share one limit, whatever they claim.
    for (peer, client, expected) in [
        (PROXY, "203.0.113.1", "200"),
        (PROXY, "203.0.113.1", "429"),
        (PROXY, "203.0.113.2", "200"),
        (OTHER, "203.0.113.3", "200"),
        (OTHER, "203.0.113.4", "429"),
    ] {
        let header = format!("x-forwarded-for: {client}");
        let answer = ask(peer, agent.address(80), "limited.test", &header, None).await;
        checks.same(
            format!("limit of {client} from {peer}"),
            answer.status.as_str(),
            expected,
        );
    }
    checks.finish();

    let line = format!(
        "logs --runtime-dir {} --gateway default/networks --output json --lines 1000",
        agent.runtime().display()
    );
    eventually("addresses are logged", TEST_TIMEOUT, async || {
        let printed = words(&agent.command(&arguments(&line)));
        let lines = printed.lines().map(serde_json::from_str::<Value>);
        let clients: Vec<String> = lines
            .filter_map(Result::ok)
            .filter_map(|line| Some(line["client_address"].as_str()?.to_owned()))
            .collect();
        let logged = |address: &str| {
            clients
                .iter()
                .any(|it| it.starts_with(&format!("{address}:")))
        };
        let right = logged("203.0.113.7") && logged(&other) && !logged("203.0.113.3");
        holds(right, || printed)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_unknown_peers_are_never_believed() {
    let setup = Setup::with_ports(&[80, 81, 82, 83, 84, 443]);
    only_known_proxies_are_believed(setup.envoy(&envoy_binary())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_envoy_believes_only_known_proxies() {
    let setup = Setup::with_ports(&[80, 81, 82, 83, 84, 443]);
    only_known_proxies_are_believed(setup.envoy(&older_envoy_binary())).await;
}
