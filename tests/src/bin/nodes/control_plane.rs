//! The cluster's control plane, which all nodes can reach.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sesame_tests::cluster::{Client, kube_binary};

use crate::node::{log_file, ok};
use crate::tools::{self, tool};

const ADDRESS: &str = "10.77.0.1";
const PORT: u16 = 6443;
const TOKEN: &str = "the-administrators-token";

pub(crate) fn address() -> IpAddr {
    ADDRESS.parse().expect("an address")
}

/// The control plane's processes die with their namespaces.
pub(crate) struct ControlPlane {
    kubeconfig: PathBuf,
    programs: Vec<Child>,
}

impl ControlPlane {
    /// Does not wait for the API server.
    pub(crate) fn start() -> Self {
        let directory = tools::directory().join("control-plane");
        fs::create_dir_all(&directory).expect("a directory");
        network();
        keys(&directory);
        let kubeconfig = directory.join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_text(&directory)).expect("a kubeconfig");
        let file = |flag: &str, name: &str| format!("--{flag}={}", directory.join(name).display());
        let programs = vec![
            spawn(
                &kube_binary("etcd"),
                &[
                    file("data-dir", "etcd").as_str(),
                    "--log-level=warn",
                    "--unsafe-no-fsync",
                ],
            ),
            spawn(
                &kube_binary("kube-apiserver"),
                &[
                    "--etcd-servers=http://127.0.0.1:2379",
                    &format!("--bind-address={ADDRESS}"),
                    &format!("--advertise-address={ADDRESS}"),
                    &file("cert-dir", "certificates"),
                    "--service-cluster-ip-range=10.96.0.0/16",
                    &file("service-account-key-file", "tokens.pub"),
                    &file("service-account-signing-key-file", "tokens.key"),
                    "--service-account-issuer=https://kubernetes.default.svc",
                    "--authorization-mode=Node,RBAC",
                    &file("token-auth-file", "tokens.csv"),
                    "--allow-privileged=true",
                    "--kubelet-preferred-address-types=InternalIP",
                    "--profiling=false",
                ],
            ),
        ];
        Self {
            kubeconfig,
            programs,
        }
    }

    pub(crate) fn start_controllers(&mut self) {
        let directory = tools::directory().join("control-plane");
        let file = |flag: &str, name: &str| format!("--{flag}={}", directory.join(name).display());
        let config = file("kubeconfig", "kubeconfig");
        self.programs.push(spawn(
            &tool("kube-controller-manager"),
            &[
                &config,
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                &file("service-account-private-key-file", "tokens.key"),
                &file("root-ca-file", "certificates/apiserver.crt"),
            ],
        ));
        self.programs.push(spawn(
            &tool("kube-scheduler"),
            &[&config, "--leader-elect=false", "--bind-address=127.0.0.1"],
        ));
    }

    pub(crate) fn administrator(&self) -> Client {
        let certificate = self.kubeconfig.with_file_name("certificates/apiserver.crt");
        let certificate =
            fs::read(certificate).expect("the API server has written its certificate");
        let address: IpAddr = ADDRESS.parse().expect("an address");
        Client::bearing((address, PORT).into(), &certificate, TOKEN)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// Creates a network without routes to other networks.
fn network() {
    for arguments in [
        "link set lo up",
        "link add lan type bridge",
        "address add 10.77.0.1/24 dev lan",
        "link set lan up",
    ] {
        ok(Command::new("ip").args(arguments.split(' ')));
    }
    // Each network namespace has its own value of this sysctl.
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("the sysctl can be set");
}

fn keys(directory: &Path) {
    let key = directory.join("tokens.key");
    ok(Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(&key)
        .arg("2048"));
    ok(Command::new("openssl")
        .args(["rsa", "-pubout", "-in"])
        .arg(&key)
        .arg("-out")
        .arg(directory.join("tokens.pub")));
    let administrator = format!("{TOKEN},admin,1,\"system:masters\"\n");
    fs::write(directory.join("tokens.csv"), administrator).expect("a file");
}

fn kubeconfig_text(directory: &Path) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "nodes",
        "contexts": [{"name": "nodes", "context": {"cluster": "nodes", "user": "admin"}}],
        "clusters": [{"name": "nodes", "cluster": {
            "server": format!("https://{ADDRESS}:{PORT}"),
            "certificate-authority": directory.join("certificates/apiserver.crt"),
        }}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
    })
    .to_string()
}

fn spawn(program: &Path, arguments: &[&str]) -> Child {
    let name = program.file_name().expect("a name").to_string_lossy();
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log_file(&name))
        .stderr(log_file(&name))
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}
