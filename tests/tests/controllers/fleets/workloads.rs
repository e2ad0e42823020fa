//! Fleets on the Pod network: Pod Security, scaling, and switching from a DaemonSet.

use serde_json::{Value, json};
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, deployed};
use sesame_tests::manifests::{edge_name, edge_with_parameters};
use sesame_tests::reports::write_report;
use sesame_tests::wait::{eventually, holds};

use super::{ACCOUNTS, CONFIGURATIONS, DAEMONSETS, GATEWAYS, gateway_condition, gone, there};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/edge-edge-envoy";
const BUDGET: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/edge-edge-envoy";
const SERVICE: &str = "/api/v1/namespaces/default/services/edge-edge";

async fn apply(cluster: &TestCluster, workload: &str) {
    let spec = json!({
        "fleet": {"management": "Managed", "workload": workload},
        "publishing": {"type": "ClusterIP"},
    });
    cluster.apply_all(&edge_with_parameters(&spec)).await;
}

async fn configure(cluster: &TestCluster, fleet: &Value) {
    let path = format!("{CONFIGURATIONS}/template");
    cluster
        .merge(&path, &json!({"spec": {"fleet": fleet}}))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_deployment_is_repaired_but_may_be_scaled() {
    let cluster = deployed(Channel::Standard).await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    let admin = cluster.admin();
    apply(&cluster, "Deployment").await;
    let deployment = there(admin, DEPLOYMENT).await;
    assert_eq!(deployment["spec"]["replicas"], 2);
    let budget = there(admin, BUDGET).await;
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    let service = there(admin, SERVICE).await;
    let selector = &service["spec"]["selector"];
    assert_eq!(*selector, deployment["spec"]["selector"]["matchLabels"]);
    restricted_admits_fleet_pods(&cluster, &deployment).await;
    pod_reports_only_for_itself(&cluster).await;

    let replicas = json!({"spec": {"replicas": 5}});
    cluster.merge(DEPLOYMENT, &replicas).await;
    configure(&cluster, &json!({"drainSeconds": 7})).await;
    let drains = |deployment: &Value| deployment.to_string().contains("--drain-seconds=7");
    let deployment = cluster
        .until("drain time is applied", DEPLOYMENT, drains)
        .await;
    assert_eq!(deployment["spec"]["replicas"], 5, "manual scaling is kept");
    configure(&cluster, &json!({"replicas": 3})).await;
    let is_three = |deployment: &Value| deployment["spec"]["replicas"] == 3;
    cluster
        .until("the fleet scales it", DEPLOYMENT, is_three)
        .await;
    cluster.merge(DEPLOYMENT, &replicas).await;
    cluster
        .until("the scale is restored", DEPLOYMENT, is_three)
        .await;

    let lax = json!({"spec": {"maxUnavailable": 2}});
    cluster.merge(BUDGET, &lax).await;
    let is_one = |budget: &Value| budget["spec"]["maxUnavailable"] == 1;
    cluster
        .until("the budget is repaired", BUDGET, is_one)
        .await;
    for path in [DEPLOYMENT, BUDGET] {
        let before = cluster.get(path).await["metadata"]["uid"].clone();
        cluster.delete(path).await;
        eventually(&format!("{path} is recreated"), TEST_TIMEOUT, async || {
            let object = admin.get(path).await.map_err(|error| error.to_string())?;
            holds(object["metadata"]["uid"] != before, || {
                "not deleted yet".to_owned()
            })
        })
        .await;
    }

    mistakes_are_refused_when_they_are_written(&cluster).await;
    configure(&cluster, &json!({"management": "Unmanaged"})).await;
    let released = |gateway: &Value| {
        let why = gateway_condition(gateway, "projectsesame.io/Released")["message"].as_str();
        why.is_some_and(|why| why.contains("Deployment default/edge-edge-envoy"))
    };
    let path = format!("{GATEWAYS}/edge");
    cluster
        .until("the Gateway reports it", &path, released)
        .await;
    for path in [DEPLOYMENT, BUDGET] {
        let owners = &cluster.get(path).await["metadata"]["ownerReferences"];
        assert!(owners.is_null(), "{path}: {owners}");
    }
}

async fn mistakes_are_refused_when_they_are_written(cluster: &TestCluster) {
    let template = format!("{CONFIGURATIONS}/template");
    let toleration = |toleration: Value| json!({"tolerations": [toleration]});
    for (fleet, words) in [
        (json!({"workload": "StatefulSet"}), "spec.fleet.workload"),
        (json!({"replicas": 0}), "spec.fleet.replicas"),
        (
            json!({"workload": "DaemonSet", "replicas": 2}),
            "replicas: allowed only with workload Deployment",
        ),
        (toleration(json!({"operator": "Equal"})), "key: required"),
        (
            toleration(json!({"key": "a", "operator": "Exists", "value": "b"})),
            "value: must be empty with operator Exists",
        ),
        (
            toleration(json!({"key": "a", "operator": "Exists", "tolerationSeconds": 1})),
            "allowed only with effect NoExecute",
        ),
    ] {
        let change = json!({"spec": {"fleet": fleet}});
        let refused = cluster.admin().merge(&template, &change).await;
        let why = refused.expect_err(words).to_string();
        assert!(why.contains(words), "{why}");
    }
}

/// The level `restricted` must admit the fleet's Pods. It takes effect once it rejects `hostPID`.
async fn restricted_admits_fleet_pods(cluster: &TestCluster, deployment: &Value) {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = "/api/v1/namespaces/default";
    cluster
        .merge(namespace, &json!({"metadata": {"labels": labels}}))
        .await;
    let admin = cluster.admin();
    let pods = format!("{namespace}/pods");
    let template = &deployment["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]});
    pod["metadata"] = json!({"name": "restricted", "labels": template["metadata"]["labels"]});
    let mut node_pod = pod.clone();
    node_pod["metadata"]["name"] = json!("of-node");
    node_pod["spec"]["hostPID"] = json!(true);
    node_pod["spec"]["shareProcessNamespace"] = json!(false);
    eventually("the namespace is restricted", TEST_TIMEOUT, async || {
        let refused = admin.create(&pods, &node_pod).await;
        let why = refused.err().map(|error| error.to_string());
        let expected = why.as_ref().is_some_and(|why| why.contains("hostPID"));
        holds(expected, || format!("{why:?}"))
    })
    .await;
    admin
        .create(&pods, &pod)
        .await
        .expect("a Pod of the Deployment");
    let none = json!({"pod-security.kubernetes.io/enforce": null});
    cluster
        .merge(namespace, &json!({"metadata": {"labels": none}}))
        .await;
}

/// A Pod's token permits only reports for that Pod or its node.
async fn pod_reports_only_for_itself(cluster: &TestCluster) {
    let user = User::on_node("default", "edge-edge-agent", "n1");
    let pod = cluster.client(&user).await;
    let (edge, status) = (edge_name(), json!({"state": "Serving"}));
    let refusal = async |host: &str| {
        let result = write_report(&pod, &edge, host, &status).await;
        let why = result.err().map(|error| error.to_string());
        let refused = why.as_ref();
        let refused = refused.is_some_and(|why| why.contains("does not speak for host"));
        holds(refused, || format!("{host}: {why:?}"))
    };
    let others = [
        "edge-edge-agent-n2.default.pod",
        "edge-edge-agent-n1.other.pod",
        "edge-edge-agent-n1",
    ];
    eventually("the policy takes effect", TEST_TIMEOUT, async || {
        refusal(others[0]).await
    })
    .await;
    eventually("the report is accepted", TEST_TIMEOUT, async || {
        let result = write_report(&pod, &edge, "edge-edge-agent-n1.default.pod", &status).await;
        result.map_err(|error| error.to_string())
    })
    .await;
    for other in others {
        refusal(other).await.expect("a refusal");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_workload_stays_until_new_one_is_ready() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    let admin = cluster.admin();
    apply(&cluster, "DaemonSet").await;
    let daemonsets = ["envoy", "agent"].map(|end| format!("{DAEMONSETS}/edge-edge-{end}"));
    for path in &daemonsets {
        there(admin, path).await;
    }
    let account = there(admin, &format!("{ACCOUNTS}/edge-edge-agent")).await;
    let service = there(admin, SERVICE).await;
    configure(&cluster, &json!({"workload": "Deployment"})).await;
    let deployment = there(admin, DEPLOYMENT).await;
    let selects = |service: &Value| service["spec"]["selector"].is_object();
    let now = cluster
        .until("the Service selects Pods", SERVICE, selects)
        .await;
    assert_eq!(now["spec"]["clusterIP"], service["spec"]["clusterIP"]);
    let status = |ready: u32| {
        json!({"status": {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready, "availableReplicas": ready,
        }})
    };
    let path = format!("{DEPLOYMENT}/status");
    cluster.merge(&path, &status(1)).await;
    // The controller handles changes in order, so wait for a later change.
    configure(&cluster, &json!({"drainSeconds": 7})).await;
    let drains = |deployment: &Value| deployment.to_string().contains("--drain-seconds=7");
    let deployment = cluster
        .until("drain time is applied", DEPLOYMENT, drains)
        .await;
    for path in &daemonsets {
        assert!(
            admin.get(path).await.is_ok(),
            "{path}: {}",
            controller.log_tail()
        );
    }
    let mut ready = status(2);
    ready["status"]["observedGeneration"] = deployment["metadata"]["generation"].clone();
    cluster.merge(&path, &ready).await;
    for path in &daemonsets {
        gone(admin, path).await;
    }
    let now = cluster.get(&format!("{ACCOUNTS}/edge-edge-agent")).await;
    assert_eq!(now["metadata"]["uid"], account["metadata"]["uid"]);
    let manifest = sesame_published::names::manifest_name(&edge_name());
    there(
        admin,
        &format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{manifest}"),
    )
    .await;
}
