//! The benchmark's cluster, controller and hosts.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use sesame_published::host_access::{gateway_rules, host_account, host_rules};
use sesame_tests::certs::Authority;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, condition, deploy};
use sesame_tests::envoy::workspace;
use sesame_tests::processes::memory_mib;
use tempfile::TempDir;

use super::crowd::{Crowd, TIMEOUT};
use super::light::LightHost;
use super::objects;
use super::usage::{Page, Usage};

const AT_ONCE: usize = 16;

/// Kind of the hosts' identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IdentityOfHosts {
    /// Pods with the same ServiceAccount on separate nodes, like a DaemonSet's Pods.
    Pods,
    /// A ServiceAccount, a Role and a RoleBinding for each host, like hosts outside the cluster.
    Accounts,
}

pub(crate) struct Stage {
    pub(crate) cluster: TestCluster,
    pub(crate) controller: ControllerUnderTest,
    pub(crate) hosts: Vec<LightHost>,
    pub(crate) directory: TempDir,
    authority: Authority,
    start: Instant,
}

impl Stage {
    pub(crate) async fn start(
        hosts: u32,
        routes: usize,
        identity: IdentityOfHosts,
    ) -> anyhow::Result<Self> {
        let cluster = TestCluster::start().await;
        cluster.install_crds(Channel::Standard).await;
        deploy(&cluster).await;
        let rbac = std::fs::read_to_string(workspace().join("controller/deploy/agent/rbac.yaml"))?;
        let applied = cluster.apply(&rbac).await;
        applied.map_err(|error| anyhow::anyhow!("apply the agents' RBAC: {error}"))?;
        let all = stream::iter(0..hosts).map(|index| host(&cluster, index, identity));
        let all = all.buffered(AT_ONCE).collect().await;
        let authority = Authority::new("bench");
        apply_all(&cluster, objects::surroundings()).await?;
        apply_all(&cluster, [secret(&authority), objects::edge()]).await?;
        apply_all(&cluster, (0..routes).flat_map(objects::route_objects)).await?;
        let controller = ControllerUnderTest::start(&cluster, &[]).await;
        controller.wait_ready().await;
        controller.wait_leads().await;
        Page::weigh(&cluster).await?;
        Ok(Self {
            cluster,
            controller,
            hosts: all,
            directory: tempfile::Builder::new().prefix("sesame-fleet-").tempdir()?,
            authority,
            start: Instant::now(),
        })
    }

    pub(crate) async fn usage(&self, crowd: &Crowd) -> anyhow::Result<Usage> {
        Usage::now(
            &self.cluster,
            self.controller.pid(),
            crowd.cpu(),
            self.start,
        )
        .await
    }

    async fn merge(&self, path: &str, change: &Value) -> anyhow::Result<Value> {
        let merged = self.cluster.admin().merge(path, change).await;
        merged.context(path.to_owned())
    }

    pub(crate) async fn change_route(&self, route: usize, revision: &str) -> anyhow::Result<()> {
        let change = json!({"spec": {"rules": objects::rules(route, revision)}});
        self.merge(&objects::route_path(route), &change).await?;
        Ok(())
    }

    pub(crate) async fn change_gateway(&self, revision: &str) -> anyhow::Result<i64> {
        let change = json!({"spec": {"listeners": objects::listeners(revision)}});
        let stored = self.merge(objects::GATEWAY, &change).await?;
        let generation = stored["metadata"]["generation"].as_i64();
        generation.context("the Gateway's generation")
    }

    pub(crate) async fn change_key(&self) -> anyhow::Result<()> {
        let change = json!({"data": secret(&self.authority)["data"]});
        self.merge(objects::KEY, &change).await?;
        Ok(())
    }

    pub(crate) async fn change_watched(&self, revision: &str, bytes: usize) -> anyhow::Result<()> {
        apply_all(&self.cluster, [objects::watched(revision, bytes)]).await
    }

    /// `Programmed` is true once all hosts serve this generation.
    pub(crate) async fn until_programmed(&self, generation: i64) -> anyhow::Result<()> {
        let all = self.hosts.len();
        let expected = format!("programmed on {all} of {all} hosts");
        let start = Instant::now();
        loop {
            let gateway = self.cluster.admin().get(objects::GATEWAY).await?;
            let programmed = condition(&gateway["status"]["conditions"], "Programmed");
            let message = programmed["message"].as_str().unwrap_or_default();
            if programmed["observedGeneration"] == generation && message.starts_with(&expected) {
                return Ok(());
            }
            ensure!(
                start.elapsed() < TIMEOUT,
                "the Gateway is not {expected} (generation {generation}): {:#}\n{}",
                gateway["status"],
                self.controller.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `before` is the number of earlier reports.
    pub(crate) async fn until_reported(&self, before: f64) -> anyhow::Result<()> {
        let start = Instant::now();
        let wanted = before + f64::from(u32::try_from(self.hosts.len())?);
        while Page::read(&self.cluster).await?.reports() < wanted {
            ensure!(
                start.elapsed() < TIMEOUT,
                "not all hosts have reported within {TIMEOUT:?}"
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    pub(crate) async fn gateway_writes(&self) -> f64 {
        let label = "\"Gateway\"";
        self.controller.metric("status_writes_total", label).await
    }

    pub(crate) fn controller_mib(&self) -> (f64, f64) {
        memory_mib(self.controller.pid())
    }

    pub(crate) fn peaks_mib(&self) -> (f64, f64) {
        let (apiserver, etcd) = self.cluster.pids();
        (memory_mib(apiserver).1, memory_mib(etcd).1)
    }
}

async fn apply_all(
    cluster: &TestCluster,
    all: impl IntoIterator<Item = Value>,
) -> anyhow::Result<()> {
    stream::iter(all)
        .map(|object| async move {
            cluster.admin().apply_value(&object).await?;
            anyhow::Ok(())
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

fn secret(authority: &Authority) -> Value {
    let mut secret = authority.issue(&["bench.example.com"]).secret("bench");
    secret["metadata"]["namespace"] = json!(objects::NAMESPACE);
    secret
}

async fn host(cluster: &TestCluster, index: u32, identity: IdentityOfHosts) -> LightHost {
    let name = format!("edge-{index}");
    let [_, b, c, d] = index.to_be_bytes();
    let user = match identity {
        IdentityOfHosts::Pods => User::on_node(NAMESPACE, "sesame-agent", &name),
        IdentityOfHosts::Accounts => {
            let account = host_account(&name);
            let mut rules = host_rules(&name);
            rules.extend(gateway_rules(&[objects::gateway()]));
            let rules = json!(rules);
            cluster.allow(NAMESPACE, &account, &account, &rules).await;
            User::service_account(NAMESPACE, &account)
        }
    };
    LightHost {
        kubeconfig: cluster.kubeconfig(&user).await,
        name,
        address: format!("10.{}.{c}.{d}", b.saturating_add(64)),
    }
}
