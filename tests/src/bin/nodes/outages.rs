//! Outages of nodes and backends, under load. The remaining nodes must keep serving.

use std::time::Instant;

use serde_json::json;

use crate::kubectl::{Kubectl, TIMEOUT};
use crate::objects::{APP, get};
use crate::rollouts::{begun, ended};
use crate::stage::{Stage, answers, load};

pub(crate) async fn drain(stage: &mut Stage) {
    let load = begun(stage).await;
    let node = stage.nodes[1].name().to_owned();
    let kubectl = stage.kubectl.clone();
    kubectl.ok(&["drain", &node, "--ignore-daemonsets", "--timeout=120s"]);
    stage.change().await;
    load.pass(200).await;
    kubectl.ok(&["uncordon", &node]);
    stage.change().await;
    ended(load, "node drained and uncordoned").await;
}

pub(crate) async fn kubelet(stage: &mut Stage) {
    let load = begun(stage).await;
    stage.nodes[0].kill_kubelet();
    stage.change().await;
    load.pass(200).await;
    stage.nodes[0].start_kubelet();
    stage.ready().await;
    stage.change().await;
    ended(load, "kubelet killed and restarted").await;
}

pub(crate) async fn backend(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let deployment = format!("deployment/{APP}");
    kubectl.ok(&["scale", "--replicas=0", &deployment]);
    for address in stage.addresses() {
        let request = get(address, "/always");
        let begun = Instant::now();
        loop {
            let last = match request.send().await {
                // Envoy still uses the old endpoint.
                Ok(reply) => {
                    let body = String::from_utf8_lossy(&reply.body).into_owned();
                    if reply.status == 503 && !body.contains("connect error") {
                        break;
                    }
                    format!("status {}: {body}", reply.status)
                }
                Err(error) => format!("{error:#}"),
            };
            assert!(
                begun.elapsed() < TIMEOUT,
                "the address of the last Pod was not removed within {TIMEOUT:?}; last: {last}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    kubectl.ok(&["scale", "--replicas=2", &deployment]);
    for address in stage.addresses() {
        answers(address, "/always").await;
    }
    kubectl.ok(&["rollout", "status", &deployment, "--timeout=120s"]);
    stage.change().await;
    let load = begun(stage).await;
    ended(load, "backend scaled to zero and back").await;
}

/// The backend runs on the other node, because a Service keeps a dead Pod's endpoint for a while.
pub(crate) async fn reboot(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let (stays, goes) = (stage.nodes[0].name().to_owned(), stage.nodes[1].at(80));
    place(&kubectl, &json!({"kubernetes.io/hostname": stays})).await;
    stage.change().await;
    let load = load(&[stage.nodes[0].at(80)]);
    load.pass(100).await;
    tokio::task::block_in_place(|| stage.nodes[1].cut_power());
    load.pass(200).await;
    let begun = Instant::now();
    tokio::task::block_in_place(|| stage.nodes[1].power_on());
    answers(goes, "/always").await;
    println!(
        "nodes: the node serves {} ms after its start, including the start of containerd and kubelet",
        begun.elapsed().as_millis()
    );
    stage.ready().await;
    // Another replica must be the leader by now.
    stage.change().await;
    place(&kubectl, &json!(null)).await;
    stage.change().await;
    ended(load, "other node powered off and restarted").await;
}

async fn place(kubectl: &Kubectl, selector: &serde_json::Value) {
    let patch = json!({"spec": {"template": {"spec": {"nodeSelector": selector}}}}).to_string();
    let deployment = format!("deployment/{APP}");
    kubectl.ok(&["patch", &deployment, "--patch", &patch]);
    kubectl.ok(&["rollout", "status", &deployment, "--timeout=120s"]);
    let gone = |kubectl: &Kubectl| {
        let pods = kubectl.get(&["pods", "--selector", &format!("app={APP}")]);
        let count = pods["items"].as_array().map_or(0, Vec::len);
        (count == 2).then_some(()).ok_or(format!("{count} Pods"))
    };
    kubectl.until("the previous Pods are deleted", gone).await;
}
