//! The cluster of a run: a control plane, two nodes, and the version of the configuration that was applied last.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use sesame_tests::envoy::workspace;
use sesame_tests::load::{Load, Plan};
use sesame_tests::wait::eventually;

use crate::control_plane::ControlPlane;
use crate::kubectl::{Kubectl, PATIENCE};
use crate::node::Node;
use crate::objects::{get, version};
use crate::{images, tools};

/// A running cluster.
pub(crate) struct Stage {
    /// Somebody who may do everything.
    pub(crate) kubectl: Kubectl,
    /// The nodes.
    pub(crate) nodes: Vec<Node>,
    number: u32,
    _control_plane: ControlPlane,
}

impl Stage {
    /// Starts it; returns when the nodes are ready.
    pub(crate) async fn start() -> Self {
        let _ = fs::remove_dir_all(tools::logs());
        fs::create_dir_all(tools::logs()).expect("a directory for logs");
        // A list of the processes in these namespaces, in place of those of the machine.
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
            number: 0,
            _control_plane: control_plane,
        };
        stage.ready().await;
        stage
    }

    /// Waits until both nodes are ready.
    pub(crate) async fn ready(&self) {
        for node in &self.nodes {
            let node = format!("node/{}", node.name());
            let wait = ["wait", "--for=condition=Ready", &node];
            self.kubectl.until_ok("the nodes are ready", &wait).await;
        }
    }

    /// Port 80 of each node.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.at(80)).collect()
    }

    /// Starts to send requests to every node.
    pub(crate) fn load(&self) -> Load {
        load(&self.addresses())
    }

    /// Applies another version of the route, and waits until every node serves it.
    pub(crate) async fn change(&mut self) {
        self.number += 1;
        self.kubectl.apply(&version(self.number));
        for address in self.addresses() {
            answers(address, &format!("/{}", self.number)).await;
        }
    }

    /// Applies a directory of manifests.
    pub(crate) fn install(&self, directory: &str) {
        let directory = workspace().join(directory);
        let directory = directory.to_string_lossy();
        self.kubectl.ok(&["apply", "--kustomize", &directory]);
    }
}

/// Puts what Pods say, and what the cluster says of them, beside the logs of the run.
pub(crate) fn keep_traces() {
    let directory = tools::directory();
    let kubectl = Kubectl::new(&directory.join("control-plane/kubeconfig"));
    let said = kubectl.run(&["describe", "pods,gatewayagents", "--all-namespaces"], "");
    // The cluster may not answer any more.
    let _ = fs::write(tools::logs().join("pods.txt"), said.stdout);
    for node in ["node1", "node2"] {
        let _ = Command::new("cp")
            .arg("-r")
            .arg(directory.join(node).join("pods"))
            .arg(tools::logs().join(format!("{node}-pods")))
            .status();
    }
}

/// Starts to send requests to these addresses.
pub(crate) fn load(addresses: &[SocketAddr]) -> Load {
    let requests = addresses.iter().map(|address| get(*address, "/always"));
    Load::start(&Plan::new(requests.collect()))
}

/// Waits until somebody answers with 200.
pub(crate) async fn answers(address: SocketAddr, path: &str) {
    let request = get(address, path).timeout(Duration::from_secs(2));
    let what = format!("{address}{path} is served");
    eventually(&what, PATIENCE, async || match request.send().await {
        Ok(reply) if reply.status == 200 => Ok(()),
        Ok(reply) => Err(format!("status {}", reply.status)),
        Err(error) => Err(format!("{error:#}")),
    })
    .await;
}
