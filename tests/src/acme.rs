//! A real ACME server, Pebble, with a DNS server that returns loopback addresses for all names.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::TEST_TIMEOUT;
use crate::certs::Authority;
use crate::client::Request;
use crate::pinned;
use crate::ports::free_ports;
use crate::wait::eventually;

/// A running server, killed on drop.
pub struct Pebble {
    directory: TempDir,
    processes: Vec<Child>,
    /// Signs the server's own certificate.
    authority: Authority,
    api: SocketAddr,
    management: SocketAddr,
    dns_management: SocketAddr,
}

fn program(name: &str) -> PathBuf {
    let pins = include_str!("../pebble/go.mod");
    let version = pinned::version(pins, "github.com/letsencrypt/pebble/v2");
    let directory = format!("pebble-{version}");
    pinned::program("PEBBLE_TOOLS", &directory, name, "run `make pebble`")
}

impl Pebble {
    /// Starts a server that sends HTTP-01 requests to this address and port, and issues
    /// certificates that are valid for `seconds`.
    pub async fn start(validates: SocketAddr, seconds: u32) -> Self {
        Self::start_with(validates, seconds, &json!({})).await
    }

    /// Like [`Self::start`], but creates only accounts that are bound to this external account.
    pub async fn start_bound(validates: SocketAddr, key_id: &str, key: &str) -> Self {
        let bound = json!({
            "externalAccountBindingRequired": true,
            "externalAccountMACKeys": {key_id: key},
        });
        Self::start_with(validates, 3600, &bound).await
    }

    async fn start_with(validates: SocketAddr, seconds: u32, more: &Value) -> Self {
        let directory = tempfile::Builder::new().prefix("sesame-pebble-").tempdir();
        let directory = directory.expect("a directory");
        let authority = Authority::new("directory");
        let leaf = authority.issue(&["localhost"]);
        let secret = leaf.secret("pebble");
        let [api, management, dns, dns_management] =
            free_ports::<4>().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let path = |name: &str| directory.path().join(name);
        for (file, key) in [("cert.pem", "tls.crt"), ("key.pem", "tls.key")] {
            std::fs::write(path(file), decoded(&secret["data"][key])).expect("written");
        }
        let mut config = json!({"pebble": {
            "listenAddress": api.to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": path("cert.pem"),
            "privateKey": path("key.pem"),
            "httpPort": validates.port(),
            "tlsPort": 1,
            "keyAlgorithm": "ecdsa",
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "", "validityPeriod": seconds}},
        }});
        for (field, value) in more.as_object().into_iter().flatten() {
            config["pebble"][field] = value.clone();
        }
        std::fs::write(path("pebble.json"), config.to_string()).expect("written");
        let log = std::fs::File::create(path("log")).expect("a log");
        let run = |mut command: Command| {
            let output = log.try_clone().expect("a log");
            let errors = log.try_clone().expect("a log");
            command.stdin(Stdio::null()).stdout(output).stderr(errors);
            command.spawn().expect("the program runs")
        };
        let mut names = Command::new(program("pebble-challtestsrv"));
        names.args([
            "-http01=",
            "-https01=",
            "-tlsalpn01=",
            "-doh=",
            "-defaultIPv6=",
        ]);
        names.arg(format!("-dnsserver={dns}"));
        names.arg(format!("-management={dns_management}"));
        names.arg(format!("-defaultIPv4={}", validates.ip()));
        let mut server = Command::new(program("pebble"));
        server.arg("-config").arg(path("pebble.json"));
        server.arg(format!("-dnsserver={dns}"));
        // By default, it waits up to 15 seconds, and reuses half of the authorizations. Like public
        // CAs, reuse all of them.
        server
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "100");
        let processes = vec![run(names), run(server)];
        let pebble = Self {
            directory,
            processes,
            authority,
            api,
            management,
            dns_management,
        };
        let request = Request::get(api, "localhost", "/dir");
        let request = request.tls("localhost", &pebble.authority.trust());
        eventually("the ACME server answers", TEST_TIMEOUT, async || {
            let sent = request.send().await.map(drop);
            sent.map_err(|error| format!("{error:#}\n{}", pebble.log()))
        })
        .await;
        pebble
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Writes a program that changes DNS records.
    pub fn dns_hook(&self) -> PathBuf {
        let names = self.dns_management;
        let script = format!(
            "#!/bin/sh\nset -eu\ncase $1 in\npresent) curl -fsS http://{names}/set-txt \
             -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" ;;\ncleanup) curl -fsS \
             http://{names}/clear-txt -d \"{{\\\"host\\\":\\\"$2.\\\"}}\" ;;\nesac\n"
        );
        let program = self.directory.path().join("hook");
        std::fs::write(&program, script).expect("written");
        let mode = Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("executable");
        program
    }

    /// Returns `spec.acme` for this server.
    pub fn settings(&self) -> Value {
        json!({
            "directory": format!("https://localhost:{}/dir", self.api.port()),
            "email": "admin@example.com",
            "termsAgreed": true,
            "caBundle": self.authority.pem(),
        })
    }

    /// Returns the root of the certificates that the server issues.
    pub async fn trust(&self) -> Arc<RootCertStore> {
        let request = Request::get(self.management, "localhost", "/roots/0");
        let request = request.tls("localhost", &self.authority.trust());
        let reply = request.send().await.expect("an answer");
        let root = CertificateDer::from_pem_slice(&reply.body).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(root).expect("a CA certificate");
        Arc::new(roots)
    }

    /// Returns the number of challenges that the server validated.
    pub fn validated(&self) -> usize {
        self.log()
            .matches("set VALID by completed challenge")
            .count()
    }

    /// Returns the number of certificates that the server issued.
    pub fn issued(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }
}

fn decoded(value: &Value) -> Vec<u8> {
    use base64::Engine as _;

    let text = value.as_str().expect("a string");
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    decoded.expect("base64")
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // The process may already have exited.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
