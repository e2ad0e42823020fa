//! Statuses of Ingresses and HTTPProxies that a controller wrote before it stopped.

use serde_json::{Value, json};
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, deployed, give_rights};
use sesame_tests::manifests::{
    edge_name, edge_with_parameters, http_proxy, ingress, ingress_rule, layered, served_at,
};
use sesame_tests::reports;

const HOST: &str = "192.0.2.10";
const CONTOURS: &str = "192.0.2.99";
const PROXIES: &str = "/apis/projectcontour.io/v1/namespaces/default/httpproxies";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const CONFIGURATION: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/sesameconfigurations/template";

fn addresses(object: &Value) -> &Value {
    &object["status"]["loadBalancer"]["ingress"]
}

fn current(proxy: &Value) -> &Value {
    &proxy["status"]["currentStatus"]
}

/// Contour also writes the statuses of the objects named `shared`.
fn objects() -> Vec<Value> {
    let mut objects = edge_with_parameters(&json!({"ingress": {"watch": "Serve"}}));
    objects.extend(served_at("app", "192.0.2.1:80"));
    objects.extend(layered("ours", "app"));
    let routes = json!([{"services": [{"name": "app", "port": 80}]}]);
    let proxy = json!({"virtualhost": {"fqdn": "shared.test"}, "routes": routes});
    let rules = json!({"rules": [ingress_rule("shared-ingress.test", &[("/", "Prefix", "app")])]});
    objects.push(http_proxy("shared", &proxy));
    objects.push(ingress("shared", &json!({}), &rules));
    objects
}

async fn write_as_contour(cluster: &TestCluster) {
    let condition = json!({"type": "Valid", "status": "True", "reason": "Valid",
        "message": "theirs", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let addresses = json!({"ingress": [{"ip": CONTOURS}]});
    let proxy = json!({"status": {"conditions": [condition], "loadBalancer": addresses}});
    let ingress = json!({"status": {"loadBalancer": addresses}});
    for (collection, status) in [(PROXIES, proxy), (INGRESSES, ingress)] {
        let path = format!("{collection}/shared/status?fieldManager=contour");
        cluster.merge(&path, &status).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn next_process_removes_only_own_statuses() {
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "contour/crds.yaml").await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    cluster.apply_all(&objects()).await;
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    for collection in [PROXIES, INGRESSES] {
        for name in ["ours", "shared"] {
            let path = format!("{collection}/{name}");
            cluster
                .until("an address", &path, |it| addresses(it)[0]["ip"] == HOST)
                .await;
        }
    }
    controller.stop().await;
    write_as_contour(&cluster).await;
    let off = json!({"spec": {"ingress": {"watch": "Off"}}});
    cluster.merge(CONFIGURATION, &off).await;
    controller.restart();
    for name in ["ours", "shared"] {
        cluster
            .until(
                "an unmanaged HTTPProxy",
                &format!("{PROXIES}/{name}"),
                |it| current(it) == "NotReconciled",
            )
            .await;
    }
    let proxy = cluster.get(&format!("{PROXIES}/ours")).await;
    assert_eq!(proxy["status"]["conditions"], json!([]), "{proxy:#}");
    assert!(addresses(&proxy).is_null(), "{proxy:#}");
    cluster
        .until("an unmanaged Ingress", &format!("{INGRESSES}/ours"), |it| {
            addresses(it).is_null()
        })
        .await;
    let proxy = cluster.get(&format!("{PROXIES}/shared")).await;
    assert_eq!(proxy["status"]["conditions"][0]["message"], "theirs");
    assert_eq!(addresses(&proxy)[0]["ip"], CONTOURS, "{proxy:#}");
    let ingress = cluster.get(&format!("{INGRESSES}/shared")).await;
    assert_eq!(addresses(&ingress)[0]["ip"], CONTOURS, "{ingress:#}");
}
