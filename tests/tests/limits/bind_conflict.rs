//! A port in use must affect only its listener.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};

const HOST: &str = "bind.test";

fn listeners(names: &[(&str, u16)]) -> String {
    let listeners: Vec<Value> = names
        .iter()
        .map(|(name, port)| http_listener(name, *port, ""))
        .collect();
    yaml(&edge(&listeners))
}

/// The test plays the role of the other process.
fn hold(agent: &AgentUnderTest, outside: u16) -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, agent.address(outside).port()))
        .expect("the port is free")
}

fn programmed(status: &Value, listener: &str) -> Option<(String, String)> {
    let programmed = listener_condition(status, listener, "Programmed");
    let text = |field: &str| programmed[field].as_str().unwrap_or_default().to_owned();
    (!programmed.is_null()).then(|| (text("status"), text("message")))
}

async fn wait_conflict(agent: &AgentUnderTest, listener: &str) {
    let me = format!("process {}", std::process::id());
    let status = agent
        .wait_status("the conflict is reported", |status| {
            programmed(status, listener).is_some_and(|(programmed, message)| {
                programmed == "False"
                    && message.contains("Address already in use")
                    && message.contains(&me)
            })
        })
        .await;
    assert_eq!(status["healthy"], false, "{status:#}");
    let refused = &status["gateways"][0]["refused"][0];
    assert_eq!(
        refused["section"],
        format!("listeners/{listener}"),
        "{status:#}"
    );
    assert!(!agent.status_command().status.success());
}

async fn wait_all_programmed(agent: &AgentUnderTest, names: &[&str]) {
    agent
        .wait_status("everything is programmed", |status| {
            status["healthy"] == true
                && names.iter().all(|name| {
                    programmed(status, name).is_some_and(|(programmed, _)| programmed == "True")
                })
        })
        .await;
}

async fn serves(agent: &AgentUnderTest, port: u16) {
    let request = agent.get(port, HOST, "/");
    agent.wait_ok(&request).await;
}

fn route(backend: &Backend) -> String {
    let mut objects = served("a", &[backend.address()]);
    objects.push(http_route("a", &[HOST], &[rule_to("a", &[])]));
    yaml(&objects)
}

#[tokio::test(flavor = "multi_thread")]
async fn held_port_is_reported_and_opened_when_free() {
    let backend = Backend::start("a").await;
    let agent = Setup::with_ports(&[80, 81]).start(&[
        ("gateway.yaml", &listeners(&[("one", 80)])),
        ("route.yaml", &route(&backend)),
    ]);
    serves(&agent, 80).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/")]));

    let held = hold(&agent, 81);
    agent.write("gateway.yaml", &listeners(&[("one", 80), ("two", 81)]));
    wait_conflict(&agent, "two").await;
    let mut objects = served("b", &[backend.address()]);
    objects.push(http_route("b", &["b.test"], &[rule_to("b", &[])]));
    agent.write("b.yaml", &yaml(&objects));
    let request = agent.get(80, "b.test", "/");
    agent.wait_ok(&request).await;

    drop(held);
    serves(&agent, 81).await;
    wait_all_programmed(&agent, &["one", "two"]).await;
    load.stop().await.clean("port held by another process");
}

#[tokio::test(flavor = "multi_thread")]
async fn held_port_at_start_blocks_only_its_listener() {
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80, 81]).prepare();
    let held = hold(&agent, 81);
    agent.write("gateway.yaml", &listeners(&[("one", 80), ("two", 81)]));
    agent.write("route.yaml", &route(&backend));
    agent.restart();
    serves(&agent, 80).await;
    wait_conflict(&agent, "two").await;

    agent.kill9();
    agent.kill9_envoy();
    agent.restart();
    serves(&agent, 80).await;
    wait_conflict(&agent, "two").await;

    drop(held);
    serves(&agent, 81).await;
    wait_all_programmed(&agent, &["one", "two"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_start_recovers_if_only_port_is_held() {
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80]).prepare();
    let held = hold(&agent, 80);
    agent.write("gateway.yaml", &listeners(&[("one", 80)]));
    agent.write("route.yaml", &route(&backend));
    agent.restart();
    wait_conflict(&agent, "one").await;
    drop(held);
    serves(&agent, 80).await;
    wait_all_programmed(&agent, &["one"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_are_repaired_before_envoy_restarts() {
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80]).start(&[
        ("gateway.yaml", &listeners(&[("one", 80)])),
        ("route.yaml", &route(&backend)),
    ]);
    serves(&agent, 80).await;
    wait_all_programmed(&agent, &["one"]).await;
    for with_agent in [false, true] {
        let damaged = damage(&agent.runtime());
        assert!(damaged >= 3, "{damaged} files");
        if with_agent {
            agent.kill9();
        }
        agent.kill9_envoy();
        if with_agent {
            agent.restart();
        }
        serves(&agent, 80).await;
        wait_all_programmed(&agent, &["one"]).await;
    }
}

fn damage(directory: &std::path::Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            count += damage(&path);
        } else if path.components().any(|part| part.as_os_str() == "xds")
            && path.extension().is_some_and(|extension| extension == "pb")
        {
            std::fs::write(&path, b"\x0a\x03bad and not whole").expect("write");
            count += 1;
        }
    }
    count
}
