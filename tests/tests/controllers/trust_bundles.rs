//! CA certificates from a `ClusterTrustBundle`.

use serde_json::{Value, json};
use sesame_tests::certs::Authority;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, TEST_TIMEOUT, condition, controller_user, deploy, deployed, publication,
};
use sesame_tests::manifests::{
    self, edge, edge_name, http_listener, https_listener, plain_route, verified_by,
};
use sesame_tests::wait::{eventually, holds};

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

async fn published(cluster: &TestCluster, authorities: &[&Authority]) {
    let expected: String = authorities
        .iter()
        .map(|authority| authority.pem())
        .collect();
    let lines = |pem: &str| pem.lines().map(str::to_owned).collect::<Vec<_>>();
    eventually("the authorities are published", TEST_TIMEOUT, async || {
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
async fn cluster_trust_bundle_is_followed_and_absence_reported() {
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
    cluster.until("reported missing", &policy, missing).await;

    cluster.apply_all(&[bundle(&[&first])]).await;
    published(&cluster, &[&first]).await;
    let accepted = |policy: &Value| {
        let conditions = &policy["status"]["ancestors"][0]["conditions"];
        condition(conditions, "Accepted")["status"] == "True"
    };
    cluster.until("accepted", &policy, accepted).await;
    cluster.apply_all(&[bundle(&[&first, &second])]).await;
    published(&cluster, &[&first, &second]).await;

    cluster.delete(BUNDLE).await;
    cluster
        .until("reported missing again", &policy, missing)
        .await;
    assert!(controller.stop().await.success());
}

/// Grants or revokes permission to read bundles, and waits until the change takes effect.
async fn allow_bundles(cluster: &TestCluster, allowed: bool) {
    const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/sesame-controller";
    // By default, all ServiceAccounts may read bundles.
    const DEFAULT_BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:cluster-trust-bundle-discovery";
    cluster
        .merge(DEFAULT_BINDING, &json!({"subjects": []}))
        .await;
    let mut role = cluster.get(ROLE).await;
    let rules = role["rules"].as_array_mut().expect("rules");
    let bundle_resources = json!(["clustertrustbundles"]);
    rules.retain(|rule| rule["resources"] != bundle_resources);
    if allowed {
        rules.push(json!({
            "apiGroups": ["certificates.k8s.io"], "resources": bundle_resources, "verbs": ["get", "list", "watch"],
        }));
    }
    let change = json!({"rules": role["rules"]});
    cluster.merge(ROLE, &change).await;
    let user = cluster.client(&controller_user()).await;
    let all = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
    eventually(
        "the permission takes effect",
        TEST_TIMEOUT,
        async || match user.get(all).await {
            Ok(_) if allowed => Ok(()),
            Err(failure) if !allowed && failure.is(403) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
}

#[tokio::test]
async fn everything_else_is_served_without_trust_bundle_access() {
    let cluster = TestCluster::start().await;
    cluster.install_crds(Channel::Experimental).await;
    deploy(&cluster).await;
    allow_bundles(&cluster, false).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let (servers, partners) = (Authority::new("servers"), Authority::new("partners"));
    cluster.apply_all(&[bundle(&[&partners])]).await;
    cluster.apply_all(&objects(&servers)).await;
    // Only the listener that needs the bundle may be missing.
    eventually(
        "the other listener is published",
        TEST_TIMEOUT,
        async || {
            let publication = publication(cluster.admin(), &edge_name()).await?;
            let ports = &publication.snapshot.ports;
            let ports: Vec<u32> = ports.iter().map(|port| port.port).collect();
            holds(ports == [80], || format!("{ports:?}"))
        },
    )
    .await;
    eventually(
        "the failure is logged and counted",
        TEST_TIMEOUT,
        async || {
            let is_logged = controller
                .log()
                .contains("does not permit listing clustertrustbundles");
            let counted = controller
                .metric("watch_failures_total", "ClusterTrustBundle")
                .await;
            holds(is_logged && counted > 0.5, || {
                format!("{is_logged} {counted}")
            })
        },
    )
    .await;
    let class = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";
    let claims = |class: &Value| {
        let features = class["status"]["supportedFeatures"].to_string();
        (
            features.contains("HTTPRoute"),
            features.contains("ClusterTrustBundle"),
        )
    };
    cluster
        .until("the feature is not claimed", class, |class| {
            claims(class) == (true, false)
        })
        .await;

    allow_bundles(&cluster, true).await;
    published(&cluster, &[&partners]).await;
    cluster
        .until("the feature is claimed", class, |class| claims(class).1)
        .await;
    assert!(controller.stop().await.success());
}
