//! Output and exit codes of read-only commands.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary, arguments};
use sesame_tests::certs::Authority;
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_proxy, http_route, https_listener, ingress_class,
    rule_to, served, yaml,
};
use sesame_tests::wait::holds;

fn good() -> (AgentUnderTest, String) {
    let agent = Setup::with_ports(&[80]).prepare();
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "", "cert"),
    ]);
    objects.push(
        Authority::new("commands")
            .issue(&["commands.test"])
            .secret("cert"),
    );
    objects.extend(served("web", &["127.0.0.1:9".parse().unwrap()]));
    objects.push(http_route(
        "web",
        &["commands.test"],
        &[rule_to("web", &[])],
    ));
    agent.write("all.yaml", &yaml(&objects));
    let manifests = agent.manifests().to_string_lossy().into_owned();
    (agent, manifests)
}

/// An HTTPProxy with a warning, and an error if `service` does not exist.
fn warned_proxy(service: &str) -> [Value; 2] {
    let route = serde_json::json!({"services": [{"name": service, "port": 80}],
        "loadBalancerPolicy": {"strategy": "Nearest"}});
    let host = serde_json::json!({"fqdn": "proxy.test"});
    let spec = serde_json::json!({"virtualhost": host, "routes": [route]});
    [ingress_class(), http_proxy("warned", &spec)]
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn render_prints_envoy_resources_without_private_keys() {
    let (agent, manifests) = good();
    let json = agent.command(&["render", "--manifests", &manifests, "--format", "json"]);
    assert_eq!(json.status.code(), Some(0), "{json:?}");
    let value: Value = serde_json::from_slice(&json.stdout).unwrap();
    for part in ["listeners", "routes", "clusters", "endpoints", "secrets"] {
        assert!(!value[part].as_array().unwrap().is_empty(), "{part}");
    }
    assert!(!text(&json).contains("PRIVATE KEY"));
    assert!(text(&json).contains("<redacted>"));

    let shown = agent.command(&["render", "--manifests", &manifests, "--show-secrets"]);
    assert!(text(&shown).contains("PRIVATE KEY"), "asked for");

    let only = agent.command(&arguments(&format!(
        "render --manifests {manifests} --format json --only routes,bootstrap"
    )));
    let value: Value = serde_json::from_slice(&only.stdout).unwrap();
    let parts: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(parts, ["bootstrap", "routes"]);
}

#[test]
fn render_writes_snapshots_that_read_back() {
    let (agent, manifests) = good();
    let directory = agent.state().join("snapshots");
    let output = agent.command(&[
        "render",
        "--manifests",
        &manifests,
        "--snapshot-dir",
        &directory.to_string_lossy(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let written: Vec<_> = std::fs::read_dir(&directory).unwrap().flatten().collect();
    assert_eq!(written.len(), 1, "one Gateway");
    let (manifest, snapshot) = sesame_files::directory::read(&written[0].path()).unwrap();
    assert_eq!(manifest.revision, sesame_proto::digest::revision(&snapshot));
    assert_eq!(snapshot.ports.len(), 2);
    let keys = written[0].path().join("keys.pb");
    assert!(!keys.exists(), "private keys are written only on request");

    let output = agent.command(&[
        "render",
        "--manifests",
        &manifests,
        "--snapshot-dir",
        &directory.to_string_lossy(),
        "--show-secrets",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mode = std::fs::metadata(&keys).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pairs = sesame_proto::keys::decode(&std::fs::read(&keys).unwrap()).unwrap();
    let digests: Vec<String> = pairs
        .iter()
        .map(sesame_proto::keys::KeyPair::digest)
        .collect();
    let named: Vec<String> = snapshot.keys.iter().map(|key| key.digest.clone()).collect();
    assert_eq!(digests, named);
}

#[test]
fn run_requires_one_source_and_lists_them() {
    let (agent, manifests) = good();
    let none = agent.command(&["run"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    let text = String::from_utf8_lossy(&none.stderr).into_owned();
    for flag in ["--manifests", "--snapshot-dir", "--kube"] {
        assert!(text.contains(flag), "{text}");
    }
    let two = agent.command(&["run", "--manifests", &manifests, "--kube"]);
    assert_eq!(two.status.code(), Some(2), "{two:?}");
    let alone = agent.command(&["run", "--manifests", &manifests, "--kubeconfig", "/nowhere"]);
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
    let pool = agent.command(&arguments(&format!(
        "run --manifests {manifests} --address-pool 198.51.100.0/24"
    )));
    assert_eq!(pool.status.code(), Some(3), "{pool:?}");
    let text = String::from_utf8_lossy(&pool.stderr).into_owned();
    assert!(text.contains("198.51.100.0/24"), "{text}");
}

#[test]
fn rendered_bootstrap_is_valid_and_contains_no_key() {
    let (agent, manifests) = good();
    let refused = agent.command(&["render", "--manifests", &manifests, "--format", "pb"]);
    assert_eq!(
        refused.status.code(),
        Some(3),
        "private keys are printed only on request"
    );
    assert!(refused.stdout.is_empty());
}

#[test]
fn validate_names_every_problem_and_exits_with_failure() {
    let (agent, manifests) = good();
    let valid = agent.command(&["validate", "--manifests", &manifests]);
    assert_eq!(valid.status.code(), Some(0), "{}", text(&valid));

    agent.write("broken.yaml", "kind: HTTPRoute\n  apiVersion: [\n");
    let lost = backend_ref("nobody");
    let mut rule = rule_to("web", &[]);
    rule["backendRefs"] = serde_json::json!([lost]);
    agent.write(
        "lost.yaml",
        &yaml(&[http_route("lost", &["lost.test"], &[rule])]),
    );
    agent.write("proxy.yaml", &yaml(&warned_proxy("nobody")));
    let wrong = agent.command(&["validate", "--manifests", &manifests, "--output", "json"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", text(&wrong));
    let value: Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert_eq!(value["valid"], false);
    let findings = value["findings"].as_array().unwrap();
    let of = |file: &str| {
        findings
            .iter()
            .find(|finding| finding["file"] == file)
            .unwrap_or_else(|| panic!("no finding for {file}: {findings:#?}"))
    };
    assert!(of("broken.yaml")["line"].as_u64().unwrap() > 0);
    assert!(
        of("lost.yaml")["message"]
            .as_str()
            .unwrap()
            .contains("nobody")
    );
    let of_proxy = findings.iter().filter(|it| it["file"] == "proxy.yaml");
    let severities: Vec<&Value> = of_proxy.map(|it| &it["severity"]).collect();
    assert_eq!(severities, ["error", "warning"], "{findings:#?}");
    let verdicts = value["envoy"].as_object().unwrap();
    assert!(
        verdicts.values().all(|verdict| verdict["accepted"] == true),
        "{verdicts:?}"
    );
}

#[test]
fn status_reports_missing_agent() {
    let (agent, _) = good();
    let output = agent.status_command();
    assert_eq!(output.status.code(), Some(3));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("no agent is running"), "{error}");
}

#[test]
fn wrong_arguments_are_named() {
    let (agent, manifests) = good();
    let output = agent.command(&["render", "--manifests", &manifests, "--port-map", "80:0"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("expected a port from 1 to 65535"), "{error}");
    let output = agent.command(&["validate", "--manifests", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(3));
}

async fn running() -> AgentUnderTest {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("web", &["127.0.0.1:9".parse().unwrap()]));
    let web = [rule_to("web", &[])];
    objects.push(http_route("web", &["web.test"], &web));
    let mut lost = rule_to("web", &[]);
    lost["backendRefs"] = serde_json::json!([backend_ref("nobody")]);
    objects.push(http_route("lost", &["lost.test"], &[lost]));
    objects.extend(warned_proxy("web"));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let generation = |status: &Value| {
        let gateway = &status["gateways"][0];
        gateway["state"] == "Serving" && gateway["applied"] == gateway["wanted"]
    };
    agent
        .wait_status("the newest version is served", generation)
        .await;
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_commands_take_options_before_or_after_name() {
    let agent = running().await;
    let runtime = agent.runtime().to_string_lossy().into_owned();
    let options = [
        "--runtime-dir",
        &runtime,
        "--output",
        "json",
        "--gateway",
        "default/edge",
    ];
    // The agent stores accepted generations asynchronously.
    sesame_tests::wait::eventually("the generation is listed", TEST_TIMEOUT, async || {
        let listed = agent.command(&[&["history"][..], &options].concat());
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        holds(listed[0]["generation"] == 1, || listed.to_string())
    })
    .await;
    let commands: [(&[&str], i32); 7] = [
        (&["status"], 1),
        (&["history"], 0),
        (&["diff", "1", "1"], 0),
        (&["rollback", "77"], 1),
        (&["resume"], 0),
        (&["drain", "--undo"], 0),
        (&["accept"], 0),
    ];
    for (command, code) in commands {
        for line in [
            [command, &options].concat(),
            [&options[..], command].concat(),
        ] {
            let output = agent.command_beside(&line).await;
            assert_eq!(output.status.code(), Some(code), "{line:?}: {output:?}");
            let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
            let values: Vec<Value> = values.collect::<Result<_, _>>().expect("JSON");
            assert!(!values.is_empty(), "{line:?}: {output:?}");
        }
    }
    let other = agent.command(&["history", "--runtime-dir", &runtime, "--gateway", "a/b"]);
    assert_eq!(other.status.code(), Some(3));
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(error.contains("never been served"), "{error}");
    let nowhere = agent.command(&["diff", "1", "1", "--runtime-dir", "/nonexistent"]);
    let error = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(error.contains("no agent is running"), "{error}");
    assert!(error.contains("--state-dir"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_lists_problems_first_and_filters_objects() {
    let agent = running().await;
    let runtime = agent.runtime().to_string_lossy().into_owned();
    let status = |arguments: &[&str]| {
        let output = agent.command(&[&["status", "--runtime-dir", &runtime], arguments].concat());
        (output.status.code(), text(&output))
    };
    let (code, all) = status(&[]);
    assert_eq!(code, Some(1), "{all}");
    let at = |what: &str| all.find(what).unwrap_or_else(|| panic!("{what}: {all}"));
    let lost = "HTTPRoute default/lost (edge): ResolvedRefs=False BackendNotFound";
    assert!(at("not healthy:") < at(lost), "{all}");
    assert!(at(lost) < at("GATEWAY") && at("GATEWAY") < at("1 Gateway, served"));
    assert!(
        all.contains("2 HTTPRoutes: 1 served, 1 with problems\n"),
        "{all}"
    );
    let warning = "HTTPProxy/default/warned: routes[0]: loadBalancerPolicy.strategy";
    assert!(at("warning: all.yaml:") < at(warning), "{all}");
    assert!(all.contains("1 HTTPProxy, served"), "{all}");
    assert!(!all.contains("default/web"), "{all}");

    let (code, web) = status(&["httproute", "web"]);
    assert_eq!(code, Some(0), "{web}");
    assert!(web.contains("Accepted") && web.ends_with("1 HTTPRoute, served\n"));
    let (code, lost_status) = status(&["httproute/default/lost"]);
    assert_eq!(code, Some(1), "{lost_status}");
    let (code, none) = status(&["httproute", "none"]);
    assert_eq!(code, Some(1), "{none}");
    assert_eq!(status(&["pods"]).0, Some(2));
    let (_, every) = status(&["--all"]);
    assert!(every.contains("default    web"), "{every}");

    // Colors need a terminal or an explicit request.
    assert!(!all.contains('\u{1b}'));
    let coloured = Command::new(agent_binary())
        .args(["status", "--runtime-dir", &runtime])
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    assert!(text(&coloured).contains("\u{1b}[31m"), "{coloured:?}");
}

struct KillOnDrop(Child);
impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_watch_prints_changes() {
    let agent = running().await;
    let watch = Command::new(agent_binary())
        .args([
            "status",
            "--watch",
            "--output",
            "json",
            "httproute",
            "--runtime-dir",
        ])
        .arg(agent.runtime())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut watch = KillOnDrop(watch);
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(watch.0.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let next = || -> Value {
        let line = lines.recv_timeout(TEST_TIMEOUT).expect("a status");
        serde_json::from_str(&line).expect("one JSON value per line")
    };
    assert_eq!(next()["objects"].as_array().unwrap().len(), 2);
    let more = http_route("more", &["more.test"], &[rule_to("web", &[])]);
    agent.write("more.yaml", &yaml(&[more]));
    while next()["objects"].as_array().unwrap().len() != 3 {}
}
