//! Creates, repairs, rolls out, releases and adopts a managed fleet under load. No request may
//! fail.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::beside_test;
use sesame_tests::load::Load;
use sesame_tests::manifests::{
    class_with_parameters, gateway, http_listener, ingress, ingress_class, ingress_rule,
};

use crate::kubectl::Kubectl;
use crate::objects::{APP, HOST, route};
use crate::rollouts;
use crate::stage::{Stage, answers, load};

const NAME: &str = "shop";
const PORT: u16 = 8088;
const NAMESPACE: &str = "--namespace=default";
const AGENT: &str = "daemonset/shop-shop-agent";
const ENVOY: &str = "daemonset/shop-shop-envoy";
const CONFIGURATION: &str = "sesameconfiguration/shop";
const GATEWAY: &str = "gateway/shop";

pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let addresses: Vec<SocketAddr> = stage.nodes.iter().map(|node| node.at(PORT)).collect();
    let begun = std::time::Instant::now();
    kubectl.apply(&objects(0));
    all_answer(&addresses, 0).await;
    println!(
        "nodes: every node serves a managed Gateway {} ms after it is applied",
        begun.elapsed().as_millis()
    );
    rolled_out(&kubectl);
    kubectl.apply(&shop_ingress());
    for address in &addresses {
        answers(*address, "/ingress").await;
    }
    let load = load(&addresses);
    load.pass(100).await;
    comes_back(&kubectl, &addresses).await;
    load.pass(100).await;
    other_images(stage, &addresses).await;
    load.pass(100).await;
    released(stage, &load).await;
    kubectl.apply(&[shop_route(3)]);
    all_answer(&addresses, 3).await;
    load.pass(100).await;
    adopted(stage, &load).await;
    kubectl.apply(&[shop_route(4)]);
    all_answer(&addresses, 4).await;
    load.pass(100).await;
    released(stage, &load).await;
    load.stop().await.clean("nodes: managed fleet");
    removed(stage).await;
}

async fn comes_back(kubectl: &Kubectl, addresses: &[SocketAddr]) {
    let uid = |kubectl: &Kubectl| kubectl.get(&[AGENT, NAMESPACE])["metadata"]["uid"].clone();
    let before = uid(kubectl);
    kubectl.ok(&["delete", AGENT, NAMESPACE, "--wait=false"]);
    let look = |kubectl: &Kubectl| {
        let found = kubectl.run(&["get", AGENT, NAMESPACE, "--output=json"], "");
        let found: Value = serde_json::from_slice(&found.stdout).unwrap_or_default();
        let now = &found["metadata"]["uid"];
        let is_new = now.is_string() && *now != before;
        is_new.then_some(()).ok_or(format!("{now}"))
    };
    kubectl.until("the DaemonSet is recreated", look).await;
    rolled_out(kubectl);
    kubectl.apply(&[shop_route(1)]);
    all_answer(addresses, 1).await;
}

async fn other_images(stage: &Stage, addresses: &[SocketAddr]) {
    let kubectl = &stage.kubectl;
    for (field, what) in [("agent", AGENT), ("envoy", ENVOY)] {
        let configuration = (CONFIGURATION, NAMESPACE);
        let workload = (what, NAMESPACE);
        rollouts::image_of_fleet(stage, configuration, field, workload, "managed").await;
        rolled_out(kubectl);
    }
    kubectl.apply(&[shop_route(2)]);
    all_answer(addresses, 2).await;
}

async fn released(stage: &Stage, load: &Load) {
    let kubectl = &stage.kubectl;
    let before = settled(stage).await;
    let unmanaged = json!({"spec": {"fleet": {"management": "Unmanaged"}}});
    merge(kubectl, CONFIGURATION, &unmanaged);
    let condition = "--for=condition=projectsesame.io/Released";
    let wait = ["wait", condition, GATEWAY, NAMESPACE, "--timeout=1s"];
    kubectl.until_ok("the fleet is released", &wait).await;
    for what in [AGENT, ENVOY, "serviceaccount/shop-shop-agent"] {
        let owners = &kubectl.get(&[what, NAMESPACE])["metadata"]["ownerReferences"];
        assert!(owners.is_null(), "{what}: {owners}");
    }
    load.pass(200).await;
    assert_eq!(pods(kubectl), before, "the same Pods");
}

/// The changes must match the output of `fleet diff`.
async fn adopted(stage: &Stage, load: &Load) {
    let kubectl = &stage.kubectl;
    let before = settled(stage).await;
    let managed = json!({"spec": {"fleet": {"management": "Managed"}}});
    merge(kubectl, CONFIGURATION, &managed);
    let fleet = |arguments: &[&str]| {
        let program = beside_test("sesame-controller");
        let mut command = kubectl.for_script(&program);
        command.arg("fleet").args(arguments);
        tokio::task::block_in_place(|| command.output()).expect("the controller's program")
    };
    let look = |_: &Kubectl| {
        let output = fleet(&["diff", "default/shop", "--output=json"]);
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let agreement = shown["agreement"].as_str().map(str::to_owned);
        let agreement = agreement.filter(|_| shown["current"] == true);
        agreement
            .map(|agreement| (agreement, shown.clone()))
            .ok_or_else(|| format!("{shown}{}", String::from_utf8_lossy(&output.stderr)))
    };
    let (agreement, shown) = kubectl.until("a fleet can be adopted", look).await;
    assert_eq!(shown["podsRestart"], false, "{shown}");
    let agreed = fleet(&["adopt", "default/shop", &agreement]);
    assert!(agreed.status.success(), "{agreed:?}");
    let look = |kubectl: &Kubectl| {
        let owner = |what| kubectl.get(&[what, NAMESPACE])["metadata"]["ownerReferences"].clone();
        let owners = [AGENT, ENVOY].map(owner);
        let all = owners.iter().all(|owner| owner[0]["name"] == NAME);
        all.then_some(()).ok_or(format!("{owners:?}"))
    };
    kubectl.until("the Gateway owns its fleet", look).await;
    load.pass(200).await;
    assert_eq!(pods(kubectl), before, "the same Pods");
}

/// The released fleet must still exist.
async fn removed(stage: &Stage) {
    let kubectl = &stage.kubectl;
    kubectl.ok(&[
        "delete",
        GATEWAY,
        "httproute/shop",
        "ingress/shop",
        NAMESPACE,
    ]);
    let gone = "no Gateway is published";
    let look = |kubectl: &Kubectl| {
        let name = "configmap/default.shop.manifest";
        let found = kubectl.run(&["get", name, "--namespace=sesame-system"], "");
        (!found.status.success())
            .then_some(())
            .ok_or("it is still published".to_owned())
    };
    kubectl.until(gone, look).await;
    assert_eq!(
        pods(kubectl).len(),
        2 * stage.nodes.len(),
        "the released Pods remain"
    );
    let account = "serviceaccount/shop-shop-agent";
    kubectl.ok(&["delete", AGENT, ENVOY, account, CONFIGURATION, NAMESPACE]);
    kubectl.ok(&["delete", "gatewayclass/shop", "ingressclass/shop"]);
    let look = |kubectl: &Kubectl| {
        let left = pods(kubectl);
        left.is_empty().then_some(()).ok_or(format!("{left:?}"))
    };
    kubectl.until("the Pods are deleted", look).await;
}

/// Waits until each node has two Pods.
async fn settled(stage: &Stage) -> BTreeSet<String> {
    let look = |kubectl: &Kubectl| {
        let found = pods(kubectl);
        let settled = found.len() == 2 * stage.nodes.len();
        settled.then_some(found.clone()).ok_or(format!("{found:?}"))
    };
    stage.kubectl.until("replaced Pods have exited", look).await
}

fn pods(kubectl: &Kubectl) -> BTreeSet<String> {
    let label = "--selector=gateway.networking.k8s.io/gateway-name=shop";
    let pods = kubectl.get(&["pods", NAMESPACE, label]);
    let items = pods["items"].as_array().cloned().unwrap_or_default();
    let uids = items.iter().map(|pod| pod["metadata"]["uid"].to_string());
    uids.collect()
}

fn rolled_out(kubectl: &Kubectl) {
    for what in [AGENT, ENVOY] {
        kubectl.ok(&["rollout", "status", what, NAMESPACE, "--timeout=120s"]);
    }
}

fn merge(kubectl: &Kubectl, what: &str, change: &Value) {
    let patch = format!("--patch={change}");
    kubectl.ok(&["patch", what, NAMESPACE, "--type=merge", &patch]);
}

async fn all_answer(addresses: &[SocketAddr], number: u32) {
    for address in addresses {
        answers(*address, &format!("/{number}")).await;
    }
}

fn objects(number: u32) -> [Value; 4] {
    let spec = json!({"fleet": {
        "management": "Managed",
        "drainSeconds": 20,
        "resources": {"envoy": {"requests": {"cpu": "10m", "memory": "64Mi"}}},
    }});
    let [configuration, class] = class_with_parameters(NAME, NAME, &spec);
    let mut gateway = gateway(NAME, &[http_listener("http", PORT, "")]);
    gateway["spec"]["gatewayClassName"] = json!(NAME);
    // Keeps the fleet `default` from taking over the Gateway when this fleet is released.
    gateway["metadata"]["labels"] = json!({"projectsesame.io/fleet": NAME});
    [configuration, class, gateway, shop_route(number)]
}

fn shop_route(number: u32) -> Value {
    let mut route = route(NAME, number);
    route["spec"]["parentRefs"] = json!([{"name": NAME}]);
    route
}

fn shop_ingress() -> [Value; 2] {
    let mut class = ingress_class();
    class["metadata"]["name"] = json!(NAME);
    class["spec"]["parameters"]["name"] = json!(NAME);
    let rules = json!({"rules": [ingress_rule(HOST, &[("/ingress", "Prefix", APP)])]});
    let mut ingress = ingress(NAME, &json!({}), &rules);
    ingress["spec"]["ingressClassName"] = json!(NAME);
    [class, ingress]
}
