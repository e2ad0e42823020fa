//! Deletes a Gateway's Service and changes its type, under load. Clients that use the nodes'
//! addresses must not be affected.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sesame_tests::cloud::StandInCloud;
use sesame_tests::manifests::{class_with_parameters, gateway, http_listener};

use crate::kubectl::{Kubectl, TIMEOUT};
use crate::node::ok;
use crate::objects::route;
use crate::stage::{Stage, answers, load};

const NAME: &str = "typed";
const LABEL: &str = "example.com/typed";
const NAMESPACE: &str = "--namespace=default";
const SERVICE: &str = "service/typed-typed";
const PORT: u16 = 8093;
/// No machine has this address, but the node accepts traffic for it.
const ADDRESS: &str = "10.77.0.101";
const TEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Only one node serves, because responses must take the same path as requests.
pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let cloud = StandInCloud::with_client(stage.control_plane.administrator());
    cloud.give(json!([{"ip": ADDRESS}]));
    kubectl.ok(&[
        "label",
        "node",
        stage.nodes[0].name(),
        &format!("{LABEL}=true"),
    ]);
    kubectl.apply(&objects());
    let node = stage.nodes[0].at(PORT);
    answers(node, "/always").await;
    let direct = load(&[node]);

    by_way_of(&node, ADDRESS);
    let balanced: SocketAddr = SocketAddr::new(ADDRESS.parse().expect("an address"), PORT);
    answers(balanced, "/always").await;
    let through = load(&[balanced]);
    through.pass(100).await;
    deleted(&kubectl).await;
    answers(balanced, "/always").await;
    through.pass(200).await;
    let report = through.stop().await;
    report.print("nodes: load balancer address while the Service is deleted");

    let cluster_ip = cluster_ip(&kubectl);
    by_way_of(&node, &cluster_ip);
    let inside = SocketAddr::new(cluster_ip.parse().expect("an address"), PORT);
    answers(inside, "/always").await;
    let through = load(&[inside]);
    through.pass(100).await;
    for type_ in ["NodePort", "ClusterIP", "LoadBalancer"] {
        becomes(&kubectl, type_).await;
        let port = service(&kubectl)["spec"]["ports"][0]["nodePort"].as_u64();
        if let Some(port) = port.and_then(|port| u16::try_from(port).ok()) {
            answers(stage.nodes[0].at(port), "/always").await;
        }
        through.pass(100).await;
        assert_eq!(self::cluster_ip(&kubectl), cluster_ip, "{type_}");
    }
    answers(balanced, "/always").await;
    through
        .stop()
        .await
        .clean("nodes: cluster IP while the Service's type changes");
    direct.pass(100).await;
    let scenario = "nodes: node address while the Service is deleted and its type changes";
    direct.stop().await.clean(scenario);

    drop(cloud);
    for address in [ADDRESS, &cluster_ip] {
        ok(Command::new("ip").args(["route", "del", address]));
    }
    kubectl.ok(&["delete", "gateway/typed", "httproute/typed", NAMESPACE]);
    let look = |kubectl: &Kubectl| {
        let label = "--selector=gateway.networking.k8s.io/gateway-name=typed";
        let left = kubectl.ok(&["get", "pods,services", NAMESPACE, label, "--output=name"]);
        left.is_empty().then_some(()).ok_or(left)
    };
    kubectl
        .until("the fleet and the Service are deleted", look)
        .await;
    kubectl.ok(&["delete", "gatewayclass/typed"]);
    kubectl.ok(&["delete", "sesameconfiguration/typed", NAMESPACE]);
    kubectl.ok(&["label", "node", stage.nodes[0].name(), &format!("{LABEL}-")]);
}

fn by_way_of(node: &SocketAddr, address: &str) {
    let via = node.ip().to_string();
    ok(Command::new("ip").args(["route", "replace", address, "via", &via]));
}

fn service(kubectl: &Kubectl) -> Value {
    let found = kubectl.run(&["get", SERVICE, NAMESPACE, "--output=json"], "");
    serde_json::from_slice(&found.stdout).unwrap_or_default()
}

fn cluster_ip(kubectl: &Kubectl) -> String {
    let service = service(kubectl);
    let address = service["spec"]["clusterIP"].as_str();
    address.expect("an address").to_owned()
}

async fn deleted(kubectl: &Kubectl) {
    let before = service(kubectl)["metadata"]["uid"].clone();
    kubectl.ok(&["delete", SERVICE, NAMESPACE, "--wait=false"]);
    let begun = Instant::now();
    let look = |kubectl: &Kubectl| {
        let now = &service(kubectl)["metadata"]["uid"];
        let is_new = now.is_string() && *now != before;
        is_new.then_some(()).ok_or(format!("{now}"))
    };
    kubectl.until("the Service is recreated", look).await;
    let after = begun.elapsed();
    println!(
        "nodes: a Service is recreated {} ms after it is deleted",
        after.as_millis()
    );
    assert!(after < TEST_TIMEOUT, "{after:?}");
}

async fn becomes(kubectl: &Kubectl, type_: &str) {
    let change = json!({"spec": {"publishing": {"type": type_}}});
    let patch = format!("--patch={change}");
    let configuration = "sesameconfiguration/typed";
    kubectl.ok(&["patch", configuration, NAMESPACE, "--type=merge", &patch]);
    let look = |kubectl: &Kubectl| {
        let now = service(kubectl)["spec"]["type"].clone();
        (now == type_).then_some(()).ok_or(now.to_string())
    };
    kubectl.until("the Service has the type", look).await;
    let wait = [
        "wait",
        "--for=condition=Programmed",
        "gateway/typed",
        NAMESPACE,
    ];
    let patience = format!("--timeout={}s", TIMEOUT.as_secs());
    kubectl.ok(&[&wait[..], &[patience.as_str()]].concat());
}

fn objects() -> [Value; 4] {
    let spec = json!({
        "fleet": {"management": "Managed", "drainSeconds": 5, "nodeSelector": {LABEL: "true"}},
        "publishing": {"type": "LoadBalancer"},
    });
    let [configuration, class] = class_with_parameters(NAME, NAME, &spec);
    let mut gateway = gateway(NAME, &[http_listener("http", PORT, "")]);
    gateway["spec"]["gatewayClassName"] = json!(NAME);
    let mut route = route(NAME, 0);
    route["spec"]["parentRefs"] = json!([{"name": NAME}]);
    [configuration, class, gateway, route]
}
