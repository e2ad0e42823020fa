//! Faults while one Envoy takes over from another. No request may fail, and the next restart must
//! work.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_tests::agent::{self, AgentUnderTest, Setup, TEST_TIMEOUT, install_program, words};
use sesame_tests::backend::Backend;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};
use sesame_tests::processes::{self, Process};
use sesame_tests::wait::{eventually, holds};

async fn serving(setup: Setup, backend: &Backend) -> AgentUnderTest {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects.push(http_route("app", &["restart.test"], &[rule_to("app", &[])]));
    let agent = setup.start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "restart.test", "/");
    agent.wait_ok(&request).await;
    agent.wait_live().await;
    agent
}

fn load(agent: &AgentUnderTest) -> Load {
    Load::start(&Plan::new(vec![agent.get(80, "restart.test", "/")]))
}

async fn works(agent: &AgentUnderTest, load: &Load) {
    let output = agent.replace_envoy("hot").await;
    let text = words(&output);
    assert!(output.status.success(), "{text}{}", agent.log_tail());
    load.pass(50).await;
    agent.wait_envoys(1).await;
}

fn argument<'a>(process: &'a Process, name: &str) -> Option<&'a str> {
    let mut arguments = process.arguments.iter();
    arguments.find(|argument| *argument == name)?;
    arguments.next().map(String::as_str)
}

fn shared_memory(agent: &AgentUnderTest) -> String {
    agent::shared_memory(&agent.envoys()[0]).expect("a base id")
}

#[derive(Debug, PartialEq, Eq)]
enum Second {
    NeverCame,
    Killed,
    /// The test was too slow to kill the second Envoy before the takeover.
    TookOver,
}

async fn kill_second(agent: &AgentUnderTest, first: i32, stage: Stage) -> Second {
    let start = std::time::Instant::now();
    let second = loop {
        let envoys = agent.envoys();
        if let Some(second) = envoys.iter().find(|envoy| envoy.pid != first) {
            break second.pid;
        }
        if start.elapsed() > TEST_TIMEOUT {
            return Second::NeverCame;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let port = agent.address(80).port();
    match stage {
        Stage::Started => {}
        Stage::After(pause) => tokio::time::sleep(pause).await,
        Stage::Attached => {
            // The second Envoy waits while the first is suspended.
            signal(first, Signal::SIGSTOP);
            let memory = shared_memory(agent);
            while flags(Path::new(&memory)) == 0
                && listens(first, port)
                && start.elapsed() < TEST_TIMEOUT
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    let _ = kill(Pid::from_raw(second), Signal::SIGSTOP);
    let before = listens(first, port);
    if before {
        processes::kill9(second);
    } else {
        let _ = kill(Pid::from_raw(second), Signal::SIGCONT);
    }
    if matches!(stage, Stage::Attached) {
        // The first Envoy must be able to answer the killed Envoy's request.
        tokio::time::sleep(Duration::from_millis(50)).await;
        signal(first, Signal::SIGCONT);
    }
    if before {
        Second::Killed
    } else {
        Second::TookOver
    }
}

fn listens(pid: i32, port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let local = format!("0100007F:{port:04X}");
    let sockets: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1) == Some(&local.as_str()) && fields.get(3) == Some(&"0A"))
        .filter_map(|fields| Some(format!("socket:[{}]", fields.get(9)?)))
        .collect();
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let mut descriptors = descriptors.into_iter().flatten().flatten();
    descriptors.any(|descriptor| {
        let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
        sockets
            .iter()
            .any(|socket| target.as_os_str() == socket.as_str())
    })
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Started,
    Attached,
    After(Duration),
}

fn flags(memory: &Path) -> u64 {
    let mut word = [0; 8];
    std::fs::File::open(memory)
        .and_then(|file| file.read_exact_at(&mut word, 96))
        .expect("shared memory");
    u64::from_ne_bytes(word)
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_succeeds_after_second_envoy_was_killed() {
    let backend = Backend::start("a").await;
    let agent = serving(Setup::with_ports(&[80]), &backend).await;
    let load = load(&agent);
    for stage in [
        Stage::Started,
        Stage::Attached,
        Stage::After(Duration::from_millis(25)),
    ] {
        let (first, output) = loop {
            let first = agent.wait_live().await;
            let (output, second) = tokio::join!(
                agent.replace_envoy("hot"),
                kill_second(&agent, first, stage)
            );
            match second {
                Second::NeverCame => panic!("no second Envoy came"),
                Second::Killed => break (first, output),
                Second::TookOver => agent.wait_envoys(1).await,
            }
        };
        assert_eq!(
            output.status.code(),
            Some(1),
            "{stage:?}: {}",
            words(&output)
        );
        load.pass(50).await;
        agent.wait_envoys(1).await;
        assert_eq!(agent.envoys()[0].pid, first, "{stage:?}");
        works(&agent, &load).await;
    }
    load.stop()
        .await
        .clean("second Envoy killed at three stages");
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_replaces_envoy_if_first_attempt_is_killed() {
    let backend = Backend::start("a").await;
    let agent = serving(Setup::with_ports(&[80]), &backend).await;
    let load = load(&agent);
    let first = agent.wait_live().await;
    let (output, second) = tokio::join!(
        agent.replace_envoy("auto"),
        kill_second(&agent, first, Stage::Attached)
    );
    assert_ne!(second, Second::NeverCame);
    assert!(output.status.success(), "{}", words(&output));
    agent.wait_envoys(1).await;
    load.stop()
        .await
        .clean("second Envoy killed, then another strategy");
}

#[tokio::test(flavor = "multi_thread")]
async fn poisoned_shared_memory_is_repaired_after_interrupted_restart() {
    let backend = Backend::start("a").await;
    let agent = serving(Setup::with_ports(&[80]), &backend).await;
    let load = load(&agent);
    let memory = shared_memory(&agent);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&memory)
        .and_then(|file| file.write_all_at(&1u64.to_ne_bytes(), 96))
        .expect("shared memory");
    works(&agent, &load).await;
    assert_eq!(flags(Path::new(&memory)), 0);
    // Without its known shared memory, the agent must reject a hot restart.
    std::fs::remove_file(&memory).expect("shared memory");
    let output = agent.replace_envoy("hot").await;
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(words(&output).contains(&memory), "{}", words(&output));
    load.stop().await.clean("shared memory poisoned");
    let output = agent.replace_envoy("auto").await;
    assert!(words(&output).contains("by handover"), "{}", words(&output));
}

/// If base IDs were visible, another user could create the shared memory first and make Envoy
/// abort.
#[tokio::test(flavor = "multi_thread")]
async fn new_envoys_hide_base_ids_and_leak_nothing() {
    let backend = Backend::start("a").await;
    let mut agent = serving(Setup::with_ports(&[80]), &backend).await;
    let is_told = |agent: &AgentUnderTest| argument(&agent.envoys()[0], "--base-id").is_some();
    let exists = |memory: &String| Path::new(memory).exists();
    let first = shared_memory(&agent);
    assert!(!is_told(&agent) && exists(&first));

    let output = agent.replace_envoy("hot").await;
    assert!(output.status.success(), "{}", words(&output));
    agent.wait_envoys(1).await;
    assert!(is_told(&agent));
    assert_eq!(shared_memory(&agent), first);

    let output = agent.replace_envoy("handover").await;
    assert!(output.status.success(), "{}", words(&output));
    agent.wait_envoys(1).await;
    let second = shared_memory(&agent);
    assert!(!is_told(&agent) && exists(&second));
    eventually(
        "the first shared memory is removed",
        TEST_TIMEOUT,
        async || (!exists(&first)).then_some(()).ok_or_else(|| first.clone()),
    )
    .await;

    let pid = agent.wait_live().await;
    processes::kill9(pid);
    eventually("another Envoy", TEST_TIMEOUT, async || {
        let envoys = agent.envoys();
        let next = envoys.iter().find(|envoy| envoy.pid != pid);
        next.map(|_| ()).ok_or_else(|| format!("{envoys:?}"))
    })
    .await;
    agent.wait_ok(&agent.get(80, "restart.test", "/")).await;
    agent.wait_live().await;
    let third = shared_memory(&agent);
    assert!(!is_told(&agent) && exists(&third) && !exists(&second));

    // The next agent reads the base ID from the state file.
    agent.kill9();
    agent.restart();
    agent.wait_live().await;
    let output = agent.replace_envoy("hot").await;
    assert!(output.status.success(), "{}", words(&output));
    agent.wait_envoys(1).await;
    assert_eq!(shared_memory(&agent), third);
    agent.end();
    assert!(!exists(&third));
}

/// After the takeover, a killed second Envoy is replaced like any other.
#[tokio::test(flavor = "multi_thread")]
async fn second_envoy_is_replaced_if_killed_after_takeover() {
    let backend = Backend::start("a").await;
    let agent = serving(Setup::with_ports(&[80]), &backend).await;
    let first = agent.wait_live().await;
    let output = agent.replace_envoy("hot").await;
    assert!(output.status.success(), "{}", words(&output));
    let second = agent.wait_live().await;
    processes::kill9(second);
    let request = agent.get(80, "restart.test", "/");
    agent.wait_ok(&request).await;
    agent.wait_envoys(1).await;
    let third = agent.wait_live().await;
    assert!(third != first && third != second);
    let load = load(&agent);
    works(&agent, &load).await;
    load.stop()
        .await
        .clean("second Envoy killed after the takeover");
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("the process is running");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_envoy_is_not_replaced_and_resumes() {
    let backend = Backend::start("a").await;
    let setup = Setup::with_ports(&[80]).flag("--takeover-seconds=8");
    let agent = serving(setup, &backend).await;
    let load = load(&agent);
    let first = agent.wait_live().await;
    signal(first, Signal::SIGSTOP);
    let output = agent.replace_envoy("auto").await;
    signal(first, Signal::SIGCONT);
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(
        words(&output).contains("is unresponsive"),
        "{}",
        words(&output)
    );
    load.pass(50).await;

    // The second Envoy waits for the first until the deadline.
    let output = loop {
        let first = agent.wait_live().await;
        let stop_first = async {
            let start = std::time::Instant::now();
            while agent.envoys().len() < 2 && start.elapsed() < TEST_TIMEOUT {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            signal(first, Signal::SIGSTOP);
            listens(first, agent.address(80).port())
        };
        let (output, in_time) = tokio::join!(
            async {
                let output = agent.replace_envoy("hot").await;
                signal(first, Signal::SIGCONT);
                output
            },
            stop_first
        );
        if in_time {
            break output;
        }
        agent.wait_envoys(1).await;
    };
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    load.pass(50).await;
    // A late response to the killed Envoy must not reach the next Envoy.
    works(&agent, &load).await;
    load.stop()
        .await
        .clean("first Envoy suspended before and during a restart");
}

/// With a wrong epoch, the next Envoy does not find its predecessor.
#[tokio::test(flavor = "multi_thread")]
async fn restart_succeeds_after_epoch_was_skipped() {
    let backend = Backend::start("a").await;
    let setup = Setup::with_ports(&[80]).flag("--takeover-seconds=8");
    let mut agent = serving(setup, &backend).await;
    let load = load(&agent);
    agent.kill9();
    let gateways = std::fs::read_dir(agent.runtime().join("gateways")).expect("a directory");
    for gateway in gateways.flatten() {
        let path = gateway.path().join("envoy.pid.json");
        let text = std::fs::read_to_string(&path).expect("a pid file");
        let mut identity: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        identity["lineage"]["epoch"] = 1.into();
        std::fs::write(path, identity.to_string()).expect("write");
    }
    agent.restart();
    let first = agent.wait_live().await;
    let output = agent.replace_envoy("auto").await;
    assert!(output.status.success(), "{}", words(&output));
    agent.wait_envoys(1).await;
    assert_ne!(agent.wait_live().await, first);
    works(&agent, &load).await;
    let report = load.stop().await;
    report.clean("epoch skipped");
}

#[tokio::test(flavor = "multi_thread")]
async fn next_agent_completes_restart_after_crash() {
    let backend = Backend::start("a").await;
    let mut agent = serving(Setup::with_ports(&[80]), &backend).await;
    let load = load(&agent);
    for (strategy, pause) in [("hot", 60), ("handover", 30)] {
        let before = agent.wait_live().await;
        agent.wait_envoys(1).await;
        let mut order = agent.begin_to_replace_envoy(strategy);
        eventually("a second Envoy", TEST_TIMEOUT, async || {
            holds(agent.envoys().len() > 1, || "one".to_owned())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        agent.kill9();
        load.pass(50).await;
        agent.restart();
        let after = agent.wait_live().await;
        assert_ne!(after, before, "{strategy} after {pause} ms");
        agent.wait_envoys(1).await;
        let _ = order.wait();
        load.pass(50).await;
    }
    works(&agent, &load).await;
    let report = load.stop().await;
    report.clean("agent killed in restarts");
}

async fn another(agent: &AgentUnderTest, before: i32) -> i32 {
    let now = eventually("another Envoy is live", TEST_TIMEOUT, async || {
        let now = agent.wait_live().await;
        if now == before {
            Err(agent.log_tail())
        } else {
            Ok(now)
        }
    })
    .await;
    agent.wait_envoys(1).await;
    now
}

#[tokio::test(flavor = "multi_thread")]
async fn new_binary_or_concurrency_applies_without_failed_request() {
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let binary = directory.path().join("envoy");
    let install = || install_program(&envoy_binary(), &binary);
    install();
    let setup = Setup::with_ports(&[80])
        .envoy(&binary)
        .flag("--concurrency=1");
    let mut agent = serving(setup, &backend).await;
    let load = load(&agent);
    let first = agent.wait_live().await;
    install();
    let second = another(&agent, first).await;
    agent.change_flag("--concurrency=1", "--concurrency=2");
    agent.restart();
    let third = another(&agent, second).await;
    assert_eq!(argument(&agent.envoys()[0], "--concurrency"), Some("2"));
    assert_eq!(
        argument(&agent.envoys()[0], "--restart-epoch"),
        Some("2"),
        "both were hot"
    );
    agent.change_flag("--concurrency=2", "--concurrency=1");
    agent.restart();
    another(&agent, third).await;
    assert_eq!(argument(&agent.envoys()[0], "--concurrency"), Some("1"));
    assert_eq!(
        argument(&agent.envoys()[0], "--restart-epoch"),
        Some("0"),
        "a hot restart would have closed a port"
    );
    load.pass(50).await;
    load.stop()
        .await
        .clean("binary replaced, then concurrency changed from 1 to 2 and back");
}
