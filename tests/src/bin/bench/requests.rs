//! The cost of a request to Envoy, with access logs and without.

use std::time::Duration;

use serde::Serialize;

use super::client::Client;
use super::host::Host;

/// Number of requests of a round, one after the other.
const REQUESTS: u32 = 20_000;
/// Number of rounds, by turns; the cheapest of each kind counts, because everything else on the machine only adds.
const ROUNDS: usize = 3;

/// Microseconds of CPU that a request takes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RequestCost {
    pub(crate) logged: f64,
    pub(crate) unlogged: f64,
}

/// Measures a host that serves this hostname; it is started anew for each round.
pub(crate) fn measure(host: &mut Host, hostname: &str) -> anyhow::Result<RequestCost> {
    let mut least = RequestCost {
        logged: f64::INFINITY,
        unlogged: f64::INFINITY,
    };
    for _ in 0..ROUNDS {
        let RequestCost { logged, unlogged } = least;
        least = RequestCost {
            unlogged: unlogged.min(cost(host, hostname, "--access-log=off")?),
            logged: logged.min(cost(host, hostname, "--access-log=file")?),
        };
    }
    Ok(least)
}

fn cost(host: &mut Host, hostname: &str, flag: &str) -> anyhow::Result<f64> {
    host.kill_all()?;
    host.forget_runtime()?;
    host.start_with(&[flag])?;
    let mut client = Client::new(host.address());
    let mut ask = |within: u64| {
        client.wait_for(hostname, Duration::from_secs(within), |answer| {
            answer.status == 200
        })
    };
    ask(120)?;
    host.wait_serving(Duration::from_secs(60))?;
    let before = host.envoy_cpu_seconds()?;
    for _ in 0..REQUESTS {
        ask(10)?;
    }
    let took = host.envoy_cpu_seconds()? - before;
    Ok(took / f64::from(REQUESTS) * 1e6)
}
