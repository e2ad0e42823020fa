//! Adoption of existing fleets. The controller must apply exactly the diff that was approved.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use sesame_tests::agent::beside_test;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, condition, deployed};
use sesame_tests::manifests::{edge_name, edge_with_parameters};
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const TEMPLATE: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/sesameconfigurations/template";

/// Returns the paths of the fleet's objects, the workload first.
fn fleet(workload: &str) -> [String; 6] {
    let access = |plural: &str, more: &str| {
        let name = sesame_published::host_access::fleet_agents(&edge_name());
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{plural}/{name}{more}")
    };
    let (first, second) = match workload {
        "Deployment" => (
            "apps/v1/namespaces/default/deployments/edge-edge-envoy",
            "policy/v1/namespaces/default/poddisruptionbudgets/edge-edge-envoy",
        ),
        _ => (
            "apps/v1/namespaces/default/daemonsets/edge-edge-envoy",
            "apps/v1/namespaces/default/daemonsets/edge-edge-agent",
        ),
    };
    [
        format!("/apis/{first}"),
        format!("/apis/{second}"),
        "/api/v1/namespaces/default/serviceaccounts/edge-edge-agent".to_owned(),
        access("roles", ""),
        access("rolebindings", ""),
        access("rolebindings", ".agents"),
    ]
}

async fn manage(cluster: &TestCluster, management: &str) {
    let change = json!({"spec": {"fleet": {"management": management}}});
    cluster.merge(TEMPLATE, &change).await;
}

/// Runs `sesame-controller fleet`, and returns its exit code and output.
fn command(kubeconfig: &PathBuf, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(beside_test("sesame-controller"));
    command
        .arg("fleet")
        .args(arguments)
        .args(["--namespace", NAMESPACE]);
    let ended = command.env("SESAME_KUBECONFIG", kubeconfig).output();
    let ended = ended.expect("the binary runs");
    let text = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(text).expect("text"))
}

/// Waits until `fleet diff` shows changes, and returns them.
async fn difference(kubeconfig: &PathBuf) -> Value {
    eventually("`fleet diff` shows changes", TEST_TIMEOUT, async || {
        let (code, text) = command(kubeconfig, &["diff", "default/edge", "-o", "json"]);
        let diff: Value = serde_json::from_str(&text).map_err(|_| text.clone())?;
        holds(code == Some(1) && diff["current"] == true, || text)?;
        Ok::<_, String>(diff)
    })
    .await
}

async fn give_up(cluster: &TestCluster, fleet: &[String]) {
    manage(cluster, "Unmanaged").await;
    let is_released = |gateway: &Value| {
        condition(
            &gateway["status"]["conditions"],
            "projectsesame.io/Released",
        )["status"]
            == "True"
    };
    cluster
        .until("the fleet is released", GATEWAY, is_released)
        .await;
    let is_nobodys = |object: &Value| {
        let metadata = &object["metadata"];
        metadata["annotations"]["projectsesame.io/released-from"].is_string()
    };
    for path in fleet {
        cluster
            .until("the object is released", path, is_nobodys)
            .await;
    }
}

async fn agree(kubeconfig: &PathBuf, diff: &Value) {
    let agreement = diff["agreement"].as_str().expect("an agreement");
    let (code, text) = command(kubeconfig, &["adopt", "default/edge", agreement]);
    assert_eq!(code, Some(0), "{text}");
    let settled = || command(kubeconfig, &["diff", "default/edge"]);
    eventually("`fleet diff` is empty", TEST_TIMEOUT, async || {
        let (code, text) = settled();
        holds(code == Some(0), || text)
    })
    .await;
}

async fn adopted(workload: &str) -> (TestCluster, ControllerUnderTest, PathBuf) {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    let kubeconfig = cluster.kubeconfig(&User::Admin).await;
    let resources = json!({"envoy": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}});
    let settings =
        json!({"fleet": {"management": "Managed", "workload": workload, "resources": resources}});
    cluster.apply_all(&edge_with_parameters(&settings)).await;
    let paths = fleet(workload);
    for path in &paths {
        cluster.until("the object exists", path, |_| true).await;
    }
    give_up(&cluster, &paths).await;
    let mine = json!({"metadata": {"labels": {"mine": "x"}}});
    cluster.merge(&paths[0], &mine).await;
    let mut before = Vec::new();
    for path in &paths {
        before.push(cluster.get(path).await);
    }
    manage(&cluster, "Managed").await;
    let diff = difference(&kubeconfig).await;
    let objects = diff["objects"].as_array().expect("objects");
    let unchanged = objects
        .iter()
        .filter(|it| it["fate"] == "adopted unchanged");
    assert_eq!(unchanged.count(), 6, "{diff:#}");
    assert_eq!(diff["podsRestart"], false, "{diff:#}");
    for (path, before) in paths.iter().zip(&before) {
        let now = cluster.get(path).await;
        assert_eq!(
            now["metadata"]["resourceVersion"],
            before["metadata"]["resourceVersion"]
        );
    }
    let (code, text) = command(&kubeconfig, &["adopt", "default/edge", "0123456789abcdef"]);
    assert_eq!(code, Some(3), "{text}");
    agree(&kubeconfig, &diff).await;
    for (path, before) in paths.iter().zip(&before) {
        let now = cluster
            .until("the object is adopted", path, |object| {
                object["metadata"]["annotations"]["projectsesame.io/digest"].is_string()
            })
            .await;
        // Changed annotations increment a Deployment's generation.
        let generation = if path.contains("/deployments/") {
            "uid"
        } else {
            "generation"
        };
        for field in ["uid", generation, "labels"] {
            assert_eq!(now["metadata"][field], before["metadata"][field], "{path}");
        }
        assert_eq!(now["spec"], before["spec"], "{path}");
    }
    assert_eq!(
        cluster.get(&paths[0]).await["metadata"]["ownerReferences"][0]["name"],
        "edge"
    );
    (cluster, controller, kubeconfig)
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_deployment_is_adopted_without_new_pods() {
    adopted("Deployment").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_fleet_is_adopted_only_as_diff_shows() {
    let (cluster, _controller, kubeconfig) = adopted("DaemonSet").await;
    let paths = fleet("DaemonSet");
    // The approval does not cover later changes.
    give_up(&cluster, &paths).await;
    let change = json!({"spec": {"revisionHistoryLimit": 3, "template": {"metadata": {"labels": {"more": "y"}}}}});
    cluster.merge(&paths[1], &change).await;
    manage(&cluster, "Managed").await;
    let diff = difference(&kubeconfig).await;
    assert_eq!(diff["podsRestart"], true, "{diff:#}");
    let (_, text) = command(&kubeconfig, &["diff", "default/edge"]);
    for words in [
        "DaemonSet default/edge-edge-agent: adopted with changes",
        "  - spec.revisionHistoryLimit: 3\n  + spec.revisionHistoryLimit: 10",
        "  - spec.template.metadata.labels.more: y",
        "Pods restart",
        "projectsesame.io/adopt: ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    agree(&kubeconfig, &diff).await;
    let is_ours =
        |object: &Value| object["spec"]["template"]["metadata"]["labels"]["more"].is_null();
    cluster
        .until("the object matches the diff", &paths[1], is_ours)
        .await;

    give_up(&cluster, &paths).await;
    let manager = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}});
    cluster.merge(&paths[1], &manager).await;
    manage(&cluster, "Managed").await;
    let diff = eventually(
        "a foreign object prevents adoption",
        TEST_TIMEOUT,
        async || {
            let diff = difference(&kubeconfig).await;
            holds(diff["agreement"].is_null(), || diff.to_string())?;
            Ok::<_, String>(diff)
        },
    )
    .await;
    assert_eq!(diff["objects"][5]["fate"], "foreign", "{diff:#}");
    let is_reported = |gateway: &Value| {
        let why = condition(&gateway["status"]["conditions"], "projectsesame.io/Fleet")["message"]
            .as_str();
        why.is_some_and(|why| why.contains("\"Helm\" manages it"))
    };
    cluster
        .until(
            "the Gateway reports the foreign object",
            GATEWAY,
            is_reported,
        )
        .await;
    assert!(cluster.get(&paths[1]).await["metadata"]["ownerReferences"].is_null());
}
