//! A Gateway's Service in the cluster: created, repaired, and deleted with the Gateway.

use serde_json::{Value, json};
use sesame_tests::cluster::{Channel, Client, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, condition, deployed};
use sesame_tests::manifests::{edge, edge_name, gateway, gateway_class, http_listener};
use sesame_tests::reports;
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const SERVICE: &str = "/api/v1/namespaces/default/services/edge-edge";
const OTHER: &str = "/api/v1/namespaces/default/services/other-edge";
const OTHER_GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/other";
const CONTESTED: &str = "/api/v1/namespaces/default/services/web-int-edge";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/edge-edge-ipv4";

async fn wait(
    admin: &Client,
    what: &str,
    path: &str,
    good: impl Fn(Option<&Value>) -> bool,
) -> Value {
    eventually(what, TEST_TIMEOUT, async || match admin.get(path).await {
        Ok(object) if good(Some(&object)) => Ok(object),
        Err(error) if error.to_string().contains("404") && good(None) => Ok(Value::Null),
        other => Err(format!("{other:?}")),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_gets_own_service_with_infrastructure_metadata() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let admin = cluster.admin();
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let gateway = objects.iter_mut().find(|o| o["kind"] == "Gateway");
    let gateway = gateway.expect("the Gateway");
    gateway["spec"]["infrastructure"] =
        json!({"labels": {"team": "a", "tier": "b"}, "annotations": {"note": "c"}});
    cluster.apply_all(&objects).await;

    let service = wait(admin, "the Service exists", SERVICE, |service| {
        service.is_some()
    })
    .await;
    let labels = &service["metadata"]["labels"];
    assert_eq!(labels["team"], "a", "{service:#}");
    assert_eq!(labels["gateway.networking.k8s.io/gateway-name"], "edge");
    assert_eq!(service["metadata"]["annotations"]["note"], "c");
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["ports"][0]["port"], 80);

    let serving = json!({"state": "Serving", "addresses": ["192.0.2.7"]});
    let result = reports::write_report(admin, &edge_name(), "host-a", &serving).await;
    result.expect("a report");
    let slice = wait(admin, "the slice exists", SLICE, |slice| slice.is_some()).await;
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["192.0.2.7"]));
    assert_eq!(
        slice["metadata"]["labels"]["kubernetes.io/service-name"],
        "edge-edge"
    );

    // The controller removes labels that the Gateway no longer has, and reverts foreign changes.
    let less = json!({"spec": {"infrastructure": {"labels": {"tier": null}}}});
    admin.merge(GATEWAY, &less).await.expect("changed");
    wait(admin, "the label is removed", SERVICE, |service| {
        service.is_some_and(|s| s["metadata"]["labels"]["tier"].is_null())
    })
    .await;
    let other = json!({"metadata": {"labels": {"team": "z"}}});
    admin.merge(SERVICE, &other).await.expect("changed");
    let service = wait(admin, "the label is restored", SERVICE, |service| {
        service.is_some_and(|s| s["metadata"]["labels"]["team"] == "a")
    })
    .await;

    controller.restart();
    controller.wait_ready().await;
    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other-edge", "namespace": "default"},
        "spec": {"clusterIP": "None"}});
    let other = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "other", "namespace": "default"},
        "spec": {"gatewayClassName": "edge", "listeners": [http_listener("http", 80, "")]}});
    cluster.apply_all(&[foreign.clone(), other]).await;
    eventually("the name conflict is logged", TEST_TIMEOUT, async || {
        let log = controller.log();
        holds(
            log.contains("other-edge exists and does not belong to this Gateway"),
            || controller.log_tail(),
        )
    })
    .await;
    let gateway = wait(
        admin,
        "the Gateway reports the name conflict",
        OTHER_GATEWAY,
        |gateway| gateway.is_some_and(|gateway| !nameless(gateway).is_null()),
    )
    .await;
    let why = nameless(&gateway)["message"].as_str().expect("a message");
    assert!(why.contains("Service default/other-edge exists"), "{why}");
    let taken = admin.get(OTHER).await.expect("the Service");
    assert!(taken["metadata"]["labels"].is_null(), "{taken:#}");
    let now = admin.get(SERVICE).await.expect("the Service");
    assert_eq!(
        now["metadata"]["resourceVersion"],
        service["metadata"]["resourceVersion"]
    );

    two_gateways_want_one_name(&cluster, &controller).await;
    // Copies with Sesame's labels, one of them with a different owner.
    let mut copy = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "copy", "namespace": "default",
        "labels": service["metadata"]["labels"]}, "spec": {"clusterIP": "None"}});
    cluster.apply_all(&[copy.clone()]).await;
    copy["metadata"]["name"] = json!("adopted");
    copy["metadata"]["ownerReferences"] = json!([{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "name": "edge", "uid": "00000000-0000-0000-0000-000000000000", "controller": true}]);
    cluster.apply_all(&[copy]).await;

    admin.delete(GATEWAY).await.expect("deleted");
    for path in [SERVICE, SLICE] {
        wait(admin, "deleted with its Gateway", path, |object| {
            object.is_none()
        })
        .await;
    }
    admin.get(OTHER).await.expect("foreign Services stay");
    for name in ["copy", "adopted"] {
        let path = format!("/api/v1/namespaces/default/services/{name}");
        admin.get(&path).await.expect("foreign Services stay");
    }
}

fn nameless(gateway: &Value) -> &Value {
    condition(&gateway["status"]["conditions"], "projectsesame.io/Service")
}

/// Gateway `web` of class `int-edge` and Gateway `web-int` of class `edge` need the same name.
async fn two_gateways_want_one_name(cluster: &TestCluster, controller: &ControllerUnderTest) {
    let admin = cluster.admin();
    let path = |name: &str| {
        format!("/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/{name}")
    };
    let gateway_of_class = |name: &str, class: &str| {
        let mut gateway = gateway(name, &[http_listener("http", 80, "")]);
        gateway["spec"]["gatewayClassName"] = json!(class);
        gateway
    };
    let first = gateway_of_class("web", "int-edge");
    let class = gateway_class("int-edge");
    cluster.apply_all(&[class, first]).await;
    let theirs = wait(admin, "the Service exists", CONTESTED, |s| s.is_some()).await;
    let second = gateway_of_class("web-int", "edge");
    cluster.apply_all(&[second]).await;
    let gateway = wait(
        admin,
        "the conflict is reported",
        &path("web-int"),
        |gateway| gateway.is_some_and(|gateway| !nameless(gateway).is_null()),
    )
    .await;
    let why = nameless(&gateway)["message"].as_str().expect("a message");
    assert!(why.ends_with("belongs to Gateway default/web"), "{why}");
    assert_eq!(nameless(&gateway)["status"], "False");

    // Changes to either Gateway must not cause repeated writes to the Service.
    let writes = controller
        .metric("publish_writes_total", "\"Service\"")
        .await;
    for name in ["web", "web-int"] {
        let label = json!({"spec": {"infrastructure": {"labels": {"of": name}}}});
        admin.merge(&path(name), &label).await.expect("changed");
    }
    let now = wait(admin, "the first Gateway's label", CONTESTED, |service| {
        service.is_some_and(|s| s["metadata"]["labels"]["of"] == "web")
    })
    .await;
    assert_eq!(now["metadata"]["uid"], theirs["metadata"]["uid"]);
    let observed = json!(2);
    wait(
        admin,
        "the second Gateway is checked",
        &path("web-int"),
        |gateway| gateway.is_some_and(|g| nameless(g)["observedGeneration"] == observed),
    )
    .await;
    let more = controller
        .metric("publish_writes_total", "\"Service\"")
        .await
        - writes;
    assert!(more < 1.5, "{more} writes: {}", controller.log_tail());
    let still = admin.get(CONTESTED).await.expect("the Service");
    assert_eq!(
        still["metadata"]["resourceVersion"],
        now["metadata"]["resourceVersion"]
    );

    admin.delete(&path("web")).await.expect("deleted");
    wait(admin, "the second gets the name", CONTESTED, |service| {
        service.is_some_and(|s| s["metadata"]["labels"]["of"] == "web-int")
    })
    .await;
    wait(
        admin,
        "the conflict is resolved",
        &path("web-int"),
        |gateway| gateway.is_some_and(|gateway| nameless(gateway).is_null()),
    )
    .await;
}
