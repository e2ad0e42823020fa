//! Access log locations and size limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary};
use sesame_tests::backends::start_served;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, yaml};
use sesame_tests::wait::eventually;

use super::HOST;
use super::logs::{files, lines};

#[tokio::test(flavor = "multi_thread")]
async fn log_rotation_loses_no_request_or_line() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut objects).await;
    objects.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    let mut agent = Setup::with_ports(&[80])
        .flag("--access-log-free-mib=0")
        .flag("--access-log-mib=1")
        .flag("--access-log-files=100")
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, HOST, "/ready")).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/load")]));
    let rotated = async |agent: &AgentUnderTest, count: usize| {
        eventually("another log file exists", TEST_TIMEOUT, async || {
            let found = files(agent).len();
            (found > count)
                .then_some(())
                .ok_or_else(|| format!("{found} files"))
        })
        .await;
    };
    rotated(&agent, 1).await;
    agent.envoy_is_replaced("hot", "hot restart").await;
    rotated(&agent, 2).await;
    agent.kill9();
    // Simulates a kill during rotation: the current file is renamed, but the next one is missing.
    let current = files(&agent).pop().expect("the current file");
    fs::rename(&current, current.with_extension("log.90")).expect("an older file");
    let before = files(&agent).len();
    load.pass(500).await;
    agent.restart();
    rotated(&agent, before + 1).await;
    let report = load.stop().await;
    report.clean("access logs across rotations");
    eventually("a line for each request", TEST_TIMEOUT, async || {
        let lines = lines(&agent);
        let found = lines.iter().filter(|line| line["path"] == "/load").count();
        (found as u64 == report.requests)
            .then_some(())
            .ok_or_else(|| format!("{found} lines, {} requests", report.requests))
    })
    .await;
}

/// logrotate renames log files, and operators delete them to free disk space.
#[tokio::test(flavor = "multi_thread")]
async fn lines_survive_rename_and_deletion_by_others() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut objects).await;
    objects.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80])
        .flag("--access-log-free-mib=0")
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, HOST, "/ready")).await;
    let request = async |path: &str| agent.wait_ok(&agent.get(80, HOST, path)).await;
    let logged = async |path: &str, file: &Path| {
        eventually(path, TEST_TIMEOUT, async || {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.contains(path).then_some(()).ok_or(text)
        })
        .await;
    };
    let current = files(&agent).pop().expect("the current file");
    logged("/ready", &current).await;

    let renamed = current.with_extension("log.mine");
    fs::rename(&current, &renamed).expect("renamed");
    request("/renamed").await;
    eventually("either file contains the line", TEST_TIMEOUT, async || {
        let texts = [&current, &renamed].map(|file| fs::read_to_string(file).unwrap_or_default());
        let found = texts.iter().any(|text| text.contains("/renamed"));
        found.then_some(()).ok_or_else(|| texts.concat())
    })
    .await;
    eventually("a new file exists", TEST_TIMEOUT, async || {
        request("/after").await;
        let text = fs::read_to_string(&current).unwrap_or_default();
        text.contains("/after").then_some(()).ok_or(text)
    })
    .await;

    fs::remove_file(&current).expect("deleted");
    request("/deleted").await;
    logged("/deleted", &current).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn access_logs_stay_bounded_and_pause_when_full() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut objects).await;
    objects.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80])
        .small_disks()
        .flag("--access-log-files=2")
        .start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, HOST, "/load");
    agent.wait_ok(&request).await;
    let ended = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let ended = Arc::clone(&ended);
        async move {
            // Send slowly, so that the test can observe the files before the disk is full.
            while !ended.load(Ordering::Relaxed) {
                let reply = request.send().await.expect("an answer");
                assert_eq!(reply.status, 200);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    // Two files share a quarter of the 1 MiB disk, so each is limited to 128 KiB.
    eventually("the fourth file", TEST_TIMEOUT, async || {
        let found = files(&agent);
        let numbers = found
            .iter()
            .filter_map(|file| file.extension()?.to_str()?.parse().ok());
        let last: u64 = numbers.max().unwrap_or(0);
        (last >= 3 && found.len() <= 2)
            .then_some(())
            .ok_or_else(|| format!("{found:?}"))
    })
    .await;
    let fill = agent.state().join("fill");
    // `dd` fails once the disk is full.
    agent.beside(&[
        "dd",
        "if=/dev/zero",
        &format!("of={}", fill.display()),
        "bs=4k",
    ]);
    let off = |status: &Value| {
        status["warnings"]
            .to_string()
            .contains("access logs are off")
    };
    agent.wait_status("access logs are disabled", off).await;
    fs::remove_file(agent.visible(&fill)).expect("remove the filler file");
    agent
        .wait_status("access logs are enabled", |status| !off(status))
        .await;
    ended.store(true, Ordering::Relaxed);
    load.await.expect("every request is answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn access_log_goes_to_stdout_if_configured() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut objects).await;
    objects.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80])
        .flag("--access-log=stdout")
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, HOST, "/stdout")).await;
    eventually("a line", TEST_TIMEOUT, async || {
        let log = agent.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut lines = lines.filter(|line| line["path"] == "/stdout");
        lines.next().map(|_| ()).ok_or(log.clone())
    })
    .await;
    assert_eq!(files(&agent), [] as [PathBuf; 0]);
}

struct Launcher(Child);

impl Launcher {
    fn start(agent: &AgentUnderTest, output: &Path) -> Self {
        let output = fs::File::create(output).expect("a file");
        let child = Command::new(agent_binary())
            .args(["launcher", "--drain-seconds=1", "--runtime-dir"])
            .arg(agent.runtime())
            .arg("--envoy")
            .arg(envoy_binary())
            .stdin(Stdio::null())
            .stdout(output)
            .spawn();
        Self(child.expect("the agent's binary runs"))
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn launched_envoys_log_to_launcher_stdout_or_files() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut objects).await;
    objects.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let mut agent = Setup::with_ports(&[80])
        .flag("--launcher")
        .flag("--access-log-free-mib=0")
        .flag("--access-log=stdout")
        .prepare();
    agent.write("all.yaml", &yaml(&objects));
    let _launcher = Launcher::start(&agent, &output);
    agent.restart();
    agent.wait_ok(&agent.get(80, HOST, "/output")).await;
    eventually(
        "a line in the launcher's output",
        TEST_TIMEOUT,
        async || {
            let text = fs::read_to_string(&output).unwrap_or_default();
            text.contains(r#""path":"/output""#)
                .then_some(())
                .ok_or_else(|| format!("{text}\n{}", agent.log_tail()))
        },
    )
    .await;
    agent.kill9();
    agent.change_flag("--access-log=stdout", "--access-log=file");
    agent.restart();
    // At first, the previous Envoy may still respond.
    eventually("a line in a file", TEST_TIMEOUT, async || {
        agent.wait_ok(&agent.get(80, HOST, "/file")).await;
        let lines = lines(&agent);
        let found = lines.iter().any(|line| line["path"] == "/file");
        found
            .then_some(())
            .ok_or_else(|| format!("{lines:#?}\n{}", agent.log_tail()))
    })
    .await;
}
