//! When a condition starts or stops reporting a problem, the controller creates one Event for the
//! affected object.

use serde_json::{Value, json};
use sesame_tests::agent::TEST_TIMEOUT;
use sesame_tests::certs::Authority;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, deployed};
use sesame_tests::manifests::{edge, http_listener, https_listener, plain_route, served};
use sesame_tests::wait::eventually;

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";

fn about<'a>(
    events: &'a Value,
    (kind, name): (&str, &str),
    type_: &str,
    reason: &str,
) -> Vec<&'a Value> {
    let all = events["items"].as_array().into_iter().flatten();
    let matching = all.filter(|event| {
        event["regarding"]["kind"] == kind
            && event["regarding"]["name"] == name
            && event["type"] == type_
            && event["reason"] == reason
    });
    matching.collect()
}

async fn wait_event(
    cluster: &TestCluster,
    object: (&str, &str),
    type_: &str,
    reason: &str,
) -> String {
    let what = format!("{type_} {reason} of {object:?}");
    let events = cluster
        .until(&what, EVENTS, |events| {
            !about(events, object, type_, reason).is_empty()
        })
        .await;
    let event = about(&events, object, type_, reason)[0];
    assert!(event["regarding"]["uid"].is_string(), "{event:#}");
    event["note"].as_str().expect("a text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn condition_change_emits_one_event_per_object() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.push(plain_route("app", "app.test", "app"));
    cluster.apply_all(&objects).await;
    let route = ("HTTPRoute", "app");
    let text = wait_event(&cluster, route, "Warning", "BackendNotFound").await;
    assert!(text.starts_with("Gateway edge"), "{text}");
    assert!(text.contains("app"), "{text}");

    let backend = served("app", &["192.0.2.1:80".parse().expect("an address")]);
    cluster.apply_all(&backend).await;
    wait_event(&cluster, route, "Normal", "ResolvedRefs").await;

    // An Event about a listener is attached to its Gateway.
    let mut gateway = edge(&[http_listener("http", 80, "")])
        .pop()
        .expect("a Gateway");
    gateway["spec"]["listeners"][0]["allowedRoutes"] = json!({"kinds": [{"kind": "TCPRoute"}]});
    cluster.apply_all(&[gateway]).await;
    let text = wait_event(
        &cluster,
        ("Gateway", "edge"),
        "Warning",
        "InvalidRouteKinds",
    )
    .await;
    assert!(text.starts_with("listener http: "), "{text}");

    // If the restarted controller repeated an Event, it would arrive before the new one.
    controller.restart();
    controller.wait_ready().await;
    controller.wait_leads().await;
    let parameters = json!({"spec": {"parametersRef": {
        "group": "projectsesame.io", "kind": "SesameConfiguration", "name": "none", "namespace": "default"}}});
    cluster.merge(CLASS, &parameters).await;
    wait_event(
        &cluster,
        ("GatewayClass", "edge"),
        "Warning",
        "InvalidParameters",
    )
    .await;
    let events = cluster.get(EVENTS).await;
    let again = about(&events, route, "Warning", "BackendNotFound");
    assert_eq!(again.len(), 1, "{events:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uncovered_hostname_emits_event_and_metric() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    let authority = Authority::new("Test");
    let mut objects = edge(&[https_listener("https", 443, "shop.test", "tls")]);
    objects.push(authority.issue(&["other.test"]).secret("tls"));
    cluster.apply_all(&objects).await;
    let gateway = ("Gateway", "edge");
    let text = wait_event(&cluster, gateway, "Warning", "HostnameNotCovered").await;
    let expected =
        "listener \"https\": none of the listener's certificates covers hostname \"shop.test\"";
    assert!(text.starts_with(expected), "{text}");
    let uncovered = async || controller.metric("uncovered_hostnames", "").await;
    assert!((uncovered().await - 1.0).abs() < 0.1);

    cluster
        .apply_all(&[authority.issue(&["shop.test"]).secret("tls")])
        .await;
    eventually(
        "the hostname is covered",
        TEST_TIMEOUT,
        async || match uncovered().await {
            count if count < 0.5 => Ok(()),
            count => Err(count.to_string()),
        },
    )
    .await;
}
