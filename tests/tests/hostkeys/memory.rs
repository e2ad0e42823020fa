//! Core dumps: the agent makes none, and an Envoy's has none of its memory.

use std::fs;

use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};

/// Returns the lines of a file of a process.
fn of_process(pid: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process runs")
}

fn core_limit(pid: i32) -> String {
    let limits = of_process(pid, "limits");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"));
    let values = line.expect("a limit").split_whitespace().take(2);
    values.collect::<Vec<_>>().join(" ")
}

/// Asserts that no dump of this Envoy holds anything of its memory.
fn assert_nothing_dumped(envoy: i32) {
    assert_eq!(core_limit(envoy), "0 0");
    assert_eq!(of_process(envoy, "coredump_filter").trim(), "00000000");
}

async fn agent_pid(agent: &AgentUnderTest) -> i32 {
    let status = agent.wait_healthy().await;
    let pid = status["agent"]["pid"].as_i64().expect("a number");
    i32::try_from(pid).expect("a process number")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_dump_holds_memory_of_the_agent_or_of_an_envoy_also_after_a_hot_restart() {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let pid = agent_pid(&agent).await;
    assert_eq!(core_limit(pid), "0 0");
    // The files of a process that cannot be dumped are root's, whoever runs it; what it may not be asked shows the rest.
    assert_eq!(of_process(pid, "coredump_filter").trim(), "00000000");
    assert_nothing_dumped(agent.wait_live().await);
    agent.envoy_is_replaced("auto", "hot").await;
    assert_nothing_dumped(agent.wait_live().await);
}
