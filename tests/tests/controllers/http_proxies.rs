//! HTTPProxies in a cluster, with statuses in Contour's format.

use serde_json::{Value, json};
use sesame_tests::certs::Authority;
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{
    ControllerUnderTest, TEST_TIMEOUT, deployed, give_rights, publication,
};
use sesame_tests::manifests::{
    edge, edge_name, edge_with_parameters, http_listener, http_proxy, ingress_class, served,
};
use sesame_tests::reports;
use sesame_tests::wait::{eventually, holds};

const HOST: &str = "192.0.2.10";
const ALL: &str = "/apis/projectcontour.io/v1/namespaces/default/httpproxies";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";

fn objects() -> Vec<Value> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served(
        "app",
        &["192.0.2.1:80".parse().expect("an address")],
    ));
    let service = json!([{"name": "app", "port": 80}]);
    let root = json!({
        "virtualhost": {"fqdn": "app.test", "tls": {"secretName": "app"}},
        "includes": [{"name": "child", "conditions": [{"prefix": "/child"}]}],
        "routes": [{"services": service}],
    });
    objects.extend([
        ingress_class(),
        http_proxy("root", &root),
        http_proxy("child", &json!({"routes": [{"services": service}]})),
        http_proxy("orphan", &json!({"routes": [{"services": service}]})),
    ]);
    objects
}

fn valid(proxy: &Value) -> &Value {
    &proxy["status"]["conditions"][0]
}

fn current(proxy: &Value) -> &Value {
    &proxy["status"]["currentStatus"]
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_is_published_and_its_status_written() {
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "contour/crds.yaml").await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    cluster.apply_all(&objects()).await;
    let path = |name: &str| format!("{ALL}/{name}");
    let root = cluster
        .until("the Secret is missing", &path("root"), |proxy| {
            current(proxy) == "invalid"
        })
        .await;
    let error = &valid(&root)["errors"][0];
    assert_eq!(
        (&error["type"], &error["reason"]),
        (&json!("TLSError"), &json!("SecretNotValid"))
    );
    assert_eq!(valid(&root)["reason"], "ErrorPresent");
    let orphan = cluster
        .until("the HTTPProxy is orphaned", &path("orphan"), |it| {
            current(it) == "orphaned"
        })
        .await;
    assert_eq!(valid(&orphan)["errors"][0]["type"], "Orphaned");

    let secret = Authority::new("tests").issue(&["app.test"]).secret("app");
    cluster.apply_all(&[secret]).await;
    for name in ["root", "child"] {
        let proxy = cluster
            .until("valid", &path(name), |it| current(it) == "valid")
            .await;
        assert_eq!(valid(&proxy)["status"], "True");
        assert_eq!(valid(&proxy)["message"], "Valid HTTPProxy");
        assert_eq!(valid(&proxy)["observedGeneration"], 1);
    }
    for wanted in [
        "TLSHost/default/edge/listeners/app.test",
        "HTTPProxy/default/child/rules/0/matches/0",
    ] {
        eventually("the HTTPProxies are published", TEST_TIMEOUT, async || {
            let publication = publication(cluster.admin(), &edge_name()).await?;
            let snapshot = format!("{:?}", publication.snapshot);
            holds(snapshot.contains(wanted), || snapshot.clone())
        })
        .await;
    }
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    for name in ["root", "child"] {
        cluster
            .until("an address", &path(name), |proxy| {
                proxy["status"]["loadBalancer"]["ingress"] == json!([{"ip": HOST}])
            })
            .await;
    }
    reports::refuse_on_node(&cluster, &edge_name(), "HTTPProxy/default/child").await;
    let child = cluster
        .until("a rejected route", &path("child"), |proxy| {
            current(proxy) == "invalid"
        })
        .await;
    let error = json!({"type": "RouteError", "reason": "RefusedByEnvoy", "status": "True",
        "message": "rule 0: bad regex"});
    assert_eq!(valid(&child)["errors"], json!([error]));

    let other = json!({"spec": {"ingressClassName": "other"}});
    cluster.merge(&path("root"), &other).await;
    let root = cluster
        .until("the HTTPProxy is unmanaged", &path("root"), |proxy| {
            current(proxy) == "NotReconciled"
        })
        .await;
    assert_eq!(root["status"]["conditions"], json!([]));
    assert!(root["status"]["loadBalancer"]["ingress"].is_null());
    cluster
        .until("the HTTPProxy is orphaned", &path("child"), |it| {
            current(it) == "orphaned"
        })
        .await;

    // A GatewayClass can list an ingress class without an IngressClass object.
    let named = json!({"group": "projectsesame.io", "kind": "SesameConfiguration",
        "name": "edge", "namespace": "default"});
    let settings = json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"ingress": {"classes": [{"name": "other",
            "gatewayRef": {"namespace": "default", "name": "edge"}}]}}});
    cluster.apply_all(&[settings]).await;
    let parameters = json!({"spec": {"parametersRef": named}});
    cluster.merge(CLASS, &parameters).await;
    cluster
        .until("the HTTPProxy is valid again", &path("root"), |it| {
            current(it) == "valid"
        })
        .await;
}

const CONFIGURATION: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/sesameconfigurations/template";

#[tokio::test(flavor = "multi_thread")]
async fn report_withdraws_proxies_until_serve_returns() {
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "contour/crds.yaml").await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    let serve = json!({"ingress": {"watch": "Serve"}});
    let mut all = objects();
    all.extend(edge_with_parameters(&serve));
    all.push(Authority::new("tests").issue(&["app.test"]).secret("app"));
    cluster.apply_all(&all).await;
    let child = format!("{ALL}/child");
    let published = async |wanted: bool| {
        eventually("the publication changes", TEST_TIMEOUT, async || {
            let publication = publication(cluster.admin(), &edge_name()).await?;
            let snapshot = format!("{:?}", publication.snapshot);
            holds(snapshot.contains("HTTPProxy/") == wanted, || {
                snapshot.clone()
            })
        })
        .await;
    };
    cluster
        .until("valid", &child, |it| current(it) == "valid")
        .await;
    published(true).await;

    let report = json!({"spec": {"ingress": {"watch": "Report"}}});
    cluster.merge(CONFIGURATION, &report).await;
    cluster
        .until("unmanaged", &child, |it| current(it) == "NotReconciled")
        .await;
    published(false).await;

    cluster
        .merge(CONFIGURATION, &json!({ "spec": serve }))
        .await;
    cluster
        .until("valid again", &child, |it| current(it) == "valid")
        .await;
    published(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_is_left_to_another_writer() {
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "contour/crds.yaml").await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    cluster.apply_all(&objects()).await;
    let orphan = format!("{ALL}/orphan");
    cluster
        .until("an orphan", &orphan, |it| current(it) == "orphaned")
        .await;
    let condition = json!({"type": "Valid", "status": "True", "reason": "Valid",
        "message": "theirs", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let theirs = json!({"status": {"currentStatus": "valid", "conditions": [condition]}});
    let path = format!("{orphan}/status?fieldManager=contour");
    cluster.merge(&path, &theirs).await;
    cluster
        .until("an Event names the other writer", EVENTS, |events| {
            let mut all = events["items"].as_array().into_iter().flatten();
            all.any(|event| {
                let note = event["note"].as_str().unwrap_or_default();
                event["reason"] == "StatusContested" && note.contains("\"contour\"")
            })
        })
        .await;
    let left = cluster.get(&orphan).await;
    assert_eq!(valid(&left)["message"], "theirs", "{left:#}");
}
