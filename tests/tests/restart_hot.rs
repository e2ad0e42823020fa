//! Envoy is replaced under load, every way there is: not one request may fail.

#![allow(clippy::expect_used, reason = "all of it is test code")]

use std::process::Output;

use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};

/// `$SESAME_RESTARTS` for longer runs.
fn rounds() -> usize {
    let given = std::env::var("SESAME_RESTARTS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// An agent that serves `host` from a backend, beside `more` Services that nobody asks for.
async fn serving(setup: Setup, backend: &Backend, more: usize) -> AgentUnderTest {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects.push(http_route("app", &["restart.test"], &[rule_to("app", &[])]));
    for index in 0..more {
        let name = format!("other-{index}");
        objects.extend(served(&name, &[backend.address()]));
        objects.push(http_route(
            &name,
            &[&format!("{name}.test")],
            &[rule_to(&name, &[])],
        ));
    }
    let agent = setup.start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "restart.test", "/");
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
    agent
        .wait_status("all is served", |status| {
            status["gateways"][0]["state"] == "Serving"
        })
        .await;
    agent
}

fn load(agent: &AgentUnderTest) -> Load {
    Load::start(&Plan::new(vec![agent.get(80, "restart.test", "/")]))
}

async fn restart(agent: &AgentUnderTest, strategy: &str) -> Output {
    let runtime = agent.runtime().to_string_lossy().into_owned();
    let command = ["restart", "--runtime-dir", &runtime, "--strategy", strategy];
    agent.command_beside(&command).await
}

async fn restarts(agent: &AgentUnderTest, load: &Load, strategy: &str, by: &str) {
    let before = pid(agent).await;
    let output = restart(agent, strategy).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains(&format!("replaced by {by}")),
        "{text}{}{}",
        String::from_utf8_lossy(&output.stderr),
        agent.log_tail()
    );
    eprintln!("{}", text.lines().last().unwrap_or_default());
    assert_ne!(pid(agent).await, before, "{text}");
    load.pass(100).await;
}

/// The process that the agent looks after.
async fn pid(agent: &AgentUnderTest) -> u64 {
    let status = agent
        .wait_status("an Envoy is live", |status| {
            status["gateways"][0]["envoy"]["state"] == "Live"
        })
        .await;
    status["gateways"][0]["envoy"]["pid"].as_u64().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_restarts_in_a_row_drop_nothing() {
    let backend = Backend::start("a").await;
    let agent = serving(Setup::with_ports(&[80]), &backend, 0).await;
    let load = load(&agent);
    for _ in 0..rounds() {
        restarts(&agent, &load, "hot", "hot restart").await;
    }
    load.stop().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn handovers_in_a_row_drop_nothing() {
    let backend = Backend::start("a").await;
    let agent = serving(Setup::with_ports(&[80]), &backend, 0).await;
    let load = load(&agent);
    for _ in 0..rounds() {
        restarts(&agent, &load, "handover", "handover").await;
    }
    load.stop()
        .await
        .assert_clean_but_for_closed_ports(rounds());
}

/// The same where the kernel moves them: in a network namespace of its own, because the setting is one of a namespace.
#[test]
fn handovers_drop_nothing_at_all_where_the_kernel_moves_connections() {
    let script =
        r#"ip link set lo up && echo 1 > /proc/sys/net/ipv4/tcp_migrate_req && exec "$0" "$@""#;
    let status = std::process::Command::new("unshare")
        .args(["--net", "sh", "-c", script])
        .arg(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", "handovers_in_a_row_drop_nothing", "--nocapture"])
        .status()
        .expect("unshare runs");
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ways_by_turns_with_hundreds_of_clusters_drop_nothing() {
    let backend = Backend::start("a").await;
    let setup = Setup::with_ports(&[80]).flag("--subscription-budget=16");
    let agent = serving(setup, &backend, 300).await;
    let load = load(&agent);
    for (strategy, by) in [
        ("auto", "hot restart"),
        ("handover", "handover"),
        ("hot", "hot restart"),
    ] {
        restarts(&agent, &load, strategy, by).await;
    }
    load.stop().await.assert_clean_but_for_closed_ports(1);
}
