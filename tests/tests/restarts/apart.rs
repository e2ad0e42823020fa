//! Agent and Envoy in separate containers, simulated with an inherited environment variable.
//! Stopping the agent's container must not affect Envoy.

use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary, install};
use sesame_tests::backend::Backend;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::numbered;
use sesame_tests::processes;
use sesame_tests::seeded::count;
use sesame_tests::wait::eventually;

const HOST: &str = "apart.test";
const CONTAINER: &str = "SESAME_TEST_CONTAINER";

fn mark(container: &str) -> String {
    format!("{CONTAINER}={container}-{}", std::process::id())
}

fn inside(container: &str) -> Vec<i32> {
    let mark = mark(container);
    let is_inside = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == mark.as_bytes())
    };
    let all = std::fs::read_dir("/proc").expect("/proc is mounted");
    all.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_inside)
        .collect()
}

async fn end(container: &str) {
    eventually(
        "every process in the container is gone",
        TEST_TIMEOUT,
        async || {
            let left = inside(container);
            for pid in &left {
                processes::kill9(*pid);
            }
            left.is_empty()
                .then_some(())
                .ok_or_else(|| format!("{left:?}"))
        },
    )
    .await;
}

struct Launcher(Child);

impl Launcher {
    fn start(agent: &AgentUnderTest) -> Self {
        Self::start_by(&["env", &mark("envoy")], agent)
    }

    fn start_by(command: &[&str], agent: &AgentUnderTest) -> Self {
        let child = Command::new(command[0])
            .args(&command[1..])
            .arg(agent_binary())
            .args(["launcher", "--drain-seconds=1", "--runtime-dir"])
            .arg(agent.runtime())
            .arg("--envoy")
            .arg(envoy_binary())
            .stdin(Stdio::null())
            .spawn()
            .expect("the agent's binary runs");
        Self(child)
    }

    fn signal(&self) {
        let pid = i32::try_from(self.0.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the launcher is our child");
    }

    async fn ended(&mut self) -> ExitStatus {
        eventually("the launcher exits", TEST_TIMEOUT, async || {
            let status = self.0.try_wait().map_err(|error| error.to_string())?;
            status.ok_or_else(|| "the launcher is still running".to_owned())
        })
        .await
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_survives_end_of_agent_container() {
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let installed = directory.path().join("sesame-agent");
    install(&installed);
    let mut agent = Setup::with_ports(&[80])
        .agent(&installed)
        .flag("--launcher")
        .wrapper(&["env", &mark("agent")])
        .prepare();
    agent.write("all.yaml", &numbered(HOST, 0, backend.address()));
    // Containers may start in any order.
    agent.restart();
    agent
        .wait_status("the missing launcher is reported", |status| {
            status.to_string().contains("no launcher at")
        })
        .await;
    let mut launcher = Launcher::start(&agent);
    agent.wait_numbered(HOST, 0).await;
    agent.wait_live().await;
    let before = agent.envoy_pids();
    assert!(before.iter().all(|pid| inside("envoy").contains(pid)));

    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));
    let rounds = count("SESAME_STOPS", 3, 40);
    for number in 1..=rounds {
        // Send SIGTERM to the agent, then SIGKILL to the rest.
        assert!(agent.stop().success(), "{}", agent.log_tail());
        end("agent").await;
        load.pass(50).await;
        install(&installed);
        agent.restart();
        agent.write(
            "all.yaml",
            &numbered(HOST, 2 * number - 1, backend.address()),
        );
        agent.wait_numbered(HOST, 2 * number - 1).await;
        end("agent").await;
        agent.kill9();
        load.pass(50).await;
        install(&installed);
        agent.restart();
        agent.write("all.yaml", &numbered(HOST, 2 * number, backend.address()));
        agent.wait_numbered(HOST, 2 * number).await;
    }
    assert_eq!(agent.envoy_pids(), before, "Envoy was not replaced");
    for (strategy, by) in [("hot", "hot restart"), ("handover", "handover")] {
        agent.wait_live().await;
        agent.envoy_is_replaced(strategy, by).await;
        agent.wait_envoys(1).await;
        assert!(inside("envoy").contains(&agent.envoy_pids()[0]));
        assert!(agent.stop().success(), "{}", agent.log_tail());
        end("agent").await;
        load.pass(50).await;
        agent.restart();
        agent.wait_live().await;
    }
    load.stop().await.clean(&format!(
        "the agent's container stopped and killed {rounds} times each"
    ));

    // The next Envoy must also start in the launcher's container.
    agent.kill9_envoy();
    agent.wait_numbered(HOST, 2 * rounds).await;
    agent.wait_live().await;
    assert!(inside("envoy").contains(&agent.envoy_pids()[0]));

    // Both containers get SIGTERM when a Pod is deleted.
    launcher.signal();
    assert!(agent.stop().success(), "{}", agent.log_tail());
    assert!(launcher.ended().await.success());
    assert_eq!(agent.envoy_pids(), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_end_with_launcher_and_next_one_serves() {
    let backend = Backend::start("a").await;
    let agent = Setup::with_ports(&[80])
        .flag("--launcher")
        .wrapper(&["env", &mark("agent-of-two")])
        .prepare();
    let mut launcher = Launcher::start(&agent);
    let mut agent = agent;
    agent.write("all.yaml", &numbered(HOST, 0, backend.address()));
    agent.restart();
    agent.wait_numbered(HOST, 0).await;
    agent.wait_live().await;
    let mut second = Launcher::start(&agent);
    assert!(
        !second.ended().await.success(),
        "a second launcher must fail"
    );
    agent.wait_live().await;

    launcher.signal();
    assert!(launcher.ended().await.success());
    agent
        .wait_status("the Gateway is reported as down", |status| {
            status["gateways"][0]["state"] == "Down"
        })
        .await;
    assert!(agent.envoys().is_empty());
    let _next = Launcher::start(&agent);
    agent.wait_numbered(HOST, 0).await;
}

/// A process ID from the launcher's PID namespace is not valid in the agent's PID namespace.
#[tokio::test(flavor = "multi_thread")]
async fn launcher_in_other_pid_namespace_starts_nothing() {
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80]).flag("--launcher").prepare();
    agent.write("all.yaml", &numbered(HOST, 0, backend.address()));
    let unshare = "unshare --user --map-root-user --pid --fork --kill-child --mount-proc";
    let command: Vec<&str> = unshare.split(' ').collect();
    let launcher = Launcher::start_by(&command, &agent);
    agent.restart();
    agent
        .wait_status("the remedy is reported", |status| {
            status.to_string().contains("shareProcessNamespace")
        })
        .await;
    assert!(agent.envoys().is_empty());
    drop(launcher);
    let _launcher = Launcher::start(&agent);
    agent.wait_numbered(HOST, 0).await;
}
