//! `TLSRoute`, `TCPRoute` and `UDPRoute` on a real Envoy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::datagrams::{self, DatagramBackend};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_ref, edge, http_route, https_listener, l4_listener, on_listener, over_udp, route,
    rule_to, served, tls_listener, weighted_ref, yaml,
};
use sesame_tests::wait::eventually;

const SWITCHES: usize = 40;

/// Number of connections, enough for every backend to be chosen at least once.
const TRIES: u32 = 120;

fn to(backends: &[(&str, u32)]) -> Value {
    let refs: Vec<Value> = backends
        .iter()
        .map(|(name, weight)| weighted_ref(name, *weight))
        .collect();
    json!({"backendRefs": refs})
}

fn on(
    kind: &str,
    name: &str,
    listener: &str,
    hostnames: &[&str],
    backends: &[(&str, u32)],
) -> Value {
    on_listener(route(kind, name, hostnames, &[to(backends)]), listener)
}

/// Counts requests by the backend that responds.
async fn tally(request: &Request) -> BTreeMap<String, u32> {
    let mut seen = BTreeMap::new();
    for _ in 0..TRIES {
        let answer = match request.send().await {
            Ok(reply) => reply.backend().unwrap_or_else(|| reply.status.to_string()),
            Err(_) => "refused".to_owned(),
        };
        *seen.entry(answer).or_default() += 1;
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn server_name_selects_one_listener_and_route() {
    let (ours, theirs) = (Authority::new("gateway"), Authority::new("backends"));
    let mut objects = edge(&[
        tls_listener("pass", 443, "*.pass.test", None),
        // Without a route, connections to this listener must be refused.
        tls_listener("own", 443, "own.pass.test", None),
        tls_listener("same", 443, "same.test", None),
        tls_listener("end", 443, "end.test", Some("cert")),
        https_listener("https", 443, "web.test", "cert"),
    ]);
    objects.push(ours.issue(&["end.test", "web.test"]).secret("cert"));
    let leaf = theirs.issue(&[
        "a.pass.test",
        "b.pass.test",
        "own.pass.test",
        "share.pass.test",
        "same.test",
    ]);
    let exact = Backend::start_tls("exact", &leaf).await;
    let wild = Backend::start_tls("wild", &leaf).await;
    let plain = Backend::start("plain").await;
    for backend in [&exact, &wild, &plain] {
        objects.extend(served(backend.name(), &[backend.address()]));
    }
    objects.extend([
        on("TLSRoute", "wild", "pass", &["*.pass.test"], &[("wild", 1)]),
        on(
            "TLSRoute",
            "exact",
            "pass",
            &["a.pass.test", "own.pass.test"],
            &[("exact", 1)],
        ),
        // Precedence depends first on the hostnames in the specs, then on names.
        on("TLSRoute", "a-wide", "same", &["*.test"], &[("wild", 1)]),
        on(
            "TLSRoute",
            "b-exact",
            "same",
            &["same.test"],
            &[("exact", 1)],
        ),
        on("TLSRoute", "late", "pass", &["a.pass.test"], &[("wild", 1)]),
        on(
            "TLSRoute",
            "share",
            "pass",
            &["share.pass.test"],
            &[("exact", 1), ("absent", 1)],
        ),
        on("TLSRoute", "end", "end", &["end.test"], &[("plain", 1)]),
        on_listener(http_route("web", &[], &[rule_to("plain", &[])]), "https"),
    ]);
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&objects))]);
    let through = |sni: &str| agent.get(443, sni, "/").tls(sni, &theirs.trust());
    let ended = |sni: &str| agent.get(443, sni, "/").tls(sni, &ours.trust());
    agent.wait_ok(&through("a.pass.test")).await;

    let mut checks = Checks::default();
    // The client gets the backend's own certificate.
    checks.backend(through("a.pass.test"), "exact").await;
    checks
        .backend(through("a.pass.test").http2(), "exact")
        .await;
    checks.backend(through("b.pass.test"), "wild").await;
    checks.backend(through("same.test"), "exact").await;
    checks.backend(ended("end.test"), "plain").await;
    checks.backend(ended("web.test"), "plain").await;
    for refused in ["own.pass.test", "pass.test", "unknown.test"] {
        let reply = through(refused).send().await;
        checks.that(
            reply.is_err(),
            format_args!("{refused} is served: {reply:?}"),
        );
    }
    let seen = tally(&through("share.pass.test")).await;
    let answers: Vec<&str> = seen.keys().map(String::as_str).collect();
    checks.same(
        "an invalid backend's share",
        answers,
        vec!["exact", "refused"],
    );
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_connections_split_by_weight_and_need_backend() {
    let mut objects = edge(&[
        l4_listener("shared", 5001, "TCP"),
        l4_listener("two-routes", 5002, "TCP"),
        l4_listener("empty", 5003, "TCP"),
        l4_listener("missing", 5004, "TCP"),
    ]);
    let backends = start_served(&["a", "b", "never"], &mut objects).await;
    let mut older = on("TCPRoute", "z-older", "two-routes", &[], &[("b", 1)]);
    older["metadata"]["creationTimestamp"] = json!("2024-01-01T00:00:00Z");
    let mut newer = on("TCPRoute", "a-newer", "two-routes", &[], &[("never", 1)]);
    newer["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    objects.extend([
        on(
            "TCPRoute",
            "shared",
            "shared",
            &[],
            &[("a", 6), ("b", 2), ("never", 0), ("absent", 2)],
        ),
        older,
        newer,
        on("TCPRoute", "missing", "missing", &[], &[("absent", 1)]),
    ]);
    let agent =
        Setup::with_ports(&[5001, 5002, 5003, 5004]).start(&[("all.yaml", &yaml(&objects))]);
    let get = |port: u16| agent.get(port, "any.test", "/");
    agent.wait_ok(&get(5002)).await;
    let mut checks = Checks::default();
    let seen = tally(&get(5001)).await;
    let share = |name: &str| f64::from(seen.get(name).copied().unwrap_or(0)) / f64::from(TRIES);
    for (name, expected) in [("a", 0.6), ("b", 0.2), ("refused", 0.2)] {
        checks.that(
            (share(name) - expected).abs() < 0.2,
            format_args!(
                "{name} has a share of {}, expected about {expected}: {seen:?}",
                share(name)
            ),
        );
    }
    checks.same("answers", seen.len(), 3);
    checks.backend(get(5002), "b").await;
    for port in [5003, 5004] {
        let reply = get(port).send().await;
        checks.that(
            reply.is_err(),
            format_args!("port {port} is served: {reply:?}"),
        );
    }
    checks.same("connections of weight 0", backends[2].count(), 0);
    let status = agent.wait_status("a status", |_| true).await.to_string();
    checks.that(status.contains("\"attachedRoutes\":2"), status);
    checks.finish();
}

async fn wait_answer(agent: &AgentUnderTest, address: SocketAddr, expected: &str) {
    eventually(
        "a datagram's answer",
        TEST_TIMEOUT,
        async || match datagrams::ask(address, "x", Duration::from_millis(200)).await {
            Ok(answer) if answer == expected => Ok(()),
            Ok(answer) => Err(format!("{answer}\n{}", agent.log_tail())),
            Err(error) => Err(format!("{error:#}\n{}", agent.log_tail())),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn udp_datagrams_split_by_weight_on_shared_port() {
    let mut objects = edge(&[
        l4_listener("udp", 53, "UDP"),
        l4_listener("tcp", 53, "TCP"),
        l4_listener("shared", 5301, "UDP"),
        l4_listener("empty", 5302, "UDP"),
    ]);
    let web = Backend::start("web").await;
    objects.extend(served("web", &[web.address()]));
    let mut backends = Vec::new();
    for name in ["a", "b", "never"] {
        let backend = DatagramBackend::start(name).await;
        objects.extend(over_udp(served(name, &[backend.address()])));
        backends.push(backend);
    }
    objects.extend([
        on("UDPRoute", "udp", "udp", &[], &[("a", 1)]),
        on("TCPRoute", "tcp", "tcp", &[], &[("web", 1)]),
        on(
            "UDPRoute",
            "shared",
            "shared",
            &[],
            &[("a", 6), ("b", 2), ("never", 0), ("absent", 2)],
        ),
    ]);
    let agent = Setup::with_ports(&[53, 5301, 5302]).start(&[("all.yaml", &yaml(&objects))]);
    wait_answer(&agent, agent.address(53), "a: x").await;
    let mut checks = Checks::default();
    checks.backend(agent.get(53, "any.test", "/"), "web").await;
    for length in [1_501, 9_000, datagrams::LONGEST - "a: ".len()] {
        let message = "x".repeat(length);
        let answer = datagrams::ask(agent.address(53), &message, Duration::from_secs(5)).await;
        let answered = answer
            .map(|answer| answer.len())
            .map_err(|it| it.to_string());
        checks.same(
            format!("{length} bytes"),
            answered,
            Ok(length + "a: ".len()),
        );
    }

    let asked =
        (0..TRIES).map(|_| datagrams::ask(agent.address(5301), "x", Duration::from_secs(5)));
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for answer in futures::future::join_all(asked).await {
        let answer = answer.unwrap_or_else(|_| "dropped".to_owned());
        *seen.entry(answer).or_default() += 1;
    }
    let share = |name: &str| f64::from(seen.get(name).copied().unwrap_or(0)) / f64::from(TRIES);
    for (name, expected) in [("a: x", 0.6), ("b: x", 0.2), ("dropped", 0.2)] {
        checks.that(
            (share(name) - expected).abs() < 0.2,
            format_args!(
                "{name} has a share of {}, expected about {expected}: {seen:?}",
                share(name)
            ),
        );
    }
    checks.same("answers", seen.len(), 3);
    let none = datagrams::ask(agent.address(5302), "x", Duration::from_millis(200)).await;
    checks.that(none.is_err(), "a listener without a route answers");
    checks.finish();

    let moved = on("UDPRoute", "udp", "udp", &[], &[("b", 1)]);
    let position = objects
        .iter()
        .position(|object| object["metadata"]["name"] == "udp");
    objects[position.expect("the route exists")] = moved;
    agent.write("all.yaml", &yaml(&objects));
    wait_answer(&agent, agent.address(53), "b: x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_route_switches_backend_without_failed_connection() {
    let mut objects = edge(&[l4_listener("tcp", 5001, "TCP")]);
    let _backends = start_served(&["a", "b"], &mut objects).await;
    let route_to = |service: &str| {
        let rule = json!({"backendRefs": [backend_ref(service)]});
        yaml(&[route("TCPRoute", "switched", &[], &[rule])])
    };
    let agent = Setup::with_ports(&[5001]).start(&[
        ("gateway.yaml", &yaml(&objects)),
        ("route.yaml", &route_to("a")),
    ]);
    let request = agent.get(5001, "any.test", "/");
    let served_by = async |name: &str| {
        agent.wait_backend(&request, name).await;
    };
    served_by("a").await;
    let load = Load::start(&Plan {
        keep_alive: 0,
        ..Plan::new(vec![request.clone()])
    });
    for switch in 0..SWITCHES {
        let to = if switch % 2 == 0 { "b" } else { "a" };
        agent.write("route.yaml", &route_to(to));
        served_by(to).await;
    }
    load.stop().await.assert_clean();
}
