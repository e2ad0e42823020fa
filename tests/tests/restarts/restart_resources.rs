//! The host runs out of a resource. Envoy must keep serving, and the agent must recover.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::numbered;
use sesame_tests::ports::free_port;

const HOST: &str = "full.test";

async fn start(setup: Setup, backend: &Backend) -> (AgentUnderTest, Load) {
    let agent = setup.start(&[("all.yaml", &numbered(HOST, 0, backend.address()))]);
    agent.wait_numbered(HOST, 0).await;
    agent.wait_healthy().await;
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));
    (agent, load)
}

fn fill(directory: &Path) -> PathBuf {
    let filler = directory.join("filler");
    let written = std::fs::write(&filler, vec![1; 2 << 20]).map_err(|error| error.kind());
    assert_eq!(written, Err(std::io::ErrorKind::StorageFull));
    filler
}

fn has_reason(status: &Value, words: &str) -> bool {
    status["healthy"] == false && status["reasons"].to_string().contains(words)
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_apply_if_state_directory_is_not_writable() {
    let backend = Backend::start("a").await;
    let (agent, load) = start(Setup::with_ports(&[80]).small_disks(), &backend).await;
    let filler = fill(&agent.visible(&agent.state()));
    agent.write("all.yaml", &numbered(HOST, 1, backend.address()));
    agent.wait_numbered(HOST, 1).await;
    agent
        .wait_status("the problem is reported", |status| {
            has_reason(status, "No space left")
        })
        .await;
    std::fs::remove_file(filler).expect("remove the filler");
    agent.wait_healthy().await;

    let state = agent.state().join("gateways");
    let state = state.to_str().expect("a path");
    assert!(
        agent
            .beside(&["mount", "--bind", "-o", "ro", state, state])
            .success()
    );
    agent.write("all.yaml", &numbered(HOST, 2, backend.address()));
    agent.wait_numbered(HOST, 2).await;
    agent
        .wait_status("the problem is reported", |status| {
            has_reason(status, "Read-only")
        })
        .await;
    assert!(agent.beside(&["umount", state]).success());
    agent.wait_healthy().await;
    load.stop()
        .await
        .clean("state directory full, then read-only");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_waits_if_runtime_directory_is_full() {
    let backend = Backend::start("a").await;
    let (agent, load) = start(Setup::with_ports(&[80]).small_disks(), &backend).await;
    for number in 1..3 {
        let filler = fill(&agent.visible(&agent.runtime()));
        agent.write("all.yaml", &numbered(HOST, number, backend.address()));
        agent
            .wait_status("the problem is reported", |status| {
                has_reason(status, "No space left")
            })
            .await;
        load.pass(50).await;
        agent.wait_numbered(HOST, number - 1).await;
        std::fs::remove_file(filler).expect("remove the filler");
        agent.wait_numbered(HOST, number).await;
        agent.wait_healthy().await;
    }
    load.stop().await.clean("runtime directory full");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_envoy_restarts_if_runtime_directory_is_full() {
    let backend = Backend::start("a").await;
    let setup = Setup::with_ports(&[80]).small_disks();
    let agent = setup.start(&[("all.yaml", &numbered(HOST, 0, backend.address()))]);
    agent.wait_numbered(HOST, 0).await;
    agent.wait_healthy().await;
    let runtime = agent.visible(&agent.runtime());
    let filler = fill(&runtime);
    // Removing the killed Envoy's files frees some space. Another program may take it at first.
    let until = Instant::now() + Duration::from_secs(1);
    let more = std::thread::spawn(move || {
        let path = runtime.join("more");
        let mut file = std::fs::File::create(&path).expect("an empty file needs no block");
        while Instant::now() < until {
            let _ = file.write_all(&[1; 4096]);
        }
        path
    });
    agent.kill9_envoy();
    let more = more.join().expect("no panic");
    std::fs::remove_file(more).expect("remove the second filler");
    agent.wait_numbered(HOST, 0).await;
    std::fs::remove_file(filler).expect("remove the filler");
    agent.write("all.yaml", &numbered(HOST, 1, backend.address()));
    agent.wait_numbered(HOST, 1).await;
    agent.wait_healthy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_recovers_after_running_out_of_descriptors() {
    let backend = Backend::start("a").await;
    let health = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let setup = Setup::with_ports(&[80])
        .flag(&format!("--health-address={health}"))
        .wrapper(&["sh", "-c", r#"ulimit -Sn 40; exec "$0" "$@""#]);
    let (mut agent, load) = start(setup, &backend).await;
    for number in 1..2 {
        let mut held = Vec::new();
        for _ in 0..64 {
            held.push(
                tokio::net::TcpStream::connect(health)
                    .await
                    .expect("connect"),
            );
        }
        agent.write("all.yaml", &numbered(HOST, number, backend.address()));
        load.pass(200).await;
        drop(held);
        agent.wait_numbered(HOST, number).await;
    }
    assert_eq!(agent.ended(), None);
    agent.wait_healthy().await;
    load.stop().await.clean("agent out of descriptors");
}

/// 512 descriptors are the minimum. New clients are served once others disconnect.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_without_descriptors_serves_existing_connections() {
    let backend = Backend::start("a").await;
    let setup = Setup::with_ports(&[80]).wrapper(&["sh", "-c", r#"ulimit -n 512; exec "$0" "$@""#]);
    let agent = setup.start(&[("all.yaml", &numbered(HOST, 0, backend.address()))]);
    agent.wait_numbered(HOST, 0).await;
    let load = Load::start(&Plan {
        fresh: 0,
        ..Plan::new(vec![agent.get(80, HOST, "/always")])
    });
    load.pass(100).await;
    let mut held = Vec::new();
    for _ in 0..600 {
        // Connections above the limit are closed, or wait in the kernel.
        let connected = tokio::net::TcpStream::connect(agent.address(80)).await;
        held.push(connected.expect("connect"));
    }
    load.pass(500).await;
    agent.write("all.yaml", &numbered(HOST, 1, backend.address()));
    load.pass(500).await;
    drop(held);
    agent.wait_numbered(HOST, 1).await;
    agent.wait_healthy().await;
    load.stop()
        .await
        .clean("512 descriptors, 600 connections held");
}
