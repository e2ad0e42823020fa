//! SesameConfigurations in a cluster. The controller keeps the last valid version.

use serde_json::{Value, json};
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, condition, deployed, publication,
};
use sesame_tests::manifests::{edge, edge_name, http_listener};
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";
const SERVICE: &str = "/api/v1/namespaces/default/services/edge-edge";
const OWN: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/sesame-system/sesameconfigurations/sesame";
const TEMPLATE: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/sesameconfigurations/template";

fn configuration(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn accepted(object: &Value) -> &Value {
    condition(&object["status"]["conditions"], "Accepted")
}

async fn listener(cluster: &TestCluster, what: &str, reason: &str) -> Value {
    cluster
        .until(what, GATEWAY, |gateway| {
            let conditions = &gateway["status"]["listeners"][0]["conditions"];
            condition(conditions, "Accepted")["reason"] == reason
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_waits_for_configuration_and_applies_valid_changes() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    let pid = controller.pid();
    cluster
        .apply_all(&edge(&[http_listener("http", 80, "")]))
        .await;
    eventually(
        "the controller waits for its configuration",
        TEST_TIMEOUT,
        async || {
            let found = controller.get("/readyz").await;
            let waits = matches!(&found, Ok((503, why)) if why.contains("sesame-system/sesame"));
            holds(waits, || format!("{found:?}"))
        },
    )
    .await;
    let class = cluster.get(CLASS).await;
    assert_ne!(accepted(&class)["status"], "True", "{class:#}");

    let spec = json!({"publishing": {"type": "ClusterIP"}});
    let own = configuration(NAMESPACE, "sesame", &spec);
    cluster.apply_all(&[own]).await;
    controller.wait_ready().await;
    let is_headless = |service: &Value| service["spec"]["clusterIP"] == "None";
    let with_address =
        |service: &Value| service["spec"]["type"] == "ClusterIP" && !is_headless(service);
    let service = "the Service has an address";
    cluster.until(service, SERVICE, with_address).await;
    let judged = cluster
        .until("accepted", OWN, |own| accepted(own)["status"] == "True")
        .await;
    assert_eq!(accepted(&judged)["observedGeneration"], 1, "{judged:#}");

    let change =
        json!({"spec": {"publishing": {"type": "Headless"}, "ports": {"allowed": ["443"]}}});
    cluster.merge(OWN, &change).await;
    listener(&cluster, "the port is rejected", "PortUnavailable").await;
    let service = "the Service is headless";
    cluster.until(service, SERVICE, is_headless).await;

    a_version_that_is_not_valid_changes_nothing(&cluster, &controller).await;
    let change = json!({"spec": {"gateway": null, "edge": {"udpSessionTimeout": "10s"}}});
    cluster.merge(OWN, &change).await;
    listener(&cluster, "the port is allowed", "Accepted").await;

    // After this change, the controller manages the other class instead.
    let other = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "other"}, "spec": {"controllerName": "example.com/other"}});
    cluster.apply_all(&[other]).await;
    let change = json!({"spec": {"gateway": {"controllerName": "example.com/other"}}});
    cluster.merge(OWN, &change).await;
    let other = CLASS.replace("edge", "other");
    let ours = |class: &Value| accepted(class)["status"] == "True";
    cluster
        .until("the other class is accepted", &other, ours)
        .await;
    assert_eq!(controller.pid(), pid);
}

async fn a_version_that_is_not_valid_changes_nothing(
    cluster: &TestCluster,
    controller: &ControllerUnderTest,
) {
    let bad = json!({"spec": {"hosts": {"lostAfter": "60s"}}});
    let refused = cluster.admin().merge(OWN, &bad).await;
    let why = refused.expect_err("the API server rejects it").to_string();
    assert!(why.contains("90s to 24h"), "{why}");
    // The CRD accepts some values that the controller rejects.
    let bad = json!({"spec": {"edge": {"udpSessionTimeout": "0s"}, "ports": null}});
    cluster.merge(OWN, &bad).await;
    let judged = cluster
        .until("rejected", OWN, |own| accepted(own)["status"] == "False")
        .await;
    let refused = accepted(&judged);
    assert_eq!(
        refused["observedGeneration"],
        judged["metadata"]["generation"]
    );
    let why = refused["message"].as_str().expect("a message");
    assert!(why.contains("spec.edge.udpSessionTimeout"), "{why}");
    // The last valid configuration must still apply to the Gateway.
    let change = json!({"spec": {"listeners": [http_listener("other", 81, "")]}});
    cluster.merge(GATEWAY, &change).await;
    let gateway = cluster
        .until("the status is updated", GATEWAY, |gateway| {
            gateway["status"]["listeners"][0]["name"] == "other"
        })
        .await;
    let conditions = &gateway["status"]["listeners"][0]["conditions"];
    let reason = &condition(conditions, "Accepted")["reason"];
    assert_eq!(reason, "PortUnavailable", "{gateway:#}");
    let (ready, _) = controller.get("/readyz").await.expect("an answer");
    assert_eq!(ready, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_parameters_keep_last_good_configuration() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    cluster
        .apply_all(&edge(&[http_listener("http", 80, "")]))
        .await;
    controller.wait_ready().await;
    let name = edge_name();
    let inside = |wanted: u32| {
        let (cluster, name) = (&cluster, &name);
        async move {
            eventually("the port is opened", TEST_TIMEOUT, async || {
                let found = publication(cluster.admin(), name).await?;
                let inside = found.snapshot.ports.first().map(|port| port.inside);
                holds(inside == Some(wanted), || format!("{inside:?}")).map(|()| found)
            })
            .await
        }
    };
    inside(0).await;
    let reference = json!({"group": "projectsesame.io", "kind": "SesameConfiguration",
        "name": "template", "namespace": "default"});
    let change = json!({"spec": {"parametersRef": reference}});
    cluster.merge(CLASS, &change).await;
    for path in [CLASS, GATEWAY] {
        let what = "the missing parameters are reported";
        let bad = |object: &Value| accepted(object)["reason"] == "InvalidParameters";
        cluster.until(what, path, bad).await;
    }
    let before = inside(0).await;
    let map = |inside: u16| json!({"ports": {"map": [{"outside": 80, "inside": inside}]}});
    let template = configuration("default", "template", &map(8080));
    cluster.apply_all(&[template]).await;
    inside(8080).await;
    let judged = |object: &Value| accepted(object)["status"] == "True";
    cluster.until("accepted", TEMPLATE, judged).await;
    cluster.merge(TEMPLATE, &json!({"spec": map(9090)})).await;
    let after = inside(9090).await;
    assert_ne!(before.manifest_version(), after.manifest_version());

    cluster.delete(TEMPLATE).await;
    let bad = |object: &Value| accepted(object)["reason"] == "InvalidParameters";
    cluster.until("the loss is reported", GATEWAY, bad).await;
    let kept = inside(9090).await;
    assert_eq!(kept.manifest_version(), after.manifest_version());
}
