//! Measures the cost of continuous changes through the API.

use std::time::{Duration, Instant};

use sesame_tests::processes::{cpu_seconds, main_thread_seconds};

use super::objects;
use super::stage::{Stage, count};
use super::storm::{ENDPOINT_CHANGES, ROUTE_CHANGES, joined};
use super::times::{Times, pick};

pub(crate) struct Churned {
    pub(crate) route_change: Times,
    pub(crate) endpoint_change: Times,
    pub(crate) controller_cpu_percent: f64,
    /// CPU time of Envoy's main thread, in seconds per minute of churn.
    pub(crate) envoy_main_cpu: f64,
    pub(crate) agent_cpu: f64,
    pub(crate) endpoint_changes_a_second: f64,
}

impl Stage {
    /// Route changes affect the first third of the routes, endpoint changes the second. Individual
    /// endpoint changes are measured in the last third.
    pub(crate) fn churn(&self, time: Duration, errors: &mut usize) -> anyhow::Result<Churned> {
        let third = (self.routes / 3).max(1);
        let envoy = self.envoy_pid()?;
        let agent = self.agent_pid()?;
        let main_thread = main_thread_seconds(envoy);
        let agent_cpu = cpu_seconds(agent);
        let controller_cpu = cpu_seconds(self.controller.pid());
        let start = Instant::now();
        let (mut route_errors, mut endpoint_errors) = (0, 0);
        let storm = async {
            let mut tick = tokio::time::interval(ENDPOINT_CHANGES);
            let mut changed = 0_usize;
            while start.elapsed() < time {
                tick.tick().await;
                // Alternate the backends, because every write must change something.
                let backend = &self.backends[changed / third % 2];
                let change = objects::endpoints(backend.address());
                let path = objects::slice_path(third + changed % third);
                self.merge(&path, &change).await?;
                changed += 1;
            }
            anyhow::Ok(changed)
        };
        let endpoints = async {
            let mut client = self.client();
            let mut samples = Vec::new();
            while start.elapsed() < time {
                let change = samples.len();
                let route = 2 * third + pick(change / 2, self.routes - 2 * third);
                let backend = &self.backends[change % 2];
                samples.push(
                    self.endpoint_change(&mut client, route, backend, &mut endpoint_errors)
                        .await?,
                );
            }
            anyhow::Ok(samples)
        };
        let routes = async {
            let mut client = self.client();
            let mut samples = Vec::new();
            let mut tick = tokio::time::interval(ROUTE_CHANGES);
            while start.elapsed() < time {
                tick.tick().await;
                let route = pick(samples.len() + 31, third);
                let revision = format!("churn{}", samples.len());
                let service = objects::service(route);
                samples.push(
                    self.route_change(&mut client, route, &service, &revision, &mut route_errors)
                        .await?,
                );
            }
            anyhow::Ok(samples)
        };
        // The client blocks its thread while it waits for a response.
        let runtime = tokio::runtime::Handle::current();
        let (changed, route_samples, endpoint_samples) = tokio::task::block_in_place(|| {
            std::thread::scope(|scope| {
                let storm = scope.spawn(|| runtime.block_on(storm));
                let routes = scope.spawn(|| runtime.block_on(routes));
                let endpoints = runtime.block_on(endpoints);
                anyhow::Ok((joined(storm.join())?, joined(routes.join())?, endpoints?))
            })
        })?;
        let took = start.elapsed().as_secs_f64();
        *errors += route_errors + endpoint_errors;
        Ok(Churned {
            route_change: Times::of(route_samples),
            endpoint_change: Times::of(endpoint_samples),
            controller_cpu_percent: (cpu_seconds(self.controller.pid()) - controller_cpu) / took
                * 100.0,
            envoy_main_cpu: (main_thread_seconds(envoy) - main_thread) / took * 60.0,
            agent_cpu: (cpu_seconds(agent) - agent_cpu) / took * 60.0,
            endpoint_changes_a_second: count(changed) / took,
        })
    }
}
