//! AccessPolicies for TLSRoutes, TCPRoutes and UDPRoutes on a real Envoy.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::datagrams::{self, DatagramBackend};
use sesame_tests::manifests::{
    access_policy, backend_ref, edge, l4_listener, on_listener, over_udp, route, served,
    tls_listener, yaml,
};
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LOCAL: [&str; 2] = ["127.0.0.0/8", "::1/128"];
const ELSEWHERE: [&str; 1] = ["192.0.2.0/24"];

fn filter(allow: &[&str], deny: &[&str]) -> Value {
    json!({"ipFilter": {"allow": allow, "deny": deny}})
}

fn on(kind: &str, name: &str, listener: &str, hostnames: &[&str], backend: &str) -> Value {
    let rule = json!({"name": "only", "backendRefs": [backend_ref(backend)]});
    on_listener(route(kind, name, hostnames, &[rule]), listener)
}

fn target(kind: &str, name: &str) -> Value {
    json!({"kind": kind, "name": name})
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_route_closes_connections_of_denied_clients() {
    let theirs = Authority::new("backends");
    let names = ["open.test", "in.test", "out.test", "wrong.test"];
    let leaf = theirs.issue(&names);
    let mut objects = edge(&[tls_listener("pass", 443, "", None)]);
    let backend = Backend::start_tls("a", &leaf).await;
    objects.extend(served("a", &[backend.address()]));
    // A route for all names must not get the connections that another route denies.
    objects.push(on("TLSRoute", "open", "pass", &["*.test"], "a"));
    for (name, spec) in [
        ("in", filter(&LOCAL, &["127.255.0.0/16"])),
        ("out", filter(&ELSEWHERE, &[])),
        ("wrong", filter(&["127.0.0.1"], &[])),
    ] {
        let host = format!("{name}.test");
        objects.push(on("TLSRoute", name, "pass", &[&host], "a"));
        objects.push(access_policy(name, target("TLSRoute", name), &spec));
    }
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&objects))]);
    let through = |sni: &str| agent.get(443, sni, "/").tls(sni, &theirs.trust());
    agent.wait_ok(&through("open.test")).await;
    let mut checks = Checks::default();
    checks.backend(through("in.test"), "a").await;
    for name in ["out.test", "wrong.test"] {
        let reply = through(name).send().await;
        checks.that(reply.is_err(), format_args!("{name}: {reply:?}"));
    }
    checks.finish();
}

/// Starts a server that sends a greeting before it reads anything. Returns its address.
async fn start_greeter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _sent = stream.write_all(b"hello").await;
                let _closed = stream.read(&mut [0; 16]).await;
            });
        }
    });
    address
}

/// Returns the server's first bytes. The client sends none.
async fn greeting(address: SocketAddr) -> String {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return "refused".to_owned();
    };
    let mut buffer = [0; 16];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut buffer)).await;
    match read {
        Ok(Ok(0) | Err(_)) => "closed".to_owned(),
        Ok(Ok(length)) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
        Err(_) => "silent".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_tcp_client_gets_no_bytes() {
    let mut objects = edge(&[
        l4_listener("open", 5000, "TCP"),
        l4_listener("in", 5001, "TCP"),
        l4_listener("out", 5002, "TCP"),
        l4_listener("denied", 5003, "TCP"),
        l4_listener("wrong", 5004, "TCP"),
        l4_listener("exempt", 5005, "TCP"),
    ]);
    let greeter = start_greeter().await;
    objects.extend(served("greeter", &[greeter]));
    let _backends = start_served(&["web"], &mut objects).await;
    let mut section = target("TCPRoute", "out");
    section["sectionName"] = json!("only");
    let wrong = json!({"ipFilter": {"allowRefs": [{"name": "none"}]}});
    for (name, target, spec) in [
        ("in", target("TCPRoute", "in"), filter(&LOCAL, &[])),
        ("out", section, filter(&ELSEWHERE, &[])),
        ("denied", target("TCPRoute", "denied"), filter(&[], &LOCAL)),
        ("wrong", target("TCPRoute", "wrong"), wrong),
    ] {
        objects.push(access_policy(name, target, &spec));
    }
    let mut gateway = filter(&ELSEWHERE, &[]);
    gateway["exemptions"] = json!([{"kind": "TCPRoute", "name": "exempt"}]);
    for name in ["in", "out", "denied", "wrong", "exempt"] {
        objects.push(on("TCPRoute", name, name, &[], "greeter"));
    }
    objects.push(on("TCPRoute", "open", "open", &[], "web"));
    let ports = [5000, 5001, 5002, 5003, 5004, 5005];
    let agent = Setup::with_ports(&ports).start(&[("all.yaml", &yaml(&objects))]);
    let get = agent.get(5000, "any.test", "/");
    agent.wait_ok(&get).await;
    let mut checks = Checks::default();
    for (port, expected) in [
        (5001, "hello"),
        (5002, "closed"),
        (5003, "closed"),
        (5004, "closed"),
        (5005, "hello"),
    ] {
        let found = greeting(agent.address(port)).await;
        checks.same(format!("port {port}"), &*found, expected);
    }
    checks.finish();

    // A policy on the Gateway also protects routes that have no policy.
    objects.push(access_policy(
        "all",
        json!({"kind": "Gateway", "name": "edge"}),
        &gateway,
    ));
    agent.write("all.yaml", &yaml(&objects));
    eventually("a closed port", TEST_TIMEOUT, async || {
        match get.send().await {
            Err(_) => Ok(()),
            Ok(reply) => Err(format!("{reply:?}\n{}", agent.log_tail())),
        }
    })
    .await;
    // Envoy replaces each listener on its own.
    for (port, expected) in [(5001, "closed"), (5005, "hello")] {
        eventually(expected, TEST_TIMEOUT, async || {
            let found = greeting(agent.address(port)).await;
            holds(&*found == expected, || format!("port {port}: {found}"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn udp_route_drops_datagrams_of_denied_clients() {
    let listeners = ["in", "out", "both", "wrong"];
    let ports = [5301, 5302, 5303, 5304];
    let mut objects = edge(&[
        l4_listener("in", 5301, "UDP"),
        l4_listener("out", 5302, "UDP"),
        l4_listener("both", 5303, "UDP"),
        l4_listener("wrong", 5304, "UDP"),
    ]);
    let backend = DatagramBackend::start("a").await;
    objects.extend(over_udp(served("a", &[backend.address()])));
    for (name, spec) in [
        ("in", filter(&LOCAL, &[])),
        ("out", filter(&ELSEWHERE, &[])),
        ("both", filter(&LOCAL, &LOCAL)),
        ("wrong", filter(&["127.0.0.1"], &[])),
    ] {
        objects.push(access_policy(name, target("UDPRoute", name), &spec));
    }
    for name in listeners {
        objects.push(on("UDPRoute", name, name, &[], "a"));
    }
    let agent = Setup::with_ports(&ports).start(&[("all.yaml", &yaml(&objects))]);
    let ask = async |port: u16| {
        let answer = datagrams::ask(agent.address(port), "x", Duration::from_millis(500)).await;
        answer.unwrap_or_else(|_| "dropped".to_owned())
    };
    eventually("an answer", TEST_TIMEOUT, async || {
        match ask(5301).await.as_str() {
            "a: x" => Ok(()),
            other => Err(format!("{other}\n{}", agent.log_tail())),
        }
    })
    .await;
    let mut checks = Checks::default();
    for port in [5302, 5303, 5304] {
        checks.same(format!("port {port}"), &*ask(port).await, "dropped");
    }
    checks.finish();
}
