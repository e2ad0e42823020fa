//! XBackends and XBackendTrafficPolicies end to end.

use serde_json::{Value, json};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, condition, deploy};
use sesame_tests::followed::follow;
use sesame_tests::manifests::{edge, http_listener, http_route};
use sesame_tests::network;

const EXPERIMENTAL: &str = "/apis/gateway.networking.x-k8s.io/v1alpha1/namespaces/default";
const POD: &str = "/api/v1/namespaces/default/pods/web-1";

fn x_backend(name: &str, port: u16, protocol: &str) -> Value {
    json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend",
    "metadata": {"name": name, "namespace": "default"},
    "spec": {
        "type": "EndpointSelector", "endpointSelector": {"matchLabels": {"app": "web"}},
        "port": {"number": port}, "protocol": protocol,
    }})
}

fn traffic_policy(name: &str) -> Value {
    json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackendTrafficPolicy",
    "metadata": {"name": name, "namespace": "default"},
    "spec": {
        "targetRefs": [{"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "web"}],
        "retryConstraint": {"budget": {"percent": 10}},
    }})
}

fn pod(name: &str, app: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"containers": [{"name": "app", "image": "app"}]}})
}

fn state(address: &str, ready: &str) -> Value {
    json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": ready}]}})
}

fn route(name: &str, hostname: &str, backend: &str) -> Value {
    let to = json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": backend});
    http_route(name, &[hostname], &[json!({ "backendRefs": [to] })])
}

fn accepted(object: &Value) -> &Value {
    let conditions = &object["status"]["ancestors"][0]["conditions"];
    &condition(conditions, "Accepted")["reason"]
}

#[tokio::test(flavor = "multi_thread")]
async fn selected_pods_get_requests_only_while_ready() {
    if !network::inside_own("selected_pods_get_requests_only_while_ready") {
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
    let (address, port) = (backend.address().ip().to_string(), backend.address().port());

    let mut objects = edge(&[http_listener("http", 80, "")]);
    let mut web = x_backend("web", port, "HTTP");
    web["spec"]["sessionPersistence"] = json!({"type": "Cookie", "cookie": {"name": "sid"}});
    let mut secure = x_backend("secure", port, "HTTP2");
    secure["spec"]["tls"] = json!({"mode": "ServerOnly", "validation": {"hostname": "a.test",
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}});
    objects.extend([web, secure]);
    objects.push(route("secure", "secure.test", "secure"));
    objects.push(x_backend("tools", port, "MCP"));
    objects.push(route("web", "web.test", "web"));
    objects.push(route("tools", "tools.test", "tools"));
    objects.push(pod("web-1", "web"));
    objects.push(pod("other-1", "other"));
    cluster.apply_all(&objects).await;
    let status = format!("{POD}/status");
    cluster.merge(&status, &state(&address, "True")).await;
    let request = agent.get(80, "web.test", "/");
    agent
        .wait_served(&request, |reply| {
            let cookie = reply.header("set-cookie").unwrap_or_default();
            reply.status == 200 && cookie.starts_with("sid=")
        })
        .await;
    let tools = agent.get(80, "tools.test", "/");
    agent.wait_served(&tools, |reply| reply.status == 500).await;
    let web = format!("{EXPERIMENTAL}/xbackends/web");
    cluster
        .until("the backend is accepted", &web, |object| {
            accepted(object) == "Accepted"
        })
        .await;
    let tools = format!("{EXPERIMENTAL}/xbackends/tools");
    cluster
        .until("the unsupported protocol is reported", &tools, |it| {
            accepted(it) == "UnsupportedValue"
        })
        .await;

    let secure = format!("{EXPERIMENTAL}/xbackends/secure");
    cluster
        .until("the missing CA is reported", &secure, |it| {
            accepted(it) == "NoValidCACertificate"
        })
        .await;
    let authority = Authority::new("backends");
    let ca = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "ca", "namespace": "default"}, "data": {"ca.crt": authority.pem()}});
    cluster.apply_all(&[ca]).await;
    cluster
        .until("the CA is accepted", &secure, |it| {
            accepted(it) == "Accepted"
        })
        .await;

    cluster.merge(&status, &state(&address, "False")).await;
    agent
        .wait_served(&request, |reply| reply.status == 503)
        .await;
    cluster.merge(&status, &state(&address, "True")).await;
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
    // A Pod must be selected only while it has the label.
    let without = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.merge(POD, &without).await;
    agent
        .wait_served(&request, |reply| reply.status == 503)
        .await;
    let other = "/api/v1/namespaces/default/pods/other-1";
    let with = json!({"metadata": {"labels": {"app": "web"}}});
    cluster.merge(other, &with).await;
    let status = format!("{other}/status");
    cluster.merge(&status, &state(&address, "True")).await;
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;

    cluster
        .apply_all(&[traffic_policy("a"), traffic_policy("b")])
        .await;
    for (name, reason) in [("a", "UnsupportedValue"), ("b", "Conflicted")] {
        let policy = format!("{EXPERIMENTAL}/xbackendtrafficpolicies/{name}");
        let what = format!("policy {name} has the reason {reason}");
        cluster
            .until(&what, &policy, |policy| accepted(policy) == reason)
            .await;
    }
}
