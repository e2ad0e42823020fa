//! Backends in `HTTPRoute` rules: weights, timeouts and protocols.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    backend_ref, edge, endpoint_slices, http_listener, http_route, path, rule_to, served, service,
    yaml,
};
use sesame_tests::wait::{eventually, holds};

#[tokio::test(flavor = "multi_thread")]
async fn backends_are_reached_as_rule_specifies() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let main = Backend::start("main").await;
    let second = Backend::start("second").await;
    let never = Backend::start("never").await;
    for backend in [&main, &second, &never] {
        objects.extend(served(backend.name(), &[backend.address()]));
    }
    for (name, protocol) in [
        ("main-h2c", "kubernetes.io/h2c"),
        ("main-ws", "kubernetes.io/ws"),
    ] {
        objects.push(service(name, protocol));
        objects.extend(endpoint_slices(name, &[main.address()]));
    }
    objects.extend(served("nobody", &[]));
    objects.extend(routes());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent
        .wait_ok(&agent.get(80, "plain.protocol.test", "/"))
        .await;
    let mut checks = Checks::default();
    timeouts(&agent, &mut checks).await;
    weights(&agent, &mut checks).await;
    checks.same("requests of weight 0", never.count(), 0);
    refusals(&agent, &mut checks).await;
    protocols(&agent, &mut checks).await;
    checks.finish();
}

fn routes() -> Vec<Value> {
    let one = |host: &str, rule: Value| http_route(&host.replace('.', "-"), &[host], &[rule]);
    let weights = |weights: &[(&str, u32)]| -> Value {
        let refs: Value = weights
            .iter()
            .map(|(name, weight)| json!({"name": name, "port": 80, "weight": weight}))
            .collect();
        json!({"backendRefs": refs})
    };
    let timed =
        |timeouts: Value| json!({"timeouts": timeouts, "backendRefs": [backend_ref("main")]});
    let extension = json!([{
        "type": "ExtensionRef",
        "extensionRef": {"group": "example.test", "kind": "Nothing", "name": "nothing"},
    }]);
    let broken = json!([
        {"matches": [path("PathPrefix", "/broken")], "backendRefs": [backend_ref("missing")]},
        {"matches": [path("PathPrefix", "/good")], "backendRefs": [backend_ref("main")]},
    ]);
    let mut siblings = one("siblings.test", json!({}));
    siblings["spec"]["rules"] = broken;
    vec![
        one("request.timeout.test", timed(json!({"request": "2s"}))),
        one(
            "backend.timeout.test",
            timed(json!({"request": "10s", "backendRequest": "2s"})),
        ),
        one("none.timeout.test", timed(json!({"request": "0s"}))),
        one(
            "even.weight.test",
            weights(&[("main", 5), ("second", 5), ("never", 0)]),
        ),
        one(
            "uneven.weight.test",
            weights(&[("main", 90), ("second", 10)]),
        ),
        one(
            "missing.weight.test",
            weights(&[("main", 1), ("missing", 1)]),
        ),
        one("nobody.weight.test", weights(&[("main", 1), ("nobody", 1)])),
        one("missing.refused.test", weights(&[("missing", 1)])),
        one("nobody.refused.test", weights(&[("nobody", 1)])),
        one("zero.refused.test", weights(&[("main", 0)])),
        one(
            "extension.refused.test",
            json!({"filters": extension, "backendRefs": [backend_ref("main")]}),
        ),
        siblings,
        one("h2c.protocol.test", weights(&[("main-h2c", 1)])),
        one("ws.protocol.test", weights(&[("main-ws", 1)])),
        one("plain.protocol.test", weights(&[("main", 1)])),
    ]
}

async fn timeouts(agent: &AgentUnderTest, checks: &mut Checks) {
    for host in ["request.timeout.test", "backend.timeout.test"] {
        checks
            .status(agent.get(80, host, "/delay/8000ms"), 504)
            .await;
        checks.backend(agent.get(80, host, "/"), "main").await;
    }
    checks
        .backend(agent.get(80, "none.timeout.test", "/delay/400ms"), "main")
        .await;
}

/// Counts responses by backend, or by status for Envoy's own responses.
async fn shares(
    agent: &AgentUnderTest,
    checks: &mut Checks,
    host: &str,
) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    let request = agent.get(80, host, "/");
    for _ in 0..300 {
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        let responder = match reply.backend() {
            Some(backend) if reply.status == 200 => backend,
            _ => reply.status.to_string(),
        };
        *shares.entry(responder).or_default() += 1;
    }
    shares
}

async fn weights(agent: &AgentUnderTest, checks: &mut Checks) {
    // Each bound is more than five standard deviations from the mean.
    for (host, expected) in [
        (
            "even.weight.test",
            [("main", 100..=200), ("second", 100..=200)],
        ),
        (
            "uneven.weight.test",
            [("main", 240..=297), ("second", 3..=60)],
        ),
        (
            "missing.weight.test",
            [("main", 100..=200), ("500", 100..=200)],
        ),
        (
            "nobody.weight.test",
            [("main", 100..=200), ("503", 100..=200)],
        ),
    ] {
        let shares = shares(agent, checks, host).await;
        let as_said = expected
            .iter()
            .all(|(who, range)| shares.get(*who).is_some_and(|count| range.contains(count)));
        let holds = as_said && shares.len() == expected.len();
        checks.that(holds, format!("{host}: {shares:?}, expected {expected:?}"));
    }
}

async fn refusals(agent: &AgentUnderTest, checks: &mut Checks) {
    for (host, status) in [
        ("missing.refused.test", 500),
        ("nobody.refused.test", 503),
        ("zero.refused.test", 500),
        ("extension.refused.test", 500),
    ] {
        checks.status(agent.get(80, host, "/"), status).await;
    }
    checks
        .status(agent.get(80, "siblings.test", "/broken"), 500)
        .await;
    checks
        .backend(agent.get(80, "siblings.test", "/good"), "main")
        .await;
}

async fn protocols(agent: &AgentUnderTest, checks: &mut Checks) {
    for (host, protocol) in [
        ("h2c.protocol.test", "HTTP/2.0"),
        ("plain.protocol.test", "HTTP/1.1"),
    ] {
        for request in [agent.get(80, host, "/"), agent.get(80, host, "/").http2()] {
            let Some(reply) = checks.reply(&request).await else {
                continue;
            };
            checks.same(&request, reply.status, 200);
            if reply.status == 200 {
                checks.same(&request, reply.echo().protocol.as_str(), protocol);
            }
        }
    }
    let request = agent.get(80, "ws.protocol.test", "/");
    match request.websocket(b"open sesame").await {
        Ok(answer) => checks.same(&request, answer, b"open sesame".to_vec()),
        Err(error) => checks.that(false, format!("{request} as a websocket: {error:#}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_passes_if_the_gateway_allows_it() {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let exec = agent.get(80, "a.test", "/exec").method("POST");
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let ignored = exec.upgraded("SPDY/3.1", b"frames").await;
    let ignored = ignored.expect_err("no upgrade by default").to_string();
    assert!(ignored.contains("got status 200"), "{ignored}");

    for object in objects.iter_mut().filter(|it| it["kind"] == "Gateway") {
        object["metadata"]["annotations"] = json!({"projectsesame.io/upgrades": "SPDY/3.1"});
    }
    agent.write("all.yaml", &yaml(&objects));
    eventually("the upgrade succeeds", TEST_TIMEOUT, async || {
        let answer = exec.upgraded("SPDY/3.1", b"frames").await;
        holds(answer.as_ref().is_ok_and(|it| it == b"frames"), || {
            format!("{answer:?}")
        })
    })
    .await;
    let websocket = agent.get(80, "a.test", "/").websocket(b"frames").await;
    assert_eq!(websocket.expect("a websocket"), b"frames");
}
