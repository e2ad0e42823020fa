//! If Gateway API CRDs are missing, the controller reports the problem and waits. It must not
//! withdraw publications.

use serde_json::{Value, json};
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, deployed, publication};
use sesame_tests::manifests::{edge, edge_name, http_listener, plain_route, served_at};
use sesame_tests::wait::{eventually, holds};

const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gateways.gateway.networking.k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn controller_withdraws_nothing_if_definitions_are_missing() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    cluster
        .apply_all(&edge(&[http_listener("http", 80, "")]))
        .await;
    eventually("the Gateway is published", TEST_TIMEOUT, async || {
        publication(cluster.admin(), &edge_name()).await
    })
    .await;
    controller.stop().await;
    cluster.delete(DEFINITION).await;
    eventually("the CRD is deleted", TEST_TIMEOUT, async || {
        let found = cluster.admin().get(DEFINITION).await;
        holds(found.is_err_and(|error| error.is(404)), || {
            "not deleted yet".to_owned()
        })
    })
    .await;

    controller.restart();
    eventually("the missing CRD is reported", TEST_TIMEOUT, async || {
        let found = controller.get("/readyz").await;
        let waits =
            matches!(&found, Ok((503, why)) if why.contains("Gateway (it is not installed)"));
        holds(waits, || format!("{found:?}"))
    })
    .await;
    controller.wait_leads().await;
    let published = publication(cluster.admin(), &edge_name()).await;
    published.expect("the publication stays");
    assert!(
        controller.log().contains("waiting for the definitions"),
        "{}",
        controller.log_tail()
    );

    // Deleting the CRD also deleted the Gateway.
    cluster.install_crds(Channel::Standard).await;
    controller.wait_ready().await;
    eventually("the publication is removed", TEST_TIMEOUT, async || {
        let found = publication(cluster.admin(), &edge_name()).await;
        holds(found.is_err(), || "still published".to_owned())
    })
    .await;
}

const ROUTES: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/httproutes.gateway.networking.k8s.io";

async fn serve_routes(cluster: &TestCluster, served: bool) {
    let definition = cluster.get(ROUTES).await;
    let versions = definition["spec"]["versions"]
        .as_array()
        .map_or(0, Vec::len);
    let change = |index| json!({"op": "replace", "path": format!("/spec/versions/{index}/served"), "value": served});
    let operations: Vec<Value> = (0..versions).map(change).collect();
    let patched = cluster.admin().json_patch(ROUTES, &json!(operations)).await;
    patched.expect("the CRD is changed");
}

async fn publishes_route(cluster: &TestCluster) {
    let found = publication(cluster.admin(), &edge_name()).await;
    let tables = format!("{:?}", found.expect("a publication").snapshot.route_tables);
    assert!(tables.contains("HTTPRoute/default/app"), "{tables}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kind_of_unsupported_version_is_not_empty() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.push(plain_route("app", "app.test", "app"));
    objects.extend(served_at("app", "192.0.2.1:80"));
    cluster.apply_all(&objects).await;
    eventually("the route is published", TEST_TIMEOUT, async || {
        let found = publication(cluster.admin(), &edge_name()).await?;
        let tables = format!("{:?}", found.snapshot.route_tables);
        holds(tables.contains("HTTPRoute/default/app"), || tables.clone())
    })
    .await;

    serve_routes(&cluster, false).await;
    eventually(
        "the running controller reports it",
        TEST_TIMEOUT,
        async || {
            let log = controller.log();
            holds(log.contains("known objects stay in effect"), || {
                controller.log_tail()
            })
        },
    )
    .await;
    publishes_route(&cluster).await;

    controller.restart();
    eventually("the next process waits", TEST_TIMEOUT, async || {
        let found = controller.get("/readyz").await;
        let why = "HTTPRoute (its definition serves no supported version";
        let waits = matches!(&found, Ok((503, page)) if page.contains(why));
        holds(waits, || format!("{found:?}"))
    })
    .await;
    publishes_route(&cluster).await;

    serve_routes(&cluster, true).await;
    controller.wait_ready().await;
    publishes_route(&cluster).await;
}
