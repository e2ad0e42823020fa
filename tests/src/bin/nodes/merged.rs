//! Gateways of a class share one managed fleet, under load. No request to the remaining Gateways
//! may fail.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::manifests::{class_with_parameters, gateway, http_listener};

use crate::kubectl::Kubectl;
use crate::objects::route;
use crate::rollouts;
use crate::stage::{Stage, answers, load};

const CLASS: &str = "mall";
const NAMESPACE: &str = "--namespace=default";
const SYSTEM: &str = "--namespace=sesame-system";
const AGENT: &str = "daemonset/gateways-mall-agent";
const ENVOY: &str = "daemonset/gateways-mall-envoy";
const OLD: (&str, u16) = ("stall", 8094);
const EAST: (&str, u16) = ("east", 8091);
const WEST: (&str, u16) = ("west", 8092);

pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let at = |(_, port): (&str, u16)| -> Vec<SocketAddr> {
        stage.nodes.iter().map(|node| node.at(port)).collect()
    };
    let fleet = json!({"management": "Managed", "gateways": "Merged", "drainSeconds": 5});
    kubectl.apply(&class_with_parameters(
        CLASS,
        CLASS,
        &json!({"fleet": fleet}),
    ));
    moved(stage, &at(OLD), &at(EAST)).await;
    rolled_out(&kubectl);
    let envoys = pods(&kubectl);
    let staying = load(&at(EAST));
    staying.pass(100).await;

    kubectl.apply(&member(WEST, 0));
    all_answer(&at(WEST), 0).await;
    assert_eq!(pods(&kubectl), envoys, "the same Pods serve both");
    let going = load(&at(WEST));
    going.pass(100).await;

    let fleet = [("agent", AGENT), ("envoy", ENVOY)];
    let configuration = ("sesameconfiguration/mall", NAMESPACE);
    for (field, what) in fleet {
        rollouts::image_of_fleet(stage, configuration, field, (what, SYSTEM), CLASS).await;
        rolled_out(&kubectl);
    }
    for member in [EAST, WEST] {
        kubectl.apply(&[numbered(member.0, 1)]);
        all_answer(&at(member), 1).await;
    }
    going.pass(100).await;
    going
        .stop()
        .await
        .clean("nodes: merged Gateway until it is deleted");

    kubectl.ok(&["delete", "gateway/west", "httproute/west", NAMESPACE]);
    let look = |_: &Kubectl| {
        let open = at(WEST).into_iter();
        let mut open = open.filter(|at| std::net::TcpStream::connect(at).is_ok());
        open.next().map_or(Ok(()), |at| Err(at.to_string()))
    };
    kubectl
        .until("the deleted Gateway's port is closed on every node", look)
        .await;
    kubectl.apply(&[numbered(EAST.0, 2)]);
    all_answer(&at(EAST), 2).await;
    staying.pass(100).await;
    staying
        .stop()
        .await
        .clean("nodes: remaining merged Gateway");

    reclassed(&kubectl, &at(EAST)).await;
    kubectl.ok(&["delete", "gateway/east", "httproute/east", NAMESPACE]);
    let look = |kubectl: &Kubectl| {
        let left = pods(kubectl);
        left.is_empty().then_some(()).ok_or(format!("{left:?}"))
    };
    kubectl
        .until("the fleet is deleted with its last Gateway", look)
        .await;
    kubectl.ok(&["delete", "gatewayclass/mall"]);
    kubectl.ok(&["delete", configuration.0, NAMESPACE]);
}

/// For a while, both the old and the new Gateway exist.
async fn moved(stage: &Stage, from: &[SocketAddr], to: &[SocketAddr]) {
    let kubectl = &stage.kubectl;
    let (name, port) = OLD;
    let fleet = json!({"management": "Managed", "drainSeconds": 5});
    kubectl.apply(&class_with_parameters(name, name, &json!({"fleet": fleet})));
    let mut old = gateway(name, &[http_listener("http", port, "")]);
    old["spec"]["gatewayClassName"] = json!(name);
    let mut route = numbered(EAST.0, 0);
    route["spec"]["parentRefs"] = json!([{"name": name}]);
    kubectl.apply(&[old, route.clone()]);
    all_answer(from, 0).await;
    let before = load(from);
    before.pass(100).await;
    let [new, _] = member(EAST, 0);
    route["spec"]["parentRefs"] = json!([{"name": name}, {"name": EAST.0}]);
    kubectl.apply(&[new, route]);
    all_answer(to, 0).await;
    let after = load(to);
    before.pass(100).await;
    before
        .stop()
        .await
        .clean("nodes: Gateway while a merged one replaces it");
    kubectl.ok(&["delete", "gateway/stall", NAMESPACE]);
    kubectl.apply(&[numbered(EAST.0, 0)]);
    let label = "--selector=gateway.networking.k8s.io/gateway-name=stall";
    let look = |kubectl: &Kubectl| {
        let left = kubectl.ok(&["get", "pods", NAMESPACE, label, "--output=name"]);
        left.is_empty().then_some(()).ok_or(left)
    };
    kubectl.until("its fleet is deleted", look).await;
    after.pass(100).await;
    after
        .stop()
        .await
        .clean("nodes: merged Gateway that replaces another");
    kubectl.ok(&["delete", "gatewayclass/stall"]);
    kubectl.ok(&["delete", "sesameconfiguration/stall", NAMESPACE]);
}

/// Both fleets need the same ports on the nodes, so an interruption is unavoidable.
async fn reclassed(kubectl: &Kubectl, addresses: &[SocketAddr]) {
    for (number, gateways) in [(3, "Isolated"), (4, "Merged")] {
        let load = load(addresses);
        load.pass(100).await;
        let change = json!({"spec": {"fleet": {"gateways": gateways}}});
        let patch = format!("--patch={change}");
        let configuration = "sesameconfiguration/mall";
        kubectl.ok(&["patch", configuration, NAMESPACE, "--type=merge", &patch]);
        let own = ("daemonset/east-mall-agent", NAMESPACE);
        let ((there, there_namespace), (gone, gone_namespace)) = match gateways {
            "Merged" => ((AGENT, SYSTEM), own),
            _ => (own, (AGENT, SYSTEM)),
        };
        let made = [
            "rollout",
            "status",
            there,
            there_namespace,
            "--timeout=120s",
        ];
        kubectl.until_ok("the new fleet is ready", &made).await;
        let ended = ["wait", "--for=delete", gone, gone_namespace, "--timeout=1s"];
        kubectl
            .until_ok("the previous fleet is deleted", &ended)
            .await;
        kubectl.apply(&[numbered(EAST.0, number)]);
        all_answer(addresses, number).await;
        let scenario = format!("nodes: class changed to {gateways} in place");
        load.stop().await.print(&scenario);
    }
}

async fn all_answer(addresses: &[SocketAddr], number: u32) {
    for address in addresses {
        answers(*address, &format!("/{number}")).await;
    }
}

fn rolled_out(kubectl: &Kubectl) {
    for what in [AGENT, ENVOY] {
        kubectl.rolled_out(what);
    }
}

fn pods(kubectl: &Kubectl) -> BTreeSet<String> {
    let label = "--selector=gateway.networking.k8s.io/gateway-class-name=mall";
    let pods = kubectl.get(&["pods", SYSTEM, label]);
    let items = pods["items"].as_array().cloned().unwrap_or_default();
    let uids = items.iter().map(|pod| pod["metadata"]["uid"].to_string());
    uids.collect()
}

fn member((name, port): (&str, u16), number: u32) -> [Value; 2] {
    let mut gateway = gateway(name, &[http_listener("http", port, "")]);
    gateway["spec"]["gatewayClassName"] = json!(CLASS);
    [gateway, numbered(name, number)]
}

fn numbered(name: &str, number: u32) -> Value {
    let mut route = route(name, number);
    route["spec"]["parentRefs"] = json!([{"name": name}]);
    route
}
