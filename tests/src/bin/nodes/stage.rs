//! The cluster of a run: a control plane, two nodes, and the number of the last applied route.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use sesame_tests::client::Reply;
use sesame_tests::cluster::{Channel, crd_files};
use sesame_tests::envoy::workspace;
use sesame_tests::load::{Load, Plan};
use sesame_tests::wait::eventually;

use crate::control_plane::ControlPlane;
use crate::kubectl::{Kubectl, TIMEOUT};
use crate::node::Node;
use crate::objects::{get, version};
use crate::{images, tools};

pub(crate) struct Stage {
    pub(crate) kubectl: Kubectl,
    pub(crate) nodes: Vec<Node>,
    pub(crate) control_plane: ControlPlane,
    number: u32,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        let _ = fs::remove_dir_all(tools::logs());
        fs::create_dir_all(tools::logs()).expect("a directory for logs");
        // Shows only the processes in the new namespaces.
        crate::node::ok(Command::new("mount").args(["-t", "proc", "proc", "/proc"]));
        let mut control_plane = ControlPlane::start();
        let kubectl = Kubectl::new(control_plane.kubeconfig());
        kubectl
            .until_ok("the API server is ready", &["get", "--raw=/readyz"])
            .await;
        control_plane.start_controllers();
        let archives = images::archives();
        let start = |number| Node::start(number, control_plane.kubeconfig(), &archives);
        let nodes = tokio::task::block_in_place(|| vec![start(1), start(2)]);
        let stage = Self {
            kubectl,
            nodes,
            control_plane,
            number: 0,
        };
        stage.ready().await;
        stage
    }

    pub(crate) async fn ready(&self) {
        for node in &self.nodes {
            let node = format!("node/{}", node.name());
            let wait = ["wait", "--for=condition=Ready", &node];
            self.kubectl.until_ok("the nodes are ready", &wait).await;
        }
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.at(80)).collect()
    }

    pub(crate) fn load(&self) -> Load {
        load(&self.addresses())
    }

    pub(crate) async fn change(&mut self) {
        self.number += 1;
        self.kubectl.apply(&version(self.number));
        for address in self.addresses() {
            answers(address, &format!("/{}", self.number)).await;
        }
    }

    pub(crate) fn install(&self, directory: &str) {
        let directory = workspace().join(directory);
        let directory = directory.to_string_lossy();
        self.kubectl.ok(&["apply", "--kustomize", &directory]);
    }

    pub(crate) fn remove(&self, directory: &str) {
        let directory = workspace().join(directory);
        let directory = directory.to_string_lossy();
        let delete = ["delete", "--ignore-not-found", "--kustomize", &directory];
        self.kubectl.ok(&delete);
    }

    pub(crate) fn define(&self) {
        let files = crd_files(Channel::Standard);
        let files = files.iter();
        let files: Vec<String> = files
            .map(|file| format!("--filename={}", file.display()))
            .collect();
        let mut arguments = vec!["apply", "--server-side"];
        arguments.extend(files.iter().map(String::as_str));
        self.kubectl.ok(&arguments);
    }

    /// Also removes agents' and Envoy's files.
    pub(crate) async fn wipe(&self) {
        let ended = |_: &Kubectl| {
            let left: Vec<i32> = self.nodes.iter().flat_map(Node::envoys).collect();
            left.is_empty().then_some(()).ok_or(format!("{left:?}"))
        };
        self.kubectl.until("all Envoys have exited", ended).await;
        for node in &self.nodes {
            let removed = node.run(&["sh", "-c", "rm -rf /run/sesame* /var/lib/sesame*"]);
            assert!(removed.status.success(), "{removed:?}");
        }
    }
}

pub(crate) fn keep_traces() {
    let directory = tools::directory();
    let kubectl = Kubectl::new(&directory.join("control-plane/kubeconfig"));
    let output = kubectl.run(&["describe", "pods,gatewayagents", "--all-namespaces"], "");
    // The cluster may no longer respond.
    let _ = fs::write(tools::logs().join("pods.txt"), output.stdout);
    for node in ["node1", "node2"] {
        let _ = Command::new("cp")
            .arg("-r")
            .arg(directory.join(node).join("pods"))
            .arg(tools::logs().join(format!("{node}-pods")))
            .status();
    }
}

pub(crate) fn load(addresses: &[SocketAddr]) -> Load {
    let requests = addresses.iter().map(|address| get(*address, "/always"));
    Load::start(&Plan::new(requests.collect()))
}

pub(crate) async fn answers(address: SocketAddr, path: &str) {
    answers_with(address, path, 200).await;
}

pub(crate) async fn answers_with(address: SocketAddr, path: &str, status: u16) -> Reply {
    let request = get(address, path).timeout(Duration::from_secs(2));
    let what = format!("{address}{path} returns {status}");
    eventually(&what, TIMEOUT, async || match request.send().await {
        Ok(reply) if reply.status == status => Ok(reply),
        Ok(reply) => Err(format!("status {}", reply.status)),
        Err(error) => Err(format!("{error:#}")),
    })
    .await
}
