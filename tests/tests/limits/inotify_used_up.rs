//! Other processes of the user take all inotify instances: the host keeps serving, reports the
//! problem, and recovers when instances are released.
//!
//! Runs in a separate user namespace with a limit of 0, so other tests are not affected.

use std::process::Command;

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::itself;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served, yaml};

const LIMIT: &str = "/proc/sys/user/max_inotify_instances";

/// Renders a route with `/always` and a path for this round, for `services` Services.
fn round(number: usize, services: usize, backend: &Backend) -> String {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    for index in 0..services {
        let name = format!("s-{index}");
        objects.extend(served(&name, &[backend.address()]));
        let paths = [path("Exact", &format!("/{number}/{index}"))];
        let host = ["full.test"];
        objects.push(http_route(&name, &host, &[rule_to(&name, &paths)]));
    }
    let always = [path("Exact", "/always")];
    objects.push(http_route(
        "always",
        &["full.test"],
        &[rule_to("s-0", &always)],
    ));
    yaml(&objects)
}

async fn wait_round(agent: &AgentUnderTest, number: usize, services: usize) {
    for index in 0..services {
        let request = agent.get(80, "full.test", &format!("/{number}/{index}"));
        agent.wait_ok(&request).await;
    }
}

fn allow(instances: usize) {
    std::fs::write(LIMIT, instances.to_string()).expect("root in a user namespace may set it");
}

fn says(status: &Value, words: &[&str]) -> bool {
    let text = status["reasons"].to_string();
    status["healthy"] == false && words.iter().all(|word| text.contains(word))
}

async fn wait_well(agent: &AgentUnderTest) {
    agent.wait_healthy().await;
}

#[test]
fn host_serves_and_finds_changes_without_inotify() {
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(itself::executable())
        .args(itself::only("without_inotify"))
        .status()
        .expect("unshare runs; install util-linux");
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a user namespace of its own: another test of this file runs it there"]
async fn without_inotify() {
    allow(128);
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80]).start(&[("all.yaml", &round(0, 2, &backend))]);
    wait_round(&agent, 0, 2).await;
    wait_well(&agent).await;
    let before = agent.envoy_pids();
    let load = Load::start(&Plan::new(vec![agent.get(80, "full.test", "/always")]));

    // While Envoy runs: watching one more file would make it abort.
    allow(0);
    agent.write("all.yaml", &round(1, 3, &backend));
    let words = ["inotify", "fs.inotify.max_user_instances"];
    let status = agent
        .wait_status("it says what is used up", |status| says(status, &words))
        .await;
    assert_eq!(status["gateways"][0]["state"], "Degraded", "{status:#}");
    load.pass(100).await;
    // A change that needs no more instances is applied.
    agent.write("all.yaml", &round(2, 2, &backend));
    wait_round(&agent, 2, 2).await;
    wait_well(&agent).await;
    agent.write("all.yaml", &round(3, 3, &backend));
    agent
        .wait_status("it says what is used up", |status| says(status, &words))
        .await;
    allow(128);
    wait_round(&agent, 3, 3).await;
    wait_well(&agent).await;

    // At the agent's start: without notifications of changes it polls.
    agent.kill9();
    allow(0);
    agent.restart();
    agent
        .wait_status("it says that it looks", |status| {
            says(status, &["once a second", "fs.inotify.max_user_instances"])
        })
        .await;
    agent.write("all.yaml", &round(4, 3, &backend));
    wait_round(&agent, 4, 3).await;
    allow(128);
    wait_well(&agent).await;
    agent.write("all.yaml", &round(5, 4, &backend));
    wait_round(&agent, 5, 4).await;
    wait_well(&agent).await;
    assert_eq!(agent.envoy_pids(), before, "its Envoy is the same");
    load.stop()
        .await
        .clean("no inotify instance left, while it runs and at its start");

    // Without a running Envoy: it cannot start without inotify.
    agent.kill9();
    agent.kill9_envoy();
    allow(0);
    agent.restart();
    agent
        .wait_status("it says why there is no Envoy", |status| {
            status["gateways"][0]["state"] == "Down"
                && says(status, &["Envoy died", "Consider increasing"])
        })
        .await;
    allow(128);
    wait_round(&agent, 5, 4).await;
    wait_well(&agent).await;
}
