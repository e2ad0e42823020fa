//! Settings of single ports, connections that a change of them drains, and forecasts of changes.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary, arguments, words};
use sesame_tests::backend::Backend;
use sesame_tests::client::Connection;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::manifests::{edge_with, http_listener, http_route, rule_to, served, yaml};
use sesame_tests::wait::{eventually, holds};

const HOST: &str = "a.test";

fn objects(spec: &Value, backend: &Backend) -> String {
    let listeners = [http_listener("one", 80, ""), http_listener("two", 81, "")];
    let mut all = edge_with(spec, &listeners);
    all.extend(served("a", &[backend.address()]));
    all.push(http_route("a", &[], &[rule_to("a", &[])]));
    yaml(&all)
}

fn on_81(edge: &Value) -> Value {
    json!({"edge": {"requestId": "Keep"}, "edgePorts": [{"port": 81, "edge": edge}]})
}

/// Opens this many connections, each with one response.
async fn open(agent: &AgentUnderTest, port: u16, count: usize) -> Vec<Connection> {
    let mut all = Vec::new();
    for _ in 0..count {
        let request = agent.get(port, HOST, "/");
        let mut connection = Connection::open(&request).await.expect("a connection");
        let reply = connection.send(&request).await.expect("a response");
        assert_eq!(reply.status, 200);
        all.push(connection);
    }
    all
}

async fn count_open(connections: &mut [Connection]) -> usize {
    let mut count = 0;
    for connection in connections {
        count += usize::from(connection.is_open().await);
    }
    count
}

/// Returns what `validate` prints about the manifests.
fn validated(agent: &AgentUnderTest, manifests: &str) -> String {
    words(&validation(agent, manifests, "table"))
}

fn validation(agent: &AgentUnderTest, manifests: &str, format: &str) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("all.yaml"), manifests).expect("manifests");
    let (manifests, state) = (directory.path().display(), agent.state());
    let line = format!(
        "validate --manifests {manifests} --output {format} --state-dir {}",
        state.display()
    );
    let mut command = Command::new(agent_binary());
    command
        .args(arguments(&line))
        .env("ENVOY", envoy_binary())
        .env("SESAME_ALLOW_LOCAL_ENDPOINTS", "true")
        .env("SESAME_RUNTIME_DIR", agent.runtime());
    command.output().expect("the agent's binary runs")
}

/// Returns the paths and inodes of Envoy's resource files. The file with shares of connections
/// (`rtds`) changes at other times, too.
fn files(directory: &Path) -> BTreeSet<(PathBuf, u64)> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        // Files are staged, and then renamed.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if path.ends_with("rtds") {
            continue;
        }
        if metadata.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|it| it == "pb") {
            found.insert((path, metadata.ino()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn forecast_counts_files_that_change() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let before = objects(&json!({}), &a);
    let mut added = served("b", &[b.address()]);
    added.push(http_route("b", &["b.test"], &[rule_to("b", &[])]));
    let after = before.clone() + &yaml(&added);
    let agent = Setup::with_ports(&[80, 81]).start(&[("all.yaml", &before)]);
    agent.wait_ok(&agent.get(80, HOST, "/")).await;
    agent.wait_stored().await;
    let forecast = |manifests: &str| {
        let output = validation(&agent, manifests, "json");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let forecast = &report["forecasts"]["default/edge"];
        ["files", "newSubscriptions"].map(|field| forecast[field].as_u64().expect("a number"))
    };
    assert_eq!(forecast(&before), [0, 0]);
    let expected = forecast(&after);
    let old = files(&agent.runtime());
    agent.write("all.yaml", &after);
    agent.wait_backend(&agent.get(80, "b.test", "/"), "b").await;
    agent.wait_stored().await;
    let new = files(&agent.runtime());
    let written: Vec<_> = new.difference(&old).collect();
    let paths: BTreeSet<&PathBuf> = old.iter().map(|(path, _)| path).collect();
    let created = written.iter().filter(|(path, _)| !paths.contains(path));
    let counts = [written.len() as u64, created.count() as u64];
    assert_eq!(counts, expected, "{written:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_port_drains_counted_connections_only() {
    let backend = Backend::start("a").await;
    let before = objects(&on_81(&json!({"serverHeader": "Keep"})), &backend);
    let after = objects(&on_81(&json!({"serverHeader": "Replace"})), &backend);
    let agent = Setup::with_ports(&[80, 81]).start(&[("all.yaml", &before)]);
    agent.wait_ok(&agent.get(81, HOST, "/")).await;
    agent.wait_stored().await;
    let (mut kept, mut drained) = (open(&agent, 80, 4).await, open(&agent, 81, 3).await);
    let forecast = "drains port 81/TCP: 3 open connections on this host";
    eventually("connections are counted", TEST_TIMEOUT, async || {
        let printed = validated(&agent, &after);
        let is_only = printed.matches("drains port").count() == 1;
        holds(is_only && printed.contains(forecast), || printed)
    })
    .await;
    let same = validated(&agent, &before);
    assert!(!same.contains("drains"), "{same}");

    agent.write("all.yaml", &after);
    let replaced = |reply: &sesame_tests::client::Reply| reply.header("server") == Some("envoy");
    agent.wait_served(&agent.get(81, HOST, "/"), replaced).await;
    eventually("the forecast connections close", TEST_TIMEOUT, async || {
        let left = count_open(&mut drained).await;
        holds(left == 0, || format!("{left} are still open"))
    })
    .await;
    assert_eq!(count_open(&mut kept).await, 4);
    for connection in &mut kept {
        let request = agent.get(80, HOST, "/");
        let reply = connection.send(&request).await.expect("a response");
        assert_eq!(reply.header("connection"), None);
        assert_ne!(reply.header("server"), Some("envoy"));
    }
    assert_eq!(count_open(&mut kept).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn port_has_settings_of_its_own() {
    let backend = Backend::start("a").await;
    let all = json!({"edge": {
        "headerUnderscores": "Allow", "serverHeader": "Replace", "streamIdleTimeout": "1h",
    }, "edgePorts": [{"port": 81, "edge": {
        "headerUnderscores": "Reject", "viaHeader": "Append", "http10": "Reject",
    }}]});
    let agent = Setup::with_ports(&[80, 81]).start(&[("all.yaml", &objects(&all, &backend))]);
    let get = |port: u16| agent.get(port, HOST, "/");
    agent.wait_ok(&get(80)).await;
    agent.wait_ok(&get(81)).await;
    for (port, status) in [(80, 200), (81, 400)] {
        let reply = get(port).header("x_user", "root").send().await;
        assert_eq!(reply.expect("a response").status, status, "{port}");
    }
    for (port, via) in [(80, None), (81, Some("1.1 sesame"))] {
        let reply = get(port).send().await.expect("a response");
        assert_eq!(reply.header("via"), via, "{port}");
        assert_eq!(reply.header("server"), Some("envoy"), "{port}");
    }

    // An invalid port changes nothing.
    let wrong = json!({"edge": {"viaHeader": "Append"}, "edgePorts": [
        {"port": 81, "edge": {"preset": "Nginx"}},
    ]});
    agent.write("all.yaml", &objects(&wrong, &backend));
    let expected = "spec.edgePorts[0].edge.preset: also affects connections to backends";
    let reports = |status: &Value| status.to_string().contains(expected);
    agent.wait_status("the field is named", reports).await;
    let reply = get(80).send().await.expect("a response");
    assert_eq!(reply.header("via"), None);
}
