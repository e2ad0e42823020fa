//! Upgrades the Gateway API CRDs through all supported releases in each channel. Stored objects
//! must still be served.

use std::sync::LazyLock;

use serde_json::{Value, json};
use sesame_proto::schema::route::Action;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, condition, deploy, publication};
use sesame_tests::manifests::{edge, edge_name, http_listener, plain_route, served, yaml};
use sesame_tests::wait::{eventually, holds};

const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";
const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gateways.gateway.networking.k8s.io";
const OUTSIDE: &str =
    "/apis/gateway.networking.x-k8s.io/v1alpha1/namespaces/default/xbackends/outside";
const UPGRADES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/\
    safe-upgrades.gateway.networking.k8s.io";

static X_BACKEND: LazyLock<Value> = LazyLock::new(
    || json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "outside"}),
);

fn x_backend(spec: &Value) -> Value {
    json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend",
        "metadata": {"name": "outside", "namespace": "default"}, "spec": spec})
}

async fn outside_is_refused(cluster: &TestCluster) {
    eventually("the XBackend gets no requests", TEST_TIMEOUT, async || {
        let found = publication(cluster.admin(), &edge_name()).await?;
        let tables = found.snapshot.route_tables.iter();
        let mut hosts = tables.flat_map(|table| &table.virtual_hosts);
        let host = hosts.find(|host| host.domain == "outside.test");
        let action = host.and_then(|host| host.routes.first()?.action.clone());
        let refused =
            matches!(&action, Some(Action::DirectResponse(answer)) if answer.status == 500);
        holds(refused, || format!("{action:?}"))
    })
    .await;
}

async fn wait_supported_version(cluster: &TestCluster, status: &str, words: &str) -> Value {
    let what = format!("the class reports {words:?}");
    cluster
        .until(&what, CLASS, |class| {
            let version = condition(&class["status"]["conditions"], "SupportedVersion");
            let message = version["message"].as_str().unwrap_or_default();
            version["status"] == status && message.contains(words)
        })
        .await
}

fn claims(class: &Value, feature: &str) -> bool {
    let all = class["status"]["supportedFeatures"].as_array();
    let mut all = all.into_iter().flatten();
    all.any(|claimed| claimed["name"] == feature)
}

async fn a_route_is_published(cluster: &TestCluster, number: usize) {
    let host = |number: usize| format!("n{number}.test");
    let name = format!("n{number}");
    let route = plain_route(&name, &host(number), "app");
    cluster.apply_all(&[route]).await;
    cluster
        .until(
            "the route is accepted",
            &format!("{ROUTES}/{name}"),
            |route| {
                let conditions = &route["status"]["parents"][0]["conditions"];
                condition(conditions, "Accepted")["status"] == "True"
                    && condition(conditions, "ResolvedRefs")["status"] == "True"
            },
        )
        .await;
    eventually("all routes are published", TEST_TIMEOUT, async || {
        let found = publication(cluster.admin(), &edge_name()).await?;
        let tables = found.snapshot.route_tables.iter();
        let domains: Vec<&str> = tables
            .flat_map(|table| &table.virtual_hosts)
            .map(|host| host.domain.as_str())
            .collect();
        let all = (1..=number).all(|number| domains.contains(&host(number).as_str()));
        holds(all, || format!("{domains:?}"))
    })
    .await;
}

async fn upgraded(channel: Channel) {
    let cluster = TestCluster::start().await;
    cluster.install_release("v1.5.1", channel).await;
    deploy(&cluster).await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    let word = match channel {
        Channel::Standard => "standard",
        Channel::Experimental => "experimental",
    };
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served(
        "app",
        &["192.0.2.1:80".parse().expect("an address")],
    ));
    cluster.apply_all(&objects).await;
    let class =
        wait_supported_version(&cluster, "True", &format!("API v1.5 ({word} channel) is")).await;
    assert!(
        claims(&class, "GatewayInfrastructurePropagation"),
        "{class:#}"
    );
    assert!(!claims(&class, "TCPRoute"), "{class:#}");
    a_route_is_published(&cluster, 1).await;

    cluster.install_release("v1.6.3", channel).await;
    let class =
        wait_supported_version(&cluster, "True", &format!("API v1.6 ({word} channel) is")).await;
    assert!(
        !claims(&class, "GatewayInfrastructurePropagation"),
        "{class:#}"
    );
    assert!(claims(&class, "TCPRoute"), "{class:#}");
    assert_eq!(
        claims(&class, "HTTPRouteRetry"),
        channel == Channel::Experimental,
        "{class:#}"
    );
    a_route_is_published(&cluster, 2).await;
    if channel == Channel::Experimental {
        let external_host = json!({"type": "ExternalHostname", "externalHostname": {"hostname": "outside.test"},
            "port": {"port": 443}, "protocol": "HTTP"});
        let mut route = plain_route("outside", "outside.test", "");
        route["spec"]["rules"][0]["backendRefs"] = json!([*X_BACKEND]);
        cluster.apply_all(&[x_backend(&external_host), route]).await;
        outside_is_refused(&cluster).await;
    }

    cluster.install_crds(channel).await;
    let class =
        wait_supported_version(&cluster, "True", &format!("API v1.7 ({word} channel) is")).await;
    assert!(!claims(&class, "HTTPRouteRetry"), "{class:#}");
    assert!(claims(&class, "HTTPRouteRetryConnectionError"), "{class:#}");
    a_route_is_published(&cluster, 3).await;
    if channel == Channel::Experimental {
        // The object was stored with the older schema.
        outside_is_refused(&cluster).await;
        let what = "the unsupported type is reported";
        cluster
            .until(what, OUTSIDE, |object| {
                let conditions = &object["status"]["ancestors"][0]["conditions"];
                condition(conditions, "Accepted")["reason"] == "UnsupportedValue"
            })
            .await;
    }
    let mut twice = plain_route("twice", "twice.test", "app");
    let mut rule = twice["spec"]["rules"][0].clone();
    rule["name"] = json!("same");
    twice["spec"]["rules"] = json!([rule, rule]);
    let refused = cluster.apply(&yaml(&[twice])).await;
    let refused = refused.expect_err("rule names must be unique").to_string();
    assert!(refused.contains("name must be unique"), "{refused}");

    assert!(claims(&class, "HTTPRouteRetryCodes"), "{class:#}");
    // As of this release, requests that a backend may have processed are not retried.
    let mut route = plain_route("retried", "retried.test", "app");
    route["spec"]["rules"][0]["retry"] = json!({"codes": [503]});
    cluster.apply_all(&[route]).await;
    eventually("the retry is published", TEST_TIMEOUT, async || {
        let found = publication(cluster.admin(), &edge_name()).await?;
        let text = sesame_proto::json::to_value(&found.snapshot).to_string();
        holds(text.contains("\"unprocessed_only\":true"), || text.clone())
    })
    .await;

    // The installed release's admission policy would reject the CRD.
    cluster.delete(UPGRADES).await;
    let newer = json!({"metadata": {"annotations": {"gateway.networking.k8s.io/bundle-version": "v2.0.0"}}});
    eventually("the CRD is changed", TEST_TIMEOUT, async || {
        let changed = cluster.admin().merge(DEFINITION, &newer).await;
        changed.map_err(|error| error.to_string())
    })
    .await;
    let message = "v1.5 to v1.7 are supported, but Gateway is from v2.0";
    wait_supported_version(&cluster, "False", message).await;
    a_route_is_published(&cluster, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_channel_is_upgraded_release_by_release() {
    upgraded(Channel::Standard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_experimental_channel_is_upgraded_release_by_release() {
    upgraded(Channel::Experimental).await;
}
