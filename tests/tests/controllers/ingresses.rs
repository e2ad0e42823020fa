//! Ingresses in a cluster, with errors as Events.

use serde_json::{Value, json};
use sesame_tests::certs::Authority;
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, deployed, publication};
use sesame_tests::manifests::{
    edge, edge_name, edge_with_parameters, http_listener, ingress_class, served,
};
use sesame_tests::reports;
use sesame_tests::wait::{eventually, holds};

const HOST: &str = "192.0.2.10";
const INGRESS: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/app";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn objects() -> Vec<Value> {
    let path = |path: &str, service: &str| {
        json!({"path": path, "pathType": "Prefix",
            "backend": {"service": {"name": service, "port": {"number": 80}}}})
    };
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served(
        "app",
        &["192.0.2.1:80".parse().expect("an address")],
    ));
    objects.push(ingress_class());
    objects.push(
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "app", "namespace": "default"},
        "spec": {"ingressClassName": "edge",
            "tls": [{"hosts": ["app.test"], "secretName": "app"}, {"hosts": ["gone.test"], "secretName": "gone"}],
            "rules": [
            {"host": "app.test", "http": {"paths": [path("/", "app"), path("/gone", "gone")]}},
        ]}}),
    );
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn ingress_is_published_and_its_fault_reported() {
    let cluster = deployed(Channel::Standard).await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    cluster.apply_all(&objects()).await;
    let published = async |wanted: &str| {
        eventually(
            &format!("{wanted} is published"),
            TEST_TIMEOUT,
            async || {
                let publication = publication(cluster.admin(), &edge_name()).await?;
                let snapshot = format!("{:?}", publication.snapshot);
                holds(snapshot.contains(wanted), || snapshot.clone())
            },
        )
        .await;
    };
    published("Ingress/default/app/rules/0/matches/0").await;
    let secret = Authority::new("tests").issue(&["app.test"]).secret("app");
    cluster.apply_all(&[secret]).await;
    published("TLSHost/default/edge/listeners/app.test").await;
    let event = async |what: &str, reason: &str, words: &str| {
        cluster
            .until(what, EVENTS, |events| {
                let all = events["items"].as_array().into_iter().flatten();
                let mut ingress_events =
                    all.filter(|event| event["regarding"]["kind"] == "Ingress");
                ingress_events.any(|event| {
                    let note = event["note"].as_str().unwrap_or_default();
                    event["reason"] == reason && note.contains(words)
                })
            })
            .await;
    };
    let what = "an Event names the missing Service";
    event(what, "BackendNotFound", "default/gone").await;
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    let ingress = cluster
        .until("the status has an address", INGRESS, |ingress| {
            !ingress["status"]["loadBalancer"]["ingress"].is_null()
        })
        .await;
    let port = |port: u16| json!({"port": port, "protocol": "TCP", "error": "projectsesame.io/BackendNotFound"});
    let expected = json!([{"ip": HOST, "ports": [port(80), port(443)]}]);
    assert_eq!(ingress["status"]["loadBalancer"]["ingress"], expected);

    reports::refuse_on_node(&cluster, &edge_name(), "Ingress/default/app").await;
    let what = "an Event quotes Envoy's error";
    event(what, "UnsupportedValue", "rule 0: bad regex").await;
    cluster
        .until("the status has Envoy's error", INGRESS, |ingress| {
            let entry = &ingress["status"]["loadBalancer"]["ingress"][0];
            entry["ports"][0]["error"] == "projectsesame.io/UnsupportedValue"
        })
        .await;

    let other = json!({"spec": {"ingressClassName": "other"}});
    cluster.merge(INGRESS, &other).await;
    cluster
        .until("the status has no address", INGRESS, |ingress| {
            ingress["status"]["loadBalancer"]["ingress"].is_null()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_ports_follow_configured_https_port() {
    let cluster = deployed(Channel::Standard).await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    let mut all = objects();
    let settings = json!({"ingress": {"http": 80, "https": 8443}});
    all.extend(edge_with_parameters(&settings));
    all.push(Authority::new("tests").issue(&["app.test"]).secret("app"));
    cluster.apply_all(&all).await;
    reports::serve_on_node(&cluster, &edge_name(), HOST).await;
    cluster
        .until("the status has both ports", INGRESS, |ingress| {
            let entry = &ingress["status"]["loadBalancer"]["ingress"][0];
            let ports = entry["ports"].as_array().into_iter().flatten();
            let ports: Vec<&Value> = ports.map(|port| &port["port"]).collect();
            ports == [&json!(80), &json!(8443)]
        })
        .await;
}
