//! Measures restarts of the agent and Envoy, and Envoy replacements under load.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::Client;
use super::host::Host;

/// Times are in milliseconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Life {
    /// Until the agent reports that it serves.
    pub(crate) agent_restart_ms: f64,
    pub(crate) envoy_killed_ms: f64,
    /// Until the old Envoy accepts no more connections.
    pub(crate) hot_restart_ms: f64,
    pub(crate) handover_ms: f64,
    /// Sent on new connections while Envoy is replaced.
    pub(crate) requests: usize,
    pub(crate) failed: usize,
}

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
    // The killed Envoy may still respond to requests for a moment.
    std::thread::sleep(Duration::from_millis(20));
    Client::new(host.address()).wait_for(hostname, Duration::from_secs(120), |answer| {
        answer.status == 200
    })?;
    life.envoy_killed_ms = milliseconds(started);
    host.wait_serving(Duration::from_secs(120))?;
    Ok(life)
}

/// Returns how many requests were sent, and how many failed.
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
