//! Several Gateways on one host, both families, and ports that are others outside.

#![allow(clippy::expect_used, reason = "all of it is test code")]

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::manifests::{
    gateway, gateway_class, http_listener, http_route, rule_to, served, yaml,
};

/// A Gateway of the class `edge`, at this address if any.
fn at(name: &str, address: Option<&str>) -> Value {
    let mut gateway = gateway(name, &[http_listener("http", 80, "")]);
    gateway["spec"]["gatewayClassName"] = json!("edge");
    if let Some(address) = address {
        gateway["spec"]["addresses"] = json!([{"type": "IPAddress", "value": address}]);
    }
    gateway
}

/// A route of a Gateway to the Service of the same name, and one that redirects.
fn routes(name: &str) -> Vec<Value> {
    let redirect = json!({
        "matches": [{"path": {"type": "Exact", "value": "/away"}}],
        "filters": [{"type": "RequestRedirect", "requestRedirect": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/there"}}}],
    });
    let mut route = http_route(name, &["own.test"], &[redirect, rule_to(name, &[])]);
    route["spec"]["parentRefs"] = json!([{"name": name}]);
    vec![route]
}

fn ask(agent: &AgentUnderTest, ip: &str, path: &str) -> Request {
    let ip: IpAddr = ip.parse().expect("an address");
    Request::get(
        SocketAddr::new(ip, agent.address(80).port()),
        "own.test",
        path,
    )
}

async fn serves(agent: &AgentUnderTest, ip: &str, backend: &str) {
    let request = ask(agent, ip, "/");
    agent
        .wait_served(&request, |reply| {
            reply.backend().as_deref() == Some(backend)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_have_an_envoy_and_an_address_each() {
    let mut objects = vec![gateway_class("edge")];
    let mut backends = Vec::new();
    for (name, address) in [("one", "127.0.0.2"), ("two", "127.0.0.3")] {
        let backend = Backend::start(name).await;
        objects.push(at(name, Some(address)));
        objects.extend(served(name, &[backend.address()]));
        objects.extend(routes(name));
        backends.push(backend);
    }
    let agent = Setup::with_ports(&[80])
        .flag("--address=127.0.0.2,127.0.0.3")
        .start(&[("all.yaml", &yaml(&objects))]);
    serves(&agent, "127.0.0.2", "one").await;
    serves(&agent, "127.0.0.3", "two").await;
    assert_eq!(agent.envoys().len(), 2);
    // One port, seen from outside as 80, which a redirect does not name.
    let reply = ask(&agent, "127.0.0.2", "/away")
        .send()
        .await
        .expect("an answer");
    assert_eq!(reply.header("location"), Some("http://own.test/there"));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_families_are_listened_to() {
    if std::fs::read_to_string("/proc/net/if_inet6")
        .unwrap_or_default()
        .is_empty()
    {
        eprintln!("this host has no IPv6");
        return;
    }
    let backend = Backend::start("one").await;
    let mut objects = vec![gateway_class("edge"), at("one", None)];
    objects.extend(served("one", &[backend.address()]));
    objects.extend(routes("one"));
    let agent = Setup::with_ports(&[80])
        .flag("--address=::1")
        .start(&[("all.yaml", &yaml(&objects))]);
    serves(&agent, "127.0.0.1", "one").await;
    serves(&agent, "::1", "one").await;
}
