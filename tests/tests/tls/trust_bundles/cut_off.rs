//! Clients and backends that are no longer trusted are cut off. All others are still served.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::{ClientConfig, HandshakeKind, SupportedProtocolVersion, version};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::client::{Connection, Request};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, endpoint_slices, http_listener, plain_route, served, yaml};
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{bundles, objects, wait_refused, wait_untrusted, with_lists};

/// A client that keeps its session tickets for later connections.
struct ResumingClient(Arc<ClientConfig>);

impl ResumingClient {
    fn new(servers: &Authority, leaf: &Leaf, version: &'static SupportedProtocolVersion) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(servers.trust())
            .with_client_auth_cert(vec![leaf.der.clone()], leaf.key().expect("a key"))
            .expect("a pair");
        Self(Arc::new(config))
    }

    /// Connects, and returns true if the session was resumed.
    async fn comes(&self, agent: &AgentUnderTest) -> Result<bool> {
        let stream = TcpStream::connect(agent.address(443)).await?;
        let connector = TlsConnector::from(Arc::clone(&self.0));
        let mut stream = connector
            .connect(ServerName::try_from("a.test")?, stream)
            .await?;
        let request = b"GET /first HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "no answer");
        let kind = stream.get_ref().1.handshake_kind().context("a handshake")?;
        Ok(kind == HandshakeKind::Resumed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_client_cannot_resume_and_restart_closes_connections() {
    let (servers, clients, backends) = (
        Authority::new("servers"),
        Authority::new("clients"),
        Authority::new("backends"),
    );
    let bad_leaf = backends.issue(&["backend.test"]);
    let good_backend = Backend::start_tls("first", &backends.issue(&["backend.test"])).await;
    let bad_backend = Backend::start_tls("second", &bad_leaf).await;
    let mut all = objects(&servers);
    // Keep `third` free of open connections, because they would survive the revocation.
    for (name, backend) in [
        ("first", &good_backend),
        ("second", &bad_backend),
        ("third", &bad_backend),
    ] {
        all.extend(endpoint_slices(name, &[backend.address()]));
    }
    let agent = Setup::with_ports(&[443, 80])
        .flag("--drain-seconds=2")
        .start(&[
            ("all.yaml", &yaml(&all)),
            ("bundles.yaml", &bundles(&[&clients], &[&backends])),
        ]);
    let (good, bad) = (clients.issue(&["good.test"]), clients.issue(&["bad.test"]));
    let request = |path: &str, client: &Leaf| {
        let request = Request::get(agent.address(443), "a.test", path);
        request.tls("a.test", &servers.trust()).showing(client)
    };
    let (by_good, by_bad) = (request("/first", &good), request("/first", &bad));
    let to_bad = request("/second", &good);
    for request in [&by_good, &by_bad, &to_bad] {
        agent.wait_ok(request).await;
    }
    let returning =
        [&version::TLS12, &version::TLS13].map(|it| ResumingClient::new(&servers, &bad, it));
    for client in &returning {
        for _ in 0..2 {
            let resumed = client.comes(&agent).await.expect("an answer");
            assert!(!resumed, "Envoy did not verify the certificate again");
        }
    }
    let mut established = Connection::open(&by_bad).await.expect("a connection");
    let load = Load::start(&Plan::new(vec![by_good]));
    load.pass(50).await;

    let client_list = clients.revocation_list(&[&bad], true);
    let backend_list = backends.revocation_list(&[&bad_leaf], true);
    agent.write(
        "bundles.yaml",
        &yaml(&[
            with_lists("clients", &[&clients], &client_list),
            with_lists("backends", &[&backends], &backend_list),
        ]),
    );
    wait_refused(&agent, &by_bad).await;
    wait_untrusted(&agent, &request("/third", &good)).await;
    for client in &returning {
        let came = client.comes(&agent).await;
        assert!(came.is_err(), "a ticket admits a revoked client: {came:?}");
    }
    load.pass(50).await;
    let reply = established.send(&by_bad).await.expect("an answer");
    assert_eq!(reply.status, 200);
    let replaced = agent.order(&["restart"]).await;
    assert!(replaced.status.success(), "{}", agent.log_tail());
    wait_untrusted(&agent, &to_bad).await;
    eventually("the connection is closed", TEST_TIMEOUT, async || {
        holds(!established.is_open().await, || "it is open".to_owned())
    })
    .await;
    for client in &returning {
        let came = client.comes(&agent).await;
        assert!(came.is_err(), "a ticket admits a revoked client: {came:?}");
    }
    load.pass(50).await;
    load.stop().await.clean("other clients during a revocation");
}

/// Permits references from Gateways in `default` to the namespace `trust`.
fn grant(kind: &str) -> String {
    yaml(&[
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant",
        "metadata": {"name": kind.to_lowercase(), "namespace": "trust"},
        "spec": {
            "from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default"}],
            "to": [{"group": "", "kind": kind}],
        }}),
    ])
}

fn in_trust(mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!("trust");
    object
}

/// The Gateway's client certificate and the bundle for its clients are in another namespace.
fn across_namespaces(servers: &Authority, clients: &Authority, shown: &Authority) -> Vec<Value> {
    let mut all = objects(servers);
    let gateway = edge(&[http_listener("plain", 81, "")]).remove(1);
    let plain = gateway["spec"]["listeners"][0].clone();
    let listeners = all[1]["spec"]["listeners"].as_array_mut();
    listeners.expect("listeners").push(plain);
    let validation = &mut all[1]["spec"]["tls"]["frontend"]["default"]["validation"];
    validation["caCertificateRefs"][0]["namespace"] = json!("trust");
    all[1]["spec"]["tls"]["backend"] =
        json!({"clientCertificateRef": {"name": "shown", "namespace": "trust"}});
    all.push(in_trust(shown.issue(&["gateway.test"]).secret("shown")));
    all.push(in_trust(Authority::config_map("clients", &[clients])));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_grant_cuts_off_only_what_it_permitted() {
    let (servers, clients, shown) = (
        Authority::new("servers"),
        Authority::new("clients"),
        Authority::new("shown"),
    );
    let leaf = servers.issue(&["backend.test"]);
    let mutual = Backend::start_mutual_tls("first", &leaf, &shown).await;
    let open = Backend::start("open").await;
    let mut all = across_namespaces(&servers, &clients, &shown);
    all.extend(endpoint_slices("first", &[mutual.address()]));
    all.push(Authority::config_map("backends", &[&servers]));
    all.extend(served("open", &[open.address()]));
    all.push(plain_route("open", "open.test", "open"));
    let agent = Setup::with_ports(&[443, 80, 81]).start(&[
        ("all.yaml", &yaml(&all)),
        ("maps.yaml", &grant("ConfigMap")),
        ("secrets.yaml", &grant("Secret")),
    ]);
    let by_client = agent.get(443, "a.test", "/first");
    let by_client = by_client.tls("a.test", &servers.trust());
    let by_client = by_client.showing(&clients.issue(&["client.test"]));
    let by_anybody = agent.get(80, "a.test", "/first");
    for request in [&by_client, &by_anybody] {
        agent.wait_ok(request).await;
    }
    let others = agent.get(81, "open.test", "/");
    agent.wait_ok(&others).await;
    let load = Load::start(&Plan::new(vec![others]));
    load.pass(50).await;

    agent.remove("maps.yaml");
    wait_refused(&agent, &by_client).await;
    agent
        .wait_status("the listener reports the reason", |status| {
            let condition = listener_condition(status, "https", "ResolvedRefs");
            condition["status"] == "False" && condition["reason"] == "RefNotPermitted"
        })
        .await;
    agent.wait_ok(&by_anybody).await;
    agent.write("maps.yaml", &grant("ConfigMap"));
    agent.wait_ok(&by_client).await;

    agent.remove("secrets.yaml");
    agent
        .wait_served(&by_anybody, |reply| matches!(reply.status, 500 | 503))
        .await;
    agent
        .wait_served(&by_client, |reply| matches!(reply.status, 500 | 503))
        .await;
    load.pass(50).await;
    agent.write("secrets.yaml", &grant("Secret"));
    agent.wait_ok(&by_client).await;
    load.pass(50).await;
    load.stop()
        .await
        .clean("other routes while grants are deleted");
}
