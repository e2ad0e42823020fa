//! The processes `etcd` and `kube-apiserver`. All their files are in one temporary directory.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::assets::kube_binary;
use super::guard::Guard;
use super::identity::Identity;
use crate::agent::TEST_TIMEOUT;
use crate::client::Request;
use crate::logs::{log_to, tail};
use crate::ports::free_port;
use crate::wait::eventually;

/// Service IP range. Nothing listens on these addresses.
const SERVICE_ADDRESSES: &str = "10.96.0.0/16";

pub(super) struct Servers {
    directory: TempDir,
    guard: Guard,
    etcd: Option<Child>,
    etcd_port: u16,
    etcd_peer_port: u16,
    apiserver: Option<Child>,
    address: SocketAddr,
}

impl Servers {
    /// Waits for etcd, but not for the API server.
    pub(super) async fn start(identity: &Identity, address: Ipv4Addr) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("sesame-cluster-")
            .tempdir()
            .expect("a directory");
        write_identity(directory.path(), identity);
        let guard = Guard::start(directory.path());
        let mut servers = Self {
            directory,
            guard,
            etcd: None,
            etcd_port: free_port(),
            etcd_peer_port: free_port(),
            apiserver: None,
            address: (address, free_port()).into(),
        };
        servers.start_etcd();
        servers.wait_etcd().await;
        servers.start_apiserver();
        servers
    }

    /// Stays the same when the API server restarts.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn pids(&self) -> (u32, u32) {
        let apiserver = self.apiserver.as_ref().expect("the API server runs");
        let etcd = self.etcd.as_ref().expect("etcd runs");
        (apiserver.id(), etcd.id())
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn stop_apiserver(&mut self) {
        if let Some(mut child) = self.apiserver.take() {
            child.kill().expect("the API server is a child process");
            child.wait().expect("the API server is a child process");
        }
    }

    pub(super) fn stop_etcd(&mut self) {
        if let Some(mut child) = self.etcd.take() {
            child.kill().expect("etcd is a child process");
            child.wait().expect("etcd is a child process");
        }
    }

    pub(super) fn signal_apiserver(&self, signal: Signal) {
        let child = self.apiserver.as_ref().expect("the API server runs");
        send(child, signal);
    }

    pub(super) fn signal_etcd(&self, signal: Signal) {
        send(self.etcd.as_ref().expect("etcd runs"), signal);
    }

    /// Returns the servers that have exited by themselves since the last call.
    pub(super) fn exited(&mut self) -> Vec<(&'static str, ExitStatus)> {
        let servers = [
            ("etcd", &mut self.etcd),
            ("kube-apiserver", &mut self.apiserver),
        ];
        let mut exited = Vec::new();
        for (name, server) in servers {
            let child = server.as_mut();
            let status = child.and_then(|child| child.try_wait().expect("a child process"));
            if let Some(status) = status {
                *server = None;
                exited.push((name, status));
            }
        }
        exited
    }

    /// Takes effect at the next start.
    pub(super) fn change_identity(&self, identity: &Identity) {
        write_identity(self.directory(), identity);
    }

    pub(super) fn start_etcd(&mut self) {
        assert!(self.etcd.is_none(), "etcd is already running");
        let ports = (self.etcd_port, self.etcd_peer_port);
        let mut command = etcd_command(self.directory(), ports);
        self.etcd = Some(self.guard.spawn(&mut command));
    }

    pub(super) fn start_apiserver(&mut self) {
        assert!(
            self.apiserver.is_none(),
            "the API server is already running"
        );
        let mut command = apiserver_command(self.directory(), self.etcd_port, self.address);
        self.apiserver = Some(self.guard.spawn(&mut command));
    }

    pub(super) fn assert_alive(&mut self) {
        if let [(name, status), ..] = self.exited()[..] {
            panic!("{name} exited: {status}\n{}", self.log_tail());
        }
    }

    pub(super) fn log_tail(&self) -> String {
        let tail = |name: &str| {
            let tail = tail(&log_path(self.directory(), name), 20);
            format!("--- end of {name}'s log:\n{tail}")
        };
        format!("{}\n{}", tail("etcd"), tail("kube-apiserver"))
    }

    async fn wait_etcd(&mut self) {
        let address = (Ipv4Addr::LOCALHOST, self.etcd_port).into();
        eventually("etcd is healthy", TEST_TIMEOUT, async || {
            self.assert_alive();
            match Request::get(address, "localhost", "/health").send().await {
                Ok(reply) if reply.status == 200 => Ok(()),
                Ok(reply) => Err(format!("status {}", reply.status)),
                Err(error) => Err(format!("{error:#}\n{}", self.log_tail())),
            }
        })
        .await;
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        // The servers' directory is removed next, so wait until both have exited.
        for child in self.apiserver.iter_mut().chain(&mut self.etcd) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn send(server: &Child, signal: Signal) {
    let pid = i32::try_from(server.id()).expect("a process id");
    kill(Pid::from_raw(pid), signal).expect("the server is a child process");
}

fn etcd_command(directory: &Path, (port, peer_port): (u16, u16)) -> Command {
    let clients = format!("http://127.0.0.1:{port}");
    // etcd requires a peer address even without peers.
    let peers = format!("http://127.0.0.1:{peer_port}");
    let mut command = Command::new(kube_binary("etcd"));
    command
        .arg("--data-dir")
        .arg(directory.join("etcd"))
        .args(["--name", "test"])
        .args(["--listen-client-urls", &clients])
        .args(["--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers])
        .args(["--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("test={peers}")])
        .args(["--log-level", "warn"])
        // The data does not have to be durable.
        .arg("--unsafe-no-fsync");
    log_to(&mut command, &log_path(directory, "etcd"));
    command
}

fn apiserver_command(directory: &Path, etcd_port: u16, address: SocketAddr) -> Command {
    let file = |flag: &str, name: &str| format!("--{flag}={}", directory.join(name).display());
    let mut command = Command::new(kube_binary("kube-apiserver"));
    command
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"))
        .arg(format!("--secure-port={}", address.port()))
        .arg(format!("--bind-address={}", address.ip()))
        .arg(format!("--advertise-address={}", address.ip()))
        // The API server's own endpoint would be a loopback address, which is invalid.
        .arg("--endpoint-reconciler-type=none")
        .arg(format!("--service-cluster-ip-range={SERVICE_ADDRESSES}"))
        .arg(file("tls-cert-file", "server.crt"))
        .arg(file("tls-private-key-file", "server.key"))
        .arg(file("client-ca-file", "clients.crt"))
        .arg(file("service-account-key-file", "tokens.pub"))
        .arg(file("service-account-signing-key-file", "tokens.key"))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg("--authorization-mode=RBAC")
        // The plugin would wait for the `default` ServiceAccount, which only a controller creates.
        .arg("--disable-admission-plugins=ServiceAccount")
        .arg("--allow-privileged=true")
        // Before Kubernetes 1.37, this feature is off by default.
        .arg("--feature-gates=ClusterTrustBundle=true")
        .arg("--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true")
        .arg("--profiling=false");
    log_to(&mut command, &log_path(directory, "kube-apiserver"));
    command
}

fn log_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.log"))
}

fn write_identity(directory: &Path, identity: &Identity) {
    for (name, text) in [
        ("server.crt", &identity.server.certificate_pem),
        ("server.key", &identity.server.key_pem),
        ("clients.crt", &identity.client_authority_pem),
        ("tokens.key", &identity.token_key_pem),
        ("tokens.pub", &identity.token_public_key_pem),
    ] {
        write_private(&directory.join(name), text);
    }
}

fn write_private(path: &Path, text: &str) {
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .expect("create a file");
    std::io::Write::write_all(&mut file, text.as_bytes()).expect("write a file");
}
