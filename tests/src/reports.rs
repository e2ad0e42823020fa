//! What hosts report, written as they write it, and who may.

use serde_json::{Value, json};
use sesame_gateway_api::api::NamespacedName;
use sesame_published::names::agent_name;

use crate::cluster::{Client, Failure, TestCluster};
use crate::controller::NAMESPACE;

/// The path of all reports.
pub const REPORTS: &str = "/apis/projectsesame.io/v1alpha1/namespaces/sesame-system/gatewayagents";

/// The path of a host's report about a Gateway.
pub fn report_path(gateway: &NamespacedName, host: &str) -> String {
    format!("{REPORTS}/{}", agent_name(gateway, host))
}

/// A report without a status.
pub fn report(name: &str, gateway: &str, host: &str) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "GatewayAgent",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"gateway": gateway, "host": host, "fleet": "default"},
    })
}

/// Writes a report.
pub async fn say(
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

/// Lets the agents' ServiceAccount of `controller/deploy/agent` report for these hosts, which are no nodes.
pub async fn allow_hosts(cluster: &TestCluster, hosts: &[&str]) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "hosts", "namespace": NAMESPACE},
        "rules": [{
            "apiGroups": ["projectsesame.io"], "resources": ["hosts"], "resourceNames": hosts, "verbs": ["report"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "hosts", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hosts"},
        "subjects": [{"kind": "ServiceAccount", "name": "sesame-agent", "namespace": NAMESPACE}],
    });
    for object in [role, binding] {
        let applied = cluster.admin().apply_value(&object).await;
        applied.unwrap_or_else(|error| panic!("{error}: {object}"));
    }
}
