//! A fleet switches between a DaemonSet and a Deployment, under load. No request may fail.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::load::Load;
use sesame_tests::manifests::{class_with_parameters, gateway, http_listener};

use crate::kubectl::Kubectl;
use crate::objects::route;
use crate::stage::{Stage, answers, load};

const NAME: &str = "mover";
const NAMESPACE: &str = "--namespace=default";
const CONFIGURATION: &str = "sesameconfiguration/mover";
const DEPLOYMENT: &str = "deployment/mover-mover-envoy";
const DAEMONSETS: [&str; 2] = ["daemonset/mover-mover-agent", "daemonset/mover-mover-envoy"];
const PODS: &str = "--selector=gateway.networking.k8s.io/gateway-name=mover";
const PORT: u16 = 8090;
const NODE_PORT: u16 = 30090;

pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let addresses: Vec<SocketAddr> = stage.nodes.iter().map(|node| node.at(NODE_PORT)).collect();
    kubectl.apply(&objects());
    for address in &addresses {
        answers(*address, "/always").await;
    }
    there(&kubectl, &DAEMONSETS).await;
    let load = load(&addresses);
    load.pass(100).await;
    switch(&kubectl, &load, "Deployment", (&DAEMONSETS, &[DEPLOYMENT])).await;
    switch(&kubectl, &load, "DaemonSet", (&[DEPLOYMENT], &DAEMONSETS)).await;
    load.stop()
        .await
        .clean("nodes: fleet switched to Pods and back");
    kubectl.ok(&["delete", "gateway/mover", "httproute/mover", NAMESPACE]);
    no_more_than(&kubectl, 0).await;
    kubectl.ok(&["delete", "gatewayclass/mover"]);
    kubectl.ok(&["delete", CONFIGURATION, NAMESPACE]);
}

async fn switch(
    kubectl: &Kubectl,
    load: &Load,
    workload: &str,
    (before, after): (&[&str], &[&str]),
) {
    let change = json!({"spec": {"fleet": {"workload": workload}}});
    let patch = format!("--patch={change}");
    kubectl.ok(&["patch", CONFIGURATION, NAMESPACE, "--type=merge", &patch]);
    there(kubectl, after).await;
    for what in before {
        let gone = ["wait", "--for=delete", what, NAMESPACE, "--timeout=1s"];
        kubectl
            .until_ok("the previous workload is deleted", &gone)
            .await;
    }
    // Two Pods per workload: the DaemonSet has one on each of two nodes.
    no_more_than(kubectl, 2 * after.len()).await;
    load.pass(100).await;
}

async fn there(kubectl: &Kubectl, workloads: &[&str]) {
    for what in workloads {
        let status = ["rollout", "status", what, NAMESPACE, "--timeout=60s"];
        kubectl.until_ok("the workload is ready", &status).await;
    }
}

async fn no_more_than(kubectl: &Kubectl, count: usize) {
    let look = |kubectl: &Kubectl| {
        let pods = kubectl.get(&["pods", NAMESPACE, PODS]);
        let left = pods["items"].as_array().map_or(0, Vec::len);
        (left <= count).then_some(()).ok_or(format!("{left} Pods"))
    };
    kubectl.until("the surplus Pods are deleted", look).await;
}

fn objects() -> [Value; 4] {
    let spec = json!({
        "fleet": {"management": "Managed", "workload": "DaemonSet", "drainSeconds": 5},
        "publishing": {"type": "NodePort", "nodePorts": [{"port": PORT, "nodePort": NODE_PORT}]},
    });
    let [configuration, class] = class_with_parameters(NAME, NAME, &spec);
    let mut gateway = gateway(NAME, &[http_listener("http", PORT, "")]);
    gateway["spec"]["gatewayClassName"] = json!(NAME);
    let mut route = route(NAME, 0);
    route["spec"]["parentRefs"] = json!([{"name": NAME}]);
    [configuration, class, gateway, route]
}
