//! Stopping, restarting or upgrading the agent must not affect traffic. Only an explicit command
//! stops Envoy.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, install, words};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::numbered;
use sesame_tests::processes;
use sesame_tests::seeded::count;
use sesame_tests::wait::eventually;

const HOST: &str = "stop.test";

async fn start(setup: Setup, backend: &Backend) -> AgentUnderTest {
    let agent = setup.start(&[("all.yaml", &numbered(HOST, 0, backend.address()))]);
    agent.wait_numbered(HOST, 0).await;
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_stops_dies_and_upgrades_without_failed_request() {
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let installed = directory.path().join("sesame-agent");
    install(&installed);
    let mut agent = start(Setup::with_ports(&[80]).agent(&installed), &backend).await;
    let before = agent.envoy_pids();
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));
    let rounds = count("SESAME_STOPS", 4, 40);
    for number in 1..=rounds {
        // In even rounds, stop the agent only after the change has been applied.
        agent.write(
            "all.yaml",
            &numbered(HOST, 3 * number - 2, backend.address()),
        );
        if number % 2 == 0 {
            agent.wait_numbered(HOST, 3 * number - 2).await;
        }
        let status = agent.stop();
        assert!(status.success(), "{status}\n{}", agent.log_tail());
        load.pass(50).await;
        agent.restart();
        agent.write(
            "all.yaml",
            &numbered(HOST, 3 * number - 1, backend.address()),
        );
        agent.wait_numbered(HOST, 3 * number - 1).await;

        install(&installed);
        let status = agent.stop();
        assert!(status.success(), "{status}\n{}", agent.log_tail());
        load.pass(50).await;
        agent.restart();
        agent.wait_numbered(HOST, 3 * number - 1).await;

        agent.kill9();
        load.pass(50).await;
        agent.restart();
        agent.write("all.yaml", &numbered(HOST, 3 * number, backend.address()));
        agent.wait_numbered(HOST, 3 * number).await;
    }
    assert_eq!(agent.envoy_pids(), before, "Envoy was not replaced");
    let report = load.stop().await;
    report.clean(&format!(
        "agent stopped, upgraded and killed {rounds} times each"
    ));
}

/// The next agent must complete the takeover.
#[tokio::test(flavor = "multi_thread")]
async fn agent_stops_during_envoy_restart_without_failed_request() {
    let backend = Backend::start("a").await;
    let mut agent = start(Setup::with_ports(&[80]), &backend).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));
    for (number, strategy) in ["handover", "hot"].into_iter().enumerate() {
        agent.wait_envoys(1).await;
        agent.wait_live().await;
        let before = agent.envoy_pids();
        let mut order = agent.begin_to_replace_envoy(strategy);
        eventually("another Envoy has started", TEST_TIMEOUT, async || {
            let now = agent.envoy_pids();
            let is_new = now.iter().any(|pid| !before.contains(pid));
            is_new.then_some(()).ok_or_else(|| format!("{now:?}"))
        })
        .await;
        assert!(agent.stop().success(), "{}", agent.log_tail());
        let _ = order.wait();
        load.pass(50).await;
        agent.restart();
        agent.write("all.yaml", &numbered(HOST, number + 1, backend.address()));
        agent.wait_numbered(HOST, number + 1).await;
        agent.wait_envoys(1).await;
    }
    load.stop()
        .await
        .clean("agent stopped during Envoy restarts");
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_stop_ends_agent_and_orphaned_envoys() {
    let backend = Backend::start("a").await;
    let mut agent = start(Setup::with_ports(&[80]), &backend).await;
    assert!(agent.end().success(), "{}", agent.log_tail());
    assert_eq!(agent.envoy_pids(), [0; 0], "{}", agent.log_tail());
    agent.restart();
    agent.wait_numbered(HOST, 0).await;

    for is_orderly in [true, false] {
        if is_orderly {
            assert!(agent.stop().success(), "{}", agent.log_tail());
        } else {
            agent.kill9();
        }
        assert_eq!(agent.envoy_pids().len(), 1);
        let output = agent.drain_stop();
        assert!(output.status.success(), "{}", words(&output));
        assert!(
            words(&output).contains("no agent was running here"),
            "{}",
            words(&output)
        );
        assert_eq!(agent.envoy_pids(), [0; 0], "{}", words(&output));
        let output = agent.drain_stop();
        assert!(output.status.success(), "{}", words(&output));
        assert!(
            words(&output).contains("neither an agent nor Envoy"),
            "{}",
            words(&output)
        );
        agent.restart();
        agent.wait_numbered(HOST, 0).await;
    }

    // A running agent must be detected even without its socket.
    std::fs::remove_file(agent.runtime().join("agent.sock")).expect("the agent's socket");
    let output = agent.drain_stop();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(
        words(&output).contains("another agent"),
        "{}",
        words(&output)
    );
    assert_eq!(agent.envoy_pids().len(), 1);
}

/// The kernel kills a container when its first process exits, which must therefore drain Envoy
/// first.
#[tokio::test(flavor = "multi_thread")]
async fn container_init_drains_envoy_before_it_exits() {
    let backend = Backend::start("a").await;
    let container = "unshare --user --map-root-user --pid --fork --kill-child --mount-proc";
    let container: Vec<&str> = container.split(' ').collect();
    let mut agent = start(Setup::with_ports(&[80]).wrapper(&container), &backend).await;
    let idle = tokio::net::TcpStream::connect(agent.address(80))
        .await
        .expect("connect");
    let first = processes::below(&agent.runtime())
        .into_iter()
        .find(|process| process.is("sesame-agent"))
        .expect("the agent");
    kill(Pid::from_raw(first.pid), Signal::SIGTERM).expect("the agent runs");
    eventually("the agent exits", TEST_TIMEOUT, async || {
        let ended = agent
            .ended()
            .ok_or_else(|| "the agent is still running".to_owned())?;
        (ended == 0).then_some(()).ok_or_else(|| ended.to_string())
    })
    .await;
    drop(idle);
    assert!(
        agent.log().contains("stopped Envoy"),
        "{}",
        agent.log_tail()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_drains_envoy_on_stop_if_configured() {
    let backend = Backend::start("a").await;
    let setup = Setup::with_ports(&[80]).flag("--on-stop=drain");
    let mut agent = start(setup, &backend).await;
    assert!(agent.stop().success(), "{}", agent.log_tail());
    assert_eq!(agent.envoy_pids(), [0; 0], "{}", agent.log_tail());
}
