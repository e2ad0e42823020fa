//! Nodes made of namespaces, each with its own containerd, kubelet and kube-proxy. A node's disk is
//! a directory, which survives a power cut.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sesame_tests::processes;

use crate::confined;
use crate::node_files::{self, CONTAINERD_SOCKET, NodeSettings};
use crate::tools::{self, tool};

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// `/run` is empty at each start. Bind mounts replace some sysctls with the values that kubelet
/// expects.
const INIT: &str = r#"set -e
hostname "$1"
mount -t proc proc /proc
mount --bind "$2" /var/lib
mount --make-rshared /var/lib
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
  file=/run/sysctl-$(basename "${setting%=*}")
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done
ip link set lo up
exec sleep infinity
"#;

pub(crate) struct Node {
    number: u8,
    name: String,
    disk: PathBuf,
    /// `None` while the node is powered off.
    running: Option<Running>,
}

struct Running {
    unshare: Child,
    /// PID in this program's PID namespace.
    init: i32,
    kubelet: Child,
    /// Kept only for reaping.
    _others: Vec<Child>,
}

impl Node {
    pub(crate) fn start(number: u8, kubeconfig: &Path, images: &[PathBuf]) -> Self {
        let name = format!("node{number}");
        let disk = tools::directory().join(&name);
        let mut node = Self {
            number,
            name,
            disk,
            running: None,
        };
        fs::create_dir_all(&node.disk).expect("a directory for the node");
        confined::make_groups(&node.name);
        let pods = node.pods();
        node_files::write(
            &node.disk,
            NodeSettings {
                name: &node.name,
                address: node.ipv4(),
                pods: &pods,
            },
        );
        fs::copy(kubeconfig, node.disk.join("node/kubeconfig")).expect("a kubeconfig");
        node.boot(images);
        node
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        (IpAddr::from(self.ipv4()), port).into()
    }

    pub(crate) fn cut_power(&mut self) {
        let mut running = self.running.take().expect("the node runs");
        running.unshare.kill().expect("a child process");
        running.unshare.wait().expect("a child process");
        confined::remove_groups(&self.name);
    }

    pub(crate) fn power_on(&mut self) {
        confined::make_groups(&self.name);
        self.boot(&[]);
    }

    pub(crate) fn kill_kubelet(&mut self) {
        let running = self.running.as_mut().expect("the node runs");
        // `running.kubelet` is nsenter, so kill its child.
        let kubelet = child_of(running.kubelet.id()).expect("kubelet runs");
        processes::kill9(kubelet);
        running.kubelet.wait().expect("a child process");
    }

    pub(crate) fn start_kubelet(&mut self) {
        let kubelet = self.kubelet(self.init());
        self.running.as_mut().expect("the node runs").kubelet = kubelet;
    }

    pub(crate) fn tag(&self, image: &str, name: &str) {
        let ended = self.ctr(&["images", "tag", "--force", image, name]);
        assert!(ended.status.success(), "{image} as {name}: {ended:?}");
    }

    /// Returns PIDs as numbered in this program's PID namespace.
    pub(crate) fn envoys(&self) -> Vec<i32> {
        let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(self.init());
        // An Envoy's command line contains the path of its bootstrap.
        let mut found: Vec<i32> = processes::below(Path::new("/bootstrap.pb"))
            .into_iter()
            .filter(|process| process.is("envoy") && namespace(process.pid) == own)
            .filter(|process| {
                !process
                    .arguments
                    .iter()
                    .any(|argument| argument == "--mode")
            })
            .map(|process| process.pid)
            .collect();
        found.sort_unstable();
        found
    }

    pub(crate) fn run(&self, command: &[&str]) -> Output {
        let output = enter(self.init()).args(command).output();
        output.expect("nsenter (Debian: util-linux)")
    }

    fn init(&self) -> i32 {
        self.running.as_ref().expect("the node runs").init
    }

    fn ipv4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.number + 1)
    }

    fn pods(&self) -> String {
        format!("10.88.{}.0/24", self.number)
    }

    fn boot(&mut self, images: &[PathBuf]) {
        let unshare = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--ipc", "--uts"])
            .args(["--fork", "--kill-child", "--propagation", "private"])
            .args(["sh", "-c", INIT, "node", &self.name])
            .arg(&self.disk)
            .stdin(Stdio::null())
            .stderr(self.log("init"))
            .spawn()
            .expect("unshare (Debian: util-linux)");
        let init = wait_for("the node's first process", || init_of(unshare.id()));
        self.connect(init);
        let containerd = self.spawn(
            init,
            "containerd",
            &["containerd", "--config", "/var/lib/node/containerd.toml"],
        );
        wait_for("containerd answers", || {
            let output = enter(init)
                .args(["ctr", "--address", CONTAINERD_SOCKET, "version"])
                .output();
            output
                .is_ok_and(|output| output.status.success())
                .then_some(())
        });
        for image in images {
            let import = enter(init)
                .args(["ctr", "--address", CONTAINERD_SOCKET])
                .args(["--namespace", "k8s.io", "images", "import"])
                .arg(image)
                .output()
                .expect("nsenter (Debian: util-linux)");
            assert!(import.status.success(), "{}: {import:?}", image.display());
        }
        let proxy = self.spawn(
            init,
            "kube-proxy",
            &[
                &tool("kube-proxy").to_string_lossy(),
                "--config=/var/lib/node/proxy.yaml",
            ],
        );
        let kubelet = self.kubelet(init);
        self.running = Some(Running {
            unshare,
            init,
            kubelet,
            _others: vec![containerd, proxy],
        });
    }

    fn connect(&self, init: i32) {
        let (name, init_text) = (&self.name, init.to_string());
        // The link from before a power cut may still exist.
        let _ = Command::new("ip")
            .args(["link", "delete", name])
            .stderr(Stdio::null())
            .status();
        let mac = format!("02:00:00:00:00:{:02x}", self.number);
        ok(Command::new("ip")
            .args(["link", "add", name, "type", "veth", "peer", "name", "eth0"])
            .args(["address", &mac, "netns", &init_text]));
        ok(Command::new("ip").args(["link", "set", name, "master", "lan", "up"]));
        let address = format!("{}/24", self.ipv4());
        ok(enter(init).args(["ip", "address", "add", &address, "dev", "eth0"]));
        ok(enter(init).args(["ip", "link", "set", "eth0", "up"]));
        // This program's network namespace routes packets to the Pods on all nodes.
        ok(enter(init).args(["ip", "route", "add", "default", "via", "10.77.0.1"]));
        ok(Command::new("ip")
            .args(["route", "replace", &self.pods(), "via"])
            .arg(self.ipv4().to_string()));
    }

    fn kubelet(&self, init: i32) -> Child {
        let (name, address) = (&self.name, self.ipv4());
        self.spawn(
            init,
            "kubelet",
            &[
                &tool("kubelet").to_string_lossy(),
                "--config=/var/lib/node/kubelet.yaml",
                "--kubeconfig=/var/lib/node/kubeconfig",
                "--root-dir=/var/lib/kubelet",
                "--cert-dir=/var/lib/node/pki",
                &format!("--hostname-override={name}"),
                &format!("--node-ip={address}"),
            ],
        )
    }

    fn ctr(&self, arguments: &[&str]) -> Output {
        let mut command = vec!["ctr", "--address", CONTAINERD_SOCKET];
        command.extend(["--namespace", "k8s.io"]);
        command.extend(arguments);
        self.run(&command)
    }

    fn spawn(&self, init: i32, log: &str, command: &[&str]) -> Child {
        enter(init)
            .args(command)
            .stdin(Stdio::null())
            .stdout(self.log(log))
            .stderr(self.log(log))
            .spawn()
            .expect("nsenter (Debian: util-linux)")
    }

    fn log(&self, name: &str) -> File {
        log_file(&format!("{}-{name}", self.name))
    }
}

pub(crate) fn log_file(name: &str) -> File {
    let path = tools::logs().join(format!("{name}.log"));
    let opened = File::options().create(true).append(true).open(&path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn ok(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}: {stderr}",
        output.status
    );
}

fn enter(init: i32) -> Command {
    let mut command = Command::new("nsenter");
    command
        .args(["--target", &init.to_string()])
        .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--"]);
    command
}

/// Returns `None` until the process has prepared the node.
fn init_of(unshare: u32) -> Option<i32> {
    let init = child_of(unshare)?;
    let program = fs::read_to_string(format!("/proc/{init}/comm")).ok()?;
    (program.trim() == "sleep").then_some(init)
}

fn child_of(pid: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            begun.elapsed() < TIMEOUT,
            "{what}: timed out after {TIMEOUT:?}"
        );
        std::thread::sleep(POLL);
    }
}
