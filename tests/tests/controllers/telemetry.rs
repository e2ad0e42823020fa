//! End-to-end tests for XTelemetryPolicies with a collector.

use serde_json::{Value, json};
use sesame_tests::backend::Backend;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::collecting::Collecting;
use sesame_tests::controller::{ControllerUnderTest, condition, deploy};
use sesame_tests::followed::follow;
use sesame_tests::manifests::{edge, http_listener, plain_route, served};
use sesame_tests::network;

const POLICIES: &str =
    "/apis/gateway.networking.x-k8s.io/v1alpha1/namespaces/default/xtelemetrypolicies";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn policy(name: &str, service: &str) -> Value {
    json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XTelemetryPolicy",
    "metadata": {"name": name, "namespace": "default"},
    "spec": {
        "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}],
        "tracing": {"mode": "Enabled", "provider": {"backendRef": {"name": service, "port": 80}},
            "samplingRate": {"numerator": 100}}
    }})
}

fn reason(policy: &Value, type_: &str) -> Value {
    let ancestors = policy["status"]["ancestors"].as_array();
    let own = ancestors
        .into_iter()
        .flatten()
        .find(|ancestor| ancestor["controllerName"] == "projectsesame.io/gateway-controller");
    own.map_or(Value::Null, |own| {
        condition(&own["conditions"], type_)["reason"].clone()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_policies_trace_and_report_status() {
    if !network::inside_own("telemetry_policies_trace_and_report_status") {
        return;
    }
    let cluster = TestCluster::start().await;
    cluster.install_crds(Channel::Experimental).await;
    deploy(&cluster).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let agent = follow(&cluster, &[80], &[]).await;
    let at = (network::BACKENDS, 0).into();
    let backend = Backend::start_at("app", at).await.expect("an address");
    let collecting = Collecting::start_at(network::BACKENDS.into()).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects.push(plain_route("app", "app.test", "app"));
    objects.push(policy("a", "collector"));
    cluster.apply_all(&objects).await;
    let a = format!("{POLICIES}/a");
    cluster
        .until("the missing collector is reported", &a, |policy| {
            reason(policy, "Accepted") == "Accepted"
                && reason(policy, "ResolvedRefs") == "BackendNotFound"
        })
        .await;
    let foreign = json!({"ancestorRef": {"name": "edge"}, "controllerName": "example.com/other",
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let mut ancestors = cluster.get(&a).await["status"]["ancestors"].clone();
    ancestors
        .as_array_mut()
        .expect("a list")
        .push(foreign.clone());
    cluster
        .merge(
            &format!("{a}/status"),
            &json!({"status": {"ancestors": ancestors}}),
        )
        .await;

    cluster
        .apply_all(&served("collector", &[collecting.address()]))
        .await;
    let request = agent.get(80, "app.test", "/");
    agent
        .wait_served(&request, |reply| {
            reply.status == 200 && !reply.echo().values("traceparent").is_empty()
        })
        .await;
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let reply = request.header("traceparent", &parent).send().await;
    assert_eq!(reply.expect("an answer").status, 200);
    let spans = collecting.wait(TRACE, 2).await;
    assert_eq!(spans[0].service, "edge.default");
    let found = cluster
        .until("the collector is found", &a, |policy| {
            reason(policy, "ResolvedRefs") == "ResolvedRefs"
        })
        .await;
    let all = found["status"]["ancestors"].as_array().expect("a list");
    let others = |entry: &Value| entry["controllerName"] == foreign["controllerName"];
    assert!(all.iter().any(others), "{found:#}");

    // If creation timestamps are equal, the policy that is first by name wins.
    cluster.apply_all(&[policy("b", "collector")]).await;
    let b = format!("{POLICIES}/b");
    cluster
        .until("the second policy is rejected", &b, |policy| {
            reason(policy, "Accepted") == "Conflicted"
        })
        .await;
}
