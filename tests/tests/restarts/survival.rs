//! SIGKILL at a random moment during a change. Afterwards, `run` must serve the last accepted
//! configuration.

use std::time::Duration;

use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, arguments, install};
use sesame_tests::backend::Backend;
use sesame_tests::client::Reply;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};
use sesame_tests::seeded::{Moments, count};

fn rounds() -> usize {
    count("SESAME_DEATHS", 9, 50)
}

/// Maximum delay before a kill, longer than a change takes.
const LONGEST_PAUSE_MS: u64 = 150;
/// Maximum delay before a kill during a restart, longer than a restart takes.
const LONGEST_RESTART_MS: u64 = 900;

/// Service, route and response header differ in every round.
fn round(number: usize, backend: &Backend) -> String {
    let name = format!("round-{number}");
    let mut rule = rule_to(&name, &[]);
    rule["filters"] = serde_json::json!([{
        "type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"set": [{"name": "x-round", "value": number.to_string()}]},
    }]);
    let mut objects = served(&name, &[backend.address()]);
    objects.push(http_route(&name, &["survive.test"], &[rule]));
    yaml(&objects)
}

fn served_round(reply: &Reply) -> Option<usize> {
    if reply.status == 200 {
        reply.header("x-round")?.parse().ok()
    } else {
        None
    }
}

async fn start(backend: &Backend) -> AgentUnderTest {
    start_with(Setup::with_ports(&[80]), backend).await
}

async fn start_with(setup: Setup, backend: &Backend) -> AgentUnderTest {
    let agent = setup.start(&[
        (
            "gateway.yaml",
            &yaml(&edge(&[http_listener("http", 80, "")])),
        ),
        ("round.yaml", &round(0, backend)),
    ]);
    wait_round(&agent, 0).await;
    agent
}

async fn wait_round(agent: &AgentUnderTest, number: usize) {
    let request = agent.get(80, "survive.test", "/");
    agent
        .wait_served(&request, |reply| served_round(reply) == Some(number))
        .await;
}

/// The first response must be from an accepted configuration. It may be older after quick crashes,
/// because configurations are stored asynchronously.
async fn recovers(agent: &AgentUnderTest, number: usize) {
    let request = agent.get(80, "survive.test", "/");
    let first = sesame_tests::wait::eventually("a request is answered", TEST_TIMEOUT, async || {
        request
            .send()
            .await
            .map_err(|error| format!("{error:#}\n{}", agent.log_tail()))
    })
    .await;
    let served = served_round(&first);
    assert!(
        served.is_some_and(|round| round <= number),
        "round {number}: the first answer has status {} and round {served:?}\n{}",
        first.status,
        agent.log_tail()
    );
    wait_round(agent, number).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_configuration_survives_kills_during_change() {
    let backend = Backend::start("a").await;
    let mut agent = start(&backend).await;
    let mut moments = Moments::new();
    for number in 1..=rounds() {
        let victim = ["Envoy", "the agent", "both"][number % 3];
        let pause = Duration::from_millis(moments.below(LONGEST_PAUSE_MS));
        agent.write("round.yaml", &round(number, &backend));
        tokio::time::sleep(pause).await;
        eprintln!("round {number}: killing {victim} after {pause:?}");
        match victim {
            "Envoy" => {
                agent.kill9_envoy();
            }
            "the agent" => agent.restart(),
            _ => {
                agent.kill9();
                agent.kill9_envoy();
                agent.restart();
            }
        }
        recovers(&agent, number).await;
        agent.wait_envoys(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_death_fails_no_request() {
    let backend = Backend::start("a").await;
    let mut agent = start(&backend).await;
    let mut moments = Moments::new();
    let before = agent.envoy_pids();
    let load = Load::start(&Plan::new(vec![agent.get(80, "survive.test", "/")]));
    for number in 1..=rounds() {
        agent.write("round.yaml", &round(number, &backend));
        tokio::time::sleep(Duration::from_millis(moments.below(LONGEST_PAUSE_MS))).await;
        agent.kill9();
        load.pass(50).await;
        agent.restart();
        wait_round(&agent, number).await;
    }
    let report = load.stop().await;
    report.clean(&format!("agent killed {} times during changes", rounds()));
    assert_eq!(
        agent.envoy_pids(),
        before,
        "the new agent adopts the running Envoy"
    );
}

/// The next agent must complete the restart.
#[tokio::test(flavor = "multi_thread")]
async fn agent_dies_during_restarts_without_failed_request() {
    let backend = Backend::start("a").await;
    let mut agent = start(&backend).await;
    let mut moments = Moments::new();
    let rounds = count("SESAME_DEATHS_IN_RESTARTS", 4, 50);
    let load = Load::start(&Plan::new(vec![agent.get(80, "survive.test", "/")]));
    for number in 1..=rounds {
        agent.wait_envoys(1).await;
        agent.wait_live().await;
        let mut order = agent.begin_to_replace_envoy("hot");
        let pause = Duration::from_millis(moments.below(LONGEST_RESTART_MS));
        tokio::time::sleep(pause).await;
        eprintln!("round {number}: killing the agent {pause:?} after requesting a restart");
        agent.kill9();
        load.pass(50).await;
        agent.restart();
        agent.write("round.yaml", &round(number, &backend));
        wait_round(&agent, number).await;
        let _ = order.wait();
    }
    agent.wait_envoys(1).await;
    let report = load.stop().await;
    report.clean(&format!("agent killed {rounds} times during hot restarts"));
}

/// The new agent must keep the existing Envoy.
#[tokio::test(flavor = "multi_thread")]
async fn upgraded_agent_continues_with_existing_envoy() {
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let installed = directory.path().join("sesame-agent");
    install(&installed);
    let mut agent = start_with(Setup::with_ports(&[80]).agent(&installed), &backend).await;
    let before = agent.envoy_pids();
    let load = Load::start(&Plan::new(vec![agent.get(80, "survive.test", "/")]));
    for number in 1..=3 {
        // Installing deletes the running agent's binary.
        install(&installed);
        agent.write("round.yaml", &round(2 * number - 1, &backend));
        wait_round(&agent, 2 * number - 1).await;
        agent.restart();
        agent.write("round.yaml", &round(2 * number, &backend));
        wait_round(&agent, 2 * number).await;
    }
    assert_eq!(agent.envoy_pids(), before, "Envoy was not replaced");
    // A different bootstrap requires a new Envoy.
    agent.wait_live().await;
    agent.kill9();
    forge_bootstrap(&agent);
    agent.restart();
    agent
        .wait_status("another Envoy runs", |status| {
            let pid = status["gateways"][0]["envoy"]["pid"].as_i64();
            status["gateways"][0]["envoy"]["state"] == "Live"
                && status["healthy"] == true
                && pid.is_some_and(|pid| !before.iter().any(|before| i64::from(*before) == pid))
        })
        .await;
    agent.wait_envoys(1).await;
    let report = load.stop().await;
    report.clean("agent upgraded three times, then bootstrap changed");
}

/// Makes the agent believe that Envoy has a different bootstrap.
fn forge_bootstrap(agent: &AgentUnderTest) {
    let gateways = std::fs::read_dir(agent.runtime().join("gateways")).expect("a directory");
    for gateway in gateways.flatten() {
        let path = gateway.path().join("envoy.pid.json");
        let text = std::fs::read_to_string(&path).expect("a pid file");
        let mut identity: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        identity["bootstrap_digest"] = "00".into();
        std::fs::write(path, identity.to_string()).expect("write");
    }
}

/// Requests may fail only until the next Envoy listens.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_death_fails_only_requests_until_it_listens() {
    let backend = Backend::start("a").await;
    let agent = start(&backend).await;
    let mut moments = Moments::new();
    let deaths = count("SESAME_ENVOY_DEATHS", 3, 6);
    let load = Load::start(&Plan::new(vec![agent.get(80, "survive.test", "/")]));
    let mut outages = Vec::new();
    for _ in 0..deaths {
        agent.wait_live().await;
        tokio::time::sleep(Duration::from_millis(moments.below(LONGEST_PAUSE_MS))).await;
        let begin = load.elapsed();
        agent.kill9_envoy();
        wait_round(&agent, 0).await;
        // Interrupted requests may take a moment to fail.
        load.pass(50).await;
        outages.push((begin, load.elapsed()));
        load.pass(100).await;
    }
    let report = load.stop().await;
    report.print(&format!("Envoy killed {deaths} times"));
    for failure in &report.failures {
        let expected = outages
            .iter()
            .any(|(begin, end)| (*begin..=*end).contains(&failure.at));
        assert!(expected, "{failure:?} is outside the outages {outages:?}");
    }
    let mut spans: Vec<Duration> = outages
        .iter()
        .map(|(begin, end)| end.saturating_sub(*begin))
        .collect();
    spans.sort();
    eprintln!("from kill to first response: {spans:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_agent_is_rejected_with_reason() {
    let backend = Backend::start("a").await;
    let agent = start(&backend).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "survive.test", "/")]));
    let path = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let elsewhere = path(elsewhere.path().to_owned());
    let (state, runtime) = (path(agent.state()), path(agent.runtime()));
    let manifests = path(agent.manifests());
    for (state, runtime) in [(&state, &elsewhere), (&elsewhere, &runtime)] {
        let output = agent.command(&arguments(&format!(
            "run --manifests {manifests} --state-dir {state} --runtime-dir {runtime}"
        )));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        assert!(
            text.contains("another agent") || text.contains("(process "),
            "{text}"
        );
    }
    load.pass(50).await;
    load.stop().await.assert_clean();
}
