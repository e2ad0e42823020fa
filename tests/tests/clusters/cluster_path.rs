//! The whole path from cluster objects to traffic. Statuses must match the traffic.

use serde_json::{Value, json};
use sesame_published::names::manifest_name;
use sesame_tests::agent::{AgentUnderTest, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::cluster::{Client, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, condition};
use sesame_tests::followed::followed;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, edge_name, http_listener, plain_route, served};
use sesame_tests::network;
use sesame_tests::publications::config_map_path;
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/app";

struct Path {
    cluster: TestCluster,
    _controller: ControllerUnderTest,
    agent: AgentUnderTest,
}

impl Path {
    async fn start(ports: &[u16]) -> Self {
        let (cluster, controller, agent) = followed(ports, &["--drain-seconds=20"]).await;
        Self {
            cluster,
            _controller: controller,
            agent,
        }
    }

    fn admin(&self) -> &Client {
        self.cluster.admin()
    }

    async fn apply(&self, objects: &[Value]) {
        self.cluster.apply_all(objects).await;
    }

    async fn wait(&self, request_path: &str, backend: &Backend) {
        let request = self.agent.get(80, "path.test", request_path);
        self.agent.wait_backend(&request, backend.name()).await;
    }
}

fn programmed(object: &Value) -> &Value {
    condition(&object["status"]["conditions"], "Programmed")
}

fn route_to(service: &str) -> Value {
    plain_route("app", "path.test", service)
}

#[tokio::test(flavor = "multi_thread")]
async fn programmed_condition_follows_what_envoy_serves() {
    if !network::inside_own("programmed_condition_follows_what_envoy_serves") {
        return;
    }
    let mut all = Path::start(&[80]).await;
    let at = (network::BACKENDS, 0).into();
    let a = Backend::start_at("a", at).await.expect("an address");
    let b = Backend::start_at("b", at).await.expect("an address");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[a.address()]));
    objects.extend(served("b", &[b.address()]));
    objects.push(route_to("a"));
    all.apply(&objects).await;
    all.wait("/", &a).await;
    let gateway = all
        .cluster
        .until("the Gateway is programmed", GATEWAY, |gateway| {
            let listener = &gateway["status"]["listeners"][0];
            let listening = condition(&listener["conditions"], "Programmed");
            programmed(gateway)["status"] == "True"
                && listening["status"] == "True"
                && listener["attachedRoutes"] == 1
        })
        .await;
    let gateway_condition = programmed(&gateway);
    assert_eq!(
        gateway_condition["message"], "programmed on 1 of 1 hosts",
        "{gateway:#}"
    );
    assert_eq!(
        gateway_condition["observedGeneration"],
        gateway["metadata"]["generation"]
    );
    assert_eq!(
        gateway["status"]["addresses"],
        json!([{"type": "IPAddress", "value": "127.0.0.1"}])
    );

    let load = Load::start(&Plan::new(vec![all.agent.get(80, "path.test", "/")]));
    load.pass(100).await;
    for round in 0..10 {
        let (service, backend) = if round % 2 == 0 { ("b", &b) } else { ("a", &a) };
        all.apply(&[route_to(service)]).await;
        all.wait("/", backend).await;
    }

    // A thousand endpoint changes must not change the manifest.
    let manifest = config_map_path(&manifest_name(&edge_name()));
    let before = all.admin().get(&manifest).await.expect("a manifest");
    for change in 0..1000 {
        let backend = if change % 2 == 0 { &b } else { &a };
        let slices = served("a", &[backend.address()]).split_off(1);
        all.apply(&slices).await;
    }
    all.wait("/", &a).await;
    let after = all.admin().get(&manifest).await.expect("a manifest");
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&after), version(&before));
    load.pass(100).await;

    // The agent must keep serving without an API server, and then receive changes again.
    all.cluster.stop_apiserver();
    all.agent.wait_stored().await;
    all.agent.kill9();
    all.agent.restart();
    all.agent
        .wait_status("the outage is reported", |status| {
            status["gateways"][0]["state"] == "Degraded"
        })
        .await;
    load.pass(100).await;
    all.cluster.start_apiserver().await;
    all.apply(&[route_to("b")]).await;
    all.wait("/", &b).await;
    load.stop().await.assert_clean();

    // A dangling reference must not affect other routes.
    let broken = plain_route("broken", "broken.test", "nobody");
    all.apply(&[broken]).await;
    let request = all.agent.get(80, "broken.test", "/");
    all.agent
        .wait_served(&request, |reply| reply.status == 500)
        .await;
    all.cluster
        .until(
            "the missing backend is reported",
            &ROUTE.replace("/app", "/broken"),
            |route| {
                let refs = condition(&route["status"]["parents"][0]["conditions"], "ResolvedRefs");
                refs["status"] == "False" && refs["reason"] == "BackendNotFound"
            },
        )
        .await;
    all.wait("/", &b).await;

    assert!(all.agent.end().success());
    all.cluster
        .until("no host serves the Gateway", GATEWAY, |gateway| {
            programmed(gateway)["status"] == "False"
        })
        .await;
    all.agent.restart();
    all.cluster
        .until("the Gateway is served again", GATEWAY, |gateway| {
            programmed(gateway)["status"] == "True"
        })
        .await;

    // Envoy must finish its last request before it exits.
    let answered = b.count();
    let slow = all.agent.get(80, "path.test", "/delay/5000ms");
    let slow = tokio::spawn(async move { slow.send().await });
    eventually("the backend gets the request", TEST_TIMEOUT, async || {
        holds(b.count() > answered, || format!("{answered} requests"))
    })
    .await;
    all.admin().delete(GATEWAY).await.expect("deleted");
    all.agent
        .wait_status("the Gateway is withdrawn", |status| {
            status["gateways"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
    assert!(
        !slow.is_finished(),
        "the response came before the withdrawal"
    );
    let reply = slow.await.expect("no panic").expect("an answer");
    assert_eq!((reply.status, reply.backend().as_deref()), (200, Some("b")));
    all.agent.wait_envoys(0).await;
    // The files contain private keys, so the agent must delete them.
    for directory in [all.agent.runtime(), all.agent.state()] {
        eventually("the Gateway's files are gone", TEST_TIMEOUT, async || {
            let mut left =
                std::fs::read_dir(directory.join("gateways")).map_err(|e| e.to_string())?;
            left.next().map_or(Ok(()), |left| Err(format!("{left:?}")))
        })
        .await;
    }
    for kind in ["configmaps", "secrets"] {
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/{kind}?labelSelector=projectsesame.io%2Fgateway"
        );
        let is_empty = |list: &Value| list["items"].as_array().is_some_and(Vec::is_empty);
        let what = "all published objects are deleted";
        all.cluster.until(what, &path, is_empty).await;
    }
}
