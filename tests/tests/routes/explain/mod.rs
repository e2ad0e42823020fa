//! `explain` must report the route that a real Envoy chooses. `$SESAME_SEED` seeds random worlds
//! and requests, and `$SESAME_EXPLAIN` is the number of requests.

mod commands;
mod compare;
mod gateways;
mod requests;
mod world;

use std::sync::Arc;

use rustls::RootCertStore;
use sesame_explain::{Explainer, TextDetail, text};
use sesame_proto::schema::Snapshot;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::{Reply, Request};
use sesame_tests::seeded::{Moments, count};

use self::gateways::GatewayCount;
use self::requests::GeneratedRequest;
use self::world::GeneratedWorld;

const REQUESTS_PER_WORLD: usize = 100;
/// The test stops after this many differences.
const MAX_DIFFERENCES: usize = 5;
const PORTS: [u16; 3] = [80, 8080, 443];

#[tokio::test(flavor = "multi_thread")]
async fn explanations_match_envoy() {
    let pairs = count("SESAME_EXPLAIN", 500, 10_000);
    let mut moments = Moments::new();
    let backend = Backend::start("shop").await;
    let authority = Authority::new("explain");
    let trust = authority.trust();
    let leaf = authority.issue(&["*.w.test", "s.w.test", "*.a.w.test", "other.test"]);
    // Worlds of the same kind share Gateway names, so a new world replaces the previous world.
    let mut agents: Vec<AgentUnderTest> = Vec::new();
    let (mut sent, mut routed) = (0, 0);
    let mut differences = Vec::new();
    for number in 0.. {
        if sent >= pairs || differences.len() >= MAX_DIFFERENCES {
            break;
        }
        let count = [GatewayCount::One, GatewayCount::Merged][number % 2];
        let world = GeneratedWorld::new(number, count, &mut moments, backend.address(), &leaf);
        let yaml = world.yaml();
        let snapshot = world::resolved(&yaml);
        if let Some(agent) = agents.get(number % 2) {
            agent.write("all.yaml", &yaml);
        } else {
            agents.push(started(agents.first(), &yaml));
        }
        let agent = &agents[number % 2];
        wait_for(agent, &world, &trust).await;
        let mut explainer = Explainer::new(&snapshot);
        let before = differences.len();
        for _ in 0..REQUESTS_PER_WORLD.min(pairs - sent) {
            let asked = GeneratedRequest::new(&mut moments);
            let explanation = explainer.explain(&asked.explained);
            let reply = asked.request(agent, &trust).send().await;
            sent += 1;
            routed += usize::from(explanation.route.is_some());
            if let Err(why) = compare::compare(&explanation, asked.http2, reply.as_ref()) {
                differences.push(format!(
                    "world {number}: {why}\n{:#?}\n{}\nEnvoy: {}",
                    asked.explained,
                    text(&explanation, TextDetail::AllRoutes),
                    answer(reply.as_ref())
                ));
            }
        }
        if differences.len() > before {
            differences.push(format!("world {number}:\n{yaml}"));
        }
    }
    eprintln!("{sent} requests, of which {routed} matched a route");
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    assert!(
        routed * 4 > sent,
        "too few requests match a route: {routed} of {sent}"
    );
}

/// Starts an agent, on the same host as `first` if set.
fn started(first: Option<&AgentUnderTest>, yaml: &str) -> AgentUnderTest {
    let setup = Setup::with_ports(&PORTS);
    let Some(first) = first else {
        return setup.start(&[("all.yaml", yaml)]);
    };
    let mut agent = setup.prepare_beside(first);
    agent.write("all.yaml", yaml);
    agent.restart();
    agent
}

fn answer(reply: Result<&Reply, &anyhow::Error>) -> String {
    match reply {
        Ok(reply) => format!(
            "{} {:?}\n{}",
            reply.status,
            reply.headers,
            String::from_utf8_lossy(&reply.body)
        ),
        Err(error) => format!("{error:#}"),
    }
}

async fn wait_for(agent: &AgentUnderTest, world: &GeneratedWorld, trust: &Arc<RootCertStore>) {
    let marker = world.marker();
    let places = [
        (80, "ready.w.test"),
        (8080, "ready.w.test"),
        (8080, "a.w.test"),
        (443, "ready.w.test"),
        (443, "s.w.test"),
    ];
    for (port, host) in places {
        let request = Request::get(agent.address(port), host, world::READY);
        let request = if port == 443 {
            request.tls(host, trust)
        } else {
            request
        };
        let ready = |reply: &Reply| reply.header(world::MARKER) == Some(marker.as_str());
        agent.wait_served(&request, ready).await;
    }
}

fn only(gateways: Vec<sesame_resolver::ResolvedGateway>) -> Snapshot {
    let mut gateways = gateways.into_iter();
    let first = gateways.next().expect("a Gateway is accepted");
    assert!(gateways.next().is_none(), "one Gateway is expected");
    first.snapshot
}
