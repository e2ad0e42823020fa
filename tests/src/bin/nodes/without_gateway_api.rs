//! A cluster without the Gateway API CRDs: agents serve manifests from a ConfigMap, and a
//! controller waits.

use std::net::SocketAddr;

use serde_json::json;
use sesame_tests::client::Request;

use crate::kubectl::Kubectl;
use crate::objects::pods;
use crate::stage::{Stage, answers, answers_with};

const EXAMPLE: &str = "controller/examples/without-gateway-api";
const CONTROLLER: &str = "deployment/sesame-controller";
const NAMESPACE: &str = "--namespace=edge";
const REDIRECT_ROUTE: &str = "
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: moved, namespace: edge}
spec:
  parentRefs: [{name: edge}]
  rules:
  - matches: [{path: {type: Exact, value: /moved}}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: example.com}}]
";

pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    stage.install("controller/deploy");
    let example = std::time::Instant::now();
    stage.install(EXAMPLE);
    kubectl.apply(&[pods("edge", "web")]);
    for address in stage.addresses() {
        answers(address, "/always").await;
    }
    println!(
        "nodes: every node serves from a ConfigMap {} ms after it is applied, including the start of the backend",
        example.elapsed().as_millis()
    );
    waits(&kubectl).await;
    let load = stage.load();
    load.pass(100).await;
    manifests_change(stage).await;
    load.pass(200).await;
    stage.define();
    kubectl.rolled_out(CONTROLLER);
    load.pass(100).await;
    load.stop().await.clean("nodes: manifests from a ConfigMap");
    stage.remove(EXAMPLE);
    stage.remove("controller/deploy");
    stage.wipe().await;
}

async fn waits(kubectl: &Kubectl) {
    let system = "--namespace=sesame-system";
    let label = "--selector=app.kubernetes.io/name=sesame-controller";
    let probes = kubectl
        .until("the controller runs", |kubectl| {
            let pods = kubectl.get(&["pods", system, label]);
            let pod = &pods["items"][0];
            let ready = &pod["status"]["containerStatuses"][0]["ready"];
            assert_ne!(*ready, json!(true), "without the definitions");
            let address = pod["status"]["podIP"].as_str();
            let address = address.and_then(|ip| format!("{ip}:8081").parse::<SocketAddr>().ok());
            address.ok_or_else(|| format!("{}", pod["status"]))
        })
        .await;
    let request = Request::get(probes, "localhost", "/readyz");
    sesame_tests::wait::eventually(
        "the missing CRDs are reported",
        crate::kubectl::TIMEOUT,
        async || {
            let reply = request.send().await.map_err(|error| format!("{error:#}"))?;
            let body = String::from_utf8_lossy(&reply.body).into_owned();
            let is_named = body.contains("GatewayClass (it is not installed)");
            (reply.status == 503 && is_named).then_some(()).ok_or(body)
        },
    )
    .await;
    let log = kubectl.ok(&["logs", CONTROLLER, system]);
    assert!(
        log.contains("waiting for the definitions of the Gateway API"),
        "{log}"
    );
}

/// Acts like an operator that watches Pods, and finally removes all endpoints.
async fn manifests_change(stage: &Stage) {
    let kubectl = &stage.kubectl;
    let map = kubectl.get(&["configmap/gateways", NAMESPACE]);
    let text = |entry: &str| map["data"][entry].as_str().expect("a text").to_owned();
    let pods = kubectl.get(&["pods", NAMESPACE, "--selector=app=web"]);
    let pods = pods["items"].as_array().expect("a list").iter();
    let endpoints: Vec<String> = pods
        .map(|pod| pod["status"]["podIP"].as_str().expect("an address"))
        .map(|address| format!("- addresses: [{address}]"))
        .collect();
    assert_eq!(endpoints.len(), 2, "{endpoints:?}");
    let backend = text("web.yaml");
    let backend = backend.replace("- addresses: [10.96.80.80]", &endpoints.join("\n"));
    let (service, slice) = backend.split_once("\n---\n").expect("two objects");
    let slice = slice.replace("port: 80}", "port: 3000}");
    let change = json!({"data": {
        "edge.yaml": text("edge.yaml") + REDIRECT_ROUTE,
        "web.yaml": format!("{service}\n---\n{slice}"),
    }});
    let patch = format!("--patch={change}");
    kubectl.ok(&[
        "patch",
        "configmap/gateways",
        NAMESPACE,
        "--type=merge",
        &patch,
    ]);
    let begun = std::time::Instant::now();
    for address in stage.addresses() {
        answers_with(address, "/moved", 302).await;
    }
    println!(
        "nodes: every node serves a changed ConfigMap after {} ms",
        begun.elapsed().as_millis()
    );
    let nobody = r#"--patch={"spec": {"selector": {"app": "nobody"}}}"#;
    kubectl.ok(&["patch", "service/web", NAMESPACE, nobody]);
    kubectl
        .until("the Service has no Pods", |kubectl| {
            let label = "--selector=kubernetes.io/service-name=web";
            let slices = kubectl.get(&["endpointslices", NAMESPACE, label]);
            let left = slices["items"][0]["endpoints"]
                .as_array()
                .map_or(0, Vec::len);
            (left == 0).then_some(()).ok_or(format!("{left} Pods"))
        })
        .await;
}
