//! Several Gateways on one host, with IPv4, IPv6 and mapped ports.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::manifests::{
    gateway, gateway_class, http_listener, http_route, rule_to, served, yaml,
};

fn at(name: &str, address: Option<&str>) -> Value {
    let mut gateway = gateway(name, &[http_listener("http", 80, "")]);
    gateway["spec"]["gatewayClassName"] = json!("edge");
    if let Some(address) = address {
        gateway["spec"]["addresses"] = json!([{"type": "IPAddress", "value": address}]);
    }
    gateway
}

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
    agent.wait_backend(&request, backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_gateway_has_its_own_envoy_and_address() {
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
    // Clients use port 80, so the redirect contains no port.
    let reply = ask(&agent, "127.0.0.2", "/away")
        .send()
        .await
        .expect("an answer");
    assert_eq!(reply.header("location"), Some("http://own.test/there"));
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_accept_both_address_families() {
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

/// Creates interfaces as on a node with Pods.
const NODE: &str = r#"
mount -t sysfs none /sys &&
ip link set lo up &&
ip link add eth0 type veth peer name far && ip link set far up && ip link set eth0 up &&
ip address add 203.0.113.7/24 dev eth0 && ip route add default via 203.0.113.1 &&
ip link add cni0 type bridge && ip link set cni0 up && ip address add 10.244.0.1/24 dev cni0 &&
ip link add pod0 type veth peer name inner && ip link set pod0 master cni0 && ip link set pod0 up &&
ip address add 10.244.1.1/32 dev pod0 &&
exec "$0" "$@""#;

async fn reported_addresses(flags: &[&str]) -> Value {
    let unshare = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "sh",
        "-c",
        NODE,
    ];
    let mut setup = Setup::with_ports(&[80]).everywhere().wrapper(&unshare);
    for flag in flags {
        setup = setup.flag(flag);
    }
    let objects = yaml(&[gateway_class("edge"), at("one", None)]);
    let agent = setup.start(&[("all.yaml", &objects)]);
    let gateway = |status: &Value| {
        let objects = status["objects"].as_array().into_iter().flatten();
        let mut gateways = objects.filter(|object| object["kind"] == "Gateway");
        gateways
            .next()
            .map(|gateway| gateway["status"]["addresses"].clone())
    };
    let status = agent
        .wait_status("the Gateway reports its address", |status| {
            gateway(status).is_some_and(|all| all.as_array().is_some_and(|all| !all.is_empty()))
        })
        .await;
    gateway(&status).expect("a Gateway")
}

#[tokio::test(flavor = "multi_thread")]
async fn only_reachable_addresses_are_reported() {
    let address = |ip: &str| json!([{"type": "IPAddress", "value": ip}]);
    assert_eq!(reported_addresses(&[]).await, address("203.0.113.7"));
    let flags = ["--report-address=198.51.100.9"];
    assert_eq!(reported_addresses(&flags).await, address("198.51.100.9"));
}
