//! Ports that the agent chooses (`--port-map 80:free`).

use std::net::{Ipv4Addr, SocketAddr};

use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::manifests::numbered;
use sesame_tests::wait::eventually;

const HOST: &str = "free.test";

/// Returns the address of the only open port in the status.
fn opened(agent: &AgentUnderTest) -> Result<SocketAddr, String> {
    let status = agent.status().ok_or("no status")?;
    let ports = &status["gateways"][0]["openPorts"];
    let port = ports[0].as_str().and_then(|port| port.strip_prefix("TCP/"));
    let port = port.and_then(|port| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| format!("{status:#}"))?;
    Ok((Ipv4Addr::LOCALHOST, port).into())
}

async fn served_at(agent: &AgentUnderTest, number: usize) -> SocketAddr {
    eventually("the chosen port serves", TEST_TIMEOUT, async || {
        let address = opened(agent)?;
        let request = Request::get(address, HOST, &format!("/{number}"));
        let reply = request.send().await.map_err(|error| format!("{error:#}"))?;
        if reply.status == 200 {
            Ok(address)
        } else {
            Err(format!("{address}: {}", reply.status))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn free_port_is_kept_over_restarts() {
    let backend = Backend::start("a").await;
    let flag = "--port-map=80:free";
    let setup = Setup::with_ports(&[]).flag(flag);
    let mut agent = setup.start(&[("all.yaml", &numbered(HOST, 1, backend.address()))]);
    let first = served_at(&agent, 1).await;
    agent.restart();
    assert_eq!(served_at(&agent, 1).await, first);
    // Clients and packet filters use the port, so it must stay the same even if no Envoy runs.
    agent.kill9();
    agent.kill9_envoy();
    agent.restart();
    assert_eq!(served_at(&agent, 1).await, first);
}
