//! Gateways that share a host's addresses. Each keeps its address when others come and go.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, gateway, http_listener, http_route, rule_to, served, yaml};
use sesame_tests::wait::{eventually, holds};

fn another(name: &str) -> String {
    let mut gateway = gateway(name, &[http_listener("http", 80, "")]);
    gateway["spec"]["gatewayClassName"] = json!("edge");
    yaml(&[gateway])
}

async fn wait_addresses(agent: &AgentUnderTest, expected: &[(&str, &str)]) {
    let expected: BTreeMap<String, Value> = expected
        .iter()
        .map(|(name, address)| (format!("default/{name}"), json!([address])))
        .collect();
    agent
        .wait_status("each Gateway listens on its address", |status| {
            let all = status["gateways"].as_array().into_iter().flatten();
            let found: BTreeMap<String, Value> = all
                .filter(|gateway| gateway["state"] == "Serving")
                .map(|gateway| {
                    let name = gateway["gateway"].as_str().unwrap_or_default();
                    (name.to_owned(), gateway["addresses"].clone())
                })
                .collect();
            found == expected
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_keeps_address_through_other_gateways_and_restart() {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("r", &["here.test"], &[rule_to("a", &[])]));
    // The name `edge` sorts between the names of the other two Gateways.
    let mut agent = Setup::with_ports(&[80])
        .flag("--address")
        .flag("127.0.0.2")
        .flag("--address")
        .flag("127.0.0.3")
        .start(&[("gateway.yaml", &yaml(&objects)), ("z.yaml", &another("z"))]);
    wait_addresses(&agent, &[("edge", "127.0.0.1"), ("z", "127.0.0.2")]).await;
    let request = agent.get(80, "here.test", "/");
    agent.wait_ok(&request).await;

    let load = Load::start(&Plan::new(vec![request]));
    load.pass(100).await;
    agent.write("a.yaml", &another("a"));
    let three = [
        ("a", "127.0.0.3"),
        ("edge", "127.0.0.1"),
        ("z", "127.0.0.2"),
    ];
    wait_addresses(&agent, &three).await;
    agent.remove("z.yaml");
    wait_addresses(&agent, &three[..2]).await;
    agent.wait_stored().await;
    agent.kill9();
    agent.restart();
    wait_addresses(&agent, &three[..2]).await;
    // `z` must get its address back.
    agent.write("z.yaml", &another("z"));
    wait_addresses(&agent, &three).await;
    let at: SocketAddr = ([127, 0, 0, 2], agent.address(80).port()).into();
    eventually(
        "the Gateway responds at its address",
        TEST_TIMEOUT,
        async || {
            let reply = Request::get(at, "here.test", "/").send().await;
            let reply = reply.map_err(|error| format!("{error:#}"))?;
            holds(reply.status == 404, || format!("status {}", reply.status))
        },
    )
    .await;
    load.pass(100).await;
    load.stop().await.assert_clean();

    // The deleted Gateways' private keys must be deleted, too.
    agent.remove("a.yaml");
    agent.remove("z.yaml");
    for directory in [agent.runtime(), agent.state()] {
        eventually("only one Gateway has files", TEST_TIMEOUT, async || {
            let all = std::fs::read_dir(directory.join("gateways")).map_err(|e| e.to_string())?;
            let count = all.count();
            holds(count == 1, || format!("{count} directories"))
        })
        .await;
    }
}
