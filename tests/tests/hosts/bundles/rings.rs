//! Staged rollouts of bundles: a host waits until the rings before its own have baked.

use std::fs;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge_with_parameters, http_route, rule_to, served};

use super::site::{Workshop, drop_in, host, printed, trust, wait};

fn objects(stage: &Value, backends: &[&Backend], to: &str) -> Vec<Value> {
    let mut objects = edge_with_parameters(&json!({"rollout": {"stages": [stage]}}));
    for backend in backends {
        objects.extend(served(backend.name(), &[backend.address()]));
    }
    objects.push(http_route("app", &["bundle.test"], &[rule_to(to, &[])]));
    objects
}

fn beside(first: &AgentUnderTest, workshop: &Workshop) -> AgentUnderTest {
    let setup = Setup::with_ports(&[80]).without_manifests();
    let mut agent = setup.prepare_beside(first);
    agent.add_flags(&["--bundle-dir", &agent.manifests().to_string_lossy()]);
    trust(&agent, &["add", &workshop.at("ours.pub")]);
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_reaches_later_ring_after_bake_time() {
    let [a, b, c] = ["a", "b", "c"].map(Backend::start);
    let (a, b, c) = (a.await, b.await, c.await);
    let all = [&a, &b, &c];
    let workshop = Workshop::new();
    let mut first = host(&workshop, &[80], &["--rollout-ring", "1"]);
    let mut later = beside(&first, &workshop);
    first.restart();
    later.restart();
    let give = |agents: [&AgentUnderTest; 2], stage: &Value, to: &Backend, sequence: &str| {
        let (name, objects) = (to.name(), objects(stage, &all, to.name()));
        let bundle = workshop.create(name, &objects, &["--sequence", sequence]);
        let bytes = fs::read(bundle).unwrap();
        for agent in agents {
            drop_in(agent, &format!("{name}.bundle"), &bytes);
        }
    };
    let bakes = json!({"hosts": 1, "bake": "30s"});
    give([&first, &later], &bakes, &a, "1");
    wait(&first, &a).await;
    wait(&later, &a).await;
    later.wait_stored().await;
    let load = Load::start(&Plan::new(vec![later.get(80, "bundle.test", "/")]));

    give([&first, &later], &bakes, &b, "2");
    wait(&first, &b).await;
    let waits = |status: &Value| {
        let message = status["gateways"][0]["message"].to_string();
        message.contains("the newest bundle waits for rollout ring 2, until 20")
    };
    later.wait_status("the bundle waits", waits).await;
    wait(&later, &a).await;
    // The next agent must wait too.
    later.restart();
    later.wait_status("the bundle waits", waits).await;
    wait(&later, &a).await;
    wait(&later, &b).await;

    let pauses = json!({"hosts": 1, "bake": "0s", "pause": true});
    give([&first, &later], &pauses, &c, "3");
    wait(&first, &c).await;
    let waits = |status: &Value| {
        let message = status["gateways"][0]["message"].to_string();
        message.contains("ring 2, until `sesame-agent accept`")
    };
    later.wait_status("an operator must accept", waits).await;
    wait(&later, &b).await;
    let accepted = later.order(&["accept"]).await;
    assert!(accepted.status.success(), "{}", printed(&accepted));
    wait(&later, &c).await;
    load.stop().await.assert_clean();
}
