//! Installs Sesame as documented, with kubectl or from the archive for air-gapped sites, and serves
//! a Gateway.

use std::time::Instant;

use crate::archive;
use crate::objects::version;
use crate::stage::{Stage, answers};

pub(crate) async fn scenario(stage: &mut Stage) {
    let begun = Instant::now();
    let kubectl = stage.kubectl.clone();
    if archive::exists() {
        stage.nodes.iter().for_each(archive::import_images);
        archive::install_cluster(&kubectl);
    } else {
        stage.define();
        for part in ["controller/deploy", "controller/deploy/agent"] {
            stage.install(part);
        }
    }
    for what in [
        "deployment/sesame-controller",
        "daemonset/sesame-envoy",
        "daemonset/sesame-agent",
    ] {
        kubectl.rolled_out(what);
    }
    println!(
        "nodes: everything runs {} ms after the first apply",
        begun.elapsed().as_millis()
    );
    let begun = Instant::now();
    kubectl.apply(&version(0));
    for address in stage.addresses() {
        answers(address, "/0").await;
    }
    println!(
        "nodes: every node serves {} ms after the apply, including the start of the backend",
        begun.elapsed().as_millis()
    );
    addresses(stage).await;
    stage.change().await;
}

async fn addresses(stage: &Stage) {
    let wanted: Vec<String> = stage
        .addresses()
        .iter()
        .map(|address| address.ip().to_string())
        .collect();
    let look = |kubectl: &crate::kubectl::Kubectl| {
        let gateway = kubectl.get(&["gateway", "edge", "--namespace=default"]);
        let addresses = gateway["status"]["addresses"].as_array().cloned();
        let mut found: Vec<String> = addresses
            .unwrap_or_default()
            .iter()
            .map(|address| address["value"].as_str().unwrap_or_default().to_owned())
            .collect();
        found.sort();
        (found == wanted)
            .then_some(())
            .ok_or(format!("{found:?}; expected {wanted:?}"))
    };
    stage
        .kubectl
        .until("the Gateway has the nodes' addresses", look)
        .await;
}
