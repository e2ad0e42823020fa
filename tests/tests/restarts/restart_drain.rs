//! Draining a host, and undoing a drain. A draining host must not refuse connections.

use std::net::SocketAddr;
use std::process::Output;

use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, words};
use sesame_tests::backend::Backend;
use sesame_tests::client::{Reply, Request};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};
use sesame_tests::ports::free_port;

async fn drain(agent: &AgentUnderTest, arguments: &[&str]) -> Output {
    agent.order(&[&["drain"], arguments].concat()).await
}

async fn ready(health: SocketAddr) -> Option<u16> {
    let reply = Request::get(health, "health", "/readyz").send().await;
    reply.ok().map(|reply| reply.status)
}

async fn wait_ready(health: SocketAddr, wanted: u16) {
    sesame_tests::wait::eventually("readiness", TEST_TIMEOUT, async || {
        let status = ready(health).await;
        if status == Some(wanted) {
            Ok(())
        } else {
            Err(format!("{status:?}, expected {wanted}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_host_is_unready_but_still_serves() {
    let health = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let backend = Backend::start("a").await;
    objects.extend(served("app", &[backend.address()]));
    objects.push(http_route("app", &["drain.test"], &[rule_to("app", &[])]));
    let mut agent = Setup::with_ports(&[80])
        .flag(&format!("--health-address={health}"))
        .start(&[("all.yaml", &yaml(&objects))]);
    wait_ready(health, 200).await;
    let request = agent.get(80, "drain.test", "/");
    agent.wait_ok(&request).await;

    let load = Load::start(&Plan::new(vec![request]));
    // Active clients delay the end of the drain.
    let output = drain(
        &agent,
        &[
            "--lame-duck",
            "0",
            "--timeout",
            "1",
            "--until-connections",
            "0",
        ],
    )
    .await;
    wait_ready(health, 503).await;
    load.pass(100).await;
    assert!(
        words(&output).contains("asking clients to disconnect") || output.status.success(),
        "{}",
        words(&output)
    );
    let output = drain(&agent, &["--undo"]).await;
    assert!(output.status.success(), "{}", words(&output));
    wait_ready(health, 200).await;
    load.pass(100).await;
    load.stop().await.assert_clean();

    // Idle connections count as open.
    let idle = tokio::net::TcpStream::connect(agent.address(80))
        .await
        .expect("connect");
    let output = drain(&agent, &["--lame-duck", "0", "--timeout", "2"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(
        words(&output).contains("1 connections remain"),
        "{}",
        words(&output)
    );
    let output = drain(&agent, &["--lame-duck", "0", "--until-connections", "1"]).await;
    assert!(output.status.success(), "{}", words(&output));
    drop(idle);
    let output = drain(&agent, &["--lame-duck", "0"]).await;
    assert!(output.status.success(), "{}", words(&output));
    wait_ready(health, 503).await;
    let alive = Request::get(health, "health", "/livez")
        .send()
        .await
        .expect("an answer");
    assert_eq!(alive.status, 200);

    let request = agent.get(80, "drain.test", "/");
    let asked_to_go = |reply: &Reply| reply.header("connection").is_some_and(|c| c == "close");
    agent.wait_served(&request, asked_to_go).await;
    assert!(agent.stop().success(), "{}", agent.log_tail());
    agent.wait_served(&request, asked_to_go).await;
    agent.restart();
    wait_ready(health, 200).await;
    agent
        .wait_served(&request, |reply| !asked_to_go(reply))
        .await;
}
