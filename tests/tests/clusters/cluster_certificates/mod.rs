//! Certificates in a cluster: statuses report problems, and thousands of certificates must not
//! exhaust memory.

mod poisoned;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, TEST_TIMEOUT};
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::cluster::TestCluster;
use sesame_tests::controller::{ControllerUnderTest, condition, objects};
use sesame_tests::followed::followed;
use sesame_tests::handshakes::Handshake;
use sesame_tests::manifests::{edge, edge_name, http_listener, https_listener, listener_set};
use sesame_tests::processes;
use sesame_tests::seeded::count;
use sesame_tests::shared_port::open_rival_sockets;
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const VALID: &str = "projectsesame.io/CertificatesValid";
const SHOWN: &str = "projectsesame.io/CertificatesShown";
/// Initial timeout of a round, which ends when one of the agent's handshakes misses Envoy.
const ROUND: Duration = Duration::from_secs(15);
/// Must be shorter than the timeout in `wait_condition`.
const LONGEST_ROUND: Duration = Duration::from_secs(45);
const SET_SIZE: usize = 64;

struct Path {
    cluster: TestCluster,
    controller: ControllerUnderTest,
    agent: AgentUnderTest,
}

impl Path {
    async fn start(ports: &[u16]) -> Self {
        let (cluster, controller, agent) = followed(ports, &[]).await;
        Self {
            cluster,
            controller,
            agent,
        }
    }

    async fn wait_shown(&self, authority: &Authority, host: &str, leaf: &Leaf) {
        let client = Handshake::with(self.agent.address(443), host, &authority.trust());
        eventually(&format!("{host} is served"), TEST_TIMEOUT, async || {
            let agreed = client.shake().await.map_err(|error| format!("{error:#}"))?;
            holds(agreed.certificate == leaf.der, || {
                "different certificate".to_owned()
            })
        })
        .await;
    }

    /// Waits for the condition, or for its absence if `status` and `reason` are empty.
    async fn wait_condition(&self, type_: &str, status: &str, reason: &str, words: &str) -> Value {
        let good = |gateway: &Value| {
            let conditions = &gateway["status"]["listeners"][0]["conditions"];
            let found = condition(conditions, type_);
            let text = |field: &str| found[field].as_str().unwrap_or_default();
            text("status") == status && text("reason") == reason && text("message").contains(words)
        };
        let what = format!("{type_} is {status:?} {reason:?}");
        self.cluster.until(&what, GATEWAY, good).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_gains_and_loses_certificate_conditions() {
    let path = Path::start(&[443]).await;
    let authority = Authority::new("servers");
    let put = async |leaf: &Leaf| path.cluster.apply_all(&[leaf.secret("pair")]).await;
    let first = authority.issue(&["a.test"]);
    let gateway = edge(&[https_listener("https", 443, "a.test", "pair")]);
    path.cluster.apply_all(&gateway).await;
    put(&first).await;
    path.wait_shown(&authority, "a.test", &first).await;
    path.wait_condition("Programmed", "True", "Programmed", "")
        .await;
    path.wait_condition(VALID, "", "", "").await;

    put(&authority.issue_until(&["a.test"], 5)).await;
    let soon = ("CertificateExpiresSoon", "Secret/default/pair expires at");
    path.wait_condition(VALID, "True", soon.0, soon.1).await;
    put(&authority.issue_until(&["a.test"], -5)).await;
    let over = ("CertificateExpired", "Secret/default/pair expired at");
    path.wait_condition(VALID, "False", over.0, over.1).await;
    put(&first).await;
    path.wait_condition(VALID, "", "", "").await;
    path.wait_shown(&authority, "a.test", &first).await;

    let beside = open_rival_sockets(path.agent.address(443), &authority.issue(&["a.test"]));
    // All handshakes may reach Envoy by chance, so change the certificate in every round.
    let mut round = ROUND;
    let gateway = eventually("the failure is reported", 3 * TEST_TIMEOUT, async || {
        put(&authority.issue(&["a.test"])).await;
        let named =
            path.wait_condition(SHOWN, "False", "CertificateNotShown", "with serial number");
        let named = tokio::time::timeout(round, named).await;
        // Each change restarts the verification, so give a busy machine more time.
        round = (2 * round).min(LONGEST_ROUND);
        named.map_err(|_| "every handshake reached Envoy".to_owned())
    })
    .await;
    let conditions = &gateway["status"]["listeners"][0]["conditions"];
    assert_eq!(condition(conditions, "Programmed")["status"], "True");
    drop(beside);
    path.wait_condition(SHOWN, "", "", "").await;
}

fn memory(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or(0) / 1024
}

/// Pads a Secret to the size of one with a 2048-bit RSA key and a chain.
fn large(leaf: &Leaf, authority: &Authority, name: &str) -> Value {
    let chain = [
        &leaf.certificate_pem,
        authority.pem(),
        &authority.pem().repeat(7),
    ]
    .concat();
    let mut leaf = leaf.clone();
    leaf.certificate_pem = chain;
    leaf.secret(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_delivers_thousands_of_certificates_to_host() {
    let names = count("SESAME_CLUSTER_CERTIFICATES", 200, 2000);
    let host = |number: usize| format!("h{number}.test");
    let authority = Authority::new("servers");
    let path = Path::start(&[80, 443]).await;
    let mut all = edge(&[http_listener("http", 80, "")]);
    all[1]["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    let numbers: Vec<usize> = (0..names).collect();
    let leaves: Vec<Leaf> = (0..names).map(|n| authority.issue(&[&host(n)])).collect();
    for (number, leaf) in leaves.iter().enumerate() {
        all.push(large(leaf, &authority, &format!("pair-{number}")));
    }
    for (set, numbers) in numbers.chunks(SET_SIZE).enumerate() {
        let listeners: Vec<Value> = numbers
            .iter()
            .map(|n| https_listener(&format!("l{n}"), 443, &host(*n), &format!("pair-{n}")))
            .collect();
        all.push(listener_set(&format!("set-{set}"), &listeners));
    }
    let since = Instant::now();
    path.cluster.apply_all(&all).await;
    let applied = since.elapsed();
    for number in (0..names).step_by(names / 10).chain([names - 1]) {
        path.wait_shown(&authority, &host(number), &leaves[number])
            .await;
    }
    let served = since.elapsed();
    let leaf = authority.issue(&[&host(0)]);
    let since = Instant::now();
    let changed = large(&leaf, &authority, "pair-0");
    path.cluster.apply_all(&[changed]).await;
    path.wait_shown(&authority, &host(0), &leaf).await;
    let rotated = since.elapsed();
    let secrets = objects(path.cluster.admin(), "secrets", &edge_name()).await;
    let agents = processes::below(&path.agent.runtime());
    let agent = agents.iter().find(|process| process.is("sesame-agent"));
    eprintln!(
        "{names} certificates in {} Secrets of Sesame: applied after {} ms, shown after {} ms, one rotated after {} ms, MiB of the \
         controller {}, of the agent {:?} and of Envoy {:?}",
        secrets.len(),
        applied.as_millis(),
        served.as_millis(),
        rotated.as_millis(),
        path.controller.resident_bytes() >> 20,
        agent.map(|process| memory(process.pid)),
        path.agent
            .envoy_pids()
            .into_iter()
            .map(memory)
            .collect::<Vec<_>>(),
    );
}
