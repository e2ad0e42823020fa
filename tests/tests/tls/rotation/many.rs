//! Thousands of certificates on one port, in separate Secrets.

use std::time::Instant;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::handshakes::Handshake;
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, listener_set, rule_to, served, yaml,
};
use sesame_tests::seeded::count;
use sesame_tests::wait::{eventually, holds};

const SET_SIZE: usize = 64;

fn host(number: usize) -> String {
    format!("h{number}.test")
}

/// In MiB.
fn memory(pids: &[i32]) -> Vec<usize> {
    let of = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
        kib.unwrap_or(0) / 1024
    };
    pids.iter().map(of).collect()
}

fn objects(names: usize, backend: std::net::SocketAddr) -> Vec<Value> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects[1]["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    let all: Vec<usize> = (0..names).collect();
    let mut parents = Vec::new();
    for (set, numbers) in all.chunks(SET_SIZE).enumerate() {
        let listeners: Vec<Value> = numbers
            .iter()
            .map(|n| https_listener(&format!("l{n}"), 443, &host(*n), &format!("pair-{n}")))
            .collect();
        let name = format!("set-{set}");
        objects.push(listener_set(&name, &listeners));
        parents.push(json!({"kind": "ListenerSet", "name": name}));
    }
    objects.extend(served("app", &[backend]));
    // A route can have at most 32 parents.
    for (number, parents) in parents.chunks(32).enumerate() {
        let mut route = http_route(&format!("app-{number}"), &[], &[rule_to("app", &[])]);
        route["spec"]["parentRefs"] = json!(parents);
        objects.push(route);
    }
    objects
}

async fn wait_shown(
    agent: &AgentUnderTest,
    authority: &Authority,
    number: usize,
    leaf: &sesame_tests::certs::Leaf,
) {
    let client = Handshake::with(agent.address(443), &host(number), &authority.trust());
    eventually(
        &format!("{} is shown", host(number)),
        TEST_TIMEOUT,
        async || {
            let agreed = client.shake().await.map_err(|error| format!("{error:#}"))?;
            holds(agreed.certificate == leaf.der, || "another".to_owned())
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_certificates_are_served_on_one_port() {
    let names = count("SESAME_CERTIFICATES", 200, 2000);
    let backend = Backend::start("app").await;
    let authority = Authority::new("servers");
    let leaves: Vec<_> = (0..names).map(|n| authority.issue(&[&host(n)])).collect();
    let mut agent = Setup::with_ports(&[80, 443]).prepare();
    agent.write("objects.yaml", &yaml(&objects(names, backend.address())));
    for (file, leaves) in leaves.chunks(SET_SIZE).enumerate() {
        let numbered_leaves = leaves.iter().enumerate();
        let secrets: Vec<Value> = numbered_leaves
            .map(|(n, leaf)| leaf.secret(&format!("pair-{}", file * SET_SIZE + n)))
            .collect();
        agent.write(&format!("secrets-{file}.yaml"), &yaml(&secrets));
    }
    let since = Instant::now();
    agent.restart();
    agent.wait_healthy().await;
    wait_shown(&agent, &authority, names - 1, &leaves[names - 1]).await;
    let start = since.elapsed();
    for number in (0..names).step_by(names / 20) {
        wait_shown(&agent, &authority, number, &leaves[number]).await;
        let host = host(number);
        let request = agent.get(443, &host, "/").tls(&host, &authority.trust());
        agent.wait_ok(&request).await;
        // Only certificate 1 covers `h1.test`.
        let other = agent
            .get(443, "h1.test", "/")
            .tls(&host, &authority.trust());
        let reply = other.send().await.expect("an answer");
        let expected = if number == 1 { 200 } else { 404 };
        assert_eq!(reply.status, expected, "{host}");
    }
    let leaf = authority.issue(&[&host(names - 1)]);
    let since = Instant::now();
    let name = format!("pair-{}", names - 1);
    let last = names.div_ceil(SET_SIZE) - 1;
    let mut secrets: Vec<Value> = (last * SET_SIZE..names - 1)
        .map(|n| leaves[n].secret(&format!("pair-{n}")))
        .collect();
    secrets.push(leaf.secret(&name));
    agent.write(&format!("secrets-{last}.yaml"), &yaml(&secrets));
    wait_shown(&agent, &authority, names - 1, &leaf).await;
    let rotation = since.elapsed();
    let envoy = agent.envoy_pids();
    let agents = sesame_tests::processes::below(&agent.runtime());
    let agents: Vec<i32> = agents
        .iter()
        .filter(|process| process.is("sesame-agent"))
        .map(|process| process.pid)
        .collect();
    eprintln!(
        "{names} certificates: served after {} ms, one rotated after {} ms, memory in MiB: agent {:?}, Envoy {:?}",
        start.as_millis(),
        rotation.as_millis(),
        memory(&agents),
        memory(&envoy),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn added_listeners_are_not_held_as_removal() {
    let backend = Backend::start("app").await;
    let authority = Authority::new("servers");
    let leaves: Vec<_> = (0..130).map(|n| authority.issue(&[&host(n)])).collect();
    let mut agent = Setup::with_ports(&[80, 443]).prepare();
    let secrets = leaves.iter().enumerate();
    let secrets: Vec<Value> = secrets
        .map(|(n, leaf)| leaf.secret(&format!("pair-{n}")))
        .collect();
    agent.write("secrets.yaml", &yaml(&secrets));
    agent.write("objects.yaml", &yaml(&objects(128, backend.address())));
    agent.restart();
    let status = |number: usize| {
        let host = host(number);
        let request = agent.get(443, &host, "/");
        request.tls("h0.test", &authority.trust())
    };
    agent.wait_ok(&status(0)).await;
    let misdirected = status(127).send().await.expect("an answer");
    assert_eq!(misdirected.status, 421);

    agent.write("objects.yaml", &yaml(&objects(130, backend.address())));
    // If this change counted as a removal, the agent would hold it back for five minutes.
    wait_shown(&agent, &authority, 129, &leaves[129]).await;
    let unknown = |reply: &sesame_tests::client::Reply| reply.status == 404;
    agent.wait_served(&status(127), unknown).await;
    agent.wait_healthy().await;
}
