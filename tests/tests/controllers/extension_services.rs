//! Statuses of ExtensionServices in a cluster.

use serde_json::{Value, json};
use sesame_tests::certs::Authority;
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{ControllerUnderTest, deployed, give_rights};
use sesame_tests::manifests::{edge, http_listener, http_proxy, ingress_class, served_at};

const ALL: &str = "/apis/projectcontour.io/v1alpha1/namespaces/default/extensionservices";
const PROXY: &str = "/apis/projectcontour.io/v1/namespaces/default/httpproxies/root";
const OLD: &str = "2020-01-01T00:00:00Z";

fn extension(name: &str, services: &Value) -> Value {
    json!({"apiVersion": "projectcontour.io/v1alpha1", "kind": "ExtensionService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"protocol": "h2c", "services": services}})
}

fn valid(extension: &Value) -> &Value {
    let conditions = extension["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == "Valid");
    found.unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn extension_status_follows_spec_and_use() {
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "contour/crds.yaml").await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served_at("app", "192.0.2.1:80"));
    let root = json!({
        "virtualhost": {"fqdn": "app.test", "tls": {"secretName": "app"},
            "authorization": {"extensionRef": {"name": "auth"}}},
        "routes": [{"services": [{"name": "app", "port": 80}]}],
    });
    let both = json!([{"name": "app", "port": 80, "weight": 3},
        {"name": "second", "port": 80, "weight": 1}]);
    objects.extend([
        ingress_class(),
        http_proxy("root", &root),
        extension("auth", &both),
        extension("unused", &both),
        Authority::new("tests").issue(&["app.test"]).secret("app"),
    ]);
    cluster.apply_all(&objects).await;
    let path = format!("{ALL}/auth");
    let found = cluster
        .until("the second Service is missing", &path, |it| {
            valid(it)["status"] == "False"
        })
        .await;
    assert_eq!(valid(&found)["reason"], "ErrorPresent");
    assert_eq!(valid(&found)["observedGeneration"], 1);
    let error = &valid(&found)["errors"][0];
    assert_eq!(error["type"], "ServiceError");
    assert_eq!(error["reason"], "ServiceUnresolvedReference");

    cluster
        .apply_all(&served_at("second", "192.0.2.2:80"))
        .await;
    let found = cluster
        .until("valid", &path, |it| valid(it)["status"] == "True")
        .await;
    assert_eq!(valid(&found)["message"], "Valid ExtensionService");
    assert!(valid(&found)["errors"].is_null());

    // Another program's condition stays.
    let seen = json!({"type": "Seen", "status": "True", "reason": "Seen", "message": "",
        "lastTransitionTime": OLD});
    let status = json!({"status": {"conditions": [seen, valid(&found)]}});
    cluster
        .merge(&format!("{path}/status?fieldManager=other"), &status)
        .await;
    let one = json!({"spec": {"services": [{"name": "none", "port": 80}]}});
    cluster.merge(&path, &one).await;
    // The status must wait, because the other program also wrote `Valid`.
    let unused = cluster.get(&format!("{ALL}/unused")).await;
    assert!(valid(&unused).is_null(), "{unused:#}");
    let found = cluster.get(&path).await;
    assert_eq!(found["status"]["conditions"][0]["type"], "Seen");

    let second = extension("second", &both);
    cluster.apply_all(&[second]).await;
    let other = json!({"spec": {"virtualhost": {"authorization":
        {"extensionRef": {"name": "second"}}}}});
    cluster.merge(PROXY, &other).await;
    let path = format!("{ALL}/second");
    cluster
        .until("valid", &path, |it| valid(it)["status"] == "True")
        .await;
    // The next process removes it, because no HTTPProxy needs it.
    controller.stop().await;
    cluster.delete(PROXY).await;
    controller.restart();
    cluster
        .until("the status is removed", &path, |it| valid(it).is_null())
        .await;
}
