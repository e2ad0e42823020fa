//! Gateways that are published through a second Gateway. Either the test or Sesame acts as the
//! second Gateway's controller.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, condition, deployed, give_rights,
};
use sesame_tests::manifests::{
    edge_name, edge_with_parameters, gateway_class, http_listener, plain_route, served,
};
use sesame_tests::wait::eventually;
use sesame_tests::{network, reports};

const API: &str = "/apis/gateway.networking.k8s.io/v1";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const UPSTREAM: &str =
    "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge-edge-upstream";
const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/tcproutes";
const TEMPLATE: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/sesameconfigurations/template";
const HOST: &str = "192.0.2.7";

fn upstream(class: &str) -> Value {
    json!({"type": "UpstreamGateway", "upstream": {"gatewayClassName": class}})
}

async fn apply(cluster: &TestCluster, spec: &Value) {
    let mut objects = edge_with_parameters(spec);
    let gateway = objects.iter_mut().find(|it| it["kind"] == "Gateway");
    let spec = &mut gateway.expect("the Gateway")["spec"];
    spec["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    spec["infrastructure"] = json!({"labels": {"team": "a"}});
    cluster.apply_all(&objects).await;
}

async fn serve(cluster: &TestCluster) {
    reports::report_serving(cluster.admin(), &edge_name(), "host-1", HOST).await;
}

async fn awaits(cluster: &TestCluster, words: &[&str]) {
    let what = words.join(", ");
    cluster
        .until(&what, GATEWAY, |gateway| {
            let programmed = condition(&gateway["status"]["conditions"], "Programmed");
            let message = programmed["message"].as_str().unwrap_or_default();
            programmed["reason"] == "AddressNotAssigned"
                && words.iter().all(|words| message.contains(words))
        })
        .await;
}

async fn write_upstream_status(cluster: &TestCluster, accepted: bool, addresses: &[&str]) {
    let found = cluster.get(UPSTREAM).await;
    let status = if accepted { "True" } else { "False" };
    let condition = |type_: &str| {
        json!({"type": type_, "status": status, "reason": "Pool", "message": "the pool is empty",
            "lastTransitionTime": "2024-01-01T00:00:00Z", "observedGeneration": found["metadata"]["generation"]})
    };
    let values = addresses.iter();
    let addresses: Vec<Value> = values
        .map(|value| json!({"type": "IPAddress", "value": value}))
        .collect();
    let conditions = ["Accepted", "Programmed"].map(condition);
    let status = json!({"status": {"conditions": conditions, "addresses": addresses}});
    cluster.merge(&format!("{UPSTREAM}/status"), &status).await;
}

async fn has(cluster: &TestCluster, address: &str) {
    cluster
        .until("the Gateway has the address", GATEWAY, |gateway| {
            let programmed = condition(&gateway["status"]["conditions"], "Programmed");
            let addresses = &gateway["status"]["addresses"];
            *addresses == json!([{"type": "IPAddress", "value": address}])
                && programmed["status"] == "True"
        })
        .await;
}

fn ports(gateway: &Value) -> Vec<u64> {
    let all = gateway["spec"]["listeners"].as_array();
    let all = all.into_iter().flatten();
    all.filter_map(|listener| listener["port"].as_u64())
        .collect()
}

async fn gone(cluster: &TestCluster, path: &str) {
    eventually(
        &format!("{path} is gone"),
        TEST_TIMEOUT,
        async || match cluster.admin().get(path).await {
            Err(error) if error.is(404) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_gateway_gets_ports_and_provides_addresses() {
    let cluster = deployed(Channel::Standard).await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    apply(&cluster, &json!({"publishing": upstream("cloud")})).await;
    serve(&cluster).await;
    awaits(&cluster, &["cannot be written", "upstreams.yaml"]).await;
    give_rights(&cluster, "upstreams.yaml").await;
    let made = cluster.until("created", UPSTREAM, |_| true).await;
    assert_eq!(made["spec"]["gatewayClassName"], "cloud", "{made:#}");
    assert_eq!(
        made["spec"]["infrastructure"]["labels"],
        json!({"team": "a"}),
        "{made:#}"
    );
    assert_eq!(ports(&made), [80], "{made:#}");
    let route = cluster
        .until(
            "the TCPRoute exists",
            &format!("{ROUTES}/edge-edge-upstream-tcp-80"),
            |_| true,
        )
        .await;
    let backend = &route["spec"]["rules"][0]["backendRefs"][0];
    assert_eq!(
        (&backend["name"], &backend["port"]),
        (&json!("edge-edge"), &json!(80))
    );
    let service = cluster
        .get("/api/v1/namespaces/default/services/edge-edge")
        .await;
    assert_ne!(service["spec"]["clusterIP"], "None", "{service:#}");
    awaits(&cluster, &["of class \"cloud\" has no address yet"]).await;

    write_upstream_status(&cluster, true, &["198.51.100.1"]).await;
    has(&cluster, "198.51.100.1").await;
    write_upstream_status(&cluster, false, &["198.51.100.1"]).await;
    awaits(
        &cluster,
        &[
            "of class \"cloud\" is rejected",
            "Accepted is False (Pool): the pool is empty",
        ],
    )
    .await;
    write_upstream_status(&cluster, true, &["198.51.100.2"]).await;
    has(&cluster, "198.51.100.2").await;

    let set = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
        "metadata": {"name": "more", "namespace": "default"},
        "spec": {"parentRef": {"name": "edge"}, "listeners": [http_listener("more", 8080, "")]}});
    cluster.apply_all(&[set]).await;
    cluster
        .until("the port is added", UPSTREAM, |it| ports(it) == [80, 8080])
        .await;
    let more = format!("{ROUTES}/edge-edge-upstream-tcp-8080");
    cluster.until("the TCPRoute exists", &more, |_| true).await;
    cluster
        .delete(&format!("{API}/namespaces/default/listenersets/more"))
        .await;
    cluster
        .until("the port is removed", UPSTREAM, |it| ports(it) == [80])
        .await;
    gone(&cluster, &more).await;

    let port = json!({"spec": {"listeners": [{"name": "tcp-80", "port": 81, "protocol": "TCP"}]}});
    cluster.merge(UPSTREAM, &port).await;
    cluster
        .until("the upstream Gateway is repaired", UPSTREAM, |it| {
            ports(it) == [80]
        })
        .await;
    let before = cluster.get(UPSTREAM).await["metadata"]["uid"].clone();
    cluster.delete(UPSTREAM).await;
    cluster
        .until("recreated", UPSTREAM, |it| it["metadata"]["uid"] != before)
        .await;
    write_upstream_status(&cluster, true, &["198.51.100.3"]).await;
    serve(&cluster).await;
    has(&cluster, "198.51.100.3").await;

    // A Gateway must never become its own upstream.
    cluster
        .merge(TEMPLATE, &json!({"spec": {"publishing": upstream("edge")}}))
        .await;
    cluster
        .until("the loop is reported", GATEWAY, |gateway| {
            let programmed = condition(&gateway["status"]["conditions"], "Programmed");
            let message = programmed["message"].as_str().unwrap_or_default();
            message.contains("it would lead to itself")
        })
        .await;
    let headless = json!({"spec": {"publishing": {"type": "Headless", "upstream": null}}});
    cluster.merge(TEMPLATE, &headless).await;
    gone(&cluster, UPSTREAM).await;
    gone(&cluster, &format!("{ROUTES}/edge-edge-upstream-tcp-80")).await;
    has(&cluster, HOST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_gateway_reports_cluster_without_tcproutes() {
    let cluster = deployed(Channel::Standard).await;
    let kind = "tcproutes.gateway.networking.k8s.io";
    cluster
        .delete(&format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}"
        ))
        .await;
    give_rights(&cluster, "upstreams.yaml").await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    apply(&cluster, &json!({"publishing": upstream("cloud")})).await;
    serve(&cluster).await;
    awaits(
        &cluster,
        &["ports TCP 80 are omitted", "does not serve TCPRoute v1"],
    )
    .await;
    gone(&cluster, UPSTREAM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_passes_two_envoys_if_sesame_is_upstream() {
    if !network::inside_own("request_passes_two_envoys_if_sesame_is_upstream") {
        return;
    }
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "upstreams.yaml").await;
    give_rights(&cluster, "agent/rbac.yaml").await;
    reports::allow_hosts(&cluster, &["host-1"]).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let user = User::service_account(NAMESPACE, "sesame-agent");
    let config = cluster.kubeconfig(&user).await;
    let mut agent = Setup::with_ports(&[80, 8080])
        .unmapped()
        .everywhere()
        .without_manifests()
        .prepare();
    let address = network::BACKENDS.to_string();
    agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
    agent.add_flags(&["--host", "host-1", "--report-address", &address]);
    agent.restart();

    let backend = Backend::start_at("a", (network::BACKENDS, 0).into());
    let backend = backend.await.expect("an address");
    // The second Gateway occupies the first Gateway's port.
    let map = json!([{"outside": 80, "inside": 8080}]);
    let spec = json!({"publishing": upstream("front"), "ports": {"map": map}});
    apply(&cluster, &spec).await;
    let mut objects = vec![gateway_class("front")];
    objects.extend(served("a", &[backend.address()]));
    objects.push(plain_route("app", "path.test", "a"));
    cluster.apply_all(&objects).await;
    for port in [8080, 80] {
        let at = SocketAddr::from((network::BACKENDS, port));
        let request = Request::get(at, "path.test", "/");
        agent.wait_backend(&request, backend.name()).await;
    }
    has(&cluster, &address).await;
    let front = cluster.get(UPSTREAM).await;
    let condition = condition(&front["status"]["conditions"], "Programmed");
    assert_eq!(condition["status"], "True", "{front:#}");
    assert_eq!(agent.envoys().len(), 2);
}
