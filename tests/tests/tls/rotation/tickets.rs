//! Clients can resume TLS sessions after rotations and hot restarts.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion, version};
use rustls_pki_types::ServerName;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, arguments};
use sesame_tests::backend::Backend;
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::site::Site;

pub(crate) struct Resumer {
    address: SocketAddr,
    host: String,
    config: Arc<ClientConfig>,
}

impl Resumer {
    fn new(
        address: SocketAddr,
        host: &str,
        trust: &Arc<RootCertStore>,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(Arc::clone(trust))
            .with_no_client_auth();
        Self {
            address,
            host: host.to_owned(),
            config: Arc::new(config),
        }
    }

    /// Connects, and returns true if the session was resumed.
    pub(crate) async fn resumes(&self) -> Result<bool> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let mut stream = connector.connect(name, stream).await?;
        let request = format!(
            "GET / HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            self.host
        );
        stream.write_all(request.as_bytes()).await?;
        // Reading the response also receives the TLS 1.3 tickets.
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "no answer");
        let kind = stream.get_ref().1.handshake_kind().context("a handshake")?;
        Ok(kind == HandshakeKind::Resumed)
    }

    async fn assert_resumes(&self, after: &str) {
        assert!(self.resumes().await.expect("a request"), "after {after}");
    }

    /// Returns a client for another address, with the same tickets.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        Self {
            address,
            host: self.host.clone(),
            config: Arc::clone(&self.config),
        }
    }
}

/// Each version has its own ticket format.
const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

pub(crate) fn clients(agent: &AgentUnderTest, site: &Site) -> Vec<Resumer> {
    let (address, trust) = (agent.address(443), site.authority.trust());
    let one = |version| Resumer::new(address, &Site::host(0), &trust, version);
    VERSIONS.into_iter().map(one).collect()
}

pub(crate) async fn assert_all_resume(clients: &[Resumer], after: &str) {
    for client in clients {
        client.assert_resumes(after).await;
    }
}

/// Makes the keys old enough to be rotated.
pub(crate) fn age(agent: &AgentUnderTest) {
    let path = agent.runtime().join("session-ticket-keys");
    let mut bytes = std::fs::read(&path).expect("keys");
    bytes[1..9].fill(0);
    std::fs::write(path, bytes).expect("keys");
}

pub(crate) fn keys(agent: &AgentUnderTest) -> Vec<u8> {
    let path = agent.runtime().join("session-ticket-keys");
    std::fs::read(path).expect("keys")[9..].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_resume_after_rotations_and_hot_restart() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let mut agent = site
        .start(Setup::with_ports(&[443]), backend.address(), |it| it)
        .await;
    let all = clients(&agent, &site);
    for client in &all {
        assert!(!client.resumes().await.expect("a request"), "the first");
    }
    assert_all_resume(&all, "a first connection").await;

    let leaf = site.issue(0);
    Site::write(&agent, 0, &leaf);
    site.wait_shown(&agent, 0, &leaf).await;
    assert_all_resume(&all, "the certificate was rotated").await;

    // Tickets must survive two key rotations.
    for round in 1..=2 {
        let before = keys(&agent);
        agent.wait_stored().await;
        age(&agent);
        agent.restart();
        agent.wait_healthy().await;
        eventually("the keys are rotated", TEST_TIMEOUT, async || {
            let now = keys(&agent);
            holds(now.ends_with(&before) && now.len() > before.len(), || {
                format!("{} bytes", now.len())
            })
        })
        .await;
        let fresh = clients(&agent, &site);
        for client in &fresh {
            client.resumes().await.expect("a request");
        }
        assert_all_resume(&fresh, "new tickets").await;
        if round == 2 {
            assert_all_resume(&all, "two key rotations").await;
        }
    }

    let pids = agent.envoy_pids();
    let restart = agent.command(&arguments(&format!(
        "restart --runtime-dir {}",
        agent.runtime().display()
    )));
    assert!(restart.status.success(), "{restart:?}");
    assert_ne!(agent.envoy_pids(), pids, "another Envoy");
    assert_all_resume(&all, "a hot restart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_without_own_keys_ends_sessions() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let setup = Setup::with_ports(&[443]).flag("--session-ticket-hours=0");
    let agent = site.start(setup, backend.address(), |it| it).await;
    assert!(!agent.runtime().join("session-ticket-keys").exists());
    let all = clients(&agent, &site);
    for client in &all {
        client.resumes().await.expect("a request");
    }
    assert_all_resume(&all, "a first connection").await;
    let leaf = site.issue(0);
    Site::write(&agent, 0, &leaf);
    site.wait_shown(&agent, 0, &leaf).await;
    for client in &all {
        assert!(!client.resumes().await.expect("a request"), "forgotten");
    }
}
