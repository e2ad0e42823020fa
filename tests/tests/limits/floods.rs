//! A flood on one listener must not kill a process or affect other listeners.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::datagrams::{self, DatagramBackend};
use sesame_tests::http2::Repeater;
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_route, l4_listener, on_listener, over_udp, route,
    rule_to, served, yaml,
};
use sesame_tests::processes::memory_mib;
use sesame_tests::wait::eventually;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

const FILES: &str = "--nofile=640:640";
/// Number of connections. Exceeds the limit, because each connection needs two descriptors.
const CONNECTIONS: usize = 700;
const DATAGRAMS: usize = 2_000;

fn limited() -> Setup {
    Setup::with_ports(&[80, 5001, 5301]).wrapper(&["prlimit", FILES])
}

fn envoy(agent: &AgentUnderTest) -> u32 {
    let envoys = agent.envoys();
    let [envoy] = envoys.as_slice() else {
        panic!("expected one Envoy: {envoys:?}");
    };
    envoy.pid.try_into().expect("a process id")
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

async fn answers(request: &Request) {
    eventually(
        "the other listener answers",
        TEST_TIMEOUT,
        async || match request.send().await {
            Ok(reply) if reply.status == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_do_not_affect_other_clients() {
    let web = Backend::start("web").await;
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let bytes = silent.local_addr().expect("the socket is bound");
    let held = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = silent.accept().await {
            held.push(connection);
        }
    });
    let dns = DatagramBackend::start("dns").await;
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        l4_listener("tcp", 5001, "TCP"),
        l4_listener("udp", 5301, "UDP"),
    ]);
    objects.extend(served("web", &[web.address()]));
    objects.extend(served("bytes", &[bytes]));
    objects.extend(over_udp(served("dns", &[dns.address()])));
    let to = |service| json!({"backendRefs": [backend_ref(service)]});
    objects.extend([
        on_listener(http_route("web", &[], &[rule_to("web", &[])]), "http"),
        on_listener(route("TCPRoute", "bytes", &[], &[to("bytes")]), "tcp"),
        on_listener(route("UDPRoute", "dns", &[], &[to("dns")]), "udp"),
    ]);
    let agent = limited().start(&[("all.yaml", &yaml(&objects))]);
    let get = agent.get(80, "web.test", "/");
    agent.wait_ok(&get).await;
    let asked = async || datagrams::ask(agent.address(5301), "x", Duration::from_secs(1)).await;
    eventually("a datagram is answered", TEST_TIMEOUT, async || {
        asked()
            .await
            .map(drop)
            .map_err(|error| format!("{error:#}"))
    })
    .await;
    let before = envoy(&agent);

    let address = agent.address(5001);
    let flood = join_all((0..CONNECTIONS).map(async |_| {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(b"x").await.ok()?;
        Some(stream)
    }));
    let flood: Vec<Option<TcpStream>> = flood.await;
    for _ in 0..10 {
        answers(&get).await;
    }
    assert_eq!(envoy(&agent), before, "the same Envoy");
    assert!(descriptors(before) < 560, "{}", descriptors(before));

    flood_with_datagrams(agent.address(5301)).await;
    for _ in 0..10 {
        answers(&get).await;
    }
    assert_eq!(envoy(&agent), before, "the same Envoy");
    assert!(descriptors(before) < 600, "{}", descriptors(before));
    agent.wait_healthy().await;
    drop(flood);
    held.abort();
}

/// Sends each datagram from a new port, slowly enough for Envoy to read most of them.
async fn flood_with_datagrams(address: SocketAddr) {
    for _ in 0..DATAGRAMS / 50 {
        for _ in 0..50 {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
                .await
                .expect("a port");
            // The kernel's buffer may be full.
            let _ = socket.send_to(b"x", address).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_refuses_to_start_with_few_descriptors() {
    let mut agent = Setup::with_ports(&[80])
        .wrapper(&["prlimit", "--nofile=400:400"])
        .start(&[("all.yaml", &yaml(&edge(&[http_listener("http", 80, "")])))]);
    eventually("the agent exits", TEST_TIMEOUT, async || {
        agent
            .ended()
            .map(drop)
            .ok_or_else(|| "the agent is still running".to_owned())
    })
    .await;
    let log = agent.log_tail();
    assert!(
        log.contains("400 files") && log.contains("LimitNOFILE="),
        "{log}"
    );
}

const HEAP_MIB: u32 = 128;
/// Allowance for headers that Envoy decodes between two heap checks. Without the heap limit, Envoy
/// would use 700 MiB.
const BESIDE_MIB: f64 = 400.0;

#[tokio::test(flavor = "multi_thread")]
async fn repeated_headers_do_not_fill_memory() {
    let web = Backend::start("web").await;
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let nobody = silent.local_addr().expect("the socket is bound");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("web", &[web.address()]));
    // The kernel accepts connections to this backend, but no process reads them.
    objects.extend(served("silent", &[nobody]));
    objects.push(http_route("web", &["web.test"], &[rule_to("web", &[])]));
    objects.push(http_route(
        "held",
        &["held.test"],
        &[rule_to("silent", &[])],
    ));
    let agent = limited()
        .wrapper(&["prlimit", "--nofile=2000:2000"])
        .flag(&format!("--envoy-heap-mib={HEAP_MIB}"))
        .start(&[("all.yaml", &yaml(&objects))]);
    let get = agent.get(80, "web.test", "/");
    agent.wait_ok(&get).await;
    let before = envoy(&agent);

    // A few compressed kilobytes expand to a hundred copies of 26 KiB of headers.
    let address = agent.address(80);
    let mut attack: Vec<Repeater> = Vec::new();
    for _ in 0..15 {
        // Envoy decodes all received data before it applies its limits.
        let wave = (0..10).map(|_| Repeater::open(address, "held.test", 100, 7));
        attack.extend(join_all(wave).await.into_iter().flatten());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Envoy has sent at least a SETTINGS frame on every open connection.
    join_all(attack.iter_mut().map(Repeater::answered)).await;
    // Once Envoy closes the silent connections, it serves other requests again.
    answers(&get).await;
    assert_eq!(envoy(&agent), before, "the same Envoy");
    let (_, most) = memory_mib(before);
    assert!(
        most < f64::from(HEAP_MIB) + BESIDE_MIB,
        "Envoy held {most} MiB"
    );
    drop((attack, silent));
}
