//! Policies for the Gateway and the mesh: their statuses, and the ConfigMap that the controller
//! writes for the mesh.

use std::net::{Ipv4Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sesame_tests::cluster::TestCluster;
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, TEST_TIMEOUT};
use sesame_tests::wait::{eventually, holds};

use super::{
    Authorities, GATEWAY, OCG_BUNDLE, TRUSTED, bundle, cluster_with_mesh, give_rights, objects,
    ocg_policy, published, wait_condition,
};

pub(super) const POLICY: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/gatewaymeshpolicies/mesh";
pub(super) const OCG_POLICY: &str = "/apis/projectsesame.io/v1alpha1/meshocgpolicies/mesh";
pub(super) const CLIENT: &str = "/api/v1/namespaces/default/secrets/client";

pub(super) fn nowhere() -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, 1), 80).into()
}

async fn gone(cluster: &TestCluster, path: &str) {
    eventually("the object is deleted", TEST_TIMEOUT, async || {
        let found = cluster.admin().get(path).await;
        holds(found.is_err(), || format!("{path} is still there"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_policies_report_whether_mesh_trusts_gateway() {
    let all = Authorities::new();
    let cluster = cluster_with_mesh().await;
    cluster.apply_all(&objects(&all, nowhere())).await;
    cluster
        .apply_all(&[bundle("ocg-trust-bundle", &all.stranger), ocg_policy(false)])
        .await;
    let _controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    let bad = ("False", "CertificateNotTrusted");
    let good = ("True", "CertificateTrusted");
    wait_condition(&cluster, OCG_POLICY, TRUSTED, bad, "default/edge").await;
    wait_condition(&cluster, POLICY, TRUSTED, bad, "ocg-trust-bundle").await;
    wait_condition(&cluster, GATEWAY, TRUSTED, bad, "XMesh mesh").await;
    let meshed = "projectsesame.io/Meshed";
    wait_condition(&cluster, GATEWAY, meshed, ("True", "Meshed"), "").await;

    let right = json!({"data": bundle("", &all.gateway)["data"]});
    cluster.merge(OCG_BUNDLE, &right).await;
    wait_condition(&cluster, OCG_POLICY, TRUSTED, good, "default/edge").await;
    wait_condition(&cluster, POLICY, TRUSTED, good, "ocg-trust-bundle").await;
    wait_condition(&cluster, GATEWAY, TRUSTED, good, "XMesh mesh").await;

    // Bundles in unwatched namespaces are rejected, because their changes would go unnoticed.
    for (path, field) in [(OCG_POLICY, "ocg"), (POLICY, "mesh")] {
        let change = json!({"spec": {field: {"trustBundle": {"namespace": NAMESPACE}}}});
        cluster.merge(path, &change).await;
        let refs = ("False", "InvalidTrustBundle");
        wait_condition(&cluster, path, "ResolvedRefs", refs, "is not watched").await;
    }
    let mut unnamed = ocg_policy(false);
    unnamed["metadata"]["name"] = json!("unnamed");
    unnamed["spec"]["ocg"]["trustBundle"] = json!({"name": "ocg-trust-bundle"});
    let refused = cluster.apply(&unnamed.to_string()).await;
    refused.expect_err("the bundle's namespace is required");
    let mut anybody = ocg_policy(true);
    anybody["metadata"]["name"] = json!("anybody");
    anybody["spec"]["gateways"] = json!([]);
    let refused = cluster.apply(&anybody.to_string()).await;
    refused.expect_err("a policy without Gateways is invalid");
    cluster
        .delete("/apis/gateway.networking.x-k8s.io/v1alpha1/xmeshes/mesh")
        .await;
    let missing = ("False", "TargetNotFound");
    wait_condition(&cluster, OCG_POLICY, "Accepted", missing, "XMesh mesh").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mesh_bundle_contains_only_gateway_authorities() {
    let all = Authorities::new();
    let cluster = cluster_with_mesh().await;
    let mut foreign = bundle("foreign", &all.stranger);
    foreign["metadata"]["labels"] = json!({"projectsesame.io/ocg-bundle": "true"});
    let foreign_path = "/api/v1/namespaces/mesh/configmaps/foreign";
    cluster.apply_all(&objects(&all, nowhere())).await;
    cluster
        .apply_all(&[
            foreign,
            bundle("ocg-trust-bundle", &all.stranger),
            ocg_policy(true),
        ])
        .await;
    let _controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    let refs = ("False", "InvalidTrustBundle");
    let wait_refs = async |words: &str| {
        wait_condition(&cluster, OCG_POLICY, "ResolvedRefs", refs, words).await;
    };
    // Even with permission, the controller must not overwrite foreign ConfigMaps.
    give_rights(&cluster, "ocg-bundles.yaml").await;
    wait_refs("was not written by this controller").await;
    published(&cluster, &[&all.stranger]).await;
    cluster.delete(OCG_BUNDLE).await;
    let map = published(&cluster, &[&all.gateway]).await;
    let policy = cluster.get(OCG_POLICY).await;
    let owner = &map["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], policy["metadata"]["uid"], "{map:#}");
    let good = ("True", "CertificateTrusted");
    wait_condition(&cluster, GATEWAY, TRUSTED, good, "ocg-trust-bundle").await;

    let change = json!({"data": bundle("", &all.stranger)["data"]});
    cluster.merge(OCG_BUNDLE, &change).await;
    published(&cluster, &[&all.gateway]).await;

    // Private keys must never be published, and invalid input must not change the bundle.
    let secret = all.client();
    let key = format!("{}{}", all.gateway.pem(), secret.key_pem);
    for (text, words) in [
        (key.as_str(), "contains a private key"),
        (secret.certificate_pem.as_str(), "not a CA certificate"),
        ("", "has no ca.crt"),
    ] {
        let encoded = Some(STANDARD.encode(text)).filter(|text| !text.is_empty());
        cluster
            .merge(CLIENT, &json!({"data": {"ca.crt": encoded}}))
            .await;
        wait_refs(words).await;
        published(&cluster, &[&all.gateway]).await;
    }
    let both = STANDARD.encode(format!("{}{}", all.gateway.pem(), all.stranger.pem()));
    cluster
        .merge(CLIENT, &json!({"data": {"ca.crt": both}}))
        .await;
    published(&cluster, &[&all.gateway, &all.stranger]).await;

    cluster.delete(OCG_POLICY).await;
    gone(&cluster, OCG_BUNDLE).await;
    let foreign = cluster.get(foreign_path).await;
    let data = &bundle("", &all.stranger)["data"];
    assert_eq!(&foreign["data"], data, "{foreign:#}");
}
