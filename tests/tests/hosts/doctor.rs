//! The doctor's remedies must solve problems, and support archives must not contain secrets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, agent_binary};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, rule_to, served, yaml,
};

fn host(agent: &AgentUnderTest, more: &str) -> String {
    let content = format!(
        "manifests: {}\nruntime-dir: {}\nstate-dir: {}\naddress: [127.0.0.1]\n{more}",
        agent.manifests().display(),
        agent.runtime().display(),
        agent.state().display()
    );
    let path = agent.manifests().with_file_name("agent.yaml");
    std::fs::write(&path, content).unwrap();
    path.to_string_lossy().into_owned()
}

fn examine(agent: &AgentUnderTest, more: &[&str]) -> (Output, Value) {
    let output = agent.command(&[&["doctor", "--output", "json"], more].concat());
    let value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, value)
}

fn findings_for<'a>(examination: &'a Value, check: &str) -> Vec<&'a Value> {
    let findings = examination["findings"].as_array().unwrap();
    findings
        .iter()
        .filter(|finding| finding["check"] == check)
        .collect()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn doctor_names_process_that_holds_port() {
    let agent = Setup::with_ports(&[80]).prepare();
    agent.write("all.yaml", &yaml(&edge(&[http_listener("http", 80, "")])));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = host(&agent, &format!("port-map: {{80: {port}}}\n"));
    let (output, examination) = examine(&agent, &["--config", &config]);
    assert_eq!(output.status.code(), Some(1), "{examination:#}");
    let [finding] = findings_for(&examination, "ports")[..] else {
        panic!("{examination:#}");
    };
    assert_eq!(finding["severity"], "error");
    let found = finding["found"].as_str().unwrap();
    let own = format!(
        "port {port} at 127.0.0.1 (Gateway default/edge) is held by process {}",
        std::process::id()
    );
    assert!(found.contains(&own), "{found}");

    drop(taken);
    let (_, examination) = examine(&agent, &["--config", &config]);
    assert_eq!(
        findings_for(&examination, "ports")[0]["severity"],
        "ok",
        "{examination:#}"
    );
}

#[test]
fn doctor_remedies_repair_modes_and_directories() {
    let agent = Setup::with_ports(&[80]).prepare();
    let config = host(&agent, "");
    let (state, runtime) = (agent.state(), agent.runtime());
    let key = state.join("keys.pb");
    std::fs::write(&key, "a key").unwrap();
    set_mode(&key, 0o644);
    set_mode(&state, 0o777);
    std::fs::remove_dir(&runtime).unwrap();
    let (output, examination) = examine(&agent, &["--config", &config]);
    assert_eq!(output.status.code(), Some(1), "{examination:#}");
    assert_eq!(findings_for(&examination, "modes")[0]["severity"], "error");
    assert_eq!(mode(&key), 0o644, "the doctor changes nothing");
    for check in ["modes", "directories"] {
        let remedy = findings_for(&examination, check)[0]["remedy"]
            .as_str()
            .unwrap();
        let shell = Command::new("sh").args(["-c", remedy]).status().unwrap();
        assert!(shell.success(), "{remedy}");
    }

    let (_, examination) = examine(&agent, &["--config", &config]);
    assert_eq!(
        findings_for(&examination, "modes").len(),
        0,
        "{examination:#}"
    );
    assert_eq!(
        (mode(&state), mode(&key), mode(&runtime)),
        (0o700, 0o600, 0o700)
    );
}

#[test]
fn doctor_reports_invalid_settings_and_continues() {
    let agent = Setup::with_ports(&[80]).prepare();
    let config = host(&agent, "colour: red\n");
    let (output, examination) = examine(&agent, &["--config", &config]);
    assert_eq!(output.status.code(), Some(1));
    let found = findings_for(&examination, "settings")[0]["found"]
        .as_str()
        .unwrap();
    assert!(found.contains("agent.yaml:5: colour"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_accepts_ports_of_running_agent() {
    let agent = Setup::with_ports(&[80])
        .start(&[("all.yaml", &yaml(&edge(&[http_listener("http", 80, "")])))]);
    set_mode(&agent.state(), 0o700);
    set_mode(&agent.runtime(), 0o700);
    agent
        .wait_status("the host serves", |status| status["healthy"] == true)
        .await;
    let runtime: PathBuf = agent.runtime();
    let (_, examination) = examine(&agent, &["--runtime-dir", &runtime.to_string_lossy()]);
    for check in [
        "agent",
        "ports",
        "envoy",
        "hot-restart",
        "settings",
        "directories",
        "disk",
        "modes",
    ] {
        for finding in findings_for(&examination, check) {
            assert_eq!(finding["severity"], "ok", "{check}: {examination:#}");
        }
    }
    let sockets = findings_for(&examination, "ports")[0]["found"]
        .as_str()
        .unwrap();
    assert!(sockets.starts_with("1 sockets"), "{sockets}");
}

type File = (String, Vec<u8>);

fn unpack(path: &Path) -> Vec<File> {
    use std::io::Read as _;

    let packed = std::fs::File::open(path).unwrap();
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(packed).unwrap());
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    });
    files.collect()
}

fn holds(files: &[File], needle: &[u8]) -> Option<String> {
    let found = files
        .iter()
        .find(|(_, bytes)| bytes.windows(needle.len()).any(|window| window == needle));
    found.map(|(name, _)| name.clone())
}

/// Every field that may contain an API key contains one.
fn with_api_keys() -> Vec<Value> {
    let header = |name: &str, value: &str| json!({"name": name, "value": value});
    let to_app = json!({"name": "app", "port": 80});
    let configuration = json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "SesameConfiguration",
        "metadata": {"name": "keys", "namespace": "default"},
        "spec": {
            "tracing": {
                "mode": "Enabled",
                "provider": {
                    "backendRef": to_app,
                    "headers": [header("x-honeycomb-team", "TRACE-SECRET-1"),
                        header("authorization", "ApiKey TRACE-SECRET-2")],
                },
                "samplingRate": {"numerator": 1},
            },
            "accessLog": {"sinks": [{"protocol": "OTLP", "backendRef": to_app,
                "headers": [header("dd-api-key", "SINK-SECRET-3")]}]},
        },
    });
    let rule = json!({
        "matches": [{"headers": [header("x-origin", "MATCH-SECRET-4")],
            "queryParams": [header("token", "QUERY-SECRET-5")]}],
        "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {
            "set": [header("X-Api-Key", "SET-SECRET-6"), header("Authorization", "Token SET-SECRET-7%")]}}],
        "backendRefs": [to_app],
    });
    vec![
        configuration,
        http_route("keys", &["collect.test"], &[rule]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_collects_details_without_keys_or_tokens() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let leaf = Authority::new("collect").issue(&["collect.test"]);
    let token = "a-token-that-nobody-may-see";
    let mut agent = Setup::with_ports(&[80, 443]).prepare();
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "", "cert"),
    ]);
    objects.push(leaf.secret("cert"));
    let backend = Backend::start("a").await;
    objects.extend(served("app", &[backend.address()]));
    objects.push(http_route("app", &["collect.test"], &[rule_to("app", &[])]));
    objects.extend(with_api_keys());
    objects[0]["spec"]["parametersRef"] = json!({"group": "projectsesame.io", "kind": "SesameConfiguration",
        "name": "keys", "namespace": "default"});
    agent.write("all.yaml", &yaml(&objects));
    agent.restart();
    let request = agent.get(80, "collect.test", "/");
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
    agent.wait_stored().await;

    // With debug logging, Envoy logs the token.
    let gateways = std::fs::read_dir(agent.runtime().join("gateways")).unwrap();
    for gateway in gateways {
        let log = gateway.unwrap().path().join("envoy.log");
        let mut log = std::fs::OpenOptions::new().append(true).open(log).unwrap();
        writeln!(log, "[debug] a header with {token} in it").unwrap();
    }

    let file = agent.state().with_file_name("report.tar.zst");
    let runtime = agent.runtime().to_string_lossy().into_owned();
    let output = Command::new(agent_binary())
        .args([
            "collect",
            "--output",
            "json",
            "--runtime-dir",
            &runtime,
            "-o",
        ])
        .arg(&file)
        .env("ENVOY", sesame_tests::envoy::envoy_binary())
        .env("SOME_TOKEN", token)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(mode(&file), 0o600);
    let collected: Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = unpack(&file);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    for expected in [
        "sesame/contents.json",
        "sesame/doctor.json",
        "sesame/gateways/default.edge/history.json",
        "sesame/gateways/default.edge/snapshot.json",
        "sesame/host/variables.txt",
        "sesame/settings.json",
        "sesame/status.json",
        "sesame/versions.json",
    ] {
        assert!(
            names.contains(&expected),
            "{expected}: {names:?}\n{collected:#}"
        );
    }
    for expected in ["config_dump.json", "stats.txt", "envoy.log", "certs.json"] {
        assert!(
            names.iter().any(|name| name.ends_with(expected)),
            "{expected}: {names:?}"
        );
    }
    assert!(names[1..].is_sorted(), "{names:?}");
    // Redaction must keep information that is not secret.
    assert!(holds(&files, b"collect.test").is_some());

    let key = leaf.key().unwrap();
    let der = key.secret_der();
    let base64 = STANDARD.encode(der);
    let (middle, _) = base64.split_at(base64.len() - 8);
    let hex = der
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let mut secrets: Vec<Vec<u8>> = vec![
        der.to_vec(),
        middle.as_bytes()[8..].to_vec(),
        hex.into_bytes(),
        b"PRIVATE KEY".to_vec(),
        b"-SECRET-".to_vec(),
        token.as_bytes().to_vec(),
    ];
    secrets.extend(
        base64
            .as_bytes()
            .chunks(64)
            .filter(|line| line.len() > 16)
            .map(<[u8]>::to_vec),
    );
    for secret in secrets {
        let found = holds(&files, &secret);
        assert_eq!(found, None, "{}", String::from_utf8_lossy(&secret));
    }

    let again = agent.command(&[
        "collect",
        "--runtime-dir",
        &runtime,
        "-o",
        &file.to_string_lossy(),
    ]);
    assert_eq!(
        again.status.code(),
        Some(3),
        "an existing file was overwritten: {again:?}"
    );
}
