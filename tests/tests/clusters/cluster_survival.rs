//! Cluster incidents: a long outage, lost watch history, new keys. The host must keep serving, and
//! catch up without intervention.

use std::time::{Duration, Instant};

use serde_json::Value;
use sesame_published::names::DEFAULT_NAMESPACE;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::cluster::{TestCluster, User};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::edge_name;
use sesame_tests::publications::{self, HOST, Published, at_port_80, wait_report};
use sesame_tests::wait::{eventually, holds};

const OUTAGE: Duration = Duration::from_secs(60);

/// The agent sends a probe within 25 s, and waits 10 s for a response.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

struct Host {
    cluster: TestCluster,
    user: User,
    agent: AgentUnderTest,
    backend: Backend,
    load: Load,
}

impl Host {
    async fn start() -> Self {
        let mut agent = Setup::with_ports(&[80]).without_manifests().prepare();
        let backend = Backend::start("a").await;
        let cluster = TestCluster::start().await;
        let user = publications::prepare(&cluster, &[&edge_name()]).await;
        let first = at_port_80(backend.address(), "/one");
        first.publish(cluster.admin()).await;
        let config = cluster.kubeconfig(&user).await;
        agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
        agent.add_flags(&["--host", HOST]);
        agent.restart();
        wait(&agent, "/one").await;
        let edge = edge_name();
        wait_report(&cluster, &edge, "first version served", first.is_served()).await;
        let load = Load::start(&Plan::new(vec![agent.get(80, "kube.test", "/all")]));
        load.pass(100).await;
        Self {
            cluster,
            user,
            agent,
            backend,
            load,
        }
    }

    fn version(&self, prefix: &str) -> Published {
        at_port_80(self.backend.address(), prefix)
    }

    async fn end(self, version: &Published, prefix: &str) {
        wait(&self.agent, prefix).await;
        let edge = edge_name();
        wait_report(
            &self.cluster,
            &edge,
            "the newest version is served",
            version.is_served(),
        )
        .await;
        self.load.pass(100).await;
        self.load.stop().await.assert_clean();
    }
}

async fn wait(agent: &AgentUnderTest, prefix: &str) {
    let request = agent.get(80, "kube.test", prefix);
    agent.wait_ok(&request).await;
}

fn degraded(status: &Value) -> bool {
    let gateway = &status["gateways"][0];
    let message = gateway["message"].as_str().unwrap_or_default();
    gateway["state"] == "Degraded" && message.contains("cannot watch the cluster")
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_watch_history_is_listed_again() {
    let mut host = Host::start().await;
    let list = format!("/api/v1/namespaces/{DEFAULT_NAMESPACE}/configmaps");
    let known = host.cluster.get(&list).await;
    let known = known["metadata"]["resourceVersion"].as_str().unwrap();

    // A restarted API server has no watch history, so the agent's resource version is too old.
    host.agent.freeze();
    let second = host.version("/two");
    second.publish(host.cluster.admin()).await;
    host.cluster.stop_apiserver();
    host.cluster.start_apiserver().await;
    let watch = format!("{list}?watch=1&timeoutSeconds=1&resourceVersion={known}");
    eventually("the watch history is gone", TEST_TIMEOUT, async || {
        let answer = match host.cluster.admin().get_text(&watch).await {
            Ok(text) => text,
            Err(failure) => failure.to_string(),
        };
        holds(answer.contains("410"), || answer)
    })
    .await;
    host.agent.thaw();
    wait(&host.agent, "/two").await;

    let third = host.version("/three");
    third.publish(host.cluster.admin()).await;
    host.end(&third, "/three").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_keeps_serving_during_api_server_outage() {
    let mut host = Host::start().await;
    let begun = Instant::now();
    host.cluster.stop_apiserver();
    host.agent
        .wait_status("the failed watch is reported", degraded)
        .await;
    for start in 1..=3 {
        while begun.elapsed() < OUTAGE * start / 4 {
            host.load.pass(100).await;
        }
        host.agent.wait_stored().await;
        host.agent.kill9();
        host.agent.restart();
        host.agent
            .wait_status("the outage is still reported", degraded)
            .await;
    }
    while begun.elapsed() < OUTAGE {
        host.load.pass(100).await;
    }
    host.cluster.start_apiserver().await;
    let second = host.version("/two");
    second.publish(host.cluster.admin()).await;
    host.end(&second, "/two").await;
}

/// The frozen API server's connections stay open but silent, as in a quiet cluster.
#[tokio::test(flavor = "multi_thread")]
async fn host_reports_frozen_api_server_within_a_minute() {
    let host = Host::start().await;
    host.cluster.freeze_apiserver();
    eventually(
        "the outage is reported",
        REPORT_TIMEOUT,
        async || match host.agent.status() {
            Some(status) if degraded(&status) => Ok(()),
            other => Err(format!("{other:?}\n{}", host.agent.log_tail())),
        },
    )
    .await;
    host.load.pass(100).await;
    host.cluster.thaw_apiserver();
    let second = host.version("/two");
    second.publish(host.cluster.admin()).await;
    host.end(&second, "/two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_authorities_and_tokens_are_used() {
    let mut host = Host::start().await;
    host.cluster.rotate().await;
    let second = host.version("/two");
    second.publish(host.cluster.admin()).await;
    // The agent and the API server no longer trust each other.
    host.agent
        .wait_status("the failed watch is reported", degraded)
        .await;
    host.load.pass(100).await;
    host.cluster.kubeconfig(&host.user).await;
    host.end(&second, "/two").await;
}
