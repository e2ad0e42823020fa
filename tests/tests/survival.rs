//! SIGKILL at random moments of a change: afterwards `run` serves what was last accepted.

use std::time::Duration;

use sesame_tests::agent::{AgentUnderTest, SOON, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::client::Reply;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};

const ROUNDS: usize = 12;

/// The longest pause between a change and the kill: a change takes less.
const LONGEST_PAUSE_MS: u64 = 150;

/// A generator that is good enough to choose moments: `SplitMix64`.
struct Moments(u64);

impl Moments {
    /// `$SESAME_SEED`, or always the same.
    fn new() -> Self {
        let seed = std::env::var("SESAME_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(1);
        eprintln!("SESAME_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What is configured in one round, and nothing of the round before: its own Service, route and answer header.
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
    let agent = Setup::with_ports(&[80]).start(&[
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

/// The first answer after a death is the old or the new configuration, whole; then the new one is served.
async fn recovers(agent: &AgentUnderTest, number: usize) {
    let request = agent.get(80, "survive.test", "/");
    let first = sesame_tests::wait::eventually("anybody answers", SOON, async || {
        request
            .send()
            .await
            .map_err(|error| format!("{error:#}\n{}", agent.log_tail()))
    })
    .await;
    let served = served_round(&first);
    assert!(
        served == Some(number) || served == Some(number - 1),
        "round {number}: the first answer has status {} and round {served:?}\n{}",
        first.status,
        agent.log_tail()
    );
    wait_round(agent, number).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_in_a_change_the_accepted_configuration_is_served_afterwards() {
    let backend = Backend::start("a").await;
    let mut agent = start(&backend).await;
    let mut moments = Moments::new();
    for number in 1..=ROUNDS {
        let victim = ["Envoy", "the agent", "both"][number % 3];
        let pause = Duration::from_millis(moments.below(LONGEST_PAUSE_MS));
        agent.write("round.yaml", &round(number, &backend));
        tokio::time::sleep(pause).await;
        eprintln!("round {number}: {victim} dies after {pause:?}");
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
        one_envoy(&agent).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_dies_and_not_one_request_fails() {
    let backend = Backend::start("a").await;
    let mut agent = start(&backend).await;
    let mut moments = Moments::new();
    let before = agent.envoys();
    let load = Load::start(&Plan::new(vec![agent.get(80, "survive.test", "/")]));
    for number in 1..=ROUNDS {
        agent.write("round.yaml", &round(number, &backend));
        tokio::time::sleep(Duration::from_millis(moments.below(LONGEST_PAUSE_MS))).await;
        agent.kill9();
        // Nobody looks after this Envoy now.
        load.pass(50).await;
        agent.restart();
        wait_round(&agent, number).await;
    }
    load.stop().await.assert_clean();
    let pids = |envoys: &[sesame_tests::processes::Process]| {
        envoys.iter().map(|envoy| envoy.pid).collect::<Vec<_>>()
    };
    assert_eq!(
        pids(&agent.envoys()),
        pids(&before),
        "the new agent adopts the Envoy that runs"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_agent_and_its_envoy() {
    let backend = Backend::start("a").await;
    let mut agent = start(&backend).await;
    let status = agent.stop();
    assert!(status.success(), "{status}\n{}", agent.log_tail());
    assert_eq!(agent.envoys().len(), 0, "{}", agent.log_tail());
    // And it comes back from what it kept.
    agent.restart();
    wait_round(&agent, 0).await;
}

/// No second Envoy is left beside the one that serves.
async fn one_envoy(agent: &AgentUnderTest) {
    sesame_tests::wait::eventually("one Envoy runs", SOON, async || {
        let envoys = agent.envoys();
        if envoys.len() == 1 {
            Ok(())
        } else {
            Err(format!("{envoys:?}"))
        }
    })
    .await;
}
