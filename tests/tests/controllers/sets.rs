//! Statuses of ListenerSets and BackendTLSPolicies, tested against a real API server.

use serde_json::{Value, json};
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, condition, deployed};
use sesame_tests::manifests::{self, gateway, gateway_class, http_listener, plain_route};

const API: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default";

async fn until(cluster: &TestCluster, at: &str, good: impl Fn(&Value) -> bool) -> Value {
    cluster.until(at, &format!("{API}/{at}"), good).await
}

fn objects() -> Vec<Value> {
    let mut edge = gateway("edge", &[http_listener("http", 80, "")]);
    edge["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    let set = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
        "metadata": {"name": "more", "namespace": "default"},
        "spec": {
            "parentRef": {"name": "edge"},
            "listeners": [{"name": "extra", "port": 81, "protocol": "HTTP"}],
        },
    });
    let mut route = plain_route("app", "app.example.com", "app");
    route["spec"]["parentRefs"] = json!([{"kind": "ListenerSet", "name": "more"}]);
    let policy = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
        "metadata": {"name": "app", "namespace": "default"},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "app"}],
            "validation": {"hostname": "app.example.com", "wellKnownCACertificates": "System"},
        },
    });
    let mut all = vec![gateway_class("edge"), edge, set, route, policy];
    all.extend(manifests::served_at("app", "10.0.0.1:80"));
    all
}

#[tokio::test]
async fn sets_and_policies_report_status() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    cluster.apply_all(&objects()).await;

    let set = until(&cluster, "listenersets/more", |set| {
        set["status"]["listeners"][0]["attachedRoutes"] == 1
    })
    .await;
    let conditions = &set["status"]["conditions"];
    assert_eq!(
        condition(conditions, "Accepted")["status"],
        "True",
        "{set:#}"
    );
    assert_eq!(condition(conditions, "Programmed")["status"], "Unknown");
    until(&cluster, "gateways/edge", |gateway| {
        gateway["status"]["attachedListenerSets"] == 1
    })
    .await;
    until(&cluster, "httproutes/app", |route| {
        let parent = &route["status"]["parents"][0];
        parent["parentRef"]["kind"] == "ListenerSet"
            && condition(&parent["conditions"], "Accepted")["status"] == "True"
    })
    .await;
    until(&cluster, "backendtlspolicies/app", |policy| {
        let ancestor = &policy["status"]["ancestors"][0];
        ancestor["ancestorRef"]["name"] == "edge"
            && ancestor["controllerName"] == manifests::CONTROLLER
            && condition(&ancestor["conditions"], "Accepted")["status"] == "True"
    })
    .await;

    // Sesame must keep another controller's entry.
    let theirs = json!({
        "ancestorRef": {"name": "theirs"}, "controllerName": "example.com/theirs",
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "theirs",
            "observedGeneration": 1, "lastTransitionTime": "2024-01-01T00:00:00Z",
        }],
    });
    let policy = until(&cluster, "backendtlspolicies/app", |_| true).await;
    let ours = policy["status"]["ancestors"][0].clone();
    cluster
        .merge(
            &format!("{API}/backendtlspolicies/app/status"),
            &json!({"status": {"ancestors": [theirs, ours]}}),
        )
        .await;
    let route = format!("{API}/httproutes/app");
    cluster.delete(&route).await;
    until(&cluster, "backendtlspolicies/app", |policy| {
        let ancestors = policy["status"]["ancestors"].as_array();
        ancestors.is_some_and(|ancestors| {
            ancestors.len() == 1 && ancestors[0]["controllerName"] == "example.com/theirs"
        })
    })
    .await;
    assert!(controller.stop().await.success());
}
