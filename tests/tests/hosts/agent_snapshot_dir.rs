//! `sesame-agent run --snapshot-dir`. Each snapshot is served either completely or not at all.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::Value;
use sesame_files::directory;
use sesame_proto::keys;
use sesame_proto::schema::{Endpoint, Header, HeaderModifier};
use sesame_resolver::ResolvedGateway;
use sesame_tests::agent::{AgentUnderTest, Setup, agent_binary};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, path, rule_to, served,
};
use sesame_tests::publications::one;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The route's path identifies the version.
fn version(backend: &Backend, prefix: &str) -> ResolvedGateway {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    let rule = rule_to(
        "app",
        &[path("PathPrefix", prefix), path("PathPrefix", "/all")],
    );
    objects.push(http_route("app", &["dir.test"], &[rule]));
    one(&objects)
}

fn start(dir: &Path, ports: &[u16]) -> AgentUnderTest {
    let mut agent = Setup::with_ports(ports).without_manifests().prepare();
    agent.add_flags(&["--snapshot-dir", &dir.to_string_lossy()]);
    agent.restart();
    agent
}

async fn wait(agent: &AgentUnderTest, prefix: &str) {
    let request = agent.get(80, "dir.test", prefix);
    agent.wait_ok(&request).await;
}

fn is_degraded(status: &Value, word: &str) -> bool {
    let gateway = &status["gateways"][0];
    let message = gateway["message"].as_str().unwrap_or_default();
    gateway["state"] == "Degraded" && message.contains(word)
}

fn lose_a_shard(dir: &Path) -> String {
    let manifest = directory::read_manifest(dir).unwrap();
    let name = directory::shard_file(&manifest.config.last().unwrap().name);
    std::fs::remove_file(dir.join(&name)).unwrap();
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_directory_is_replaced_only_as_a_whole() {
    let backend = Backend::start("a").await;
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("edge");
    directory::write(&dir, &version(&backend, "/one").snapshot).unwrap();
    let mut agent = start(root.path(), &[80]);
    wait(&agent, "/one").await;
    let status = agent.wait_healthy().await;
    assert_eq!(status["source"]["kind"], "snapshotDir", "{status:#}");
    assert_eq!(status["objects"].as_array().map(Vec::len), Some(0));
    let load = Load::start(&Plan::new(vec![agent.get(80, "dir.test", "/all")]));

    directory::write(&dir, &version(&backend, "/two").snapshot).unwrap();
    wait(&agent, "/two").await;

    // Half of the new revision is missing.
    let next = root.path().join(".next");
    directory::write(&next, &version(&backend, "/three").snapshot).unwrap();
    let lost = lose_a_shard(&next);
    for entry in std::fs::read_dir(&next).unwrap().flatten() {
        std::fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    let expected = lost.clone();
    agent
        .wait_status("the missing shard is reported", move |status| {
            is_degraded(status, &expected)
        })
        .await;
    wait(&agent, "/two").await;
    std::fs::write(dir.join(&lost), b"not this one").unwrap();
    agent
        .wait_status("the wrong digest is reported", |status| {
            is_degraded(status, "SHA-256")
        })
        .await;
    wait(&agent, "/two").await;
    // A restarted agent knows only the last accepted revision.
    agent.wait_stored().await;
    agent.restart();
    agent
        .wait_status("still degraded", |status| is_degraded(status, "SHA-256"))
        .await;
    wait(&agent, "/two").await;

    directory::write(&dir, &version(&backend, "/three").snapshot).unwrap();
    wait(&agent, "/three").await;
    agent.wait_healthy().await;

    std::fs::rename(&dir, root.path().join(".gone")).unwrap();
    agent
        .wait_status("the missing snapshot is reported", |status| {
            status["source"]["available"] == false && is_degraded(status, "contains no snapshot")
        })
        .await;
    wait(&agent, "/three").await;
    load.stop().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_directory_changes_by_its_link() {
    let backend = Backend::start("a").await;
    let root = tempfile::tempdir().unwrap();
    let mount = |version_name: &str, prefix: &str| {
        let dir = root.path().join(version_name);
        directory::write(&dir, &version(&backend, prefix).snapshot).unwrap();
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            let link = root.path().join(entry.file_name());
            if link.symlink_metadata().is_err() {
                symlink(Path::new("..data").join(entry.file_name()), link).unwrap();
            }
        }
        symlink(version_name, root.path().join("..new")).unwrap();
        std::fs::rename(root.path().join("..new"), root.path().join("..data")).unwrap();
    };
    mount("..1", "/one");
    let agent = start(root.path(), &[80]);
    wait(&agent, "/one").await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "dir.test", "/all")]));
    for number in 2..8 {
        mount(&format!("..{number}"), &format!("/{number}"));
        wait(&agent, &format!("/{number}")).await;
    }
    load.stop().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn world_readable_keys_are_rejected() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("dir");
    let leaf = authority.issue(&["dir.test"]);
    let mut objects = edge(&[https_listener("https", 443, "", "pair")]);
    objects.extend(served("app", &[backend.address()]));
    objects.push(leaf.secret("pair"));
    objects.push(http_route("app", &["dir.test"], &[rule_to("app", &[])]));
    let resolved = one(&objects);

    let root = tempfile::tempdir().unwrap();
    let keys_file = root.path().join("keys.pb");
    directory::write(root.path(), &resolved.snapshot).unwrap();
    let write = |bytes: &[u8], mode| {
        let staged = root.path().join(".keys.new");
        std::fs::write(&staged, bytes).unwrap();
        std::fs::set_permissions(&staged, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(&staged, &keys_file).unwrap();
    };
    write(&keys::encode(&resolved.keys), 0o644);
    let agent = start(root.path(), &[443]);
    let mentions = |word: &'static str| {
        move |status: &Value| {
            let problems = status["source"]["problems"].to_string();
            problems.contains("keys.pb") && problems.contains(word)
        }
    };
    agent
        .wait_status("the file mode is rejected", mentions("0600"))
        .await;
    write(&keys::encode(&[]), 0o600);
    agent
        .wait_status(
            "the missing key is reported",
            mentions("Secret/default/pair"),
        )
        .await;
    assert_eq!(agent.envoys().len(), 0, "no snapshot has been complete");
    write(&keys::encode(&resolved.keys), 0o600);
    let request = agent
        .get(443, "dir.test", "/")
        .tls("dir.test", &authority.trust());
    agent.wait_ok(&request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unrenderable_parts_degrade_status_and_rest_is_served() {
    let backend = Backend::start("a").await;
    let root = tempfile::tempdir().unwrap();
    let mut resolved = version(&backend, "/one");
    resolved.snapshot.endpoints[0].endpoints.push(Endpoint {
        address: "nowhere".to_owned(),
        port: 80,
        ..Endpoint::default()
    });
    directory::write(root.path(), &resolved.snapshot).unwrap();
    let agent = start(root.path(), &[80]);
    wait(&agent, "/one").await;
    let status = agent
        .wait_status("the rejected endpoint is reported", |status| {
            is_degraded(status, "nowhere")
        })
        .await;
    assert_eq!(status["healthy"], false, "{status:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_cannot_route_to_host_itself() {
    let backend = Backend::start("a").await;
    let root = tempfile::tempdir().unwrap();
    directory::write(root.path(), &version(&backend, "/one").snapshot).unwrap();
    let setup = Setup::with_ports(&[80]).without_manifests();
    let mut agent = setup.no_local_endpoints().prepare();
    agent.add_flags(&["--snapshot-dir", &root.path().to_string_lossy()]);
    agent.restart();
    let request = agent.get(80, "dir.test", "/one");
    let none = agent
        .wait_served(&request, |reply| reply.status == 503)
        .await;
    assert_eq!(none.status, 503);
    agent
        .wait_status("the rejected endpoint is reported", |status| {
            let text = status.to_string();
            text.contains("endpoint 127.0.0.1 is rejected: loopback (127.0.0.0/8)")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipe_in_place_of_shard_does_not_block() {
    let backend = Backend::start("a").await;
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("edge");
    directory::write(&dir, &version(&backend, "/one").snapshot).unwrap();
    let agent = start(root.path(), &[80]);
    wait(&agent, "/one").await;
    let name = lose_a_shard(&dir);
    // Creating and closing a pipe would not cause the event that the agent waits for.
    let pipe = root.path().join("pipe");
    let mut command = std::process::Command::new("mkfifo");
    assert!(command.arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, dir.join(&name)).unwrap();
    let expected = name.clone();
    agent
        .wait_status("the pipe is reported", move |status| {
            is_degraded(status, &expected) && is_degraded(status, "is a fifo")
        })
        .await;
    wait(&agent, "/one").await;
    std::fs::remove_file(dir.join(&name)).unwrap();
    directory::write(&dir, &version(&backend, "/two").snapshot).unwrap();
    wait(&agent, "/two").await;
}

#[test]
fn run_rejects_writable_directories_with_remedy() {
    for name in ["state", "runtime"] {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for own in ["state", "runtime"] {
            std::fs::create_dir(at(own)).unwrap();
        }
        let target = at("target");
        std::fs::write(&target, "precious").unwrap();
        symlink(&target, at(name).join("agent.lock")).unwrap();
        let refused = |mode: u32, words: [&str; 2]| {
            std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
            let mut command = std::process::Command::new(agent_binary());
            command.args(["run", "--snapshot-dir"]).arg(at("none"));
            command.arg("--state-dir").arg(at("state"));
            command.arg("--runtime-dir").arg(at("runtime"));
            let output = command.output().unwrap();
            let log = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{name}: {log}");
            assert!(words.iter().all(|word| log.contains(word)), "{name}: {log}");
            assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
        };
        let flag = format!("--{name}-dir");
        refused(
            0o777,
            [
                &flag,
                "all users can write to it (mode 0777); check its content, then run `chmod go-w",
            ],
        );
        refused(
            0o770,
            [
                &flag,
                "its group can write to it (mode 0770); check its content, then run `chmod g-w",
            ],
        );
        // Despite the `chmod`, the agent must not follow a symbolic link.
        refused(0o755, ["agent.lock", "is a symbolic link"]);
    }
}

/// If a filter set `content-length: 0`, a backend would parse the body as another request. The
/// agent must not rely on the publisher to reject such a filter.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_cannot_turn_body_into_next_request() {
    let backend = Backend::start("a").await;
    let root = tempfile::tempdir().unwrap();
    let mut snapshot = version(&backend, "/one").snapshot;
    let tables = snapshot.route_tables.iter_mut();
    for route in tables.flat_map(|table| {
        table
            .virtual_hosts
            .iter_mut()
            .flat_map(|host| &mut host.routes)
    }) {
        route.request_headers = Some(Box::new(HeaderModifier {
            set: vec![Header {
                name: "Content-Length".to_owned(),
                value: "0".to_owned(),
                parts: Vec::new(),
            }],
            ..HeaderModifier::default()
        }));
    }
    directory::write(&root.path().join("edge"), &snapshot).unwrap();
    let agent = start(root.path(), &[80]);
    wait(&agent, "/one").await;

    let inner = "GET /all/smuggled HTTP/1.1\r\nhost: dir.test\r\n\r\n";
    let outer = format!(
        "POST /all/outer HTTP/1.1\r\nhost: dir.test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{inner}",
        inner.len()
    );
    let mut client = TcpStream::connect(agent.address(80)).await.unwrap();
    client.write_all(outer.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    for _ in 0..10 {
        wait(&agent, "/all").await;
    }
    let seen = backend.requests();
    let outer: Vec<_> = seen
        .iter()
        .filter(|echo| echo.path == "/all/outer")
        .collect();
    assert_eq!(outer.len(), 1);
    assert_eq!(
        outer[0].value("content-length"),
        Some(inner.len().to_string().as_str())
    );
    assert!(
        !seen.iter().any(|echo| echo.path.contains("smuggled")),
        "{seen:#?}"
    );
    agent
        .wait_status("the rejected filter is reported", |status| {
            status.to_string().contains("Content-Length")
        })
        .await;
}
