//! Gateway addresses from load balancers and serving nodes.

use serde_json::{Value, json};
use sesame_tests::cloud::StandInCloud;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, TEST_TIMEOUT, condition, deployed, publication,
};
use sesame_tests::manifests::{edge_name, edge_with_parameters, http_listener};
use sesame_tests::reports;
use sesame_tests::wait::eventually;

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";
const TEMPLATE: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/sesameconfigurations/template";
const SERVICE: &str = "/api/v1/namespaces/default/services/edge-edge";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/edge-edge-ipv4";
const HOST: &str = "192.0.2.7";

fn programmed(gateway: &Value) -> &Value {
    condition(&gateway["status"]["conditions"], "Programmed")
}

fn addresses(gateway: &Value) -> Vec<&str> {
    let all = gateway["status"]["addresses"].as_array();
    let values = all.into_iter().flatten();
    values
        .filter_map(|address| address["value"].as_str())
        .collect()
}

async fn until(
    cluster: &TestCluster,
    what: &str,
    wanted: &[&str],
    status: &str,
    reason: &str,
) -> Value {
    cluster
        .until(what, GATEWAY, |gateway| {
            let programmed = programmed(gateway);
            addresses(gateway) == wanted
                && programmed["status"] == status
                && programmed["reason"] == reason
        })
        .await
}

async fn published(publishing: &Value) -> (TestCluster, ControllerUnderTest) {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    let mut objects = edge_with_parameters(&json!({"publishing": publishing}));
    let gateway = objects.iter_mut().find(|it| it["kind"] == "Gateway");
    gateway.expect("the Gateway")["spec"]["allowedListeners"] =
        json!({"namespaces": {"from": "Same"}});
    cluster.apply_all(&objects).await;
    (cluster, controller)
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_addresses_follow_load_balancer() {
    let publishing = json!({
        "type": "LoadBalancer",
        "loadBalancerClass": "example.com/lb",
        "externalTrafficPolicy": "Local",
        "sessionAffinity": "ClientIP",
        "nodePorts": [{"port": 80, "nodePort": 30080}],
    });
    let (cluster, mut controller) = published(&publishing).await;
    let admin = cluster.admin();
    let cloud = StandInCloud::start(&cluster).await;
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    // Before the Service exists, the message is different.
    let why = "no load balancer of class \"example.com/lb\" has assigned Service default/edge-edge an address yet";
    cluster
        .until("the missing address is reported", GATEWAY, |gateway| {
            let programmed = programmed(gateway);
            let message = programmed["message"].as_str().unwrap_or_default();
            addresses(gateway).is_empty()
                && programmed["status"] == "False"
                && programmed["reason"] == "AddressNotAssigned"
                && message.contains(why)
        })
        .await;
    let service = cluster.get(SERVICE).await;
    let spec = &service["spec"];
    assert_eq!(spec["externalTrafficPolicy"], "Local", "{service:#}");
    assert_eq!(spec["sessionAffinity"], "ClientIP", "{service:#}");
    assert_eq!(spec["ports"][0]["nodePort"], 30080, "{service:#}");
    // kube-proxy's health check requires the node name.
    let slice = cluster
        .until("the host is an endpoint", SLICE, |_| true)
        .await;
    let endpoint = &slice["endpoints"][0];
    assert_eq!(endpoint["addresses"], json!([HOST]), "{slice:#}");
    assert_eq!(endpoint["nodeName"], "node-a", "{slice:#}");
    assert_eq!(endpoint["conditions"]["ready"], true, "{slice:#}");

    cloud.give(json!([{"ip": "198.51.100.1"}, {"hostname": "lb.example.com"}]));
    let both = ["198.51.100.1", "lb.example.com"];
    let gateway = until(
        &cluster,
        "the Service's addresses are reported",
        &both,
        "True",
        "Programmed",
    )
    .await;
    let types = [0, 1].map(|i| gateway["status"]["addresses"][i]["type"].clone());
    assert_eq!(types, ["IPAddress", "Hostname"], "{gateway:#}");
    let slice = cluster.get(SLICE).await;
    assert_eq!(
        slice["endpoints"][0]["addresses"],
        json!([HOST]),
        "{slice:#}"
    );

    let version = gateway["metadata"]["resourceVersion"].clone();
    controller.restart();
    controller.wait_ready().await;
    cloud.give(json!([{"ip": "198.51.100.2", "ports": [
        {"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP", "error": "Taken"}]}]));
    let gateway = until(
        &cluster,
        "the new address is reported",
        &["198.51.100.2"],
        "True",
        "Programmed",
    )
    .await;
    let message = programmed(&gateway)["message"].as_str();
    let note = "does not open TCP port 443 at 198.51.100.2: Taken";
    assert!(
        message.is_some_and(|message| message.ends_with(note)),
        "{gateway:#}"
    );
    assert_ne!(gateway["metadata"]["resourceVersion"], version);

    // The load balancer's fields must survive Sesame's writes.
    let mine = json!({"metadata": {"annotations": {"example.com/id": "7"}, "finalizers": ["example.com/cleanup"]}});
    cluster.merge(SERVICE, &mine).await;
    let label = json!({"spec": {"infrastructure": {"labels": {"team": "a"}}}});
    cluster.merge(GATEWAY, &label).await;
    let service = cluster
        .until("the Service has the label", SERVICE, |service| {
            service["metadata"]["labels"]["team"] == "a"
        })
        .await;
    let metadata = &service["metadata"];
    assert_eq!(
        metadata["annotations"]["example.com/id"], "7",
        "{service:#}"
    );
    assert_eq!(
        metadata["finalizers"],
        json!(["example.com/cleanup"]),
        "{service:#}"
    );
    cluster
        .merge(SERVICE, &json!({"metadata": {"finalizers": null}}))
        .await;

    let before = cluster.get(SERVICE).await["metadata"]["uid"].clone();
    admin.delete(SERVICE).await.expect("deleted");
    cluster
        .until("the Service is back", SERVICE, |service| {
            service["metadata"]["uid"] != before
        })
        .await;
    // `Programmed` requires a report on the new generation.
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    until(
        &cluster,
        "the address is reported again",
        &["198.51.100.2"],
        "True",
        "Programmed",
    )
    .await;

    a_listener_set_adds_a_port(&cluster).await;
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    cloud.give(json!([]));
    until(
        &cluster,
        "the address is removed",
        &[],
        "False",
        "AddressNotAssigned",
    )
    .await;
}

/// The Service has the ListenerSet's port only while the set exists.
async fn a_listener_set_adds_a_port(cluster: &TestCluster) {
    let set = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
        "metadata": {"name": "more", "namespace": "default"},
        "spec": {"parentRef": {"name": "edge"}, "listeners": [http_listener("more", 8080, "")]}});
    cluster.apply_all(&[set]).await;
    let ports = |service: &Value| -> Vec<u64> {
        let all = service["spec"]["ports"].as_array();
        let all = all.into_iter().flatten();
        all.filter_map(|port| port["port"].as_u64()).collect()
    };
    let both = |service: &Value| ports(service) == [80, 8080];
    cluster.until("the port is added", SERVICE, both).await;
    let path = "/apis/gateway.networking.k8s.io/v1/namespaces/default/listenersets/more";
    cluster.delete(path).await;
    let one = |service: &Value| ports(service) == [80];
    cluster.until("the port is removed", SERVICE, one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_type_selects_gateway_addresses() {
    let (cluster, _controller) = published(&json!({"type": "ClusterIP"})).await;
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    let inside = cluster
        .until("the address is the cluster IP", GATEWAY, |gateway| {
            programmed(gateway)["status"] == "True"
        })
        .await;
    let service = cluster.get(SERVICE).await;
    let ip = service["spec"]["clusterIP"].as_str().expect("an address");
    assert_eq!(addresses(&inside), [ip], "{inside:#}");

    for type_ in ["NodePort", "Headless", "None"] {
        let change = json!({"spec": {"publishing": {"type": type_}}});
        cluster.merge(TEMPLATE, &change).await;
        let what = format!("{type_}: the host's address");
        until(&cluster, &what, &[HOST], "True", "Programmed").await;
    }

    let cloud = StandInCloud::start(&cluster).await;
    cloud.give(json!([{"ip": "198.51.100.1"}]));
    let change = json!({"spec": {"publishing": {"type": "LoadBalancer"}}});
    cluster.merge(TEMPLATE, &change).await;
    let given = ["198.51.100.1"];
    until(
        &cluster,
        "the load balancer's address",
        &given,
        "True",
        "Programmed",
    )
    .await;
    let request = json!({"spec": {"addresses": [{"type": "IPAddress", "value": "198.51.100.9"}]}});
    cluster.merge(GATEWAY, &request).await;
    let wanted = |service: &Value| service["spec"]["loadBalancerIP"] == "198.51.100.9";
    cluster.until("address requested", SERVICE, wanted).await;
    let what = "the new generation is published";
    let found = eventually(what, TEST_TIMEOUT, async || {
        publication(cluster.admin(), &edge_name()).await
    })
    .await;
    assert!(found.snapshot.addresses.is_empty());
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    let gateway = until(
        &cluster,
        "a different address is reported",
        &given,
        "False",
        "AddressNotUsable",
    )
    .await;
    let why = programmed(&gateway)["message"].as_str().expect("a message");
    assert!(
        why.contains("198.51.100.9") && why.contains("has assigned 198.51.100.1"),
        "{why}"
    );
    cloud.give(json!([{"ip": "198.51.100.9"}]));
    until(
        &cluster,
        "the requested address is assigned",
        &["198.51.100.9"],
        "True",
        "Programmed",
    )
    .await;
    let class = cluster.get(CLASS).await;
    let accepted = condition(&class["status"]["conditions"], "Accepted");
    assert_eq!(accepted["status"], "True", "{class:#}");
}
