//! The wall clock of the agent and its Envoy jumps by years, both ways: everything goes on, only times that are shown jump.

#![allow(clippy::expect_used, reason = "all of it is test code")]

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::clock::Clock;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served, yaml};
use sesame_tests::processes::cpu_seconds;

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

/// Forward by years, back by an hour, to where a machine without a clock of its own starts, and to what it was.
fn jumps() -> [i64; 4] {
    let since_1970 = Timestamp::now().as_second();
    [10 * YEAR, -HOUR, 60 - since_1970, 0]
}

fn round(number: usize, backend: &Backend) -> String {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    let matches = [
        path("Exact", "/always"),
        path("Exact", &format!("/{number}")),
    ];
    objects.push(http_route(
        "app",
        &["clock.test"],
        &[rule_to("app", &matches)],
    ));
    yaml(&objects)
}

async fn change(agent: &AgentUnderTest, number: usize, backend: &Backend) {
    agent.write("all.yaml", &round(number, backend));
    let request = agent.get(80, "clock.test", &format!("/{number}"));
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
}

fn well(status: &Value) -> bool {
    status["healthy"] == true && status["gateways"][0]["envoy"]["state"] == "Live"
}

/// Whether a time that is shown is of the clock that is so many seconds ahead.
fn of_clock(shown: &Value, ahead: i64) -> bool {
    let shown: Option<Timestamp> = shown.as_str().and_then(|text| text.parse().ok());
    let off = shown.map(|shown| shown.as_second() - Timestamp::now().as_second() - ahead);
    off.is_some_and(|off| off.abs() < HOUR / 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_changes_nothing_but_the_times_that_are_shown() {
    let backend = Backend::start("a").await;
    let clock = Clock::new();
    let environment = clock.environment();
    let wrapper: Vec<&str> = environment.iter().map(String::as_str).collect();
    let mut agent = Setup::with_ports(&[80])
        .wrapper(&wrapper)
        .start(&[("all.yaml", &round(0, &backend))]);
    change(&agent, 0, &backend).await;
    agent.wait_status("all is well", well).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "clock.test", "/always")]));
    let runtime = agent.runtime().to_string_lossy().into_owned();
    let mut number = 0;
    for ahead in jumps() {
        clock.set(ahead);
        load.pass(100).await;
        number += 1;
        change(&agent, number, &backend).await;
        let status = agent
            .wait_status("all is well, by the clock that jumped", |status| {
                well(status) && of_clock(&status["gateways"][0]["appliedAt"], ahead)
            })
            .await;
        assert_eq!(status["gateways"][0]["state"], "Serving", "{status:#}");

        // Another Envoy, which lives by this clock from the start; the next agent, which adopts it.
        let restart = ["restart", "--runtime-dir", &runtime, "--strategy", "hot"];
        let output = agent.command_beside(&restart).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains("replaced by hot restart"),
            "{ahead}: {text}{}",
            agent.log_tail()
        );
        agent.kill9();
        load.pass(20).await;
        agent.restart();
        number += 1;
        change(&agent, number, &backend).await;
        let status = agent.wait_status("all is well", well).await;
        assert!(of_clock(&status["agent"]["started"], ahead), "{status:#}");
    }
    load.stop()
        .await
        .clean("the clock jumped four times, with a restart and another agent after each");
    every_generation_is_kept(&agent, number);
    idle(&agent, &clock).await;
}

/// In the order in which they were accepted, whatever their times say.
fn every_generation_is_kept(agent: &AgentUnderTest, newest: usize) {
    let state = agent.state().to_string_lossy().into_owned();
    let output = agent.command(&["history", "--state-dir", &state]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.lines().count(), newest + 2, "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains("accepted last"), "{text}");
}

/// Nobody waits for a time that is years away, or asks for it in a circle.
async fn idle(agent: &AgentUnderTest, clock: &Clock) {
    let pid = agent.status().expect("a status")["agent"]["pid"]
        .as_u64()
        .and_then(|pid| u32::try_from(pid).ok())
        .expect("a process");
    for ahead in [YEAR, -YEAR, 0] {
        clock.set(ahead);
        let before = cpu_seconds(pid);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let used = cpu_seconds(pid) - before;
        assert!(used < 0.3, "{used} s of processor time in a second");
    }
}
