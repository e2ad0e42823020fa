//! Authorities of a `ClusterTrustBundle`, in a real API server that serves the kind.

use serde_json::{Value, json};
use sesame_tests::certs::Authority;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, SOON, condition, deployed, publication};
use sesame_tests::manifests::{
    self, edge, edge_name, http_listener, https_listener, plain_route, verified_by,
};
use sesame_tests::wait::eventually;

const API: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default";
const BUNDLE: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/partners";

fn bundle(authorities: &[&Authority]) -> Value {
    let pem: String = authorities
        .iter()
        .map(|authority| authority.pem())
        .collect();
    json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "partners"}, "spec": {"trustBundle": pem},
    })
}

/// A Gateway and a policy that refer to the bundle.
fn objects(servers: &Authority) -> Vec<Value> {
    let reference =
        json!({"group": "certificates.k8s.io", "kind": "ClusterTrustBundle", "name": "partners"});
    let mut objects = edge(&[
        https_listener("https", 443, "", "pair"),
        http_listener("http", 80, ""),
    ]);
    let validation = json!({"caCertificateRefs": [reference]});
    objects[1]["spec"]["tls"] = json!({"frontend": {"default": {"validation": validation}}});
    let mut verified = verified_by("", "backend.test");
    verified["caCertificateRefs"] = json!([reference]);
    objects.extend([
        servers.issue(&["a.test"]).secret("pair"),
        manifests::backend_tls_policy("app", &verified),
        plain_route("app", "a.test", "app"),
    ]);
    objects.extend(manifests::served_at("app", "10.0.0.1:80"));
    objects
}

/// Waits until these authorities are published.
async fn published(cluster: &TestCluster, authorities: &[&Authority]) {
    let expected: String = authorities
        .iter()
        .map(|authority| authority.pem())
        .collect();
    let lines = |pem: &str| pem.lines().map(str::to_owned).collect::<Vec<_>>();
    eventually("the authorities are published", SOON, async || {
        let publication = publication(cluster.admin(), &edge_name()).await?;
        let bundles = &publication.snapshot.trust_bundles;
        let [bundle] = &bundles[..] else {
            return Err(format!("{bundles:?}"));
        };
        let same =
            bundle.name == "ClusterTrustBundle/partners" && lines(&bundle.pem) == lines(&expected);
        if same {
            Ok(())
        } else {
            Err(format!("{bundle:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn a_cluster_trust_bundle_is_found_followed_and_missed() {
    let cluster = deployed(Channel::Experimental).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let (servers, first, second) = (
        Authority::new("servers"),
        Authority::new("first"),
        Authority::new("second"),
    );
    cluster.apply_all(&objects(&servers)).await;
    let policy = format!("{API}/backendtlspolicies/app");
    let missing = |policy: &Value| {
        let conditions = &policy["status"]["ancestors"][0]["conditions"];
        let refs = condition(conditions, "ResolvedRefs");
        condition(conditions, "Accepted")["reason"] == "NoValidCACertificate"
            && refs["reason"] == "InvalidCACertificateRef"
            && refs["message"].as_str().is_some_and(|message| {
                message.contains("ClusterTrustBundle partners does not exist")
            })
    };
    cluster.until("it is missed", &policy, missing).await;

    cluster.apply_all(&[bundle(&[&first])]).await;
    published(&cluster, &[&first]).await;
    let accepted = |policy: &Value| {
        let conditions = &policy["status"]["ancestors"][0]["conditions"];
        condition(conditions, "Accepted")["status"] == "True"
    };
    cluster.until("it is found", &policy, accepted).await;
    cluster.apply_all(&[bundle(&[&first, &second])]).await;
    published(&cluster, &[&first, &second]).await;

    cluster.delete(BUNDLE).await;
    cluster.until("it is missed again", &policy, missing).await;
    assert!(controller.stop().await.success());
}
