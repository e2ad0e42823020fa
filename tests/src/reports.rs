//! Writes reports on behalf of hosts, and grants the required permissions.

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_published::names::agent_name;

use crate::cluster::{Client, Failure, TestCluster};
use crate::controller::{NAMESPACE, TEST_TIMEOUT, publication};
use crate::wait::eventually;

/// The API path of the collection of reports.
pub const REPORTS: &str = "/apis/projectsesame.io/v1alpha1/namespaces/sesame-system/gatewayagents";

/// Returns the API path of a host's report on a Gateway.
pub fn report_path(gateway: &NamespacedName, host: &str) -> String {
    format!("{REPORTS}/{}", agent_name(gateway, host))
}

/// Returns a host's report on a Gateway, without a status.
pub fn report(name: &str, gateway: &str, host: &str) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "GatewayAgent",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"gateway": gateway, "host": host, "fleet": "default"},
    })
}

/// Writes a report with the given status.
pub async fn write_report(
    client: &Client,
    gateway: &NamespacedName,
    host: &str,
    status: &Value,
) -> Result<(), Failure> {
    let name = agent_name(gateway, host);
    let report = report(&name, &gateway.to_string(), host);
    client.apply_value(&report).await?;
    let path = format!("{REPORTS}/{name}/status");
    client.merge(&path, &json!({"status": status})).await?;
    Ok(())
}

/// Reports that a host serves the current publication on port 80.
pub async fn report_serving(client: &Client, gateway: &NamespacedName, host: &str, address: &str) {
    let found = eventually("the Gateway is published", TEST_TIMEOUT, async || {
        publication(client, gateway).await
    })
    .await;
    let revision: String = found.manifest.revision.chars().take(12).collect();
    let serving = json!({"state": "Serving", "wantedRevision": revision, "appliedRevision": revision,
        "addresses": [address], "openPorts": ["TCP/80"]});
    let result = write_report(client, gateway, host, &serving).await;
    result.expect("a report");
}

/// Creates a Node, and reports that it serves the Gateway.
pub async fn serve_on_node(cluster: &TestCluster, gateway: &NamespacedName, address: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}});
    cluster.apply_all(&[node]).await;
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
    let status = "/api/v1/nodes/node-a/status";
    cluster.merge(status, &addresses).await;
    report_serving(cluster.admin(), gateway, "node-a", address).await;
}

/// Adds to the report of [`serve_on_node`] that Envoy rejects the first rule of a route.
pub async fn refuse_on_node(cluster: &TestCluster, gateway: &NamespacedName, route: &str) {
    let rules = json!([{"rule": 0, "reason": "bad regex"}]);
    let refused = json!([{"route": route, "rules": rules, "works": false}]);
    let status = format!("{}/status", report_path(gateway, "node-a"));
    let change = json!({"status": {"refusedRoutes": refused}});
    cluster.merge(&status, &change).await;
}

/// Allows the agents' ServiceAccount to report for hosts that are not cluster nodes.
pub async fn allow_hosts(cluster: &TestCluster, hosts: &[&str]) {
    let rules = json!([{
        "apiGroups": ["projectsesame.io"], "resources": ["hosts"], "resourceNames": hosts, "verbs": ["report"],
    }]);
    cluster
        .allow(NAMESPACE, "sesame-agent", "hosts", &rules)
        .await;
}
