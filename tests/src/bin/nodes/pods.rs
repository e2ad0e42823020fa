//! A managed fleet on the Pod network under load. Its namespace enforces the Pod Security level
//! `restricted`.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::load::Load;
use sesame_tests::manifests::{class_with_parameters, gateway, http_listener};

use crate::kubectl::Kubectl;
use crate::objects::route;
use crate::stage::{Stage, answers, load};

const NAME: &str = "walled";
const NAMESPACE: &str = "--namespace=walled";
const DEPLOYMENT: &str = "deployment/walled-walled-envoy";
const CONFIGURATION: &str = "sesameconfiguration/walled";
const PODS: &str = "--selector=app.kubernetes.io/name=sesame-gateway";
const NODE_PORT: u16 = 30088;

pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let addresses: Vec<SocketAddr> = stage.nodes.iter().map(|node| node.at(NODE_PORT)).collect();
    let begun = std::time::Instant::now();
    kubectl.apply(&objects());
    for address in &addresses {
        answers(*address, "/always").await;
    }
    println!(
        "nodes: Pods serve a Gateway {} ms after it is applied",
        begun.elapsed().as_millis()
    );
    let programmed = "--for=condition=Programmed";
    let wait = [
        "wait",
        programmed,
        "gateway/walled",
        NAMESPACE,
        "--timeout=1s",
    ];
    kubectl.until_ok("the Gateway is programmed", &wait).await;
    settled(&kubectl, 2).await;
    let load = load(&addresses);
    load.pass(100).await;
    for replicas in [3, 2] {
        let replicas_flag = format!("--replicas={replicas}");
        kubectl.ok(&["scale", DEPLOYMENT, NAMESPACE, &replicas_flag]);
        settled(&kubectl, replicas).await;
        load.pass(100).await;
    }
    other_images(stage, &load).await;
    killed_agent(stage, &load).await;
    replaced_pod(&kubectl, &load).await;
    emptied_node(stage, &load).await;
    load.stop().await.clean("nodes: fleet on the Pod network");
    kubectl.ok(&["delete", "gateway/walled", NAMESPACE]);
    let look = |kubectl: &Kubectl| {
        let left = pods(kubectl);
        left.is_empty().then_some(()).ok_or(format!("{left:?}"))
    };
    kubectl
        .until("the Pods are deleted with their Gateway", look)
        .await;
    kubectl.ok(&["delete", "gatewayclass/walled", "namespace/walled"]);
    let default = "--namespace=default";
    kubectl.ok(&["delete", "httproute/walled", CONFIGURATION, default]);
}

/// Each change requires new Pods.
async fn other_images(stage: &Stage, load: &Load) {
    let kubectl = &stage.kubectl;
    for (field, index) in [("agent", 1), ("envoy", 0)] {
        let spec = &kubectl.get(&[DEPLOYMENT, NAMESPACE])["spec"]["template"]["spec"];
        let image = &spec["containers"][index]["image"];
        let image = image.as_str().expect("an image").to_owned();
        let (repository, _) = image.rsplit_once(':').expect("a tag");
        let next = format!("{repository}:walled");
        for node in &stage.nodes {
            node.tag(&image, &next);
        }
        let change = json!({"spec": {"fleet": {"images": {field: next}}}});
        let patch = format!("--patch={change}");
        kubectl.ok(&["patch", CONFIGURATION, "--type=merge", &patch]);
        let look = |kubectl: &Kubectl| {
            let spec = &kubectl.get(&[DEPLOYMENT, NAMESPACE])["spec"]["template"]["spec"];
            let now = spec["containers"][index]["image"].clone();
            (now == next.as_str()).then_some(()).ok_or(now.to_string())
        };
        kubectl.until("the Deployment has the image", look).await;
        settled(kubectl, 2).await;
        load.pass(100).await;
    }
}

async fn killed_agent(stage: &Stage, load: &Load) {
    let kubectl = &stage.kubectl;
    let agent = format!("gateway={NAME}/{NAME}");
    let kill = ["pkill", "--signal=KILL", "--full", "--oldest", &agent];
    let killed = stage
        .nodes
        .iter()
        .any(|node| node.run(&kill).status.success());
    assert!(killed, "an agent was killed");
    let look = |kubectl: &Kubectl| {
        let pods = kubectl.get(&["pods", NAMESPACE, PODS]).to_string();
        let again = pods.contains("\"restartCount\":1");
        again.then_some(()).ok_or(pods)
    };
    kubectl.until("the agent has restarted", look).await;
    settled(kubectl, 2).await;
    load.pass(100).await;
}

async fn replaced_pod(kubectl: &Kubectl, load: &Load) {
    let before = pods(kubectl);
    let first = before.first().expect("a Pod").clone();
    kubectl.ok(&["delete", "pod", &first, NAMESPACE, "--wait=false"]);
    let look = |kubectl: &Kubectl| {
        let now = pods(kubectl);
        (!now.contains(&first))
            .then_some(())
            .ok_or(format!("{now:?}"))
    };
    kubectl.until("the Pod is gone", look).await;
    settled(kubectl, 2).await;
    load.pass(100).await;
}

async fn emptied_node(stage: &Stage, load: &Load) {
    let kubectl = &stage.kubectl;
    let node = stage.nodes[1].name();
    kubectl.ok(&[
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=120s",
    ]);
    settled(kubectl, 2).await;
    load.pass(100).await;
    kubectl.ok(&["uncordon", node]);
}

async fn settled(kubectl: &Kubectl, replicas: usize) {
    let timeout = "--timeout=120s";
    kubectl.ok(&["rollout", "status", DEPLOYMENT, NAMESPACE, timeout]);
    let look = |kubectl: &Kubectl| {
        let deployment = kubectl.get(&[DEPLOYMENT, NAMESPACE]);
        let ready = &deployment["status"]["readyReplicas"];
        let pods = pods(kubectl);
        let settled = pods.len() == replicas && *ready == replicas;
        settled.then_some(()).ok_or(format!("{ready} of {pods:?}"))
    };
    kubectl
        .until("the number of Pods is as expected", look)
        .await;
}

fn pods(kubectl: &Kubectl) -> BTreeSet<String> {
    let pods = kubectl.get(&["pods", NAMESPACE, PODS]);
    let items = pods["items"].as_array().cloned().unwrap_or_default();
    let names = items
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

fn objects() -> [Value; 5] {
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAME, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    });
    let spec = json!({
        "fleet": {"management": "Managed", "workload": "Deployment", "drainSeconds": 5},
        "publishing": {"type": "NodePort", "nodePorts": [{"port": 80, "nodePort": NODE_PORT}]},
    });
    let [configuration, class] = class_with_parameters(NAME, NAME, &spec);
    let mut listener = http_listener("http", 80, "");
    listener["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
    let mut gateway = gateway(NAME, &[listener]);
    gateway["metadata"]["namespace"] = json!(NAME);
    gateway["spec"]["gatewayClassName"] = json!(NAME);
    let mut route = route(NAME, 0);
    route["spec"]["parentRefs"] = json!([{"name": NAME, "namespace": NAME}]);
    [namespace, configuration, class, gateway, route]
}
