//! Long-lived connections and datagrams while Envoy is replaced.

use std::time::{Duration, Instant};

use serde_json::json;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::datagrams::{self, DatagramBackend};
use sesame_tests::manifests::{
    edge, l4_listener, on_listener, over_udp, route, served, weighted_ref, yaml,
};
use sesame_tests::streams::echo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn ping(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"ping").await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await.map(|_| ())
}

async fn restart(agent: &AgentUnderTest, strategy: &str) {
    let output = agent.replace_envoy(strategy).await;
    assert!(output.status.success(), "{}", agent.log_tail());
}

async fn endures(strategy: &str) {
    let mut objects = edge(&[
        l4_listener("tcp", 5001, "TCP"),
        l4_listener("udp", 53, "UDP"),
    ]);
    let datagram_backend = DatagramBackend::start("d").await;
    objects.extend(served("echo", &[echo(None).await]));
    objects.extend(over_udp(served("d", &[datagram_backend.address()])));
    for (kind, name, listener) in [("TCPRoute", "echo", "tcp"), ("UDPRoute", "d", "udp")] {
        let rule = json!({"backendRefs": [weighted_ref(name, 1)]});
        objects.push(on_listener(route(kind, name, &[], &[rule]), listener));
    }
    let agent = Setup::with_ports(&[5001, 53])
        // Longer than a busy machine may stall a test.
        .flag("--drain-seconds=5")
        .start(&[("all.yaml", &yaml(&objects))]);
    let (tcp, udp) = (agent.address(5001), agent.address(53));
    agent
        .wait_status("the Gateway is serving", |status| {
            status["gateways"][0]["state"] == "Serving"
        })
        .await;
    let mut stream = sesame_tests::wait::eventually("a stream", TEST_TIMEOUT, async || {
        let mut stream = TcpStream::connect(tcp).await.map_err(|e| e.to_string())?;
        ping(&mut stream).await.map_err(|e| e.to_string())?;
        Ok(stream)
    })
    .await;
    // A datagram without a timely response counts as lost.
    let asking = tokio::spawn(async move {
        let (mut sent, mut lost) = (0u32, 0u32);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            let answer = datagrams::ask(udp, "x", Duration::from_millis(500)).await;
            sent += 1;
            lost += u32::from(answer.is_err());
        }
        (sent, lost)
    });
    restart(&agent, strategy).await;
    let start = Instant::now();
    ping(&mut stream)
        .await
        .expect("the restart itself does not cut the stream");
    let mut fresh = TcpStream::connect(tcp).await.expect("connect");
    ping(&mut fresh).await.expect("a new stream");
    while ping(&mut stream).await.is_ok() && start.elapsed() < TEST_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let cut = start.elapsed();
    let (sent, lost) = asking.await.expect("the task does not panic");
    eprintln!(
        "{strategy}: the old stream was cut {cut:?} after the restart (drain time 5 s); {lost} of {sent} datagrams were lost"
    );
    assert!(cut < TEST_TIMEOUT, "the stream is never cut");
    assert!(lost * 10 < sent, "{lost} of {sent} datagrams were lost");
    let mut fresh = TcpStream::connect(tcp).await.expect("connect");
    ping(&mut fresh).await.expect("a new stream");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_hot_restart_for_drain_time() {
    endures("hot").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_outlive_a_handover_by_the_drain_time() {
    endures("handover").await;
}
