//! A load balancer in front of a managed fleet with `externalTrafficPolicy: Local`. The load
//! balancer uses kube-proxy's health checks, and Envoy must see the client's address.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::client::Request;
use sesame_tests::cloud::StandInCloud;
use sesame_tests::manifests::{class_with_parameters, gateway, http_listener};
use tokio::task::JoinHandle;

use crate::kubectl::Kubectl;
use crate::node::ok;
use crate::objects::{get, route};
use crate::stage::{Stage, answers, load};

const NAME: &str = "balanced";
const PORT: u16 = 8090;
/// No machine has this address, but nodes accept traffic for it.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 100);
/// Source address of this program's requests to nodes.
const CLIENT: &str = "10.77.0.1";
const NAMESPACE: &str = "--namespace=default";
const LABEL: &str = "example.com/balanced";
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let cloud = StandInCloud::with_client(stage.control_plane.administrator());
    cloud.give(json!([{"ip": ADDRESS.to_string()}]));
    label(stage, 0, true);
    kubectl.apply(&objects());
    let checks = health_checks(stage).await;
    health(checks[0], 200).await;
    health(checks[1], 503).await;
    let addressed = [
        "wait",
        "--for=jsonpath={.status.addresses[0].value}=10.77.0.100",
        "gateway/balanced",
        NAMESPACE,
        "--timeout=1s",
    ];
    kubectl
        .until_ok("the Gateway has the address", &addressed)
        .await;
    let balancer = Balancer::start(stage, &checks);
    let address = SocketAddr::new(IpAddr::V4(ADDRESS), PORT);
    answers(address, "/always").await;
    assert_eq!(client(address).await, CLIENT, "at the first node");
    let load = load(&[address]);
    load.pass(100).await;

    label(stage, 1, true);
    health(checks[1], 200).await;
    load.pass(100).await;
    drained(&kubectl, "node1");
    health(checks[0], 503).await;
    label(stage, 0, false);
    let gone = |kubectl: &Kubectl| {
        let left = pods(kubectl, "node1");
        left.is_empty().then_some(()).ok_or(format!("{left:?}"))
    };
    kubectl.until("the node's Pods are deleted", gone).await;
    load.pass(200).await;
    assert_eq!(client(address).await, CLIENT, "at the second node");
    label(stage, 0, true);
    health(checks[0], 200).await;
    load.pass(200).await;
    load.stop().await.clean("nodes: load balancer, Local");

    drop(balancer);
    drop(cloud);
    kubectl.ok(&[
        "delete",
        "gateway/balanced",
        "httproute/balanced",
        NAMESPACE,
    ]);
    let gone = |kubectl: &Kubectl| {
        let left = [pods(kubectl, "node1"), pods(kubectl, "node2")].concat();
        left.is_empty().then_some(()).ok_or(format!("{left:?}"))
    };
    kubectl.until("the fleet is deleted", gone).await;
    kubectl.ok(&["delete", "gatewayclass/balanced"]);
    kubectl.ok(&["delete", "sesameconfiguration/balanced", NAMESPACE]);
    label(stage, 0, false);
    label(stage, 1, false);
}

async fn client(address: SocketAddr) -> String {
    let reply = get(address, "/always").send().await.expect("an answer");
    let answer: Value = serde_json::from_slice(&reply.body).expect("the backend answers with JSON");
    let from = &answer["headers"]["X-Forwarded-For"][0];
    from.as_str().unwrap_or_default().to_owned()
}

fn drained(kubectl: &Kubectl, node: &str) {
    let pod = pods(kubectl, node)
        .into_iter()
        .find(|name| name.contains("-agent-"))
        .expect("the node has an agent");
    let exec = ["exec", &pod, NAMESPACE, "--container=agent", "--"];
    let drain = ["sesame-agent", "drain", "--lame-duck=10", "--timeout=60"];
    kubectl.ok(&[&exec[..], &drain[..]].concat());
}

fn pods(kubectl: &Kubectl, node: &str) -> Vec<String> {
    let label = "--selector=gateway.networking.k8s.io/gateway-name=balanced";
    let field = format!("--field-selector=spec.nodeName={node}");
    let pods = kubectl.get(&["pods", NAMESPACE, label, &field]);
    let items = pods["items"].as_array().cloned().unwrap_or_default();
    let names = items.iter().map(|pod| pod["metadata"]["name"].as_str());
    names.flatten().map(str::to_owned).collect()
}

async fn health_checks(stage: &Stage) -> Vec<SocketAddr> {
    let look = |kubectl: &Kubectl| {
        let service = [
            "get",
            "service/balanced-balanced",
            NAMESPACE,
            "--output=json",
        ];
        let found = kubectl.run(&service, "");
        let service: Value = serde_json::from_slice(&found.stdout).unwrap_or_default();
        let port = service["spec"]["healthCheckNodePort"].as_u64();
        let port = port.and_then(|port| u16::try_from(port).ok());
        port.filter(|port| *port > 0).ok_or(format!("{service}"))
    };
    let what = "the Service has a health check port";
    let port = stage.kubectl.until(what, look).await;
    stage.nodes.iter().map(|node| node.at(port)).collect()
}

async fn health(check: SocketAddr, status: u16) {
    let what = format!("the health check at {check} returns {status}");
    sesame_tests::wait::eventually(&what, crate::kubectl::TIMEOUT, async || {
        match asked(check).await {
            Some(answer) if answer == status => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await;
}

async fn asked(check: SocketAddr) -> Option<u16> {
    let request = Request::get(check, "localhost", "/").timeout(Duration::from_secs(1));
    request.send().await.ok().map(|reply| reply.status)
}

fn label(stage: &Stage, index: usize, is_there: bool) {
    let label = format!("{LABEL}{}", if is_there { "=true" } else { "-" });
    let node = stage.nodes[index].name();
    stage
        .kubectl
        .ok(&["label", "node", node, "--overwrite", &label]);
}

/// Sends each new connection to a healthy node, where the connection stays.
struct Balancer {
    task: JoinHandle<()>,
    nodes: usize,
}

impl Balancer {
    fn start(stage: &Stage, checks: &[SocketAddr]) -> Self {
        for (index, node) in stage.nodes.iter().enumerate() {
            let (mark, table) = (mark(index), table(index));
            let via = node.at(0).ip();
            ip(&format!("rule add fwmark {mark} lookup {table}"));
            ip(&format!("route replace {ADDRESS} via {via} table {table}"));
            // The route determines the source address; the packet mark selects the node.
            ip(&format!("route replace {ADDRESS} via {via}"));
        }
        choose(0);
        let checks = checks.to_vec();
        let nodes = checks.len();
        let task = tokio::spawn(async move {
            let mut chosen = 0;
            loop {
                for (index, check) in checks.iter().enumerate() {
                    if asked(*check).await == Some(200) {
                        if index != chosen {
                            tokio::task::block_in_place(|| choose(index));
                            chosen = index;
                        }
                        break;
                    }
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        Self { task, nodes }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
        for index in 0..self.nodes {
            ip(&format!("rule del fwmark {}", mark(index)));
        }
        ip(&format!("route del {ADDRESS}"));
        nft("delete table ip balancer\n");
    }
}

fn mark(index: usize) -> usize {
    index + 1
}

fn table(index: usize) -> usize {
    index + 101
}

fn choose(index: usize) {
    let mark = mark(index);
    nft(&format!(
        "table ip balancer
delete table ip balancer
table ip balancer {{
  chain out {{
    type route hook output priority mangle
    ip daddr {ADDRESS} ct state new ct mark set {mark}
    ip daddr {ADDRESS} meta mark set ct mark
  }}
}}
"
    ));
}

fn ip(arguments: &str) {
    ok(Command::new("ip").args(arguments.split(' ')));
}

fn nft(rules: &str) {
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("nft");
    let mut input = nft.stdin.take().expect("stdin is piped");
    input.write_all(rules.as_bytes()).expect("write to nft");
    drop(input);
    assert!(nft.wait().expect("nft exits").success(), "{rules}");
}

fn objects() -> [Value; 4] {
    let spec = json!({
        "fleet": {
            "management": "Managed",
            "drainSeconds": 5,
            "nodeSelector": {LABEL: "true"},
        },
        "publishing": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    });
    let [configuration, class] = class_with_parameters(NAME, NAME, &spec);
    let mut gateway = gateway(NAME, &[http_listener("http", PORT, "")]);
    gateway["spec"]["gatewayClassName"] = json!(NAME);
    let mut route = route(NAME, 0);
    route["spec"]["parentRefs"] = json!([{"name": NAME}]);
    [configuration, class, gateway, route]
}
