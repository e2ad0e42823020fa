//! If Gateway API CRDs are missing, the controller reports the problem and waits. It must not
//! withdraw publications.

use sesame_tests::cluster::Channel;
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, deployed, publication};
use sesame_tests::manifests::{edge, edge_name, http_listener};
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
