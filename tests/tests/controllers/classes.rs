//! A finalizer prevents a GatewayClass from being deleted while Gateways use the class.

use serde_json::Value;
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{
    ControllerUnderTest, TEST_TIMEOUT, condition, deployed, publication,
};
use sesame_tests::manifests::{self, edge, edge_name, http_listener, http_route, path, rule_to};
use sesame_tests::wait::eventually;

const API: &str = "/apis/gateway.networking.k8s.io/v1";
const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn deleted_class_waits_for_last_gateway_still_served() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    let admin = cluster.admin();
    let (class, gateway) = (
        format!("{API}/gatewayclasses/edge"),
        format!("{API}/namespaces/default/gateways/edge"),
    );
    let held = |class: &Value| {
        let finalizers = class["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|held| held == FINALIZER))
    };
    let until_class = async |what: &str, good: &dyn Fn(Option<&Value>) -> bool| {
        eventually(what, TEST_TIMEOUT, async || match admin.get(&class).await {
            Ok(class) if good(Some(&class)) => Ok(()),
            Err(error) if error.is(404) && good(None) => Ok(()),
            other => Err(format!("{other:?}\n{}", controller.log_tail())),
        })
        .await;
    };

    let objects = edge(&[http_listener("http", 80, "")]);
    let find_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind);
    let just_class = find_kind("GatewayClass").expect("a class").clone();
    cluster.apply_all(&[just_class]).await;
    until_class("the class is accepted", &|class| {
        class.is_some_and(|class| {
            let accepted = condition(&class["status"]["conditions"], "Accepted");
            accepted["status"] == "True" && !held(class)
        })
    })
    .await;

    cluster.apply_all(&objects).await;
    until_class("the class has a finalizer", &|class| {
        class.is_some_and(held)
    })
    .await;
    admin.delete(&class).await.expect("deleted");
    until_class("the deletion waits", &|class| {
        class.is_some_and(|class| held(class) && class["metadata"]["deletionTimestamp"].is_string())
    })
    .await;

    let mut more = manifests::served_at("app", "10.0.0.1:80");
    let rule = rule_to("app", &[path("PathPrefix", "/")]);
    more.push(http_route("app", &["app.example.com"], &[rule]));
    cluster.apply_all(&more).await;
    let name = edge_name();
    eventually("the route is published", TEST_TIMEOUT, async || {
        let published = publication(admin, &name).await?;
        if published.snapshot.backends.is_empty() {
            return Err("no backend".to_owned());
        }
        Ok(())
    })
    .await;

    admin.delete(&gateway).await.expect("deleted");
    until_class("the class is deleted after its last Gateway", &|class| {
        class.is_none()
    })
    .await;
    eventually(
        "nothing is published",
        TEST_TIMEOUT,
        async || match publication(admin, &name).await {
            Ok(_) => Err(controller.log_tail()),
            Err(_) => Ok(()),
        },
    )
    .await;
}
