//! Two versions of Envoy replace each other under load, as in package upgrades and downgrades.

use std::time::{Duration, Instant};

use sesame_tests::agent::{AgentUnderTest, Setup, install_program, words};
use sesame_tests::envoy::{envoy_binary, older_envoy_binary};
use sesame_tests::mixed::Mixed;

const DRAIN: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn envoy_upgrades_and_downgrades_without_failed_request() {
    let directory = tempfile::tempdir().expect("a directory");
    let binary = directory.path().join("envoy");
    let (older, newer) = (older_envoy_binary(), envoy_binary());
    install_program(&older, &binary);
    let setup = Setup::with_ports(&Mixed::PORTS).envoy(&binary);
    let mixed = Mixed::start(setup, 0).await;
    let mut traffic = mixed.traffic();
    traffic.load.pass(100).await;
    let mut seen = vec![version(&mixed.agent)];
    for other in [&newer, &older, &newer] {
        let begin = Instant::now();
        install_program(other, &binary);
        let output = mixed.agent.replace_envoy("auto").await;
        assert!(output.status.success(), "{}", words(&output));
        mixed.agent.wait_live().await;
        traffic.replaced(begin);
        seen.push(version(&mixed.agent));
        traffic.load.pass(100).await;
    }
    traffic
        .end("two Envoy versions replace each other", DRAIN)
        .await;
    assert_ne!(seen[0], seen[1], "these are two versions");
    assert_eq!(seen[..2], seen[2..], "by turns");
}

fn version(agent: &AgentUnderTest) -> String {
    let status = agent.status().expect("a status");
    let version = status["gateways"][0]["envoy"]["version"].as_str();
    version.map_or_else(|| panic!("no version in {status:#}"), str::to_owned)
}
