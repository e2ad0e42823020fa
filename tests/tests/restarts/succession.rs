//! A launcher takes over from another, as in a rolling update. Separate copies of Envoy simulate
//! containers.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary};
use sesame_tests::backend::Backend;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::numbered;
use sesame_tests::wait::eventually;

const HOST: &str = "succession.test";

struct Launcher {
    child: Child,
    runtime: PathBuf,
    envoy: PathBuf,
}

impl Launcher {
    fn start(agent: &AgentUnderTest, envoy: PathBuf) -> Self {
        Self::with_drain(agent, envoy, 20)
    }

    fn with_drain(agent: &AgentUnderTest, envoy: PathBuf, seconds: u32) -> Self {
        let child = Command::new(agent_binary())
            .args(["launcher", "--take-over"])
            .arg(format!("--drain-seconds={seconds}"))
            .arg("--runtime-dir")
            .arg(agent.runtime())
            .arg("--envoy")
            .arg(&envoy)
            .stdin(Stdio::null())
            .spawn()
            .expect("the agent's binary runs");
        Self {
            child,
            runtime: agent.runtime(),
            envoy,
        }
    }

    /// Returns the probe's output as the error.
    fn check(&self) -> Result<(), String> {
        let output = Command::new(agent_binary())
            .args(["launcher", "--check", "--runtime-dir"])
            .arg(&self.runtime)
            .arg("--envoy")
            .arg(&self.envoy)
            .output()
            .expect("the agent's binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(stderr)
    }

    async fn serves_alone(&self) {
        eventually(
            "the launcher is the only one serving",
            TEST_TIMEOUT,
            async || self.check(),
        )
        .await;
    }

    fn signal(&self) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the launcher is our child");
    }

    async fn ended(&mut self) -> ExitStatus {
        eventually("the launcher exits", TEST_TIMEOUT, async || {
            let status = self.child.try_wait().map_err(|error| error.to_string())?;
            status.ok_or_else(|| "the launcher is still running".to_owned())
        })
        .await
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn envoy_of(directory: &Path, container: &str) -> PathBuf {
    let copy = directory.join(container).join("envoy");
    std::fs::create_dir(copy.parent().expect("a parent")).expect("a directory");
    std::fs::copy(envoy_binary(), &copy).expect("a copy of Envoy");
    copy
}

fn runs(agent: &AgentUnderTest, binary: &Path) -> bool {
    let path = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let pids = agent.envoy_pids();
    pids.len() == 1 && pids.iter().all(|pid| path(pid).as_deref() == Some(binary))
}

#[tokio::test(flavor = "multi_thread")]
async fn new_launcher_takes_over_without_failed_request() {
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let [old, new] = ["old", "new"].map(|name| envoy_of(directory.path(), name));
    let mut agent = Setup::with_ports(&[80])
        .flag("--launcher")
        .flag("--drain-seconds=1")
        .prepare();
    agent.write("all.yaml", &numbered(HOST, 0, backend.address()));
    let mut first = Launcher::start(&agent, old.clone());
    agent.restart();
    agent.wait_numbered(HOST, 0).await;
    first.serves_alone().await;
    assert!(runs(&agent, &old));

    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));
    load.pass(100).await;
    let second = Launcher::start(&agent, new.clone());
    second.serves_alone().await;
    assert!(first.check().is_err(), "another launcher has taken over");
    first.signal();
    assert!(first.ended().await.success());
    assert!(runs(&agent, &new), "the old Envoy has exited");
    agent.write("all.yaml", &numbered(HOST, 1, backend.address()));
    agent.wait_numbered(HOST, 1).await;
    load.pass(100).await;
    load.stop().await.clean("a launcher took over");
}

/// The new Envoy aborts if the old Envoy stops responding.
#[tokio::test(flavor = "multi_thread")]
async fn launcher_leaves_replaced_envoy_to_successor() {
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let [old, new] = ["old", "new"].map(|name| envoy_of(directory.path(), name));
    let mut agent = Setup::with_ports(&[80])
        .flag("--launcher")
        .flag("--drain-seconds=6")
        .prepare();
    agent.write("all.yaml", &numbered(HOST, 0, backend.address()));
    let mut first = Launcher::with_drain(&agent, old, 1);
    agent.restart();
    agent.wait_numbered(HOST, 0).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));
    let second = Launcher::with_drain(&agent, new.clone(), 1);
    second.serves_alone().await;
    first.signal();
    assert!(first.ended().await.success());
    let logs = logs_of_envoys(&agent.runtime());
    assert!(logs.contains("due to child request"), "{logs}");
    assert!(runs(&agent, &new));
    load.pass(100).await;
    load.stop()
        .await
        .clean("launcher stopped after a hot restart");
}

fn logs_of_envoys(runtime: &Path) -> String {
    let gateways = std::fs::read_dir(runtime.join("gateways")).expect("directories of Gateways");
    let logs = gateways
        .flatten()
        .map(|entry| entry.path().join("envoy.log"));
    let texts = logs.map(|log| std::fs::read_to_string(log).unwrap_or_default());
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_launcher_keeps_serving_if_new_one_fails() {
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let old = envoy_of(directory.path(), "old");
    let broken = directory.path().join("broken");
    std::fs::copy("/bin/false", &broken).expect("a program that fails");
    let mut agent = Setup::with_ports(&[80])
        .flag("--launcher")
        .flag("--drain-seconds=1")
        .prepare();
    agent.write("all.yaml", &numbered(HOST, 0, backend.address()));
    let first = Launcher::start(&agent, old.clone());
    agent.restart();
    agent.wait_numbered(HOST, 0).await;
    first.serves_alone().await;
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));

    let mut second = Launcher::start(&agent, broken);
    agent
        .wait_status("the failed replacement is reported", |status| {
            status.to_string().contains("cannot replace Envoy")
        })
        .await;
    let why = second
        .check()
        .expect_err("the launcher's Envoy does not serve");
    assert!(why.contains("to another launcher"), "{why}");
    second.signal();
    assert!(second.ended().await.success());
    first.serves_alone().await;
    assert!(runs(&agent, &old));
    load.stop().await.clean("launcher takeover failed");
    agent.kill9_envoy();
    agent.wait_live().await;
    agent.wait_numbered(HOST, 0).await;
    assert!(runs(&agent, &old));
}
