//! A GatewayClass with unusable parameters must not stop other classes' Ingresses.

use serde_json::{Value, json};
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, deployed, publication};
use sesame_tests::manifests::{
    class_with_parameters, edge, edge_name, gateway, http_listener, ingress, ingress_class,
    ingress_rule, plain_route, served_at,
};
use sesame_tests::wait::{eventually, holds};

const CONFIGURATION: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/sesameconfigurations/template";
const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/broken";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";

fn ingress_of(name: &str) -> Value {
    let host = format!("{name}.test");
    let rules = json!({"rules": [ingress_rule(&host, &[("/", "Prefix", "app")])]});
    ingress(name, &json!({}), &rules)
}

async fn published(cluster: &TestCluster, parts: &[&str]) {
    eventually("the routes are published", TEST_TIMEOUT, async || {
        let publication = publication(cluster.admin(), &edge_name()).await?;
        let snapshot = format!("{:?}", publication.snapshot);
        holds(parts.iter().all(|part| snapshot.contains(part)), || {
            snapshot.clone()
        })
    })
    .await;
}

fn message(object: &Value) -> &str {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let accepted = conditions.find(|it| it["type"] == "Accepted");
    accepted
        .and_then(|it| it["message"].as_str())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_class_spares_ingresses_of_other_classes() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let [parameters, mut class] = class_with_parameters("broken", "template", &json!({}));
    class["metadata"]["name"] = json!("broken");
    let mut other = gateway("other", &[http_listener("http", 81, "")]);
    other["spec"]["gatewayClassName"] = json!("broken");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served_at("app", "192.0.2.1:80"));
    objects.extend([
        parameters.clone(),
        class,
        other,
        ingress_class(),
        ingress_of("one"),
    ]);
    cluster.apply_all(&objects).await;
    published(&cluster, &["Ingress/default/one"]).await;

    cluster.delete(CONFIGURATION).await;
    cluster
        .until("the class is refused", CLASS, |it| {
            message(it).contains("template")
        })
        .await;
    // The Gateway still follows all its objects.
    cluster.apply_all(&[ingress_of("two")]).await;
    let both = ["Ingress/default/one", "Ingress/default/two"];
    published(&cluster, &both).await;

    // A new process does not know the last parameters, so it keeps the publication.
    controller.stop().await;
    cluster
        .apply_all(&[plain_route("late", "late.test", "app")])
        .await;
    controller.restart();
    cluster
        .until("the settings are unknown", GATEWAY, |it| {
            message(it).contains("keeps its last state")
        })
        .await;
    published(&cluster, &both).await;
    let snapshot = publication(cluster.admin(), &edge_name())
        .await
        .expect("a publication");
    assert!(!format!("{:?}", snapshot.snapshot).contains("HTTPRoute/default/late"));

    cluster.apply_all(&[parameters]).await;
    published(&cluster, &[both[0], both[1], "HTTPRoute/default/late"]).await;
}
