//! Rate limits that the hosts of a cluster share.

use serde_json::json;
use sesame_kinds::api::NamespacedName;
use sesame_tests::agent::{AgentUnderTest, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::controller::publication;
use sesame_tests::followed::followed;
use sesame_tests::manifests::{edge, http_listener, plain_route, served, traffic_policy};
use sesame_tests::network;
use sesame_tests::reports::{report_path, report_serving};
use sesame_tests::wait::eventually;

const TOTAL: usize = 6;

/// Waits until this host's share of the limit is for a fleet of this size.
async fn wait_divided(agent: &AgentUnderTest, hosts: usize) {
    let mut attempt = 0;
    eventually("the limit is divided", TEST_TIMEOUT, async || {
        attempt += 1;
        let mut passed = 0;
        for _ in 0..=TOTAL {
            let request = agent.get(80, "app.test", "/");
            // Each attempt is a new user.
            let request = request.header("x-user", &format!("{hosts}-{attempt}"));
            let reply = request.send().await;
            passed += usize::from(reply.is_ok_and(|reply| reply.status == 200));
        }
        let why = format!("{passed} of {TOTAL} requests pass with {hosts} hosts");
        (passed == TOTAL / hosts).then_some(()).ok_or(why)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_host_leaves_its_share_to_others() {
    if !network::inside_own("lost_host_leaves_its_share_to_others") {
        return;
    }
    let (cluster, controller, mut agent) = followed(&[80], &[]).await;
    let at = (network::BACKENDS, 0).into();
    let backend = Backend::start_at("app", at).await.expect("an address");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects.push(plain_route("app", "app.test", "app"));
    let limit = json!({"name": "all", "requests": TOTAL, "per": "Hour", "scope": "Fleet",
        "keys": [{"type": "Header", "name": "x-user"}]});
    let target = json!({"kind": "Gateway", "name": "edge"});
    let policy = traffic_policy("edge", target, &json!({"rateLimits": [limit]}));
    objects.push(policy);
    cluster.apply_all(&objects).await;
    agent.wait_ok(&agent.get(80, "app.test", "/")).await;
    wait_divided(&agent, 1).await;

    let gateway = NamespacedName::new("default", "edge");
    let admin = cluster.admin();
    let revision = async || {
        let found = publication(admin, &gateway).await;
        found.expect("a publication").manifest.revision
    };
    let before = revision().await;
    for (host, address) in [("host-2", "192.0.2.2"), ("host-3", "192.0.2.3")] {
        report_serving(admin, &gateway, host, address).await;
    }
    wait_divided(&agent, 3).await;
    cluster.delete(&report_path(&gateway, "host-3")).await;
    wait_divided(&agent, 2).await;
    assert_eq!(revision().await, before, "hosts change no revision");

    // Without a controller, the host keeps the last number.
    drop(controller);
    agent.kill9();
    agent.restart();
    wait_divided(&agent, 2).await;
}
