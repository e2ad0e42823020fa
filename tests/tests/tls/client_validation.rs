//! Validation of client certificates (`Gateway.spec.tls.frontend`).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use rustls::{ClientConfig, HandshakeKind, SupportedProtocolVersion, version};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    edge, http_route, https_listener, listener_set, on_listener_set, rule_to, served, yaml,
};
use sesame_tests::wait::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Lifetime of a certificate, long enough for a few connections, but short enough to expire during
/// the test.
const LIFE: Duration = Duration::from_secs(20);

fn validation(config_map: &str, mode: &str) -> Value {
    json!({"validation": {
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": config_map}],
        "mode": mode,
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_validated_by_port_settings() {
    let backend = Backend::start("a").await;
    let (servers, ours, theirs) = (
        Authority::new("servers"),
        Authority::new("clients"),
        Authority::new("strangers"),
    );
    let mut objects = edge(&[
        https_listener("default", 443, "", "pair"),
        https_listener("fallback", 444, "", "pair"),
        https_listener("open", 445, "", "pair"),
        https_listener("broken", 446, "", "pair"),
    ]);
    objects[1]["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    objects[1]["spec"]["tls"] = json!({"frontend": {
        "default": validation("ours", "AllowValidOnly"),
        "perPort": [
            {"port": 444, "tls": validation("ours", "AllowInsecureFallback")},
            {"port": 445, "tls": {}},
            {"port": 446, "tls": validation("absent", "AllowValidOnly")},
        ],
    }});
    // ListenerSet listeners must also validate clients.
    objects.push(listener_set(
        "set",
        &[https_listener("set", 447, "", "pair")],
    ));
    objects.push(Authority::config_map("ours", &[&ours]));
    objects.push(servers.issue(&["a.test"]).secret("pair"));
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("gateway", &[], &[rule_to("a", &[])]));
    objects.push(on_listener_set(
        http_route("set", &[], &[rule_to("a", &[])]),
        "set",
    ));
    let agent =
        Setup::with_ports(&[443, 444, 445, 446, 447]).start(&[("all.yaml", &yaml(&objects))]);
    let request = |port| {
        agent
            .get(port, "a.test", "/")
            .tls("a.test", &servers.trust())
    };
    agent.wait_ok(&request(445)).await;

    let (known, stranger) = (ours.issue(&["client.test"]), theirs.issue(&["client.test"]));
    let mut checks = Checks::default();
    for (port, without, with_known, with_stranger) in [
        (443, false, true, false),
        (444, true, true, true),
        (445, true, true, true),
        // Without a usable bundle, every client is rejected.
        (446, false, false, false),
        (447, false, true, false),
    ] {
        for (request, let_in) in [
            (request(port), without),
            (request(port).showing(&known), with_known),
            (request(port).showing(&stranger), with_stranger),
        ] {
            let status = request.send().await.ok().map(|reply| reply.status);
            let expected = let_in.then_some(200);
            checks.same(format!("{request} on {port}"), status, expected);
        }
    }
    checks.finish();
}

async fn with_clients(
    servers: &Authority,
    clients: &Authority,
    listener: Value,
) -> (AgentUnderTest, Backend) {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[listener]);
    objects[1]["spec"]["tls"] =
        json!({"frontend": {"default": validation("ours", "AllowValidOnly")}});
    objects.push(Authority::config_map("ours", &[clients]));
    objects.push(servers.issue(&["a.test"]).secret("pair"));
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("gateway", &[], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(443, "a.test", "/");
    let client = clients.issue(&["good.test"]);
    let request = request.tls("a.test", &servers.trust()).showing(&client);
    agent.wait_ok(&request).await;
    (agent, backend)
}

/// A client that keeps its TLS sessions for later connections.
struct ResumingClient {
    agent: std::net::SocketAddr,
    config: Arc<ClientConfig>,
}

impl ResumingClient {
    fn new(
        agent: &AgentUnderTest,
        servers: &Authority,
        leaf: &Leaf,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(servers.trust())
            .with_client_auth_cert(vec![leaf.der.clone()], leaf.key().expect("a key"))
            .expect("a certificate with its key");
        Self {
            agent: agent.address(443),
            config: Arc::new(config),
        }
    }

    async fn visit(&self) -> Result<HandshakeKind> {
        let stream = TcpStream::connect(self.agent).await?;
        let name = ServerName::try_from("a.test")?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let mut stream = connector.connect(name, stream).await?;
        let request = b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "no answer");
        stream.get_ref().1.handshake_kind().context("a handshake")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_clients_cannot_resume_sessions() {
    let (servers, ours) = (Authority::new("servers"), Authority::new("clients"));
    let listener = https_listener("https", 443, "", "pair");
    let (agent, _backend) = with_clients(&servers, &ours, listener).await;
    let now = SystemTime::now();
    let hour = Duration::from_secs(3600);
    let short = ours.issue_valid(&["good.test"], now - hour, now + LIFE);
    let clients = [&version::TLS12, &version::TLS13]
        .map(|version| ResumingClient::new(&agent, &servers, &short, version));
    for client in &clients {
        for visit in 0..3 {
            let kind = client.visit().await.expect("a valid certificate");
            assert_ne!(kind, HandshakeKind::Resumed, "visit {visit}");
        }
    }
    for client in &clients {
        // A resumed session would admit the client for days after expiry.
        eventually(
            "an expired client certificate is rejected",
            3 * LIFE,
            async || match client.visit().await {
                Ok(kind) => Err(format!("{kind:?}")),
                Err(_) => Ok(()),
            },
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wildcard_clients_do_not_have_exact_names() {
    let (servers, ours) = (Authority::new("servers"), Authority::new("clients"));
    let mut listener = https_listener("https", 443, "", "pair");
    listener["tls"]["options"] = json!({"projectsesame.io/client-subject-alt-names": "good.test"});
    let (agent, _backend) = with_clients(&servers, &ours, listener).await;
    let mut checks = Checks::default();
    for (name, let_in) in [
        ("good.test", true),
        ("GOOD.test", true),
        ("*.test", false),
        ("g*.test", false),
        ("goodXtest", false),
        ("a.good.test", false),
    ] {
        let request = agent.get(443, "a.test", "/");
        let request = request.tls("a.test", &servers.trust());
        let reply = request.showing(&ours.issue(&[name])).send().await;
        let status = reply.ok().map(|reply| reply.status);
        checks.same(name, status, let_in.then_some(200));
    }
    checks.finish();
}
