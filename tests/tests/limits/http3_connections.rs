//! The limit of each HTTPS listener's connections over HTTP/3.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::json;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::http3::Connection;
use sesame_tests::manifests::{edge_with, https_listener, plain_route, yaml};
use sesame_tests::wait::{eventually, holds};

/// Leaves a host 120 client connections. A quarter of these is the limit.
const FILES: &str = "--nofile=512:512";
const LIMIT: usize = 30;
/// A connection beyond the limit has no answer. Shorter than the clients' idle timeout.
const PATIENCE: Duration = Duration::from_secs(5);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HOSTS: [&str; 2] = ["a.test", "b.test"];

async fn open(
    agent: &AgentUnderTest,
    host: &str,
    servers: &Authority,
) -> Result<Connection, String> {
    let trust = servers.trust();
    let served = async {
        let mut connection = Connection::open(LOCAL, agent.address(443), host, &trust).await?;
        anyhow::Ok((connection.get(host, "/").await?.status, connection))
    };
    match tokio::time::timeout(PATIENCE, served).await {
        Ok(Ok((200, connection))) => Ok(connection),
        Ok(Ok((status, _))) => Err(format!("status {status}")),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(_) => Err("no answer".to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_listener_limits_its_http3_connections() {
    let servers = Authority::new("gateway");
    let settings = json!({"edge": {"http3": {}}});
    let listeners = HOSTS.map(|host| https_listener(&host[..1], 443, host, "cert"));
    let mut all = edge_with(&settings, &listeners);
    let _backends = start_served(&["web"], &mut all).await;
    all.push(servers.issue(&HOSTS).secret("cert"));
    all.extend(HOSTS.map(|host| plain_route(&host[..1], host, "web")));
    let setup = Setup::with_ports(&[443]).wrapper(&["prlimit", FILES]);
    let agent = setup.start(&[("all.yaml", &yaml(&all))]);
    let first = eventually("HTTP/3", TEST_TIMEOUT, async || {
        open(&agent, HOSTS[0], &servers).await
    });
    let mut held = vec![first.await];

    while held.len() < LIMIT {
        held.push(
            open(&agent, HOSTS[0], &servers)
                .await
                .expect("within the limit"),
        );
    }
    let excess = open(&agent, HOSTS[0], &servers).await;
    assert!(excess.is_err(), "a connection beyond the limit");
    // Established connections, other listeners and TCP are still served.
    for connection in &mut held {
        let reply = connection.get(HOSTS[0], "/").await.expect("a reply");
        assert_eq!(reply.status, 200);
    }
    open(&agent, HOSTS[1], &servers)
        .await
        .expect("the other listener");
    let over_tcp = agent
        .get(443, HOSTS[0], "/")
        .tls(HOSTS[0], &servers.trust());
    assert_eq!(over_tcp.send().await.expect("a reply").status, 200);

    held.truncate(LIMIT - 1);
    eventually(
        "a closed connection frees its place",
        TEST_TIMEOUT,
        async || {
            let opened = open(&agent, HOSTS[0], &servers).await;
            holds(opened.is_ok(), || opened.err().unwrap_or_default())
        },
    )
    .await;
}
