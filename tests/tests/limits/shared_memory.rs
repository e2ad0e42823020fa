//! `/dev/shm` is full or read-only when Envoy starts. Envoy aborts without shared memory for hot
//! restarts, so the agent must disable them until there is space.

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, words};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::numbered;

const HOST: &str = "memory.test";

/// Starts an agent in a new mount namespace with a small `/dev/shm`, after running `command`.
fn with_shared_memory(command: &str, backend: &Backend) -> AgentUnderTest {
    let script =
        format!(r#"mount -t tmpfs -o size=16k tmpfs /dev/shm && {command} && exec "$0" "$@""#);
    let unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh"];
    let wrapper = [&unshare[..], &["-c", &script]].concat();
    let setup = Setup::with_ports(&[80]).wrapper(&wrapper);
    setup.start(&[("all.yaml", &numbered(HOST, 0, backend.address()))])
}

fn has_warning(status: &Value) -> bool {
    let warnings = status["warnings"].to_string();
    warnings.contains("without hot restarts") && warnings.contains("/dev/shm")
}

async fn serves_without_hot_restarts(make_unusable: &str, make_usable: &[&str]) {
    let backend = Backend::start("a").await;
    let agent = with_shared_memory(make_unusable, &backend);
    agent.wait_numbered(HOST, 0).await;
    agent
        .wait_status("the problem is reported", has_warning)
        .await;
    assert!(!agent.log().contains("Envoy died"), "{}", agent.log_tail());
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/always")]));
    let refused = words(&agent.replace_envoy("hot").await);
    assert!(refused.contains("without hot restart"), "{refused}");
    agent.envoy_is_replaced("auto", "handover").await;
    agent.wait_status("the warning remains", has_warning).await;

    assert!(agent.beside(make_usable).success());
    agent.wait_envoys(1).await;
    agent.envoy_is_replaced("auto", "handover").await;
    agent
        .wait_status("hot restarts are possible again", |status| {
            !has_warning(status)
        })
        .await;
    agent.wait_envoys(1).await;
    agent.envoy_is_replaced("hot", "hot restart").await;
    agent.write("all.yaml", &numbered(HOST, 1, backend.address()));
    agent.wait_numbered(HOST, 1).await;
    load.stop().await.clean("no shared memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_starts_if_shared_memory_is_full() {
    let fill = "! dd if=/dev/zero of=/dev/shm/filler 2>/dev/null";
    serves_without_hot_restarts(fill, &["rm", "/dev/shm/filler"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_starts_if_shared_memory_is_read_only() {
    let mount = ["mount", "-o", "remount,rw", "/dev/shm"];
    serves_without_hot_restarts("mount -o remount,ro /dev/shm", &mount).await;
}
