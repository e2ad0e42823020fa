//! Measures the cost of continuous changes: two route changes and a hundred endpoint changes per
//! second.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::Client;
use super::host::Host;
use super::manifests::{self, WrittenManifests};
use super::storm::{ENDPOINT_CHANGES, ROUTE_CHANGES, joined};
use super::times::{Times, pick};

const REVISION: &str = "churn";
const SERVED: Duration = Duration::from_secs(60);

/// CPU time is in seconds per minute of churn.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Churn {
    pub(crate) route_change: Times,
    pub(crate) endpoint_change: Times,
    pub(crate) endpoint_changes: f64,
    pub(crate) envoy_cpu: f64,
    /// Excludes the other threads, because they serve the benchmark's requests.
    pub(crate) envoy_main_cpu: f64,
    pub(crate) agent_cpu: f64,
    pub(crate) agent_peak_mib: f64,
    pub(crate) errors: usize,
}

/// Route changes affect the first third of the routes, endpoint changes the second. Individual
/// endpoint changes are measured in the last third.
pub(crate) fn measure(
    host: &mut Host,
    routes: usize,
    ports: [u16; 2],
    lasting: Duration,
) -> anyhow::Result<Churn> {
    let manifests = &host.manifests().clone();
    let third = (routes / 3).max(1);
    for route in 0..routes {
        manifests.write_app(route, ports[0], REVISION)?;
    }
    Client::new(host.address()).wait_for(
        &manifests::hostname(routes - 1),
        Duration::from_secs(120),
        |answer| answer.revision == REVISION,
    )?;
    host.wait_serving(Duration::from_secs(60))?;
    let address = host.address();
    let (ended, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (envoy_before, agent_before) = (host.envoy_cpu_seconds()?, host.agent_cpu_seconds()?);
    let main_before = host.envoy_main_seconds()?;
    let start = Instant::now();
    let (routes_changed, endpoints_changed) = std::thread::scope(|scope| {
        let storm = scope.spawn(|| storm(manifests, third, ports, &ended, &written));
        let observed = scope.spawn(|| {
            let mut client = Client::new(address);
            let mut samples = Samples::default();
            while !ended.load(Ordering::Relaxed) {
                let change = samples.times.len();
                let route = 2 * third
                    + pick(
                        change / 2,
                        third.min(routes.saturating_sub(2 * third)).max(1),
                    );
                let (backend, port) = [("b", ports[1]), ("a", ports[0])][change % 2];
                samples.record(|| {
                    manifests.write_app(route.min(routes - 1), port, REVISION)?;
                    client.wait_for(
                        &manifests::hostname(route.min(routes - 1)),
                        SERVED,
                        |answer| answer.body == backend,
                    )
                })?;
                std::thread::sleep(ENDPOINT_CHANGES);
            }
            anyhow::Ok(samples)
        });
        let changed = change_routes(
            manifests,
            &mut Client::new(address),
            third,
            ports[0],
            start,
            lasting,
        );
        ended.store(true, Ordering::Relaxed);
        let observed = joined(observed.join());
        joined(storm.join())?;
        anyhow::Ok((changed?, observed?))
    })?;
    let lasted = start.elapsed().as_secs_f64();
    let per_minute = 60.0 / lasted;
    #[expect(clippy::cast_precision_loss, reason = "a number of changes")]
    let written = written.load(Ordering::Relaxed) as f64;
    Ok(Churn {
        errors: routes_changed.errors + endpoints_changed.errors,
        route_change: Times::of(routes_changed.times),
        endpoint_change: Times::of(endpoints_changed.times),
        endpoint_changes: written / lasted,
        envoy_cpu: (host.envoy_cpu_seconds()? - envoy_before) * per_minute,
        envoy_main_cpu: (host.envoy_main_seconds()? - main_before) * per_minute,
        agent_cpu: (host.agent_cpu_seconds()? - agent_before) * per_minute,
        agent_peak_mib: host.agent_memory()?.1,
    })
}

#[derive(Default)]
struct Samples {
    times: Vec<Duration>,
    errors: usize,
}

impl Samples {
    fn record(&mut self, change: impl FnOnce() -> anyhow::Result<usize>) -> anyhow::Result<()> {
        let start = Instant::now();
        self.errors += change()?;
        self.times.push(start.elapsed());
        Ok(())
    }
}

fn change_routes(
    manifests: &WrittenManifests,
    client: &mut Client,
    third: usize,
    port: u16,
    start: Instant,
    lasting: Duration,
) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    while start.elapsed() < lasting {
        let change = samples.times.len();
        let route = pick(change, third);
        let revision = format!("churn{change}");
        let next = Instant::now() + ROUTE_CHANGES;
        samples.record(|| {
            manifests.write_app(route, port, &revision)?;
            client.wait_for(&manifests::hostname(route), SERVED, |answer| {
                answer.revision == revision
            })
        })?;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(samples)
}

fn storm(
    manifests: &WrittenManifests,
    third: usize,
    ports: [u16; 2],
    ended: &AtomicBool,
    written: &AtomicUsize,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut due = Duration::ZERO;
    for change in 0.. {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        // Alternate the ports, because every write must change something.
        let port = ports[(change / third + 1) % 2];
        manifests.write_app(third + change % third, port, REVISION)?;
        written.fetch_add(1, Ordering::Relaxed);
        due += ENDPOINT_CHANGES;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(())
}
