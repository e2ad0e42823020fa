//! The settings file. A reload applies settings that do not require a restart.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(agent: &AgentUnderTest, content: &str) -> PathBuf {
    let path = agent.manifests().with_file_name("agent.yaml");
    std::fs::write(&path, content).unwrap();
    path
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_applies_live_settings_without_restart() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let backend = Backend::start("a").await;
    objects.extend(served("app", &[backend.address()]));
    objects.push(http_route(
        "app",
        &["settings.test"],
        &[rule_to("app", &[])],
    ));
    let mut agent = Setup::with_ports(&[80]).prepare();
    agent.write("all.yaml", &yaml(&objects));
    let file = write(&agent, "log: info\ntrusted-hops: 0\n");
    agent.add_flags(&["--config", &file.to_string_lossy()]);
    agent.restart();
    let request = agent.get(80, "settings.test", "/");
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
    let load = Load::start(&Plan::new(vec![request.clone()]));
    let runtime = agent.runtime().to_string_lossy().into_owned();
    let reload = ["reload", "--output", "json", "--runtime-dir", &runtime];

    let output = agent.command(&reload);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["applied"], Value::Array(Vec::new()));

    write(
        &agent,
        "log: debug\ntrusted-hops: 2\nmax-removal-share: 20\n",
    );
    let reloaded = json(&agent.command(&reload));
    assert_eq!(
        reloaded["applied"],
        serde_json::json!(["log", "max-removal-share"])
    );
    assert_eq!(
        reloaded["needsRestart"],
        serde_json::json!(["trusted-hops"])
    );
    let waits = |status: &Value| {
        let hints = status["hints"].to_string();
        hints.contains("after the agent restarts") && hints.contains("trusted-hops")
    };
    agent.wait_status("a hint asks for a restart", waits).await;

    // An invalid file must have no effect, and SIGHUP must not stop the agent.
    write(&agent, "log: info\n\ntrusted-hop: 2\n");
    let output = agent.command(&reload);
    assert_ne!(output.status.code(), Some(0));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("agent.yaml:3: trusted-hop: "), "{stderr}");
    assert!(stderr.contains("did you mean `trusted-hops`?"), "{stderr}");
    let status = agent.status().expect("the agent answers");
    assert!(
        status["warnings"].to_string().contains("agent.yaml:3"),
        "{status:#}"
    );
    let pid = status["agent"]["pid"].as_i64().unwrap();

    write(&agent, "trusted-hops: 2\non-stop: leave\n");
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGHUP).unwrap();
    let taken = |status: &Value| {
        status["agent"]["pid"].as_i64() == Some(pid)
            && !status["warnings"].to_string().contains("agent.yaml")
    };
    agent
        .wait_status("the corrected file is applied", taken)
        .await;

    load.pass(200).await;
    let report = load.stop().await;
    report.print("settings reloaded four times");
    report.assert_clean();

    agent.restart();
    let new = |status: &Value| status["agent"]["pid"].as_i64() != Some(pid) && !waits(status);
    agent
        .wait_status("the new agent uses all settings", new)
        .await;
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
}

#[test]
fn run_rejects_invalid_settings_file_with_line() {
    let agent = Setup::with_ports(&[80]).prepare();
    let manifests = agent.manifests().to_string_lossy().into_owned();
    let file = write(
        &agent,
        "drain-seconds: 3\nmanifest: /nowhere\ndrain-second: 3\n",
    );
    let path = file.to_string_lossy().into_owned();
    let run = agent.command(&["run", "--manifests", &manifests, "--config", &path]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    let stderr = text(&run.stderr);
    for expected in [
        "agent.yaml:2: manifest: unknown setting; did you mean `manifests`?",
        "agent.yaml:3: drain-second: ",
    ] {
        assert!(stderr.contains(expected), "{stderr}");
    }

    let valid = agent.command(&["validate", "--config", &path, "--output", "json"]);
    assert_eq!(valid.status.code(), Some(1), "{valid:?}");
    assert_eq!(json(&valid)["errors"].as_array().unwrap().len(), 2);

    std::fs::write(&file, format!("manifests: {manifests}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let open = agent.command(&["validate", "--config", &path]);
    assert_eq!(open.status.code(), Some(1));
    assert!(text(&open.stdout).contains("chmod"), "{open:?}");
}

#[test]
fn validate_shows_origin_of_every_setting() {
    let agent = Setup::with_ports(&[80]).prepare();
    let manifests = agent.manifests().to_string_lossy().into_owned();
    let file = write(
        &agent,
        &format!("manifests: {manifests}\ndrain-seconds: 3\naddress: [192.0.2.1]\n"),
    );
    let path = file.to_string_lossy().into_owned();
    let output = agent.command(&["validate", "--config", &path, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let outcome = json(&output);
    let of = |key: &str| -> Value {
        let settings = outcome["settings"].as_array().unwrap();
        let found = settings.iter().find(|setting| setting["key"] == key);
        found
            .unwrap_or_else(|| panic!("{key}: {outcome:#}"))
            .clone()
    };
    assert_eq!(of("drain-seconds")["values"], serde_json::json!(["3"]));
    assert_eq!(of("drain-seconds")["origin"]["from"], "file");
    assert_eq!(of("drain-seconds")["origin"]["line"], 2);
    // The test harness sets this variable.
    assert_eq!(of("envoy")["origin"]["variable"], "ENVOY");
    assert_eq!(of("lame-duck-seconds")["origin"]["from"], "default");
    assert_eq!(of("log")["live"], true);
    assert_eq!(of("address")["live"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_find_agent_by_settings_file() {
    let mut agent = Setup::with_ports(&[80]).prepare();
    agent.write("all.yaml", &yaml(&edge(&[http_listener("http", 80, "")])));
    agent.restart();
    agent
        .wait_status("the agent answers", |status| {
            !status["gateways"].as_array().unwrap().is_empty()
        })
        .await;
    let content = format!(
        "manifests: {}\nruntime-dir: {}\nstate-dir: {}\n",
        agent.manifests().display(),
        agent.runtime().display(),
        agent.state().display()
    );
    let file = write(&agent, &content);
    let path = file.to_string_lossy().into_owned();
    for line in [
        ["--config", &path, "status", "--output", "json"],
        ["status", "--output", "json", "--config", &path],
    ] {
        let output = agent.command(&line);
        assert!(json(&output)["agent"]["pid"].is_i64(), "{output:?}");
    }
    sesame_tests::wait::eventually("a generation is stored", TEST_TIMEOUT, async || {
        let output = agent.command(&["history", "--config", &path, "--output", "json"]);
        // The list is empty until the first generation is stored.
        match serde_json::from_slice::<Vec<Value>>(&output.stdout) {
            Ok(all) if !all.is_empty() => Ok(()),
            _ => Err(format!("{output:?}")),
        }
    })
    .await;
    // Without an agent, the command reads the configured state directory.
    agent.kill9();
    let output = agent.command(&["history", "--config", &path, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn packages_get_manual_pages_and_completion() {
    let agent = Setup::with_ports(&[80]).prepare();
    let pages = agent.state().join("man");
    let output = agent.command(&["man", "--dir", &pages.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for page in [
        "sesame-agent.1",
        "sesame-agent-run.1",
        "sesame-agent-status.1",
    ] {
        let text = std::fs::read_to_string(Path::new(&pages).join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    assert!(
        !pages.join("sesame-agent-launch-envoy.1").exists(),
        "hidden"
    );
    for shell in ["bash", "zsh", "fish"] {
        let output = agent.command(&["completion", shell]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(text(&output.stdout).contains("sesame-agent"), "{shell}");
    }
}
