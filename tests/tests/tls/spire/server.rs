//! Runs SPIRE as described in `docs/host-certificates.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::Value;
use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_tests::agent::TEST_TIMEOUT;
use sesame_tests::envoy::workspace;
use sesame_tests::ports::free_port;
use sesame_tests::wait::{eventually, holds};
use std::sync::Arc;
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

/// Lifetime of an SVID in seconds. SPIRE renews it after half that time.
const LIFE: &str = "14";

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Spire {
    tools: PathBuf,
    running: Vec<Running>,
    root: TempDir,
}

impl Spire {
    /// Starts SPIRE, and waits until spiffe-helper has written the files.
    pub(crate) async fn start(tools: PathBuf) -> Self {
        let mut spire = Self {
            tools,
            running: Vec::new(),
            root: tempfile::tempdir().expect("a directory"),
        };
        for directory in ["server", "agent", "files", "backend"] {
            fs::create_dir(spire.path(directory)).expect("a directory");
        }
        let port = free_port();
        spire.write("server.conf", SERVER, port);
        spire.write("agent.conf", AGENT, port);
        spire.run("spire-server", &["run", "-config", "server.conf"]);
        spire
            .wait("the server is up", || spire.ask(&["healthcheck"]).is_some())
            .await;
        let bundle = spire.ask(&["bundle", "show"]).expect("a bundle");
        fs::write(spire.path("bootstrap.pem"), bundle).expect("written");
        let host = "spiffe://site.test/host";
        let token = spire.json(&["token", "generate", "-spiffeID", host]);
        let user = format!("unix:uid:{}", nix::unistd::geteuid());
        let entry = "entry create -spiffeID spiffe://site.test/edge -x509SVIDTTL";
        let mut entry: Vec<&str> = entry.split(' ').collect();
        entry.extend([LIFE, "-parentID", host, "-selector", &user]);
        spire.ask(&entry).expect("an entry");
        let token = token["value"].as_str().expect("a token");
        let arguments = ["run", "-config", "agent.conf", "-joinToken", token];
        spire.run("spire-agent", &arguments);
        spire
            .wait("the agent is up", || spire.path("agent.sock").exists())
            .await;
        let helper = helper().replace("/run/spire/agent/public/api.sock", "AT/agent.sock");
        let helper = helper.replace("/run/edge-svid", "AT/files");
        spire.write("helper.conf", &helper, port);
        spire.run("spiffe-helper", &["-config", "helper.conf"]);
        spire
            .wait("the key file exists", || {
                spire.path("files/svid_key.pem").exists()
            })
            .await;
        spire
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Adds an authority that is trusted but does not sign yet.
    pub(crate) async fn prepare_authority(&self) -> String {
        let count = || {
            let bundle = fs::read(self.path("files/svid_bundle.pem")).unwrap_or_default();
            CertificateFacts::from_pem(&bundle).len()
        };
        let before = count();
        let prepared = self.json(&["localauthority", "x509", "prepare"]);
        self.wait("the bundle contains the new authority", || count() > before)
            .await;
        let name = prepared["prepared_authority"]["authority_id"].as_str();
        name.expect("an authority").to_owned()
    }

    pub(crate) fn activate_authority(&self, name: &str) {
        let done = self.ask(&["localauthority", "x509", "activate", "-authorityID", name]);
        done.expect("another authority");
    }

    /// Returns an acceptor that requires a client certificate from SPIRE.
    pub(crate) fn acceptor(&self, name: &str) -> TlsAcceptor {
        let directory = self.path("backend").display().to_string();
        let id = format!("spiffe://site.test/{name}");
        let mint = "x509 mint -ttl 1h -dns";
        let mut mint: Vec<&str> = mint.split(' ').collect();
        mint.extend([name, "-spiffeID", &id, "-write", &directory]);
        self.ask(&mint).expect("a certificate");
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.path("files/svid_bundle.pem")) {
            roots.add(root).expect("an authority");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("authorities"))
            .with_single_cert(
                certificates(&self.path("backend/svid.pem")),
                PrivateKeyDer::from_pem_file(self.path("backend/key.pem")).expect("a key"),
            )
            .expect("a certificate with its key");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// Waits for a renewal. `before` is the old serial number.
    pub(crate) async fn renewed(&self, before: &str) -> String {
        let mut next = String::new();
        let now = || self.serial();
        eventually("SPIRE renews the certificate", TEST_TIMEOUT, async || {
            next = now();
            holds(!next.is_empty() && next != before, || self.log())
        })
        .await;
        next
    }

    /// Returns an empty string during a renewal.
    pub(crate) fn serial(&self) -> String {
        let pem = fs::read(self.path("files/svid.pem")).unwrap_or_default();
        let leaf = CertificateFacts::from_pem(&pem).into_iter().next();
        leaf.map(|leaf| leaf.serial).unwrap_or_default()
    }

    fn write(&self, name: &str, text: &str, port: u16) {
        let at = self.root.path().display().to_string();
        let text = text.replace("AT", &at).replace("PORT", &port.to_string());
        fs::write(self.path(name), text).expect("written");
    }

    fn run(&mut self, program: &str, arguments: &[&str]) {
        let log = fs::File::create(self.path(&format!("{program}.log"))).expect("a log");
        let child = Command::new(self.tools.join(program))
            .args(arguments)
            .current_dir(self.root.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect(program);
        self.running.push(Running(child));
    }

    fn log(&self) -> String {
        ["spire-server", "spire-agent", "spiffe-helper"]
            .map(|name| fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default())
            .join("\n--- \n")
    }

    /// Returns `None` if the command fails.
    fn ask(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new(self.tools.join("spire-server"))
            .args(arguments)
            .arg("-socketPath")
            .arg(self.path("server.sock"))
            .output()
            .expect("the server's program");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.extend(["-output", "json"]);
        let answer = self
            .ask(&arguments)
            .unwrap_or_else(|| panic!("{}", self.log()));
        serde_json::from_str(&answer).expect("JSON")
    }

    async fn wait(&self, what: &str, good: impl Fn() -> bool) {
        eventually(what, TEST_TIMEOUT, async || holds(good(), || self.log())).await;
    }
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_file_iter(path).expect("a file with certificates");
    all.collect::<Result<_, _>>().expect("certificates")
}

/// Extracts the helper's configuration from `docs/host-certificates.md`.
fn helper() -> String {
    let page = fs::read_to_string(workspace().join("docs/host-certificates.md")).expect("the page");
    let block = page.split("```hcl\n").nth(1);
    let block = block.and_then(|block| block.split("```").next());
    block.expect("the helper's settings").to_owned()
}

const SERVER: &str = r#"
server {
  bind_address = "127.0.0.1"
  bind_port = "PORT"
  socket_path = "AT/server.sock"
  trust_domain = "site.test"
  data_dir = "AT/server"
  log_level = "WARN"
}
plugins {
  DataStore "sql" { plugin_data { database_type = "sqlite3" connection_string = "AT/server/data.sqlite3" } }
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "memory" { plugin_data {} }
}
"#;

const AGENT: &str = r#"
agent {
  data_dir = "AT/agent"
  log_level = "WARN"
  server_address = "127.0.0.1"
  server_port = "PORT"
  socket_path = "AT/agent.sock"
  trust_bundle_path = "AT/bootstrap.pem"
  trust_domain = "site.test"
}
plugins {
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "memory" { plugin_data {} }
  WorkloadAttestor "unix" { plugin_data {} }
}
"#;
