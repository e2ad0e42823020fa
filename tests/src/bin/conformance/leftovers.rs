//! Checks that a run leaves no objects, files or processes behind.

use std::path::Path;
use std::time::{Duration, Instant};

use sesame_tests::agent::AgentUnderTest;
use sesame_tests::cluster::Client;
use sesame_tests::controller::NAMESPACE;

const TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

const KINDS: &[&str] = &[
    "backendtlspolicies",
    "gateways",
    "grpcroutes",
    "httproutes",
    "listenersets",
    "referencegrants",
    "tcproutes",
    "tlsroutes",
    "udproutes",
];

pub(crate) async fn wait_gone(
    admin: &Client,
    agent: &AgentUnderTest,
) -> anyhow::Result<Vec<String>> {
    let start = Instant::now();
    loop {
        let left = left(admin, agent).await?;
        if left.is_empty() || start.elapsed() > TIMEOUT {
            return Ok(left);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn left(admin: &Client, agent: &AgentUnderTest) -> anyhow::Result<Vec<String>> {
    let mut paths: Vec<String> = KINDS
        .iter()
        .map(|kind| format!("/apis/gateway.networking.k8s.io/v1/{kind}"))
        .collect();
    for kind in ["configmaps", "secrets"] {
        paths.push(format!(
            "/api/v1/namespaces/{NAMESPACE}/{kind}?labelSelector=projectsesame.io%2Fgateway"
        ));
    }
    paths.push(format!(
        "/apis/projectsesame.io/v1alpha1/namespaces/{NAMESPACE}/gatewayagents"
    ));
    let mut left = Vec::new();
    for path in paths {
        let list = admin.get(&path).await;
        let list = list.map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
        for object in list["items"].as_array().into_iter().flatten() {
            left.push(format!("{path}: {}", object["metadata"]["name"]));
        }
    }
    let namespaces = admin.get("/api/v1/namespaces").await;
    let namespaces = namespaces.map_err(|error| anyhow::anyhow!("namespaces: {error}"))?;
    for object in namespaces["items"].as_array().into_iter().flatten() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if name.starts_with("gateway-") {
            left.push(format!("namespace {name}"));
        }
    }
    let envoys = agent.envoys();
    left.extend(envoys.iter().map(|envoy| format!("Envoy {}", envoy.pid)));
    for directory in [agent.runtime(), agent.state()] {
        left.extend(entries(&directory.join("gateways"))?);
    }
    Ok(left)
}

fn entries(directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    if directory.is_dir() {
        for entry in std::fs::read_dir(directory)? {
            names.push(entry?.path().display().to_string());
        }
    }
    Ok(names)
}
