//! Applies examples and a documentation page, unmodified. The resulting Gateways must serve under
//! load.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};
use sesame_tests::envoy::workspace;

use crate::kubectl::Kubectl;
use crate::node::Node;
use crate::objects::{get, pods};
use crate::stage::{Stage, answers, answers_with, load};

const LABEL: &str = "example.com/edge";

pub(crate) async fn managed_fleet(stage: &mut Stage) {
    const EXAMPLE: &str = "controller/examples/managed-fleet";
    let kubectl = stage.kubectl.clone();
    stage.define();
    let begun = Instant::now();
    stage.install(EXAMPLE);
    kubectl.apply(&[pods("edge", "web")]);
    for address in stage.addresses() {
        answers(address, "/always").await;
    }
    println!(
        "nodes: every node serves {} ms after a single apply, including the start of the controller and the backend",
        begun.elapsed().as_millis()
    );
    let load = stage.load();
    load.pass(200).await;
    // The controller rereads its configuration file on changes.
    let before = kubectl.get(&["pods", "--namespace=sesame-system"]);
    allow_ports(
        &kubectl,
        "fleet: {management: Managed}, ports: {allowed: [\"80\"]}",
    )
    .await;
    let after = kubectl.get(&["pods", "--namespace=sesame-system"]);
    assert_eq!(uids(&before), uids(&after), "the same Pods");
    load.pass(200).await;
    load.stop().await.clean("nodes: one apply");
    gateway_goes(stage, "edge", "edge").await;
    stage.remove(EXAMPLE);
    stage.wipe().await;
}

/// Neither the Gateway API nor a Gateway object exists.
pub(crate) async fn ingress_only(stage: &mut Stage) {
    const EXAMPLE: &str = "controller/examples/ingress-only";
    let kubectl = stage.kubectl.clone();
    stage.install(EXAMPLE);
    kubectl.apply(&[pods("edge", "web")]);
    for address in stage.addresses() {
        answers(address, "/always").await;
    }
    let load = stage.load();
    load.pass(200).await;
    kubectl.rolled_out("deployment/sesame-controller");
    load.stop().await.clean("nodes: only Ingresses");
    configure(&kubectl, "fleet: {management: Managed}");
    fleet_goes(&kubectl, "--namespace=edge").await;
    stage.remove(EXAMPLE);
    stage.wipe().await;
}

/// Clients use port 80, but Envoy listens on port 8080.
pub(crate) async fn own_daemonset(stage: &mut Stage) {
    const EXAMPLE: &str = "controller/examples/own-daemonset";
    let kubectl = stage.kubectl.clone();
    let [first, second] = [0, 1].map(|i| stage.nodes[i].at(8080));
    stage.define();
    label(&kubectl, &stage.nodes[0]);
    stage.install(EXAMPLE);
    kubectl.apply(&[pods("edge", "web")]);
    answers(first, "/always").await;
    let load = load(&[first]);
    load.pass(100).await;
    let refused = get(second, "/always").send().await;
    assert!(refused.is_err(), "a node without the label: {refused:?}");
    // Redirects must contain the port that clients use.
    let moved = answers_with(first, "/old/page", 302).await;
    assert_eq!(moved.header("location"), Some("http://nodes.test/page"));
    until_open_ports(&kubectl, &[("node1", "TCP/8080")]).await;
    allow_ports(
        &kubectl,
        "ports: {map: [{outside: 80, inside: 8080}], allowed: [\"80\"]}, publishing: {type: None}",
    )
    .await;
    label(&kubectl, &stage.nodes[1]);
    answers(second, "/always").await;
    until_open_ports(&kubectl, &[("node1", "TCP/8080"), ("node2", "TCP/8080")]).await;
    let services = kubectl.ok(&["get", "services", "--namespace=edge", "--output=name"]);
    assert_eq!(services.trim(), "service/web", "no Service is created");
    load.pass(100).await;
    load.stop().await.clean("nodes: own DaemonSets");
    gateway_goes(stage, "edge", "edge").await;
    stage.remove(EXAMPLE);
    unlabel(stage);
    stage.wipe().await;
}

pub(crate) async fn fleets_page(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let [first, second] = [0, 1].map(|i| stage.nodes[i].at(80));
    stage.define();
    stage.install("controller/deploy");
    kubectl.rolled_out("deployment/sesame-controller");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop",
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    kubectl.apply(&[namespace]);
    label(&kubectl, &stage.nodes[0]);
    apply_text(&kubectl, &first_yaml("docs/fleets.md"));
    kubectl.apply(&backend("shop", "shop"));
    answers(first, "/always").await;
    let load = load(&[first]);
    load.pass(100).await;
    let refused = get(second, "/always").send().await;
    assert!(refused.is_err(), "a node without the label: {refused:?}");
    label(&kubectl, &stage.nodes[1]);
    answers(second, "/always").await;
    load.pass(200).await;
    load.stop()
        .await
        .clean("nodes: documentation page about fleets");
    gateway_goes(stage, "shop", "managed").await;
    kubectl.ok(&["delete", "namespace/shop"]);
    stage.remove("controller/deploy");
    unlabel(stage);
    stage.wipe().await;
}

async fn gateway_goes(stage: &Stage, namespace: &str, class: &str) {
    let kubectl = &stage.kubectl;
    let namespace_flag = format!("--namespace={namespace}");
    kubectl.ok(&["delete", "gateways", "--all", &namespace_flag]);
    fleet_goes(kubectl, &namespace_flag).await;
    kubectl.ok(&["delete", &format!("gatewayclass/{class}")]);
}

async fn fleet_goes(kubectl: &Kubectl, namespace: &str) {
    let look = |kubectl: &Kubectl| {
        let label = "--selector=app.kubernetes.io/part-of=sesame";
        let left = kubectl.ok(&["get", "pods,daemonsets", namespace, label, "--output=name"]);
        left.is_empty().then_some(()).ok_or(left)
    };
    kubectl.until("the fleet is deleted", look).await;
}

fn configure(kubectl: &Kubectl, spec: &str) {
    let file = format!(
        "apiVersion: projectsesame.io/v1alpha1\nkind: SesameConfiguration\nmetadata: {{name: sesame, namespace: sesame-system}}\nspec: {{{spec}}}\n"
    );
    let change = json!({"data": {"configuration.yaml": file}});
    let system = "--namespace=sesame-system";
    patch(kubectl, "configmap/sesame-configuration", system, &change);
}

/// The change must make the controller reject a listener on port 81.
async fn allow_ports(kubectl: &Kubectl, spec: &str) {
    configure(kubectl, spec);
    let listeners = json!([
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "other", "port": 81, "protocol": "HTTP"},
    ]);
    let edge = "--namespace=edge";
    let change = json!({"spec": {"listeners": listeners}});
    patch(kubectl, "gateway/edge", edge, &change);
    let look = |kubectl: &Kubectl| {
        let gateway = kubectl.get(&["gateway/edge", edge]);
        let statuses = gateway["status"]["listeners"].to_string();
        let refused = statuses.contains("PortUnavailable");
        refused.then_some(()).ok_or(statuses)
    };
    kubectl.until("the port is refused", look).await;
}

async fn until_open_ports(kubectl: &Kubectl, wanted: &[(&str, &str)]) {
    let wanted: Vec<Value> = wanted
        .iter()
        .map(|(host, port)| json!([host, [port]]))
        .collect();
    let look = |kubectl: &Kubectl| {
        let agents = kubectl.get(&["gatewayagents", "--namespace=sesame-system"]);
        let agents = agents["items"].as_array().cloned().unwrap_or_default();
        let mut found: Vec<Value> = agents
            .iter()
            .map(|agent| json!([agent["spec"]["host"], agent["status"]["openPorts"]]))
            .collect();
        found.sort_by_key(ToString::to_string);
        (found == wanted)
            .then_some(())
            .ok_or_else(|| format!("{found:?}"))
    };
    kubectl.until("hosts report their open ports", look).await;
}

fn backend(namespace: &str, gateway: &str) -> [Value; 3] {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 3000}]},
    });
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "parentRefs": [{"name": gateway}],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
        },
    });
    [pods(namespace, "web"), service, route]
}

fn first_yaml(page: &str) -> String {
    let text = fs::read_to_string(workspace().join(page)).expect("a page");
    let (_, rest) = text.split_once("```yaml\n").expect("a block");
    let (block, _) = rest.split_once("```").expect("the block is closed");
    block.to_owned()
}

fn apply_text(kubectl: &Kubectl, text: &str) {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
    assert_eq!(objects.len(), 3, "{text}");
    kubectl.apply(&objects);
}

fn patch(kubectl: &Kubectl, what: &str, namespace: &str, change: &Value) {
    let patch = format!("--patch={change}");
    kubectl.ok(&["patch", what, namespace, "--type=merge", &patch]);
}

fn label(kubectl: &Kubectl, node: &Node) {
    let label = format!("{LABEL}=true");
    kubectl.ok(&["label", "node", node.name(), &label]);
}

fn unlabel(stage: &Stage) {
    for node in &stage.nodes {
        let label = format!("{LABEL}-");
        stage.kubectl.ok(&["label", "node", node.name(), &label]);
    }
}

fn uids(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let mut uids: Vec<String> = items
        .iter()
        .map(|item| item["metadata"]["uid"].to_string())
        .collect();
    uids.sort();
    uids
}
