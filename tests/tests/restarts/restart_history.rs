//! Large removals are held back until a user accepts them. Rollbacks last until a user resumes.

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};
use sesame_tests::wait::holds;

const SERVICES: usize = 12;

fn gateway() -> String {
    yaml(&edge(&[http_listener("http", 80, "")]))
}

/// The hosts are `s-0.test`, `s-1.test` and so on.
fn services(count: usize, backend: &Backend) -> String {
    let mut objects = Vec::new();
    for index in 0..count {
        let name = format!("s-{index}");
        objects.extend(served(&name, &[backend.address()]));
        let host = format!("{name}.test");
        objects.push(http_route(&name, &[&host], &[rule_to(&name, &[])]));
    }
    yaml(&objects)
}

fn start(setup: Setup, count: usize, backend: &Backend) -> AgentUnderTest {
    setup.start(&[
        ("gateway.yaml", &gateway()),
        ("services.yaml", &services(count, backend)),
    ])
}

async fn accept(agent: &AgentUnderTest) {
    let output = agent.order(&["accept"]).await;
    assert!(output.status.success(), "{output:?}");
}

async fn run_command(agent: &AgentUnderTest, arguments: &[&str]) -> (Option<i32>, String) {
    let state = agent.state().to_string_lossy().into_owned();
    let mut command = arguments.to_vec();
    command.extend(["--state-dir", &state]);
    let output = agent.command_beside(&command).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

fn message(status: &Value) -> &str {
    status["gateways"][0]["message"]
        .as_str()
        .unwrap_or_default()
}

async fn wait_answer(agent: &AgentUnderTest, service: usize, status: u16) {
    let request = agent.get(80, &format!("s-{service}.test"), "/");
    agent
        .wait_served(&request, |reply| reply.status == status)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_removal_is_held_until_accepted() {
    let backend = Backend::start("a").await;
    let mut agent = start(Setup::with_ports(&[80]), SERVICES, &backend);
    wait_answer(&agent, SERVICES - 1, 200).await;
    // The restarted agent needs a stored generation for comparison.
    wait_generations(&agent, 1).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "s-11.test", "/")]));
    agent.write("services.yaml", &services(2, &backend));
    let held = |status: &Value| message(status).contains("would remove 10 of 1");
    agent.wait_status("the change is held back", held).await;
    load.pass(50).await;
    agent.restart();
    agent.wait_status("the change is held back", held).await;
    load.pass(50).await;
    load.stop().await.assert_clean();
    accept(&agent).await;
    wait_answer(&agent, SERVICES - 1, 404).await;
    wait_answer(&agent, 1, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_applies_if_source_keeps_it_past_hold() {
    let backend = Backend::start("a").await;
    let agent = start(
        Setup::with_ports(&[80]).flag("--removal-hold-seconds=8"),
        SERVICES,
        &backend,
    );
    wait_answer(&agent, SERVICES - 1, 200).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "s-11.test", "/")]));
    agent.write("services.yaml", &services(1, &backend));
    agent
        .wait_status("the change is held back", |status| {
            message(status).contains("is held")
        })
        .await;
    agent.write("services.yaml", &services(SERVICES, &backend));
    agent.wait_healthy().await;
    load.stop().await.assert_clean();
    agent.write("services.yaml", &services(1, &backend));
    wait_answer(&agent, SERVICES - 1, 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_of_only_gateway_is_held() {
    let backend = Backend::start("a").await;
    let mut agent = start(Setup::with_ports(&[80]), 1, &backend);
    wait_answer(&agent, 0, 200).await;
    wait_generations(&agent, 1).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "s-0.test", "/")]));
    let held = |status: &Value| {
        status["healthy"] == false && message(status).contains("no longer contain any Gateway")
    };
    agent.remove("gateway.yaml");
    agent.wait_status("the change is held back", held).await;
    load.pass(50).await;
    agent.restart();
    agent.wait_status("the change is held back", held).await;
    agent.write("gateway.yaml", &gateway());
    agent.wait_healthy().await;
    load.pass(50).await;
    load.stop().await.assert_clean();
    agent.remove("gateway.yaml");
    agent.wait_status("the change is held back", held).await;
    accept(&agent).await;
    wait_gone(&agent).await;
    agent.restart();
    wait_gone(&agent).await;
    agent.write("gateway.yaml", &gateway());
    wait_answer(&agent, 0, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_class_removes_gateways_only_when_accepted() {
    let backend = Backend::start("a").await;
    let (classes, gateways): (Vec<Value>, Vec<Value>) = edge(&[http_listener("http", 80, "")])
        .into_iter()
        .partition(|object| object["kind"] == "GatewayClass");
    let mut agent = Setup::with_ports(&[80]).start(&[
        ("class.yaml", &yaml(&classes)),
        ("gateway.yaml", &yaml(&gateways)),
        ("services.yaml", &services(1, &backend)),
    ]);
    wait_answer(&agent, 0, 200).await;
    wait_generations(&agent, 1).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "s-0.test", "/")]));
    let held = |status: &Value| {
        let message = message(status);
        status["healthy"] == false
            && message.contains("no longer contain GatewayClass")
            && message.contains("default/edge")
    };
    agent.remove("class.yaml");
    agent.wait_status("the change is held back", held).await;
    load.pass(50).await;
    agent.restart();
    agent.wait_status("the change is held back", held).await;
    agent.write("class.yaml", &yaml(&classes));
    agent.wait_healthy().await;
    load.pass(50).await;
    load.stop().await.assert_clean();
    agent.remove("class.yaml");
    agent.wait_status("the change is held back", held).await;
    accept(&agent).await;
    wait_gone(&agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_removal_survives_agent_death_before_drain_ends() {
    let backend = Backend::start("a").await;
    let mut agent = start(
        Setup::with_ports(&[80]).flag("--drain-seconds=600"),
        1,
        &backend,
    );
    wait_answer(&agent, 0, 200).await;
    wait_generations(&agent, 1).await;
    // The draining Envoy waits for this connection.
    let connection = std::net::TcpStream::connect(agent.address(80)).expect("the agent listens");
    agent.remove("gateway.yaml");
    agent
        .wait_status("the change is held back", |status| {
            message(status).contains("no longer contain any Gateway")
        })
        .await;
    accept(&agent).await;
    wait_nothing_served(&agent).await;
    agent.restart();
    wait_nothing_served(&agent).await;
    assert_eq!(agent.envoys().len(), 1, "{}", agent.log_tail());
    drop(connection);
    wait_gone(&agent).await;
    agent.write("gateway.yaml", &gateway());
    wait_answer(&agent, 0, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_of_last_gateway_applies_after_hold() {
    let backend = Backend::start("a").await;
    let agent = start(
        Setup::with_ports(&[80]).flag("--removal-hold-seconds=8"),
        1,
        &backend,
    );
    wait_answer(&agent, 0, 200).await;
    agent.remove("gateway.yaml");
    agent
        .wait_status("the change is held back", |status| {
            status["healthy"] == false
        })
        .await;
    wait_gone(&agent).await;
}

/// The source may withdraw the Gateway before the restarted agent has taken over its Envoy.
#[tokio::test(flavor = "multi_thread")]
async fn gateway_deleted_while_agent_is_dead_is_withdrawn() {
    let backend = Backend::start("a").await;
    let setup = Setup::with_ports(&[80]).flag("--removal-hold-seconds=0");
    let mut agent = start(setup, 1, &backend);
    wait_answer(&agent, 0, 200).await;
    agent.wait_stored().await;
    agent.kill9();
    agent.wait_envoys(1).await;
    agent.remove("gateway.yaml");
    agent.restart();
    wait_gone(&agent).await;
}

async fn wait_nothing_served(agent: &AgentUnderTest) {
    agent
        .wait_status("nothing is served", |status| {
            status["source"]["available"] == true
                && status["gateways"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
}

async fn wait_gone(agent: &AgentUnderTest) {
    wait_nothing_served(agent).await;
    agent.wait_envoys(0).await;
    // Stored state would restore the Gateway.
    sesame_tests::wait::eventually("the stored state is removed", TEST_TIMEOUT, async || {
        let kept = std::fs::read_dir(agent.state().join("gateways"));
        match kept.map_or(0, Iterator::count) {
            0 => Ok(()),
            left => Err(format!("{left} directories remain\n{}", agent.log_tail())),
        }
    })
    .await;
}

/// An agent that reports healthy must already serve.
#[tokio::test(flavor = "multi_thread")]
async fn healthy_agent_serves() {
    let backend = Backend::start("a").await;
    for _ in 0..5 {
        let agent = start(Setup::with_ports(&[80]), SERVICES, &backend);
        let request = agent.get(80, "s-11.test", "/");
        sesame_tests::wait::eventually("a healthy agent", TEST_TIMEOUT, async || {
            let status = agent.status().ok_or("no status")?;
            if status["healthy"] != true {
                return Err(status["reasons"].to_string());
            }
            let reply = request.send().await;
            let served = reply.as_ref().is_ok_and(|reply| reply.status == 200);
            assert!(served, "healthy, but not serving: {reply:?}\n{status:#}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_stays_until_it_is_taken_back() {
    let backend = Backend::start("a").await;
    let mut agent = start(Setup::with_ports(&[80]), 1, &backend);
    wait_answer(&agent, 0, 200).await;
    wait_generations(&agent, 1).await;
    agent.write("services.yaml", &services(2, &backend));
    wait_answer(&agent, 1, 200).await;
    wait_generations(&agent, 2).await;

    let (code, text) = run_command(&agent, &["diff", "1", "2"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("+ route HTTPRoute/default/s-1/rules/0"),
        "{text}"
    );
    assert!(!text.contains("s-0"), "{text}");
    let (code, text) = run_command(&agent, &["diff", "2", "2"]).await;
    assert_eq!((code, text.as_str()), (Some(0), ""));
    let (code, text) = run_command(&agent, &["diff", "1", "2", "--output", "json"]).await;
    assert_eq!(code, Some(1), "{text}");
    let difference: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(difference["removed"], serde_json::json!([]), "{text}");
    let (_, text) = run_command(&agent, &["history", "--output", "json"]).await;
    let listed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(listed[1]["generation"], 2, "{text}");
    assert_eq!(listed[1]["acceptedLast"], true, "{text}");

    let load = Load::start(&Plan::new(vec![agent.get(80, "s-0.test", "/")]));
    let output = agent.order(&["rollback", "1"]).await;
    assert!(output.status.success());
    wait_answer(&agent, 1, 404).await;
    agent.write("services.yaml", &services(3, &backend));
    agent.restart();
    let status = agent
        .wait_status("the rollback takes effect", |status| {
            message(status).contains("rolled back to generation 1")
                && status["source"]["available"] == true
        })
        .await;
    assert_eq!(status["healthy"], false);
    load.pass(50).await;
    wait_answer(&agent, 1, 404).await;
    let output = agent.order(&["resume"]).await;
    assert!(output.status.success());
    wait_answer(&agent, 2, 200).await;
    load.stop().await.assert_clean();
    let output = agent.order(&["rollback", "77"]).await;
    assert_eq!(output.status.code(), Some(1));
    wait_answer(&agent, 2, 200).await;
}

/// The agent stores generations asynchronously.
async fn wait_generations(agent: &AgentUnderTest, count: usize) {
    sesame_tests::wait::eventually("the generations are listed", TEST_TIMEOUT, async || {
        let (_, text) = run_command(agent, &["history"]).await;
        holds(text.lines().count() == count + 1, || text)
    })
    .await;
}
