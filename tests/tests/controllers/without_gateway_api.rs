//! A cluster without the Gateway API: the example serves Ingresses and HTTPProxies. Later, the CRDs
//! and a Gateway object appear.

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, TEST_TIMEOUT, deploy, give_rights, publication,
};
use sesame_tests::envoy::workspace;
use sesame_tests::reports;
use sesame_tests::wait::{eventually, holds};

const INGRESS: &str = "/apis/networking.k8s.io/v1/namespaces/edge/ingresses/web";
const PROXY: &str = "/apis/projectcontour.io/v1/namespaces/edge/httpproxies/web";
const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/edge/httproutes/web";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/edge/gateways/edge";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/edge/daemonsets";
const HOST: &str = "192.0.2.10";

fn gateway() -> NamespacedName {
    NamespacedName::new("edge", "edge")
}

/// Waits until only this listener is published, with routes that have these names.
async fn published(cluster: &TestCluster, listener: &str, routes: &[&str]) {
    eventually(
        &format!("{listener} serves {routes:?}"),
        TEST_TIMEOUT,
        async || {
            let found = publication(cluster.admin(), &gateway()).await?;
            let ports = found.snapshot.ports.iter();
            let listeners: Vec<&str> = ports
                .flat_map(|port| &port.listeners)
                .map(|it| it.name.as_str())
                .collect();
            let tables = format!("{:?}", found.snapshot.route_tables);
            let all = routes.iter().all(|route| tables.contains(route));
            holds(all && listeners == [listener], || {
                format!("{listeners:?} {tables}")
            })
        },
    )
    .await;
}

async fn owner_of_fleet(cluster: &TestCluster, what: &str, is_it: impl Fn(&Value) -> bool) {
    cluster
        .until(what, DAEMON_SETS, |list| {
            let all = list["items"].as_array().map_or(&[][..], Vec::as_slice);
            !all.is_empty() && all.iter().all(|it| is_it(&it["metadata"]))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_served_before_gateway_api_appears() {
    let example = workspace().join("controller/examples/ingress-only");
    let configuration = example.join("configuration.yaml");
    let cluster = TestCluster::start().await;
    deploy(&cluster).await;
    let flags = ["--config", configuration.to_str().expect("UTF-8")];
    let controller = ControllerUnderTest::start(&cluster, &flags).await;
    let text = std::fs::read_to_string(example.join("edge.yaml")).expect("the example");
    cluster.apply(&text).await.expect("the example");
    let http_80 = "Gateway/edge/edge/listeners/http-80";
    published(&cluster, http_80, &["Ingress/edge/web"]).await;
    controller.wait_ready().await;
    owner_of_fleet(&cluster, "a fleet without owner", |it| {
        it["ownerReferences"].is_null()
            && it["annotations"]["projectsesame.io/owner-uid"].is_string()
    })
    .await;
    reports::serve_on_node(&cluster, &gateway(), HOST).await;
    cluster
        .until("the Ingress has an address", INGRESS, |ingress| {
            ingress["status"]["loadBalancer"]["ingress"][0]["ip"] == HOST
        })
        .await;

    give_rights(&cluster, "contour/crds.yaml").await;
    let spec = json!({
        "virtualhost": {"fqdn": "web.test"},
        "routes": [{"services": [{"name": "web", "port": 80}]}],
    });
    let proxy = json!({"apiVersion": "projectcontour.io/v1", "kind": "HTTPProxy",
        "metadata": {"name": "web", "namespace": "edge"}, "spec": spec});
    cluster.apply_all(&[proxy]).await;
    cluster
        .until("the HTTPProxy is valid", PROXY, |proxy| {
            proxy["status"]["currentStatus"] == "valid"
        })
        .await;

    cluster.install_crds(Channel::Standard).await;
    let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "web", "namespace": "edge"},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["route.test"],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}});
    cluster.apply_all(&[route]).await;
    cluster
        .until("the HTTPRoute is accepted", ROUTE, |route| {
            route["status"]["parents"][0]["conditions"][0]["status"] == "True"
        })
        .await;
    let layers = [
        "Ingress/edge/web",
        "HTTPProxy/edge/web",
        "HTTPRoute/edge/web",
    ];
    published(&cluster, http_80, &layers).await;

    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "sesame"},
        "spec": {"controllerName": "projectsesame.io/gateway-controller"}});
    let object = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "edge"},
        "spec": {"gatewayClassName": "sesame",
            "listeners": [{"name": "web", "port": 80, "protocol": "HTTP"}]}});
    cluster.apply_all(&[class, object]).await;
    published(&cluster, "Gateway/edge/edge/listeners/web", &layers).await;
    owner_of_fleet(&cluster, "the Gateway owns the fleet", |it| {
        it["ownerReferences"][0]["kind"] == "Gateway"
            && it["annotations"]["projectsesame.io/owner-uid"].is_null()
    })
    .await;
    cluster.delete(GATEWAY).await;
    published(&cluster, http_80, &layers).await;
}
