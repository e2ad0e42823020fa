//! Restarts of a host that serves: the agent's, an Envoy that is killed, and an Envoy that is replaced under requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::Client;
use super::host::Host;

/// Times in milliseconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Life {
    /// From the start of an agent beside a running Envoy until it serves what is wanted.
    pub(crate) agent_restart_ms: f64,
    /// From the moment at which Envoy is killed until the first answer of the next one.
    pub(crate) envoy_killed_ms: f64,
    /// A whole replacement: the new Envoy serves, and the old one takes no more connections.
    pub(crate) hot_restart_ms: f64,
    pub(crate) handover_ms: f64,
    /// Requests meanwhile, each on a connection of its own, and those that failed.
    pub(crate) requests: usize,
    pub(crate) failed: usize,
}

/// Measures a host that serves this hostname.
pub(crate) fn measure(host: &mut Host, hostname: &str) -> anyhow::Result<Life> {
    let mut life = Life::default();
    host.kill_agent()?;
    let started = Instant::now();
    host.start()?;
    host.wait_serving(Duration::from_secs(120))?;
    life.agent_restart_ms = milliseconds(started);
    for (strategy, took) in [
        ("hot", &mut life.hot_restart_ms),
        ("handover", &mut life.handover_ms),
    ] {
        let ended = AtomicBool::new(false);
        let address = host.address();
        let (requests, failed) = std::thread::scope(|scope| {
            let load = scope.spawn(|| load(address, hostname, &ended));
            let started = Instant::now();
            let replaced = host.replace_envoy(strategy);
            *took = milliseconds(started);
            ended.store(true, Ordering::Relaxed);
            replaced?;
            let panicked = |_| anyhow::anyhow!("the load panicked");
            load.join().map_err(panicked)
        })?;
        life.requests += requests;
        life.failed += failed;
        host.wait_alone(Duration::from_secs(180))?;
    }
    let started = Instant::now();
    host.kill_envoy()?;
    // The killed one may answer for a moment.
    std::thread::sleep(Duration::from_millis(20));
    Client::new(host.address()).wait_for(hostname, Duration::from_secs(120), |answer| {
        answer.status == 200
    })?;
    life.envoy_killed_ms = milliseconds(started);
    host.wait_serving(Duration::from_secs(120))?;
    Ok(life)
}

/// Asks until it is told to end, on a new connection each time. Returns the requests and those that failed.
fn load(address: SocketAddr, hostname: &str, ended: &AtomicBool) -> (usize, usize) {
    let (mut requests, mut failed) = (0, 0);
    while !ended.load(Ordering::Relaxed) {
        requests += 1;
        failed += usize::from(!Client::new(address).is_answered(hostname));
        std::thread::sleep(Duration::from_millis(2));
    }
    (requests, failed)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
