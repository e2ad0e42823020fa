//! `spec.rollout.stages`: a revision reaches one host first, and its own signals hold it there.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, words};
use sesame_tests::backend::Backend;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, condition, deployed, give_rights};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge_with_parameters, plain_route, served};
use sesame_tests::network;
use sesame_tests::ports::free_port;
use sesame_tests::reports::allow_hosts;
use sesame_tests::wait::eventually;

use crate::kubectl_plugin::Plugin;

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const HOSTS: [&str; 5] = ["host-1", "host-2", "host-3", "host-4", "host-5"];

async fn agents(cluster: &TestCluster) -> Vec<AgentUnderTest> {
    give_rights(cluster, "agent/rbac.yaml").await;
    allow_hosts(cluster, &HOSTS).await;
    let user = User::service_account(NAMESPACE, "sesame-agent");
    let config = cluster.kubeconfig(&user).await;
    let mut all: Vec<AgentUnderTest> = Vec::new();
    for host in HOSTS {
        let setup = Setup::with_ports(&[80]).without_manifests();
        let mut agent = match all.first() {
            None => setup.prepare(),
            Some(first) => setup.prepare_beside(first),
        };
        agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
        agent.add_flags(&["--host", host]);
        agent.restart();
        all.push(agent);
    }
    all
}

fn route_to(service: &str) -> Value {
    plain_route("app", "app.test", service)
}

async fn wait_backend(agent: &AgentUnderTest, name: &str) {
    agent
        .wait_backend(&agent.get(80, "app.test", "/"), name)
        .await;
}

async fn wait_rollout(plugin: &Plugin, what: &str, good: impl Fn(&Value) -> bool) -> Value {
    eventually(what, TEST_TIMEOUT, async || {
        let shown = plugin.json(&["rollout", "status", "edge"])?;
        if good(&shown) {
            Ok(shown)
        } else {
            Err(format!("{shown:#}"))
        }
    })
    .await
}

fn released(shown: &Value) -> Vec<&str> {
    let hosts = shown["hosts"].as_array().expect("hosts").iter();
    let released = hosts.filter(|host| host["released"] == true);
    released.filter_map(|host| host["host"].as_str()).collect()
}

fn message(gateway: &Value) -> String {
    condition(&gateway["status"]["conditions"], "Programmed")["message"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_revision_is_held_on_first_host() {
    if !network::inside_own("bad_revision_is_held_on_first_host") {
        return;
    }
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let agents = agents(&cluster).await;
    let [one, two, good] = ["one", "two", "good"].map(async |name| {
        let at = (network::BACKENDS, 0).into();
        Backend::start_at(name, at).await.expect("an address")
    });
    let (one, two, good) = (one.await, two.await, good.await);
    let dead: SocketAddr = (network::BACKENDS, free_port()).into();
    let stages = json!([{"hosts": 1, "bake": "90s"}]);
    let mut objects = edge_with_parameters(&json!({"rollout": {"stages": stages}}));
    objects.extend(served("app", &[one.address()]));
    objects.extend(served("dead", &[dead]));
    objects.extend(served("good", &[good.address()]));
    objects.push(route_to("app"));
    cluster.apply_all(&objects).await;
    for agent in &agents {
        wait_backend(agent, "one").await;
        agent.wait_stored().await;
    }
    let plugin = Plugin::new(&cluster, &User::Admin).await;
    wait_rollout(&plugin, "all hosts report", |shown| {
        let hosts = shown["hosts"].as_array().map_or(0, Vec::len);
        shown["verdict"] == "Done" && hosts == HOSTS.len()
    })
    .await;
    let (first, others) = agents.split_first().expect("agents");
    let requests = others.iter().map(|it| it.get(80, "app.test", "/"));
    let load = Load::start(&Plan::new(requests.collect()));
    let any = Plan {
        good: |_| true,
        ..Plan::new(vec![first.get(80, "app.test", "/")])
    };
    let load_of_first = Load::start(&any);

    cluster.apply_all(&[route_to("dead")]).await;
    let request = first.get(80, "app.test", "/");
    first
        .wait_served(&request, |reply| reply.status == 503)
        .await;
    let shown = wait_rollout(&plugin, "the signals hold the revision", |shown| {
        shown["verdict"] == "Held"
    })
    .await;
    assert_eq!(released(&shown), ["host-1"], "{shown:#}");
    let reason = shown["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("% of requests get 5xx"), "{shown:#}");
    cluster
        .until("the Gateway says so", GATEWAY, |gateway| {
            let message = message(gateway);
            message.contains("stage 1 of 1, on 1 of 5 hosts, held: ")
        })
        .await;

    // Endpoints reach hosts that wait, even if the newest revision does not use the Service.
    cluster.apply_all(&served("app", &[two.address()])).await;
    for agent in others {
        wait_backend(agent, "two").await;
    }

    controller.restart();
    controller.wait_ready().await;
    controller.wait_leads().await;
    cluster.apply_all(&served("app", &[one.address()])).await;
    for agent in others {
        wait_backend(agent, "one").await;
    }
    let again = plugin
        .json(&["rollout", "status", "edge"])
        .expect("a rollout");
    for field in ["digest", "verdict", "stage", "reason"] {
        assert_eq!(again[field], shown[field], "{again:#}");
    }

    let undone = plugin.run(&["rollout", "undo", "edge"]);
    assert!(undone.status.success(), "{}", words(&undone));
    wait_backend(first, "one").await;
    load_of_first.stop().await;

    cluster.apply_all(&[route_to("good")]).await;
    wait_backend(first, "good").await;
    let shown = wait_rollout(&plugin, "the fixed revision bakes", |shown| {
        shown["verdict"] == "Baking" && released(shown) == ["host-1"]
    })
    .await;
    assert_eq!(shown["previous"].as_str().map(str::len), Some(16));
    for agent in others {
        wait_backend(agent, "one").await;
    }
    let resumed = plugin.run(&["rollout", "resume", "edge"]);
    assert!(resumed.status.success(), "{}", words(&resumed));
    for agent in others {
        wait_backend(agent, "good").await;
    }
    wait_rollout(&plugin, "all hosts serve it", |shown| {
        let hosts = shown["hosts"].as_array().expect("hosts");
        let applied = hosts.iter().all(|host| host["applied"] == true);
        applied && shown["verdict"] == "Done"
    })
    .await;
    load.stop().await.assert_clean();
}
