//! The fleet of merged Gateways behind a second Gateway.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_tests::agent::beside_test;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, deployed};
use sesame_tests::envoy::workspace;
use sesame_tests::manifests::{edge_with_parameters, gateway, http_listener};
use sesame_tests::reports;
use sesame_tests::wait::{eventually, holds};

use super::{CLASS, CONFIGURATIONS, GATEWAYS, access, gateway_condition, gone, there};

const MEMBERS: [&str; 2] = ["one", "two"];
const WORKLOADS: &str = "/apis/apps/v1/namespaces/sesame-system";
const BUDGET: &str =
    "/apis/policy/v1/namespaces/sesame-system/poddisruptionbudgets/gateways-edge-envoy";
const SERVICE: &str = "/api/v1/namespaces/sesame-system/services/gateways-edge";
const API: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/sesame-system";

fn published_as() -> NamespacedName {
    NamespacedName::new(NAMESPACE, "edge")
}

fn path(member: &str) -> String {
    format!("{GATEWAYS}/{member}")
}

/// Returns the paths of the fleet's objects, the workload first.
fn fleet(workload: &[&str]) -> Vec<String> {
    let name = published_as();
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let workload = workload.iter().map(ToString::to_string);
    let others = [
        format!("{accounts}/gateways-edge-agent"),
        access("roles", &name, ""),
        access("rolebindings", &name, ""),
        access("rolebindings", &name, ".agents"),
    ];
    workload.chain(others).collect()
}

async fn configure(cluster: &TestCluster, spec: &Value) {
    let template = format!("{CONFIGURATIONS}/template");
    cluster.merge(&template, &json!({"spec": spec})).await;
}

async fn apply(cluster: &TestCluster) {
    let rights = workspace().join("controller/deploy/upstreams.yaml");
    let rights = std::fs::read_to_string(rights).expect("the rights");
    cluster.apply(&rights).await.expect("the rights");
    let mut objects = edge_with_parameters(&json!({
        "fleet": {"management": "Managed", "gateways": "Merged"},
        "publishing": {"type": "UpstreamGateway", "upstream": {"gatewayClassName": "cloud"}},
    }));
    objects.truncate(2);
    for name in MEMBERS {
        let mut gateway = gateway(name, &[http_listener("http", 80, &format!("{name}.test"))]);
        gateway["spec"]["gatewayClassName"] = json!("edge");
        objects.push(gateway);
    }
    cluster.apply_all(&objects).await;
}

fn ports(gateway: &Value) -> Vec<u64> {
    let listeners = gateway["spec"]["listeners"].as_array();
    let listeners = listeners.into_iter().flatten();
    listeners.filter_map(|it| it["port"].as_u64()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_gateways_share_one_fleet_that_is_adopted() {
    let cluster = deployed(Channel::Standard).await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    let admin = cluster.admin();
    apply(&cluster).await;
    let daemonsets =
        ["envoy", "agent"].map(|end| format!("{WORKLOADS}/daemonsets/gateways-edge-{end}"));
    for path in fleet(&daemonsets.each_ref().map(String::as_str)) {
        there(admin, &path).await;
    }
    for path in &daemonsets {
        let owner = &cluster.get(path).await["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["name"]),
            (&json!("GatewayClass"), &json!("edge"))
        );
    }
    a_second_gateway_leads_to_all_of_them(&cluster).await;

    let deployment = format!("{WORKLOADS}/deployments/gateways-edge-envoy");
    it_moves_to_pods(&cluster, &deployment).await;
    for path in &daemonsets {
        gone(admin, path).await;
    }
    it_is_given_up_and_adopted(&cluster, &fleet(&[&deployment, BUDGET])).await;
}

async fn a_second_gateway_leads_to_all_of_them(cluster: &TestCluster) {
    let second = format!("{API}/gateways/gateways-edge-upstream");
    let made = cluster
        .until("created", &second, |it| ports(it) == [80])
        .await;
    assert_eq!(made["spec"]["gatewayClassName"], "cloud", "{made:#}");
    let more = json!({"spec": {"listeners":
        [http_listener("http", 80, "two.test"), http_listener("more", 8080, "")]}});
    cluster.merge(&path("two"), &more).await;
    let made = cluster
        .until("the ports of both Gateways", &second, |it| {
            ports(it) == [80, 8080]
        })
        .await;
    let route = format!("{API}/tcproutes/gateways-edge-upstream-tcp-8080");
    let route = cluster.until("the TCPRoute exists", &route, |_| true).await;
    let backend = &route["spec"]["rules"][0]["backendRefs"][0];
    assert_eq!(
        (&backend["name"], &backend["port"]),
        (&json!("gateways-edge"), &json!(8080))
    );

    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "Pool", "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z", "observedGeneration": made["metadata"]["generation"]})
    };
    let address = json!([{"type": "IPAddress", "value": "198.51.100.1"}]);
    let conditions = ["Accepted", "Programmed"].map(condition);
    let status = json!({"status": {"conditions": conditions, "addresses": address}});
    cluster.merge(&format!("{second}/status"), &status).await;
    reports::report_serving(cluster.admin(), &published_as(), "host-1", "192.0.2.7").await;
    for member in MEMBERS {
        cluster
            .until(
                "the Gateway has the second Gateway's address",
                &path(member),
                |gateway| gateway["status"]["addresses"] == address,
            )
            .await;
    }
    let own = json!({"publishing": {"type": "ClusterIP", "upstream": null}});
    configure(cluster, &own).await;
    gone(cluster.admin(), &second).await;
}

async fn it_moves_to_pods(cluster: &TestCluster, deployment: &str) {
    configure(cluster, &json!({"fleet": {"workload": "Deployment"}})).await;
    let made = cluster
        .until("the Deployment exists", deployment, |_| true)
        .await;
    let selects = |service: &Value| service["spec"]["selector"].is_object();
    let service = cluster
        .until("the Service selects Pods", SERVICE, selects)
        .await;
    let labels = &made["spec"]["selector"]["matchLabels"];
    assert_eq!(service["spec"]["selector"], *labels, "{service:#}");
    there(cluster.admin(), BUDGET).await;
    let status = json!({"status": {
        "observedGeneration": made["metadata"]["generation"],
        "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
    }});
    cluster
        .merge(&format!("{deployment}/status"), &status)
        .await;
}

async fn it_is_given_up_and_adopted(cluster: &TestCluster, fleet: &[String]) {
    let kubeconfig = cluster.kubeconfig(&User::Admin).await;
    configure(cluster, &json!({"fleet": {"management": "Unmanaged"}})).await;
    for member in MEMBERS {
        let is_told = |gateway: &Value| {
            let released = gateway_condition(gateway, "projectsesame.io/Released");
            let why = released["message"].as_str().unwrap_or_default();
            why.contains("Deployment sesame-system/gateways-edge-envoy")
        };
        cluster.until("released", &path(member), is_told).await;
    }
    let is_nobodys = |object: &Value| {
        object["metadata"]["annotations"]["projectsesame.io/released-from"].is_string()
    };
    let mut before = Vec::new();
    for path in fleet {
        before.push(cluster.until("released", path, is_nobodys).await);
    }
    configure(cluster, &json!({"fleet": {"management": "Managed"}})).await;
    let diff = eventually("`fleet diff` shows changes", TEST_TIMEOUT, async || {
        let (code, text) = command(&kubeconfig, &["diff", "sesame-system/edge", "-o", "json"]);
        let diff: Value = serde_json::from_str(&text).map_err(|_| text.clone())?;
        holds(code == Some(1) && diff["current"] == true, || text)?;
        Ok::<_, String>(diff)
    })
    .await;
    assert_eq!(diff["podsRestart"], false, "{diff:#}");
    let agreement = diff["agreement"].as_str().expect("an agreement");
    let (code, text) = command(&kubeconfig, &["adopt", "sesame-system/edge", agreement]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("GatewayClass edge is annotated"), "{text}");
    let annotations = &cluster.get(CLASS).await["metadata"]["annotations"];
    assert_eq!(annotations["projectsesame.io/adopt"], *agreement);
    for (path, before) in fleet.iter().zip(&before) {
        let is_ours = |object: &Value| {
            let annotations = &object["metadata"]["annotations"];
            annotations["projectsesame.io/released-from"].is_null()
        };
        let now = cluster.until("the object is adopted", path, is_ours).await;
        assert_eq!(now["metadata"]["uid"], before["metadata"]["uid"], "{path}");
        assert_eq!(now["spec"], before["spec"], "{path}");
    }
    let owner = &cluster.get(&fleet[0]).await["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "GatewayClass", "{owner}");
    eventually("`fleet diff` is empty", TEST_TIMEOUT, async || {
        let (code, text) = command(&kubeconfig, &["diff", "sesame-system/edge"]);
        holds(code == Some(0), || text)
    })
    .await;
}

fn command(kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(beside_test("sesame-controller"));
    command.arg("fleet").args(arguments);
    command.args(["--namespace", NAMESPACE]);
    let ended = command.env("SESAME_KUBECONFIG", kubeconfig).output();
    let ended = ended.expect("the binary runs");
    let text = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(text).expect("text"))
}
