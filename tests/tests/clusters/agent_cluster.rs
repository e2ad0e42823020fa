//! `sesame-agent run --kube` against a real API server. Cluster failures must not interrupt
//! traffic.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{FLEET_LABEL, manifest_name};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::cluster::{TestCluster, User};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge_name, gateway, gateway_class, http_listener, http_route, https_listener, rule_to, served,
};
use sesame_tests::publications::{
    self, HOST, Published, agent_path, apply, at_port_80, config_map_path, resolved, version,
    wait_report,
};
use sesame_tests::wait::eventually;

async fn follow(agent: &mut AgentUnderTest, cluster: &TestCluster, user: &User, more: &[&str]) {
    let config = cluster.kubeconfig(user).await;
    agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
    agent.add_flags(&["--host", HOST]);
    agent.add_flags(more);
    agent.restart();
}

fn prepare(ports: &[u16]) -> AgentUnderTest {
    Setup::with_ports(ports).without_manifests().prepare()
}

async fn first_is_served(
    agent: &mut AgentUnderTest,
    cluster: &TestCluster,
    backend: &Backend,
) -> Published {
    let edge = edge_name();
    let user = publications::prepare(cluster, &[&edge]).await;
    let first = at_port_80(backend.address(), "/one");
    first.publish(cluster.admin()).await;
    follow(agent, cluster, &user, &["--report-seconds=600"]).await;
    wait(agent, "/one").await;
    first
}

async fn wait(agent: &AgentUnderTest, prefix: &str) {
    let request = agent.get(80, "kube.test", prefix);
    agent.wait_ok(&request).await;
}

async fn wait_backend(agent: &AgentUnderTest, name: &str) {
    let request = agent.get(80, "kube.test", "/all");
    agent.wait_backend(&request, name).await;
}

fn has_state(status: &Value, state: &str, word: &str) -> bool {
    let gateway = &status["gateways"][0];
    let message = gateway["message"].as_str().unwrap_or_default();
    gateway["state"] == *state && message.contains(word)
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_serves_publication_and_reports_to_cluster() {
    let mut agent = prepare(&[80, 81]);
    let backend = Backend::start("a").await;
    let cluster = TestCluster::start().await;
    let edge = edge_name();
    let first = first_is_served(&mut agent, &cluster, &backend).await;
    let report = wait_report(&cluster, &edge, "first version served", first.is_served()).await;
    assert_eq!(report["addresses"], json!(["127.0.0.1"]), "{report:#}");
    assert_eq!(report["envoyVersion"], "1.40.0", "{report:#}");
    assert_eq!(report["reportSeconds"], 600, "{report:#}");
    assert!(
        report["heartbeat"].is_string() && report["appliedAt"].is_string(),
        "{report:#}"
    );
    let object = cluster.get(&agent_path(&edge)).await;
    let spec = json!({"gateway": "default/edge", "host": HOST, "fleet": "default"});
    assert_eq!(object["spec"], spec);
    let status = agent.wait_healthy().await;
    assert_eq!(status["source"]["kind"], "cluster", "{status:#}");

    let load = Load::start(&Plan::new(vec![agent.get(80, "kube.test", "/all")]));
    let second = at_port_80(backend.address(), "/two");
    second.publish(cluster.admin()).await;
    wait(&agent, "/two").await;
    wait_report(&cluster, &edge, "second version served", second.is_served()).await;

    // Envoy cannot use a port that is already in use.
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, agent.address(81).port())).unwrap();
    let listeners = [http_listener("http", 80, ""), http_listener("more", 81, "")];
    let third = version(backend.address(), "/three", &listeners);
    third.publish(cluster.admin()).await;
    wait(&agent, "/three").await;
    let report = wait_report(&cluster, &edge, "port conflict reported", |status| {
        status["state"] == "Degraded"
            && status["refusedListeners"][0]["name"].is_string()
            && status["appliedRevision"] == *third.short()
    })
    .await;
    let refused = &report["refusedListeners"][0];
    assert_eq!(refused["name"], "Gateway/default/edge/listeners/more");
    let reason = refused["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("Address already in use"), "{report:#}");
    let open = |port: u16| format!("TCP/{}", agent.address(port).port());
    assert_eq!(report["openPorts"], json!([open(80)]), "{report:#}");
    drop(held);
    let report = wait_report(&cluster, &edge, "third version served", third.is_served()).await;
    let ports = report["openPorts"].as_array().expect("ports");
    let both = [open(80), open(81)];
    assert!(
        both.iter().all(|port| ports.contains(&json!(port))),
        "{report:#}"
    );

    // A stopped agent leaves a final report. Its Envoy keeps serving, so the addresses remain.
    let before = wait_report(&cluster, &edge, "third version served", third.is_served()).await;
    assert!(agent.stop().success(), "{}", agent.log_tail());
    let stopped = cluster.get(&agent_path(&edge)).await;
    let message = stopped["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("agent was stopped"), "{stopped:#}");
    for field in ["state", "addresses", "appliedRevision"] {
        assert_eq!(stopped["status"][field], before[field], "{stopped:#}");
    }
    load.pass(50).await;
    agent.restart();
    wait_report(&cluster, &edge, "restarted agent reports", |status| {
        third.is_served()(status) && status["message"].as_str().unwrap_or_default().is_empty()
    })
    .await;
    load.pass(50).await;
    load.stop().await.assert_clean();

    assert!(agent.end().success(), "{}", agent.log_tail());
    let ended = cluster.get(&agent_path(&edge)).await;
    assert_eq!(ended["status"]["state"], "Down", "{ended:#}");
    agent.restart();
    wait(&agent, "/three").await;
    wait_report(&cluster, &edge, "served after restart", third.is_served()).await;

    let manifest = config_map_path(&manifest_name(&edge));
    cluster.delete(&manifest).await;
    wait_withdrawn(&agent, &cluster, &edge).await;
    apply(cluster.admin(), &third.manifest).await;
    wait(&agent, "/three").await;
    wait_report(&cluster, &edge, "served again", third.is_served()).await;
    cluster.delete(&manifest).await;
    wait_withdrawn(&agent, &cluster, &edge).await;
}

async fn wait_withdrawn(agent: &AgentUnderTest, cluster: &TestCluster, edge: &NamespacedName) {
    eventually("the Envoy is stopped", TEST_TIMEOUT, async || {
        let gone = cluster.admin().get(&agent_path(edge)).await;
        match (agent.envoys().len(), gone) {
            (0, Err(gone)) if gone.is(404) => Ok(()),
            (envoys, result) => Err(format!("{envoys} Envoys; {result:?}\n{}", agent.log_tail())),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_keeps_serving_if_shard_missing_or_wrong() {
    let mut agent = prepare(&[80]);
    let backend = Backend::start("a").await;
    let cluster = TestCluster::start().await;
    let edge = edge_name();
    let user = publications::prepare(&cluster, &[&edge]).await;
    let first = at_port_80(backend.address(), "/one");
    follow(&mut agent, &cluster, &user, &["--gateway", "default/edge"]).await;
    agent
        .wait_status("the missing Gateway is reported", |status| {
            let problems = status["source"]["problems"].to_string();
            status["source"]["available"] == true
                && problems.contains("Gateway default/edge is not published")
        })
        .await;
    first.publish(cluster.admin()).await;
    wait(&agent, "/one").await;
    wait_report(&cluster, &edge, "first version served", first.is_served()).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "kube.test", "/all")]));

    let second = at_port_80(backend.address(), "/two");
    let (last, others) = second.config.split_last().unwrap();
    let name = last["metadata"]["name"].as_str().unwrap().to_owned();
    for object in others.iter().chain([&second.manifest]) {
        apply(cluster.admin(), object).await;
    }
    let missing = format!("{name}: is missing");
    agent
        .wait_status("the missing shard is reported", |status| {
            has_state(status, "Degraded", &missing)
        })
        .await;
    let report = wait_report(&cluster, &edge, "second version held back", |status| {
        status["state"] == "Degraded" && status["wantedRevision"] == *second.short()
    })
    .await;
    assert_eq!(report["appliedRevision"], first.short(), "{report:#}");
    wait(&agent, "/one").await;

    let mut wrong = last.clone();
    wrong["binaryData"] = first.config[0]["binaryData"].clone();
    apply(cluster.admin(), &wrong).await;
    agent
        .wait_status("the wrong digest is reported", |status| {
            has_state(status, "Degraded", "SHA-256")
        })
        .await;
    wait(&agent, "/one").await;

    // The agent must retry, even though the manifest has not changed.
    cluster.delete(&config_map_path(&name)).await;
    apply(cluster.admin(), last).await;
    wait(&agent, "/two").await;
    wait_report(&cluster, &edge, "second version served", second.is_served()).await;

    // Unreadable endpoints must leave the previous endpoints in place.
    let mut broken = second.endpoints[0].clone();
    broken["binaryData"] = json!({"shard.pb.zst": "bm90IHpzdGQ="});
    apply(cluster.admin(), &broken).await;
    agent
        .wait_status("the bad endpoints are reported", |status| {
            has_state(status, "Degraded", "endpoints-1-0")
        })
        .await;
    wait(&agent, "/two").await;

    // The agent must reject the whole version instead of ignoring an unknown field.
    let third = at_port_80(backend.address(), "/three").with_unknown_field();
    third.publish(cluster.admin()).await;
    agent
        .wait_status("the unknown field is reported", |status| {
            has_state(status, "Degraded", "has field 500, which this version")
        })
        .await;
    let report = wait_report(&cluster, &edge, "third version held back", |status| {
        status["state"] == "Degraded" && status["wantedRevision"] == *third.short()
    })
    .await;
    assert_eq!(report["appliedRevision"], second.short(), "{report:#}");
    wait(&agent, "/two").await;
    load.stop().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_serves_from_disk_until_api_server_returns() {
    let mut agent = prepare(&[80]);
    let backend = Backend::start("a").await;
    let mut cluster = TestCluster::start().await;
    let edge = edge_name();
    let first = first_is_served(&mut agent, &cluster, &backend).await;
    wait_report(&cluster, &edge, "first version served", first.is_served()).await;

    cluster.stop_apiserver();
    agent
        .wait_status("the outage is reported", |status| {
            status["source"]["available"] == false
                && has_state(status, "Degraded", "cannot watch the cluster")
        })
        .await;
    wait(&agent, "/one").await;
    agent.wait_stored().await;
    agent.kill9();
    agent.kill9_envoy();
    agent.restart();
    wait(&agent, "/one").await;
    agent
        .wait_status("the outage is still reported", |status| {
            has_state(status, "Degraded", "cannot watch the cluster")
        })
        .await;
    // From now on, the API server accepts connections but never responds.
    cluster.start_apiserver().await;
    cluster.freeze_apiserver();
    agent.wait_stored().await;
    agent.kill9();
    agent.kill9_envoy();
    agent.restart();
    wait(&agent, "/one").await;
    agent
        .wait_status("the frozen API server is reported", |status| {
            has_state(
                status,
                "Degraded",
                "the last accepted configuration is served",
            )
        })
        .await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "kube.test", "/all")]));

    cluster.stop_apiserver();
    cluster.start_apiserver().await;
    let second = at_port_80(backend.address(), "/two");
    second.publish(cluster.admin()).await;
    wait(&agent, "/two").await;
    wait_report(&cluster, &edge, "second version served", second.is_served()).await;

    cluster.stop_apiserver();
    agent
        .wait_status("the second outage is reported", |status| {
            status["source"]["available"] == false
        })
        .await;
    wait(&agent, "/two").await;
    load.stop().await.assert_clean();
    agent.wait_stored().await;
    agent.kill9();
    cluster.start_apiserver().await;
    let manifest = config_map_path(&manifest_name(&edge));
    cluster.delete(&manifest).await;
    agent.restart();
    agent.wait_envoys(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_keeps_serving_if_read_access_is_revoked() {
    let mut agent = prepare(&[80]);
    let backend = Backend::start("a").await;
    let cluster = TestCluster::start().await;
    let edge = edge_name();
    let user = publications::prepare(&cluster, &[&edge]).await;
    let first = at_port_80(backend.address(), "/one");
    first.publish(cluster.admin()).await;
    let config = agent.state().join("kubeconfig");
    agent.add_flags(&[
        "--kube",
        "--kubeconfig",
        &config.to_string_lossy(),
        "--host",
        HOST,
    ]);
    agent.restart();
    agent
        .wait_status("the missing kubeconfig is reported", |status| {
            let reason = status["source"]["reason"].as_str().unwrap_or_default();
            reason.contains("kubeconfig")
        })
        .await;
    std::fs::copy(cluster.kubeconfig(&user).await, &config).unwrap();
    wait(&agent, "/one").await;
    wait_report(&cluster, &edge, "first version served", first.is_served()).await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "kube.test", "/all")]));

    let binding = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/agent",
        publications::NAMESPACE
    );
    cluster.delete(&binding).await;
    let may = cluster.client(&user).await;
    may.wait_allowed(false, "list", "configmaps", publications::NAMESPACE)
        .await;
    agent.wait_stored().await;
    agent.restart();
    agent
        .wait_status("the denied access is reported", |status| {
            has_state(status, "Degraded", "forbidden")
        })
        .await;
    wait(&agent, "/one").await;
    let second = at_port_80(backend.address(), "/two");
    second.publish(cluster.admin()).await;
    publications::prepare(&cluster, &[&edge]).await;
    wait(&agent, "/two").await;
    load.stop().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_reads_only_keys_named_in_its_role() {
    let mut agent = prepare(&[443, 444]);
    let backend = Backend::start("a").await;
    let authority = Authority::new("kube");
    let mut objects = served("app", &[backend.address()]);
    let names = ["mine", "other"].map(|name| NamespacedName::new("default", name));
    for (name, port) in [("mine", 443), ("other", 444)] {
        let host = format!("{name}.test");
        objects.push(authority.issue(&[&host]).secret(name));
        objects.push(gateway_class(name));
        objects.push(gateway(name, &[https_listener("https", port, "", name)]));
        let mut route = http_route(name, &[&host], &[rule_to("app", &[])]);
        route["spec"]["parentRefs"] = json!([{"name": name}]);
        objects.push(route);
    }
    let cluster = TestCluster::start().await;
    let user = publications::prepare(&cluster, &[&names[0]]).await;
    for gateway in resolved(&objects) {
        Published::of(&gateway).publish(cluster.admin()).await;
    }
    follow(&mut agent, &cluster, &user, &[]).await;
    let request = agent
        .get(443, "mine.test", "/")
        .tls("mine.test", &authority.trust());
    agent.wait_ok(&request).await;
    let report = wait_report(&cluster, &names[0], "own Gateway served", |status| {
        status["state"] == "Serving" && status["nextCertificateExpiry"].is_string()
    })
    .await;
    assert_eq!(report["addresses"], json!(["127.0.0.1"]), "{report:#}");
    let status = agent
        .wait_status("the denied access is reported", |status| {
            let problems = status["source"]["problems"].to_string();
            problems.contains("default.other.keys-0") && problems.contains("forbidden")
        })
        .await;
    assert_eq!(
        status["gateways"].as_array().map(Vec::len),
        Some(1),
        "{status:#}"
    );
    wait_report(
        &cluster,
        &names[1],
        "other Gateway reported down",
        |status| {
            let message = status["message"].as_str().unwrap_or_default();
            status["state"] == "Down" && message.contains("forbidden")
        },
    )
    .await;
    assert_eq!(agent.envoys().len(), 1);
    assert!(!agent.log().contains("PRIVATE KEY"));

    // The agent must serve both Gateways once the permissions suffice.
    publications::prepare(&cluster, &[&names[0], &names[1]]).await;
    let request = agent
        .get(444, "other.test", "/")
        .tls("other.test", &authority.trust());
    agent.wait_ok(&request).await;

    let manifest = config_map_path(&manifest_name(&names[1]));
    let fleet = json!({"metadata": {"labels": {FLEET_LABEL: "elsewhere"}}});
    cluster.merge(&manifest, &fleet).await;
    agent.wait_envoys(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_changes_keep_manifest_and_fail_no_request() {
    let mut agent = prepare(&[80]);
    let cluster = TestCluster::start().await;
    let edge = edge_name();
    let user = publications::prepare(&cluster, &[&edge]).await;
    let backends = [Backend::start("a").await, Backend::start("b").await];
    let versions = backends.each_ref().map(|b| at_port_80(b.address(), "/one"));
    assert_eq!(versions[0].revision, versions[1].revision);
    versions[0].publish(cluster.admin()).await;
    follow(&mut agent, &cluster, &user, &[]).await;
    wait_backend(&agent, "a").await;
    let report = wait_report(
        &cluster,
        &edge,
        "first version served",
        versions[0].is_served(),
    )
    .await;
    let manifest = config_map_path(&manifest_name(&edge));
    let version = async || {
        let object = cluster.get(&manifest).await;
        object["metadata"]["resourceVersion"].clone()
    };
    let before = version().await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "kube.test", "/all")]));
    let start = std::time::Instant::now();
    for change in 1..=200 {
        let next = change % 2;
        for object in &versions[next].endpoints {
            apply(cluster.admin(), object).await;
        }
        wait_backend(&agent, backends[next].name()).await;
    }
    eprintln!(
        "{:?} from each endpoint change to its first response",
        start.elapsed() / 200
    );
    load.stop().await.assert_clean();
    assert_eq!(version().await, before, "the manifest has changed");
    let now = wait_report(
        &cluster,
        &edge,
        "first version served",
        versions[0].is_served(),
    )
    .await;
    assert_eq!(
        now["appliedAt"], report["appliedAt"],
        "an endpoint is no news"
    );
}
