//! Failures of replicas and the API server. Published objects must not be lost, and only one
//! replica may write at a time.

use serde_json::{Value, json};
use sesame_published::names::shard_name;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, condition, controller_user, deployed, publication,
};
use sesame_tests::manifests::{self, edge_name, http_listener, plain_route};
use sesame_tests::wait::{eventually, holds};

fn route(index: usize) -> Value {
    let host = format!("r{index}.example.com");
    plain_route(&format!("r{index}"), &host, "app")
}

async fn leads(controller: &ControllerUnderTest) -> bool {
    controller.metric("leader", "").await > 0.5
}

/// Long enough that the leader keeps its Lease on a stalled machine.
const LEASE: [&str; 2] = ["--lease-seconds", "12"];

async fn wait_routes(cluster: &TestCluster, count: usize) {
    eventually("all routes are published", TEST_TIMEOUT, async || {
        let publication = publication(cluster.admin(), &edge_name()).await?;
        let tables = &publication.snapshot.route_tables;
        let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
        let found = hosts.filter(|host| host.domain.starts_with('r')).count();
        holds(found == count, || format!("{found} of {count}"))
    })
    .await;
}

#[tokio::test]
async fn second_replica_takes_over_and_outage_withdraws_nothing() {
    let mut cluster = deployed(Channel::Standard).await;
    let mut first = ControllerUnderTest::start(&cluster, &LEASE).await;
    first.wait_ready().await;
    first.wait_leads().await;
    let mut second = ControllerUnderTest::start(&cluster, &LEASE).await;
    second.wait_ready().await;

    let mut all = manifests::edge(&[http_listener("http", 80, "")]);
    all.extend(manifests::served_at("app", "10.0.0.1:80"));
    all.push(route(0));
    cluster.apply_all(&all).await;
    wait_routes(&cluster, 1).await;
    assert!(!leads(&second).await, "there are two leaders");
    let written = second.metric("publish_writes_total", "").await;
    let second_writes = second.metric("status_writes_total", "").await;
    assert!(written + second_writes < 0.5, "only the leader may write");

    // Kill the leader at an arbitrary point between two writes.
    for index in 1..20 {
        cluster.apply_all(&[route(index)]).await;
        if index == 10 {
            first.kill9();
        }
    }
    wait_routes(&cluster, 20).await;
    second.wait_leads().await;
    eventually("stale objects are removed", TEST_TIMEOUT, async || {
        let current = publication(cluster.admin(), &edge_name()).await?;
        let named = current.manifest.config.len() + current.manifest.endpoints.len() + 1;
        let all = current.config_maps.len();
        holds(all <= 3 * named, || {
            format!("{all} objects, {named} of them current")
        })
    })
    .await;

    first.restart();
    first.wait_ready().await;
    assert!(second.stop().await.success());
    assert!(
        second.log().contains("released the Lease"),
        "{}",
        second.log_tail()
    );
    first.wait_leads().await;

    let before = publication(cluster.admin(), &edge_name())
        .await
        .expect("published");
    let earlier = first.log().len();
    cluster.stop_apiserver();
    eventually("the leader steps down", TEST_TIMEOUT, async || {
        if leads(&first).await {
            Err(first.log_tail())
        } else {
            Ok(())
        }
    })
    .await;
    assert_eq!(first.get("/healthz").await.expect("an answer").0, 200);
    assert_eq!(first.get("/readyz").await.expect("an answer").0, 200);
    eventually(
        "every watch fails several times",
        TEST_TIMEOUT,
        async || {
            let failed = first.metric("watch_failures_total", "").await;
            holds(failed > 100.5, || format!("{failed} failures"))
        },
    )
    .await;
    cluster.start_apiserver().await;
    first.wait_leads().await;
    let over = "requests to the API server succeed again";
    eventually(
        "the end of the outage is logged",
        TEST_TIMEOUT,
        async || {
            let log = first.log();
            holds(log[earlier..].contains(over), || first.log_tail())
        },
    )
    .await;
    // Repeated failures must cause only a few warnings.
    let log = first.log();
    let about = |line: &&str| line.contains(" WARN ") && line.contains("to the API server");
    let warnings = log[earlier..].lines().filter(about).count();
    assert!((1..=5).contains(&warnings), "{warnings} warnings: {log}");
    let after = publication(cluster.admin(), &edge_name())
        .await
        .expect("published");
    assert_eq!(after.manifest_version(), before.manifest_version());
    // The new leader may have removed stale objects, so compare only the manifest's shards.
    for shard in before
        .manifest
        .config
        .iter()
        .chain(&before.manifest.endpoints)
    {
        let name = shard_name(&edge_name(), &shard.name);
        assert_eq!(after.config_maps.get(&name), before.config_maps.get(&name));
    }
    cluster.apply_all(&[route(20)]).await;
    wait_routes(&cluster, 21).await;

    rejected_write_is_reported(&cluster).await;

    // A missing CRD must affect only its own kind.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let udp = format!("{definitions}/udproutes.gateway.networking.k8s.io");
    cluster.delete(&udp).await;
    // A restarted leader does not wait until its predecessor's Lease expires.
    first.kill9();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/sesame-system/leases/sesame-controller";
    let lasting = json!({"spec": {"leaseDurationSeconds": 600}});
    cluster
        .admin()
        .merge(lease, &lasting)
        .await
        .expect("patched");
    first.restart();
    first.wait_ready().await;
    first.wait_leads().await;
    cluster.apply_all(&[route(22)]).await;
    wait_routes(&cluster, 23).await;
}

/// The frozen API server's connections stay open.
#[tokio::test]
async fn controller_catches_up_after_api_server_freeze() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    controller.wait_leads().await;
    let mut all = manifests::edge(&[http_listener("http", 80, "")]);
    all.push(route(0));
    cluster.apply_all(&all).await;
    wait_routes(&cluster, 1).await;
    let answers = async || controller.metric("api_server_answers", "").await > 0.5;
    let wait_answers = async || {
        eventually("the metrics report responses", TEST_TIMEOUT, async || {
            holds(answers().await, || controller.log_tail())
        })
        .await;
    };
    wait_answers().await;

    cluster.freeze_apiserver();
    eventually("the metrics report the outage", TEST_TIMEOUT, async || {
        if answers().await || leads(&controller).await {
            return Err(controller.log_tail());
        }
        Ok(())
    })
    .await;
    assert_eq!(controller.get("/readyz").await.expect("an answer").0, 200);

    cluster.thaw_apiserver();
    let another = manifests::yaml(&[route(1)]);
    cluster.apply(&another).await.expect("a route");
    wait_routes(&cluster, 2).await;
    wait_answers().await;
    controller.wait_leads().await;
}

#[tokio::test]
async fn rotated_authorities_and_tokens_are_used() {
    let mut cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let mut all = manifests::edge(&[http_listener("http", 80, "")]);
    all.push(route(0));
    let objects = manifests::yaml(&all);
    cluster.apply(&objects).await.expect("objects");
    wait_routes(&cluster, 1).await;

    cluster.rotate().await;
    let another = manifests::yaml(&[route(1)]);
    cluster.apply(&another).await.expect("a route");
    cluster.kubeconfig(&controller_user()).await;
    wait_routes(&cluster, 2).await;
    controller.wait_leads().await;
}

/// If the controller may not write, existing publications must remain.
async fn rejected_write_is_reported(cluster: &TestCluster) {
    let role =
        "/apis/rbac.authorization.k8s.io/v1/namespaces/sesame-system/roles/sesame-controller";
    let whole = cluster.get(role).await;
    let rules = whole["rules"].as_array().expect("a list");
    let fewer: Vec<&Value> = rules
        .iter()
        .filter(|rule| !rule["resources"].to_string().contains("configmaps"))
        .collect();
    assert!(fewer.len() < rules.len());
    let before = publication(cluster.admin(), &edge_name())
        .await
        .expect("published");
    let change = json!({ "rules": fewer });
    cluster.merge(role, &change).await;
    let controller = cluster.client(&controller_user()).await;
    controller
        .wait_allowed(false, "create", "configmaps", NAMESPACE)
        .await;
    cluster.apply_all(&[route(21)]).await;
    let path = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
    cluster
        .until("the Gateway reports the problem", path, |gateway| {
            let programmed = condition(&gateway["status"]["conditions"], "Programmed");
            let message = programmed["message"].as_str().unwrap_or_default();
            message.contains("cannot be published") && message.contains("403 Forbidden")
        })
        .await;
    let after = publication(cluster.admin(), &edge_name())
        .await
        .expect("still published");
    assert_eq!(after.manifest_version(), before.manifest_version());
    let change = json!({ "rules": rules });
    cluster.merge(role, &change).await;
    wait_routes(cluster, 22).await;
    cluster
        .until("the Gateway has recovered", path, |gateway| {
            condition(&gateway["status"]["conditions"], "Programmed")["reason"] == "Pending"
        })
        .await;
}

#[tokio::test]
async fn controller_requests_have_higher_priority_than_hosts() {
    let cluster = deployed(Channel::Standard).await;
    let namespace = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}");
    let lease = format!("{namespace}/leases/sesame-controller");
    let manifests = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let controller = cluster.client(&controller_user()).await;
    let host = User::service_account(NAMESPACE, "sesame-agent");
    let host = cluster.client(&host).await;
    for (name, level, path) in [
        ("sesame-controller-lease", "leader-election", &lease),
        ("sesame-controller", "workload-high", &manifests),
    ] {
        let schema = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{name}");
        let schema = cluster.admin().get(&schema).await.expect("a FlowSchema");
        assert_eq!(schema["spec"]["priorityLevelConfiguration"]["name"], level);
        let uid = schema["metadata"]["uid"].as_str().expect("a UID");
        eventually("the FlowSchema takes effect", TEST_TIMEOUT, async || {
            let found = controller.flow_schema(path).await;
            let found = found.map_err(|error| format!("{error:#}"))?;
            holds(found == uid, || format!("got {found}, expected {uid}"))
        })
        .await;
        let host_schema = host.flow_schema(path).await.expect("an answer");
        assert_ne!(host_schema, uid, "hosts use another FlowSchema");
    }
}
