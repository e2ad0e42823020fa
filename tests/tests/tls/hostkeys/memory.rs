//! The agent never dumps core, and Envoy's core dumps contain no memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, rule_to, served, yaml,
};
use sesame_tests::wait::{eventually, holds};

use super::found::{Traces, files};

fn read_proc(pid: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process runs")
}

fn core_limit(pid: i32) -> String {
    let limits = read_proc(pid, "limits");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"));
    let values = line.expect("a limit").split_whitespace().take(2);
    values.collect::<Vec<_>>().join(" ")
}

fn assert_nothing_dumped(envoy: i32) {
    assert_eq!(core_limit(envoy), "0 0");
    assert_eq!(read_proc(envoy, "coredump_filter").trim(), "00000000");
}

async fn agent_pid(agent: &AgentUnderTest) -> i32 {
    let status = agent.wait_healthy().await;
    let pid = status["agent"]["pid"].as_i64().expect("a number");
    i32::try_from(pid).expect("a process number")
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_and_envoy_memory_stays_out_of_dumps() {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let pid = agent_pid(&agent).await;
    assert_eq!(core_limit(pid), "0 0");
    // If the agent runs as root, `/proc` does not show whether it can dump core.
    assert_eq!(read_proc(pid, "coredump_filter").trim(), "00000000");
    assert_nothing_dumped(agent.wait_live().await);
    agent.envoy_is_replaced("auto", "hot").await;
    assert_nothing_dumped(agent.wait_live().await);
}

/// Removes the core size limit, which the kernel ignores for piped dumps. Returns false if that is
/// not permitted.
fn let_dump(pid: i32) -> bool {
    let lifted = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), "--core=unlimited:unlimited"])
        .status();
    lifted.expect("prlimit").success()
}

fn dumps(directory: &Path) -> Vec<PathBuf> {
    let all = files(directory).into_iter();
    let is_dump = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name == "core" || name.starts_with("core."))
    };
    all.filter(is_dump).collect()
}

/// The agent would survive a first SIGSEGV, because Rust's handler returns.
fn crash(pid: i32, signal: &str) {
    let killed = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(killed.expect("kill").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_leaves_no_keys_in_core_dump() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("a pattern");
    if pattern.contains('/') || pattern.starts_with('|') {
        println!(
            "skipped: this machine does not write core dumps to the working directory: {pattern}"
        );
        return;
    }
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let leaf = authority.issue(&["a.test"]);
    let mut objects = edge(&[https_listener("https", 443, "a.test", "pair")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    objects.push(leaf.secret("pair"));
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(443, "a.test", "/");
    let request = request.tls("a.test", &authority.trust());
    agent.wait_ok(&request).await;
    let envoy = agent.wait_live().await;
    let directory = fs::read_link(format!("/proc/{envoy}/cwd")).expect("a directory");
    let key = Traces::from_leaf(&leaf);
    // Proves that the search would find the key in a core dump.
    assert!(!key.in_memory_of(envoy).is_empty(), "Envoy holds the key");

    let lifted = let_dump(envoy);
    crash(envoy, "-SEGV");
    eventually("another Envoy serves", TEST_TIMEOUT, async || {
        holds(agent.wait_live().await != envoy, || {
            "the same Envoy is live".to_owned()
        })
    })
    .await;
    agent.wait_ok(&request).await;
    let made = dumps(&directory);
    for dump in &made {
        let bytes = fs::read(dump).expect("a dump");
        assert!(!key.are_in(&bytes), "{} has a key", dump.display());
        println!("size of Envoy's core dump: {} KiB", bytes.len() >> 10);
        fs::remove_file(dump).expect("removed");
    }
    assert_eq!(made.len(), usize::from(lifted), "{}", directory.display());

    let pid = agent_pid(&agent).await;
    let directory = fs::read_link(format!("/proc/{pid}/cwd")).expect("a directory");
    let _ = let_dump(pid);
    crash(pid, "-ABRT");
    eventually("the agent has exited", TEST_TIMEOUT, async || {
        let ended = fs::read_to_string(format!("/proc/{pid}/stat"));
        let state = ended.unwrap_or_else(|_| "gone) Z ".to_owned());
        holds(state.contains(") Z "), || state.clone())
    })
    .await;
    assert_eq!(
        dumps(&directory),
        Vec::<PathBuf>::new(),
        "the agent leaves no core dump"
    );
}
