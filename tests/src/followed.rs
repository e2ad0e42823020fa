//! A cluster, a controller, and an agent that follows the cluster.

use crate::agent::{AgentUnderTest, Setup};
use crate::cluster::{Channel, TestCluster, User};
use crate::controller::{ControllerUnderTest, NAMESPACE, deployed, give_rights};
use crate::reports::allow_hosts;

/// Starts a cluster, a controller, and an agent on the host `host-1`.
pub async fn followed(
    ports: &[u16],
    flags: &[&str],
) -> (TestCluster, ControllerUnderTest, AgentUnderTest) {
    followed_with(ports, &[], flags).await
}

/// Like [`followed`], but with flags for both the controller and the agent.
pub async fn followed_with(
    ports: &[u16],
    controller_flags: &[&str],
    flags: &[&str],
) -> (TestCluster, ControllerUnderTest, AgentUnderTest) {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, controller_flags).await;
    controller.wait_ready().await;
    let agent = follow(&cluster, ports, flags).await;
    (cluster, controller, agent)
}

/// Starts an agent that follows the cluster as `host-1`.
pub async fn follow(cluster: &TestCluster, ports: &[u16], flags: &[&str]) -> AgentUnderTest {
    follow_as(cluster, Setup::with_ports(ports), flags).await
}

/// Like [`follow`], but with other options.
pub async fn follow_as(cluster: &TestCluster, setup: Setup, flags: &[&str]) -> AgentUnderTest {
    give_rights(cluster, "agent/rbac.yaml").await;
    allow_hosts(cluster, &["host-1"]).await;
    let user = User::service_account(NAMESPACE, "sesame-agent");
    let config = cluster.kubeconfig(&user).await;
    let mut agent = setup.without_manifests().prepare();
    agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
    agent.add_flags(&["--host", "host-1"]);
    agent.add_flags(flags);
    agent.restart();
    agent
}
