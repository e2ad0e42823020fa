//! An agent without root on ports below 1024, with and without CAP_NET_BIND_SERVICE. In each test's
//! network namespace, `ip_unprivileged_port_start` has the kernel's default.

use std::process::Command;

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::itself;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served, yaml};

const HOST: &str = "low.test";
/// An unassigned user ID.
const USER: u32 = 61_234;
const FIRST_FREE: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// In this network namespace, the kernel may migrate connections between listening sockets.
fn in_a_network(test: &str) {
    let script = format!(
        r#"ip link set lo up && echo 1 > /proc/sys/net/ipv4/tcp_migrate_req && echo 1024 > {FIRST_FREE} && exec "$0" "$@""#
    );
    let status = Command::new("unshare")
        .args(["--net", "sh", "-c", &script])
        .arg(itself::executable())
        .args(itself::only(test))
        .status()
        .expect("unshare runs; install util-linux");
    assert!(status.success(), "{status}");
}

#[test]
fn low_ports_are_served_through_restarts_with_capability() {
    in_a_network("with_the_capability");
}

#[test]
fn low_ports_are_refused_until_allowed_without_capability() {
    in_a_network("without_the_capability");
}

fn round(number: usize, backend: &Backend) -> String {
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        http_listener("https", 443, ""),
        http_listener("high", 8080, ""),
    ]);
    objects.extend(served("app", &[backend.address()]));
    let matches = [
        path("Exact", "/always"),
        path("Exact", &format!("/{number}")),
    ];
    let rule = rule_to("app", &matches);
    objects.push(http_route("app", &[HOST], &[rule]));
    yaml(&objects)
}

async fn wait_round(agent: &AgentUnderTest, ports: &[u16], number: usize) {
    for port in ports {
        let request = agent.get(*port, HOST, &format!("/{number}"));
        agent.wait_ok(&request).await;
    }
}

fn load(agent: &AgentUnderTest, ports: &[u16]) -> Load {
    let requests = ports.iter().map(|port| agent.get(*port, HOST, "/always"));
    Load::start(&Plan::new(requests.collect()))
}

/// Returns the real user ID and the effective capabilities.
fn rights(pid: i32) -> (String, String) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let field = line.and_then(|line| line.split_whitespace().next());
        field.unwrap_or_default().to_owned()
    };
    (field("Uid:"), field("CapEff:"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "another test in this file runs it in its own network namespace"]
async fn with_the_capability() {
    let backend = Backend::start("a").await;
    let ports = [80, 443, 8080];
    let mut agent = Setup::with_ports(&ports)
        .unmapped()
        .user(USER, &["net_bind_service"])
        .start(&[("all.yaml", &round(0, &backend))]);
    wait_round(&agent, &ports, 0).await;
    agent.wait_healthy().await;
    for envoy in agent.envoys() {
        // Bit 10 is CAP_NET_BIND_SERVICE.
        let expected = (USER.to_string(), "0000000000000400".to_owned());
        assert_eq!(rights(envoy.pid), expected);
    }
    let load = load(&agent, &ports);
    let mut number = 0;
    for (strategy, by) in [("hot", "hot restart"), ("handover", "handover")] {
        agent.envoy_is_replaced(strategy, by).await;
        number += 1;
        agent.write("all.yaml", &round(number, &backend));
        wait_round(&agent, &ports, number).await;
    }
    let envoys = |agent: &AgentUnderTest| -> Vec<i32> {
        agent.envoys().iter().map(|envoy| envoy.pid).collect()
    };
    agent
        .wait_status("one Envoy remains", |_| envoys(&agent).len() == 1)
        .await;
    let before = envoys(&agent);
    agent.kill9();
    load.pass(50).await;
    agent.restart();
    number += 1;
    agent.write("all.yaml", &round(number, &backend));
    wait_round(&agent, &ports, number).await;
    assert_eq!(envoys(&agent), before, "the agent adopts Envoy");
    agent.wait_healthy().await;
    load.stop()
        .await
        .clean("ports 80 and 443 as an unprivileged user: hot restart, handover, agent restart");
}

fn refused(status: &Value, listener: &str) -> bool {
    let programmed = listener_condition(status, listener, "Programmed");
    let words = [
        "Permission denied",
        "below 1024",
        "CAP_NET_BIND_SERVICE",
        "--port-map",
    ];
    programmed["status"] == "False"
        && programmed["message"]
            .as_str()
            .is_some_and(|message| words.iter().all(|word| message.contains(word)))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "another test in this file runs it in its own network namespace"]
async fn without_the_capability() {
    let backend = Backend::start("a").await;
    let ports = [80, 443, 8080];
    let agent = Setup::with_ports(&ports)
        .unmapped()
        .user(USER, &[])
        .start(&[("all.yaml", &round(0, &backend))]);
    wait_round(&agent, &[8080], 0).await;
    let status = agent
        .wait_status("both listeners are rejected, with a reason", |status| {
            refused(status, "http") && refused(status, "https")
        })
        .await;
    assert!(!refused(&status, "high"), "{status:#}");
    assert_eq!(status["healthy"], false, "{status:#}");
    let load = load(&agent, &[8080]);
    agent.write("all.yaml", &round(1, &backend));
    wait_round(&agent, &[8080], 1).await;
    load.pass(50).await;

    std::fs::write(FIRST_FREE, "80").expect("set the sysctl");
    wait_round(&agent, &ports, 1).await;
    agent.wait_healthy().await;
    load.stop()
        .await
        .clean("ports 80 and 443 without the capability, then with it");
}
