//! The benchmark's cluster, controller, agent and backends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, deploy};
use sesame_tests::envoy::workspace;
use sesame_tests::network;
use sesame_tests::processes::{cpu_seconds, memory_mib};
use sesame_tests::reports::allow_hosts;

use super::client::Client;
use super::figures::{CreationCpu, Settled};
use super::objects;
use super::times::{Times, pause_after, pick};

const AT_ONCE: usize = 16;
const RESTARTS: usize = 5;
/// 5,000 routes take 40 s.
const CREATED_PER_SECOND: usize = 125;
pub(super) const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) struct Stage {
    cluster: TestCluster,
    pub(super) controller: ControllerUnderTest,
    agent: AgentUnderTest,
    pub(super) backends: [Backend; 2],
    pub(super) routes: usize,
}

impl Stage {
    pub(crate) async fn start(routes: usize) -> anyhow::Result<Self> {
        let cluster = TestCluster::start().await;
        cluster.install_crds(Channel::Standard).await;
        deploy(&cluster).await;
        let rbac = std::fs::read_to_string(workspace().join("controller/deploy/agent/rbac.yaml"))?;
        cluster
            .apply(&rbac)
            .await
            .map_err(|error| anyhow::anyhow!("apply the agent's RBAC: {error}"))?;
        allow_hosts(&cluster, &["bench"]).await;
        let controller = ControllerUnderTest::start(&cluster, &[]).await;
        controller.wait_ready().await;
        let user = User::service_account(NAMESPACE, "sesame-agent");
        let config = cluster.kubeconfig(&user).await;
        let mut agent = Setup::with_ports(&[80]).without_manifests().prepare();
        agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
        agent.add_flags(&["--host", "bench"]);
        agent.restart();
        let at: SocketAddr = (network::BACKENDS, 0).into();
        let backends = [
            Backend::start_at("a", at).await?,
            Backend::start_at("b", at).await?,
        ];
        Ok(Self {
            cluster,
            controller,
            agent,
            backends,
            routes,
        })
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.agent.address(80))
    }

    async fn apply_all(&self, all: impl Iterator<Item = Value>) -> anyhow::Result<()> {
        stream::iter(all)
            .map(|object| async move {
                self.cluster.admin().apply_value(&object).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    pub(super) async fn merge(&self, path: &str, change: &Value) -> anyhow::Result<()> {
        let merged = self.cluster.admin().merge(path, change).await;
        merged.context(path.to_owned()).map(drop)
    }

    pub(crate) async fn create_backends(&self) -> anyhow::Result<()> {
        for object in objects::edge() {
            self.apply_all(std::iter::once(object)).await?;
        }
        let endpoint = self.backends[0].address();
        self.apply_all(
            (0..self.routes)
                .flat_map(|route| objects::backends(&objects::service(route), endpoint)),
        )
        .await
    }

    /// Also waits until the Gateway's status counts the routes and Envoy serves them.
    pub(crate) async fn create_routes(&self) -> anyhow::Result<(Settled, CreationCpu)> {
        let writes = self.gateway_writes().await;
        let before = self.cpu()?;
        let started = Instant::now();
        for first in (0..self.routes).step_by(CREATED_PER_SECOND) {
            let due = Duration::from_secs((first / CREATED_PER_SECOND) as u64);
            tokio::time::sleep_until((started + due).into()).await;
            let last = self.routes.min(first + CREATED_PER_SECOND);
            self.apply_all((first..last).map(|route| objects::route(route, "first")))
                .await?;
        }
        let settled = self.settle(self.routes, writes).await?;
        let mut client = self.client();
        let last = objects::hostname(self.routes - 1);
        tokio::task::block_in_place(|| {
            client.wait_for(&last, TIMEOUT, |answer| answer.revision == "first")
        })?;
        let after = self.cpu()?;
        let cpu = CreationCpu {
            servers: after.servers - before.servers,
            controller: after.controller - before.controller,
            agent: after.agent - before.agent,
        };
        Ok((settled, cpu))
    }

    fn cpu(&self) -> anyhow::Result<CreationCpu> {
        let (api_server, etcd) = self.cluster.pids();
        Ok(CreationCpu {
            servers: cpu_seconds(api_server) + cpu_seconds(etcd),
            controller: cpu_seconds(self.controller.pid()),
            agent: cpu_seconds(self.agent_pid()?),
        })
    }

    pub(crate) async fn delete_routes(&self) -> anyhow::Result<Settled> {
        let before = self.gateway_writes().await;
        stream::iter(0..self.routes)
            .map(|route| async move {
                let path = objects::route_path(route);
                self.cluster.admin().delete(&path).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.settle(0, before).await
    }

    async fn gateway_writes(&self) -> f64 {
        self.controller
            .metric("status_writes_total", "\"Gateway\"")
            .await
    }

    async fn writes(&self) -> f64 {
        self.controller.metric("status_writes_total", "").await
            + self.controller.metric("publish_writes_total", "").await
    }

    /// Waits until the listener's `attachedRoutes` equals `attached`.
    async fn settle(&self, attached: usize, writes_before: f64) -> anyhow::Result<Settled> {
        let start = Instant::now();
        loop {
            let gateway = self.cluster.admin().get(objects::GATEWAY).await?;
            if gateway["status"]["listeners"][0]["attachedRoutes"] == json!(attached) {
                let ms = start.elapsed().as_secs_f64() * 1000.0;
                let writes = self.gateway_writes().await - writes_before;
                return Ok(Settled { ms, writes });
            }
            ensure!(
                start.elapsed() < TIMEOUT,
                "attachedRoutes is not {attached}: {gateway:#}\n{}",
                self.controller.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn route_change(
        &self,
        client: &mut Client,
        route: usize,
        service: &str,
        revision: &str,
        errors: &mut usize,
    ) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let change = json!({"spec": {"rules": objects::rules(service, revision)}});
        self.merge(&objects::route_path(route), &change).await?;
        *errors += tokio::task::block_in_place(|| {
            client.wait_for(&objects::hostname(route), TIMEOUT, |answer| {
                answer.revision == revision
            })
        })?;
        Ok(started.elapsed())
    }

    pub(super) async fn endpoint_change(
        &self,
        client: &mut Client,
        route: usize,
        backend: &Backend,
        errors: &mut usize,
    ) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let change = objects::endpoints(backend.address());
        self.merge(&objects::slice_path(route), &change).await?;
        *errors += tokio::task::block_in_place(|| {
            client.wait_for(&objects::hostname(route), TIMEOUT, |answer| {
                answer.body.contains(&format!("\"{}\"", backend.name()))
            })
        })?;
        Ok(started.elapsed())
    }

    pub(crate) async fn route_changes(
        &self,
        changes: usize,
        errors: &mut usize,
    ) -> anyhow::Result<(Times, f64)> {
        let before = self.writes().await;
        let mut client = self.client();
        let mut samples = Vec::new();
        for change in 0..changes {
            let started = Instant::now();
            let route = pick(change, self.routes);
            let revision = format!("r{change}");
            samples.push(
                self.route_change(
                    &mut client,
                    route,
                    &objects::service(route),
                    &revision,
                    errors,
                )
                .await?,
            );
            self.pause().await;
            tokio::task::block_in_place(|| pause_after(started));
        }
        let writes = self.writes().await - before;
        Ok((Times::of(samples), per(writes, changes)))
    }

    pub(crate) async fn endpoint_changes(
        &self,
        changes: usize,
        errors: &mut usize,
    ) -> anyhow::Result<(Times, f64)> {
        let before = self.writes().await;
        let mut client = self.client();
        let mut samples = Vec::new();
        for change in 0..changes {
            let started = Instant::now();
            let route = pick(change, self.routes);
            let backend = &self.backends[1];
            samples.push(
                self.endpoint_change(&mut client, route, backend, errors)
                    .await?,
            );
            self.pause().await;
            tokio::task::block_in_place(|| pause_after(started));
        }
        let writes = self.writes().await - before;
        Ok((Times::of(samples), per(writes, changes)))
    }

    /// Switches routes to Services whose clusters Envoy does not have yet, and back.
    pub(crate) async fn switches(
        &self,
        changes: usize,
        errors: &mut usize,
    ) -> anyhow::Result<Times> {
        let routes: Vec<usize> = (0..changes.div_ceil(2))
            .map(|change| pick(change, self.routes))
            .collect();
        let endpoint = self.backends[0].address();
        let others = routes.iter().chain(&[0]);
        let others = others.map(|route| objects::other_service(*route));
        self.apply_all(others.flat_map(|service| objects::backends(&service, endpoint)))
            .await?;
        self.pause().await;
        let mut client = self.client();
        let mut samples = Vec::new();
        for (change, route) in routes.into_iter().enumerate() {
            for service in [objects::other_service(route), objects::service(route)] {
                let started = Instant::now();
                let revision = format!("{service}-{change}");
                samples.push(
                    self.route_change(&mut client, route, &service, &revision, errors)
                        .await?,
                );
                self.pause().await;
                tokio::task::block_in_place(|| pause_after(started));
            }
        }
        Ok(Times::of(samples))
    }

    /// Returns the times from starting a killed controller until a change made in between is served.
    pub(crate) async fn controller_restarts(
        &mut self,
        errors: &mut usize,
    ) -> anyhow::Result<Times> {
        let mut client = self.client();
        let mut samples = Vec::new();
        for restart in 0..RESTARTS {
            let route = pick(restart, self.routes);
            let revision = format!("restart-{restart}");
            let service = objects::service(route);
            let change = json!({"spec": {"rules": objects::rules(&service, &revision)}});
            self.controller.kill9();
            self.merge(&objects::route_path(route), &change).await?;
            let started = Instant::now();
            self.controller.restart();
            *errors += tokio::task::block_in_place(|| {
                client.wait_for(&objects::hostname(route), TIMEOUT, |answer| {
                    answer.revision == revision
                })
            })?;
            samples.push(started.elapsed());
            tokio::task::block_in_place(|| pause_after(started));
        }
        Ok(Times::of(samples))
    }

    pub(super) fn agent_runtime(&self) -> PathBuf {
        self.agent.runtime()
    }

    pub(super) fn kill_agent(&mut self) {
        self.agent.kill9();
    }

    pub(super) fn restart_agent(&mut self) {
        self.agent.restart();
    }

    pub(crate) async fn controller_cpu(&self, over: Duration) -> anyhow::Result<f64> {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = cpu_seconds(self.controller.pid());
        tokio::time::sleep(over).await;
        Ok((cpu_seconds(self.controller.pid()) - before) / over.as_secs_f64() * 100.0)
    }

    pub(crate) fn controller_mib(&self) -> (f64, f64) {
        memory_mib(self.controller.pid())
    }

    pub(crate) fn agent_mib(&self) -> anyhow::Result<(f64, f64)> {
        Ok(memory_mib(self.agent_pid()?))
    }

    pub(super) fn agent_pid(&self) -> anyhow::Result<u32> {
        let status = self.agent.status().context("the agent's status")?;
        let pid = status["agent"]["pid"].as_u64().context("the agent's pid")?;
        Ok(u32::try_from(pid)?)
    }

    pub(super) fn envoy_pid(&self) -> anyhow::Result<u32> {
        let pids = self.agent.envoy_pids();
        Ok(u32::try_from(*pids.first().context("no Envoy")?)?)
    }

    /// Keeps a change from affecting the next measurement.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

fn per(total: f64, count_of: usize) -> f64 {
    total / count(count_of.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
pub(super) fn count(number: usize) -> f64 {
    number as f64
}
