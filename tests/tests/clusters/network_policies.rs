//! NetworkPolicies for clusters that deny traffic by default. These tests do not check whether a
//! network plugin enforces them.

use std::path::Path;

use serde_json::Value;
use sesame_tests::cluster::TestCluster;
use sesame_tests::controller::deploy;
use sesame_tests::deployed::{differences, rendered_with_component};
use sesame_tests::envoy::workspace;

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces";

fn example(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("an example");
    serde_saphyr::from_multiple(&text).expect("YAML")
}

#[tokio::test]
async fn api_server_accepts_network_policies_that_select_controller() {
    let cluster = TestCluster::start().await;
    deploy(&cluster).await;
    let all = rendered_with_component("network-policies");
    let deployment = all
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .expect("the controller");
    let mut policies: Vec<Value> = all
        .iter()
        .filter(|object| object["kind"] == "NetworkPolicy")
        .cloned()
        .collect();
    assert_eq!(policies.len(), 2);
    let directory = workspace().join("controller/deploy/network-policies");
    for file in ["backend.yaml", "fleet.yaml"] {
        policies.extend(example(&directory.join(file)));
    }
    cluster.apply_all(&policies).await;
    for policy in &policies {
        let metadata = &policy["metadata"];
        let text = |field: &str| metadata[field].as_str().expect("a text");
        let (namespace, name) = (text("namespace"), text("name"));
        let stored = cluster
            .get(&format!("{POLICIES}/{namespace}/networkpolicies/{name}"))
            .await;
        let mut found = Vec::new();
        differences(name, &stored["spec"], &policy["spec"], &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }

    let template = &deployment["spec"]["template"];
    let controller_policy = policies
        .iter()
        .find(|policy| policy["metadata"]["name"] == "sesame-controller")
        .expect("the controller's policy");
    let selected = &controller_policy["spec"]["podSelector"]["matchLabels"];
    for (label, value) in selected.as_object().expect("labels") {
        assert_eq!(template["metadata"]["labels"][label], *value, "{label}");
    }
    let open = &controller_policy["spec"]["ingress"][0]["ports"][0]["port"];
    let ports = &template["spec"]["containers"][0]["ports"];
    assert_eq!(ports[0]["name"], *open, "{ports}");
}
