//! The wall clock jumps by years in both directions. Only timestamps in the output may change.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sesame_published::STATUS_MANAGER;
use sesame_published::names::agent_name;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::clock::Clock;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, TEST_TIMEOUT, condition, deployed, publication,
};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, edge_name, http_listener, numbered};
use sesame_tests::processes::cpu_seconds;
use sesame_tests::wait::{eventually, holds};

const HOST: &str = "clock.test";
const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

/// Returns the jumps in seconds: years ahead, an hour behind, shortly after 1970 (without a
/// battery), and the real time.
fn jumps() -> [i64; 4] {
    let since_1970 = Timestamp::now().as_second();
    [10 * YEAR, -HOUR, 60 - since_1970, 0]
}

async fn change(agent: &AgentUnderTest, number: usize, backend: &Backend) {
    agent.write("all.yaml", &numbered(HOST, number, backend.address()));
    agent.wait_numbered(HOST, number).await;
}

fn well(status: &Value) -> bool {
    status["healthy"] == true && status["gateways"][0]["envoy"]["state"] == "Live"
}

fn is_near(shown: &Value, ahead: i64) -> bool {
    let shown: Option<Timestamp> = shown.as_str().and_then(|text| text.parse().ok());
    let off = shown.map(|shown| shown.as_second() - Timestamp::now().as_second() - ahead);
    off.is_some_and(|off| off.abs() < HOUR / 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_jump_changes_only_displayed_times() {
    let backend = Backend::start("a").await;
    let clock = Clock::new();
    let command = clock.command();
    let wrapper: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut agent = Setup::with_ports(&[80])
        .wrapper(&wrapper)
        .start(&[("all.yaml", &numbered(HOST, 0, backend.address()))]);
    change(&agent, 0, &backend).await;
    agent.wait_status("the agent is healthy", well).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));
    let mut number = 0;
    for ahead in jumps() {
        clock.set(ahead);
        load.pass(100).await;
        number += 1;
        change(&agent, number, &backend).await;
        every_generation_is_kept(&agent, number).await;
        let status = agent
            .wait_status("healthy, with a timestamp after the jump", |status| {
                well(status) && is_near(&status["gateways"][0]["appliedAt"], ahead)
            })
            .await;
        assert_eq!(status["gateways"][0]["state"], "Serving", "{status:#}");

        // The new agent adopts an Envoy that started with the wrong clock.
        agent.envoy_is_replaced("hot", "hot restart").await;
        agent.kill9();
        load.pass(20).await;
        agent.restart();
        number += 1;
        change(&agent, number, &backend).await;
        every_generation_is_kept(&agent, number).await;
        let status = agent.wait_status("the agent is healthy", well).await;
        assert!(is_near(&status["agent"]["started"], ahead), "{status:#}");
    }
    load.stop()
        .await
        .clean("four clock jumps, each with an Envoy restart and an agent restart");
    idle(&agent, &clock).await;
}

/// Generations are ordered by acceptance, regardless of their timestamps.
async fn every_generation_is_kept(agent: &AgentUnderTest, newest: usize) {
    let state = agent.state().to_string_lossy().into_owned();
    eventually("every generation is kept", TEST_TIMEOUT, async || {
        let output = agent
            .command_beside(&["history", "--state-dir", &state])
            .await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap_or_default();
        holds(
            text.lines().count() == newest + 2 && last.contains("accepted last"),
            || text,
        )
    })
    .await;
}

/// A deadline that is years away must not cause a busy loop.
async fn idle(agent: &AgentUnderTest, clock: &Clock) {
    let pid = agent.status().expect("a status")["agent"]["pid"]
        .as_u64()
        .and_then(|pid| u32::try_from(pid).ok())
        .expect("a process");
    for ahead in [YEAR, -YEAR, 0] {
        clock.set(ahead);
        eventually("the agent is idle", TEST_TIMEOUT, async || {
            let before = cpu_seconds(pid);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let used = cpu_seconds(pid) - before;
            holds(used < 0.3, || format!("{used} s of CPU time in one second"))
        })
        .await;
    }
}

const NAMESPACE: &str = "sesame-system";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";

async fn write_report(cluster: &TestCluster, host: &str, heartbeat: Timestamp) {
    let publication = eventually("the Gateway is published", TEST_TIMEOUT, async || {
        publication(cluster.admin(), &edge_name()).await
    })
    .await;
    let revision: String = publication.manifest.revision.chars().take(12).collect();
    let name = agent_name(&edge_name(), host);
    let agent = json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "GatewayAgent",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"gateway": "default/edge", "host": host, "fleet": "default"},
    });
    cluster
        .admin()
        .apply_value(&agent)
        .await
        .expect("a GatewayAgent");
    let path = format!(
        "/apis/projectsesame.io/v1alpha1/namespaces/{NAMESPACE}/gatewayagents/{name}/status?fieldManager={STATUS_MANAGER}"
    );
    let status = json!({
        "state": "Serving", "wantedRevision": revision, "appliedRevision": revision,
        "envoyVersion": "1.40.0", "agentVersion": "0.1.0", "addresses": ["192.0.2.1"],
        "heartbeat": heartbeat,
    });
    cluster.merge(&path, &json!({"status": status})).await;
}

async fn wait_programmed(cluster: &TestCluster, words: &str) {
    cluster
        .until(words, GATEWAY, |gateway| {
            let programmed = condition(&gateway["status"]["conditions"], "Programmed");
            let message = programmed["message"].as_str().unwrap_or_default();
            programmed["status"] == "True" && message.starts_with(words)
        })
        .await;
}

/// Hosts must not be lost, and the controller must keep its Lease.
#[tokio::test(flavor = "multi_thread")]
async fn controller_trusts_host_reports_after_clock_jump() {
    let cluster = deployed(Channel::Standard).await;
    let clock = Clock::new();
    clock.set(10 * YEAR);
    let variables = clock.variables();
    let mut controller = ControllerUnderTest::start_with(&cluster, &[], &variables).await;
    controller.wait_ready().await;
    cluster
        .apply_all(&edge(&[http_listener("http", 80, "")]))
        .await;
    // Both hosts' clocks differ from the controller's.
    let mut now = Timestamp::now();
    write_report(&cluster, "right", now).await;
    write_report(
        &cluster,
        "wrong",
        now - SignedDuration::from_secs(20 * YEAR),
    )
    .await;
    wait_programmed(&cluster, "programmed on 2 of 2 hosts").await;
    for ahead in [-20 * YEAR, 30 * YEAR, 0] {
        clock.set(ahead);
        // New objects have wrong timestamps, but must be published.
        let listeners = [
            http_listener("http", 80, ""),
            http_listener("more", 8080, &format!("h{}.test", ahead.rem_euclid(7))),
        ];
        let before = eventually("the Gateway is published", TEST_TIMEOUT, async || {
            publication(cluster.admin(), &edge_name()).await
        })
        .await;
        let before = before.manifest.revision;
        cluster.apply_all(&edge(&listeners)).await;
        eventually("the change is published", TEST_TIMEOUT, async || {
            let now = publication(cluster.admin(), &edge_name()).await?;
            if now.manifest.revision == before {
                Err(controller.log_tail())
            } else {
                Ok(())
            }
        })
        .await;
        now += SignedDuration::from_secs(60);
        write_report(&cluster, "right", now).await;
        write_report(
            &cluster,
            "wrong",
            now - SignedDuration::from_secs(20 * YEAR),
        )
        .await;
        wait_programmed(&cluster, "programmed on 2 of 2 hosts").await;
        controller.wait_leads().await;
    }
    // A restarted controller sees all hosts for the first time.
    clock.set(10 * YEAR);
    controller.restart();
    controller.wait_ready().await;
    controller.wait_leads().await;
    write_report(&cluster, "third", now).await;
    wait_programmed(&cluster, "programmed on 3 of 3 hosts").await;
}
