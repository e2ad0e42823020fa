//! `spec.rollout.stages`: a revision reaches one host first, and its own signals hold it there. The
//! first two hosts joined the cluster from outside.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, words};
use sesame_tests::backend::Backend;
use sesame_tests::cluster::{TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, condition, give_rights};
use sesame_tests::joining::{Site, join, options};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge_with_parameters, plain_route, served};
use sesame_tests::network;
use sesame_tests::ports::free_port;
use sesame_tests::reports::allow_hosts;
use sesame_tests::wait::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::kubectl_plugin::Plugin;

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const HOSTS: [&str; 5] = ["host-1", "host-2", "host-3", "host-4", "host-5"];
const JOINED: [&str; 2] = ["host-1", "host-2"];
/// Long enough that the leader keeps its Lease on a stalled machine.
const LEASE: [&str; 2] = ["--lease-seconds", "12"];

async fn agents(site: &Site) -> Vec<AgentUnderTest> {
    let cluster = &site.cluster;
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
        if JOINED.contains(&host) {
            let token = site.token(&["--gateway", "default/edge", "--host", host]);
            let settings = agent.runtime().join("agent.yaml");
            let joined = join(&agent.state(), &settings, &token, &[]);
            assert!(joined.status.success(), "{}", words(&joined));
            let flags = options(&settings);
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            agent.add_flags(&flags);
        } else {
            agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
            agent.add_flags(&["--host", host]);
        }
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

/// Returns a backend that closes each connection in the middle of its response.
async fn truncating_backend() -> SocketAddr {
    let listener = TcpListener::bind((network::BACKENDS, 0));
    let listener = listener.await.expect("an address");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart";
                let _ = stream.write_all(response).await;
            });
        }
    });
    address
}

async fn wait_held(plugin: &Plugin, reason: &str) -> Value {
    let shown = wait_rollout(plugin, "the signals hold the revision", |shown| {
        shown["verdict"] == "Held"
    })
    .await;
    assert_eq!(released(&shown), ["host-1"], "{shown:#}");
    let found = shown["reason"].as_str().unwrap_or_default();
    assert!(found.contains(reason), "{shown:#}");
    shown
}

/// Kills the leader in the middle of a stage. Returns the next leader.
async fn fail_over(
    cluster: &TestCluster,
    plugin: &Plugin,
    controller: &mut ControllerUnderTest,
) -> ControllerUnderTest {
    let before = plugin.json(&["rollout", "status", "edge"]);
    let before = before.expect("a rollout");
    let second = ControllerUnderTest::start(cluster, &LEASE).await;
    second.wait_ready().await;
    controller.kill9();
    second.wait_leads().await;
    // A late pause must not turn its end into the next stage.
    for verb in ["pause", "resume"] {
        let output = plugin.run(&["rollout", verb, "edge"]);
        assert!(output.status.success(), "{}", words(&output));
    }
    let after = plugin.json(&["rollout", "status", "edge"]);
    let after = after.expect("a rollout");
    for field in ["digest", "previous", "stage"] {
        assert_eq!(after[field], before[field], "{after:#}");
    }
    assert_eq!(released(&after), ["host-1"], "{after:#}");
    second
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
    let site = Site::start().await;
    let cluster = &site.cluster;
    let mut controller = ControllerUnderTest::start(cluster, &LEASE).await;
    controller.wait_ready().await;
    let [one, two, good] = ["one", "two", "good"].map(async |name| {
        let at = (network::BACKENDS, 0).into();
        Backend::start_at(name, at).await.expect("an address")
    });
    let (one, two, good) = (one.await, two.await, good.await);
    let dead: SocketAddr = (network::BACKENDS, free_port()).into();
    let stages = json!({"rollout": {"stages": [{"hosts": 1, "bake": "15m"}]}});
    let mut objects = edge_with_parameters(&json!({}));
    objects.extend(served("app", &[one.address()]));
    objects.extend(served("dead", &[dead]));
    objects.extend(served("broken", &[truncating_backend().await]));
    objects.extend(served("good", &[good.address()]));
    objects.push(route_to("app"));
    cluster.apply_all(&objects).await;
    let agents = agents(&site).await;
    for agent in &agents {
        wait_backend(agent, "one").await;
        agent.wait_stored().await;
    }
    // Earlier, the controller could publish before it has seen all objects, and stage the rest.
    cluster.apply_all(&edge_with_parameters(&stages)).await;
    let plugin = Plugin::new(cluster, &User::Admin).await;
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
    let shown = wait_held(&plugin, "% of requests get 5xx").await;
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

    // Truncated responses have status 200.
    cluster.apply_all(&[route_to("broken")]).await;
    wait_held(&plugin, "% of requests are aborted by backends").await;
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
    let bakes = |gateway: &Value| {
        let message = message(gateway);
        message.contains("stage 1 of 1, on 1 of 5 hosts, bakes until")
    };
    let gateway = cluster.until("the stage bakes", GATEWAY, bakes).await;
    let end = message(&gateway);
    let _second = fail_over(cluster, &plugin, &mut controller).await;
    cluster.apply_all(&served("app", &[two.address()])).await;
    for agent in others {
        wait_backend(agent, "two").await;
    }
    let is_same = |gateway: &Value| message(gateway) == end;
    cluster
        .until("the stage ends when it would have", GATEWAY, is_same)
        .await;

    assert!(first.kill9_envoy() > 0);
    wait_held(&plugin, "host host-1: its Envoy").await;
    for agent in others {
        wait_backend(agent, "two").await;
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
