//! Rate limits that hosts share, on a real Envoy. One Envoy is every host of the fleet in turn.

use std::path::Path;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::envoy::{envoy_binary, older_envoy_binary};
use sesame_tests::manifests::{edge, http_listener, plain_route, traffic_policy, yaml};
use sesame_tests::wait::eventually;

const FLEETS: [usize; 3] = [1, 3, 6];
const TOTAL: usize = 60;
/// Fewer than the hosts of the largest fleet.
const FEW: usize = 2;

fn limited(name: &str, requests: usize, more: &Value) -> [Value; 2] {
    let mut limit = json!({"name": "all", "requests": requests, "per": "Hour", "scope": "Fleet"});
    let fields = more.as_object().expect("an object").clone();
    limit.as_object_mut().expect("an object").extend(fields);
    let target = json!({"kind": "HTTPRoute", "name": name});
    [
        plain_route(name, &format!("{name}.test"), "a"),
        traffic_policy(name, target, &json!({"rateLimits": [limit]})),
    ]
}

/// Returns how many of `count` requests pass.
async fn passed(agent: &AgentUnderTest, host: &str, user: &str, count: usize) -> usize {
    let mut passed = 0;
    for _ in 0..count {
        let request = agent.get(80, host, "/").header("x-user", user);
        let reply = request.send().await;
        passed += usize::from(reply.is_ok_and(|reply| reply.status == 200));
    }
    passed
}

/// Waits until Envoy divides by the number of hosts. Each attempt is a new user.
async fn wait_divided(agent: &AgentUnderTest, hosts: usize) {
    let mut attempt = 0;
    eventually("the limit is divided", TEST_TIMEOUT, async || {
        attempt += 1;
        let user = format!("{hosts}-{attempt}");
        let passed = passed(agent, "users.test", &user, 7).await;
        let why = format!("{passed} of 6 requests pass with {hosts} hosts");
        (passed == 6 / hosts).then_some(()).ok_or(why)
    })
    .await;
}

async fn fleets_keep_to_the_total(envoy: &Path) {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    let by_user = json!({"keys": [{"type": "Header", "name": "x-user"}]});
    all.extend(limited("users", 6, &by_user));
    all.extend(limited("few", FEW, &json!({})));
    for hosts in FLEETS {
        all.extend(limited(&format!("all-{hosts}"), TOTAL, &json!({})));
    }
    let own = json!({"scope": "Host"});
    all.extend(limited("own", FEW, &own));
    let setup = Setup::with_ports(&[80]).envoy(envoy);
    let mut agent = setup
        .flag("--fleet-hosts=1")
        .start(&[("all.yaml", &yaml(&all))]);
    agent.wait_healthy().await;
    let mut checks = Checks::default();
    let mut before = 1;
    for hosts in FLEETS {
        if hosts != before {
            agent.kill9();
            let flag = |hosts: usize| format!("--fleet-hosts={hosts}");
            agent.change_flag(&flag(before), &flag(hosts));
            agent.restart();
            before = hosts;
            // Larger buckets for the fleet reset all counts.
            agent.wait_healthy().await;
        }
        wait_divided(&agent, hosts).await;
        let each = passed(&agent, &format!("all-{hosts}.test"), "", TOTAL + 1).await;
        let together = each * hosts;
        let within = TOTAL.abs_diff(together) * 10 <= TOTAL;
        checks.same(
            format_args!("{together} of {TOTAL} requests pass with {hosts} hosts, within 10 %"),
            within,
            true,
        );
    }
    // The bucket is smaller than the fleet.
    let few = passed(&agent, "few.test", "", FEW + 2).await;
    checks.same("requests of a share below one", few, 1);
    let own = passed(&agent, "own.test", "", FEW + 2).await;
    checks.same("requests of a host's own limit", own, FEW);
    assert_eq!(agent.envoys().len(), 1, "no Envoy was restarted");
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_limits_keep_to_the_total() {
    fleets_keep_to_the_total(&envoy_binary()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_limits_keep_to_the_total_on_older_envoy() {
    fleets_keep_to_the_total(&older_envoy_binary()).await;
}
