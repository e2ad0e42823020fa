//! A host may report only for itself. Forged or excessive reports must not affect other hosts.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_published::names::agent_name;
use sesame_tests::cluster::{Channel, Client, Failure, TestCluster, User};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, condition, deployed, publication,
};
use sesame_tests::envoy::workspace;
use sesame_tests::manifests::{edge, edge_name, gateway, http_listener};
use sesame_tests::processes::memory_mib;
use sesame_tests::reports::{REPORTS, report, report_path, write_report};
use sesame_tests::wait::{eventually, holds};

/// The host in `deploy/agent/one-gateway.yaml`.
const OUTSIDE: &str = "edge-1.example.com";
const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/sesame-reports";

fn vault() -> NamespacedName {
    NamespacedName::new("bank", "vault")
}

fn gateway_path(gateway: &NamespacedName) -> String {
    format!(
        "/apis/gateway.networking.k8s.io/v1/namespaces/{}/gateways/{}",
        gateway.namespace, gateway.name
    )
}

fn refused<T: std::fmt::Debug>(result: Result<T, Failure>, words: &str) {
    let failure = result.expect_err(words);
    let text = failure.to_string();
    assert!(text.contains(words), "{text}");
}

async fn apply_file(cluster: &TestCluster, file: &str) {
    let path = workspace().join("controller/deploy").join(file);
    let text = std::fs::read_to_string(path).expect("a manifest in controller/deploy");
    cluster
        .apply(&text)
        .await
        .expect("a manifest in controller/deploy");
}

async fn node(cluster: &TestCluster, name: &str, address: &str) -> Client {
    let user = User::on_node(NAMESPACE, "sesame-agent", name);
    let client = cluster.client(&user).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
    let path = format!("/api/v1/nodes/{name}/status");
    let admin = cluster.admin();
    admin.merge(&path, &status).await.expect("a Node's status");
    client
}

async fn wait_refused(client: &Client, report: &Value, words: &str) {
    eventually(
        "the admission policy takes effect",
        TEST_TIMEOUT,
        async || match client.apply_value(report).await {
            Err(error) if error.to_string().contains(words) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
}

async fn wait_accepted(client: &Client, gateway: &NamespacedName, host: &str, status: &Value) {
    eventually("the report is accepted", TEST_TIMEOUT, async || {
        let result = write_report(client, gateway, host, status).await;
        result.map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_may_report_only_itself_and_its_gateways() {
    let cluster = deployed(Channel::Standard).await;
    apply_file(&cluster, "agent/rbac.yaml").await;
    apply_file(&cluster, "agent/one-gateway.yaml").await;
    let one = node(&cluster, "node-1", "192.0.2.1").await;
    let two = node(&cluster, "node-2", "192.0.2.2").await;
    let outside = User::service_account(NAMESPACE, "sesame-agent-default-edge");
    let outside = cluster.client(&outside).await;
    let forged = report("default.edge.node-2", "default/edge", "node-2");
    wait_refused(&one, &forged, "node-1 does not speak for host node-2").await;

    policy(&cluster, &one, &two, &outside).await;
    names(cluster.admin()).await;
    addresses(&cluster, &one, &two).await;
}

async fn policy(cluster: &TestCluster, one: &Client, two: &Client, outside: &Client) {
    let (edge, vault) = (edge_name(), vault());
    let serving = json!({"state": "Serving", "addresses": ["192.0.2.1"]});
    wait_accepted(one, &edge, "node-1", &serving).await;
    wait_accepted(two, &edge, "node-2", &serving).await;
    wait_accepted(two, &vault, "node-2", &serving).await;
    wait_accepted(outside, &edge, OUTSIDE, &serving).await;

    let others = report_path(&edge, "node-2");
    let not_its = "does not speak for host";
    let down = json!({"status": {"state": "Down"}});
    let status = format!("{others}/status");
    refused(one.merge(&status, &down).await, not_its);
    refused(one.delete(&others).await, not_its);
    let taken_over = json!({"spec": {"host": "node-1"}});
    refused(one.merge(&others, &taken_over).await, not_its);
    let handed_over = json!({"spec": {"host": "node-2"}});
    let own = report_path(&edge, "node-1");
    refused(one.merge(&own, &handed_over).await, not_its);
    let squatted = report("bank.vault.node-2", "default/edge", "node-1");
    two.delete(&report_path(&vault, "node-2"))
        .await
        .expect("its own report");
    refused(
        one.apply_value(&squatted).await,
        "the name of a GatewayAgent",
    );

    let mut pinned = report("default.edge.node-1", "default/edge", "node-1");
    pinned["metadata"]["finalizers"] = json!(["example.com/pinned"]);
    refused(one.apply_value(&pinned).await, "must not have finalizers");
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u"}]);
    pinned["metadata"]["finalizers"] = json!([]);
    pinned["metadata"]["ownerReferences"] = owner;
    refused(one.apply_value(&pinned).await, "owner references");

    let vault_agent = agent_name(&vault, OUTSIDE);
    let forged = report(&vault_agent, "bank/vault", OUTSIDE);
    refused(
        outside.apply_value(&forged).await,
        "does not speak for Gateway bank/vault",
    );
    refused(outside.delete(&own).await, not_its);
    let as_node = report("default.edge.node-3", "default/edge", "node-3");
    refused(outside.apply_value(&as_node).await, not_its);
    // A token that is not bound to a Pod must not authorize reports for nodes.
    let loose = User::service_account(NAMESPACE, "sesame-agent");
    let loose = cluster.client(&loose).await;
    refused(loose.delete(&own).await, not_its);
    outside
        .delete(&report_path(&edge, OUTSIDE))
        .await
        .expect("its own report");
}

/// The admission policy and the agent must compute the same report name.
async fn names(admin: &Client) {
    let long = |length: usize| format!("g{}", ".g".repeat(length / 2));
    let gateways = [
        "edge".to_owned(),
        "a.b".to_owned(),
        long(168),
        long(170),
        long(250),
    ];
    let hosts = [
        "h",
        "Host_1.example.com",
        &"n".repeat(63),
        &"n".repeat(64),
        "a.b",
        "a-b",
    ];
    for gateway in &gateways {
        let gateway = NamespacedName::new("default", gateway);
        for host in hosts {
            let name = agent_name(&gateway, host);
            let good = report(&name, &gateway.to_string(), host);
            let stored = admin.apply_value(&good).await;
            stored.unwrap_or_else(|error| panic!("{name}: {error}"));
            let path = report_path(&gateway, host);
            admin.delete(&path).await.expect("deleted");
            for wrong in [
                format!("{name}0"),
                format!("a{name}"),
                name.replacen('.', ".x.", 1),
            ] {
                if wrong.len() <= 253 {
                    let bad = report(&wrong, &gateway.to_string(), host);
                    refused(admin.apply_value(&bad).await, "the name of a GatewayAgent");
                }
            }
        }
    }
    let bad = report("default.edge.h", "default/edge/x", "h");
    refused(admin.apply_value(&bad).await, "spec.gateway");
}

/// The admission policy cannot check addresses, so the controller must.
async fn addresses(cluster: &TestCluster, one: &Client, two: &Client) {
    let flags = ["--host-addresses", "203.0.113.0/24"];
    let controller = ControllerUnderTest::start(cluster, &flags).await;
    let admin = cluster.admin();
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let mut other = gateway("vault", &[http_listener("http", 80, "")]);
    other["metadata"]["namespace"] = json!("bank");
    other["spec"]["gatewayClassName"] = json!("edge");
    objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bank"}}));
    objects.push(other);
    cluster.apply_all(&objects).await;
    let status = async |gateway: &NamespacedName, state: &str, addresses: &[&str]| {
        let publication = eventually("the Gateway is published", TEST_TIMEOUT, async || {
            publication(admin, gateway).await
        })
        .await;
        let revision: String = publication.manifest.revision.chars().take(12).collect();
        json!({
            "state": state, "appliedRevision": revision, "wantedRevision": revision,
            "addresses": addresses, "heartbeat": jiff::Timestamp::now(),
        })
    };
    let forged = ["192.0.2.1", "192.0.2.2", "198.51.100.66", "203.0.113.9"];
    let first = status(&edge_name(), "Serving", &forged).await;
    wait_accepted(one, &edge_name(), "node-1", &first).await;
    let honest = status(&vault(), "Serving", &["192.0.2.2"]).await;
    wait_accepted(two, &vault(), "node-2", &honest).await;
    // `node-2` does not serve this Gateway, so its address must not appear.
    let down = status(&edge_name(), "Down", &[]).await;
    wait_accepted(two, &edge_name(), "node-2", &down).await;
    let message = wait_programmed(cluster, &edge_name(), &["192.0.2.1", "203.0.113.9"]).await;
    assert!(
        message.starts_with("programmed on 1 of 2 hosts"),
        "{message}"
    );
    assert!(
        message.contains("192.0.2.2 of node-1, 198.51.100.66 of node-1"),
        "{message}"
    );
    let vault_message = wait_programmed(cluster, &vault(), &["192.0.2.2"]).await;
    assert_eq!(vault_message, "programmed on 1 of 1 hosts");

    // Without the admission policy, the controller must reject forged reports.
    admin.delete(BINDING).await.expect("deleted");
    let row = report("bank.vault.forged", "bank/vault", "node-2");
    eventually("the policy is removed", TEST_TIMEOUT, async || {
        let written = admin.apply_value(&row).await;
        written.map_err(|error| error.to_string())
    })
    .await;
    let path = format!("{REPORTS}/bank.vault.forged");
    let down = status(&vault(), "Down", &["203.0.113.66"]).await;
    // The controller may already have removed the report.
    let _ = admin
        .merge(&format!("{path}/status"), &json!({"status": down}))
        .await;
    eventually(
        "the report is removed",
        TEST_TIMEOUT,
        async || match admin.get(&path).await {
            Err(error) if error.is(404) => Ok(()),
            other => Err(format!("{other:?}\n{}", controller.log_tail())),
        },
    )
    .await;
    assert!(
        controller
            .log()
            .contains("its name does not match its Gateway and host")
    );
    let still = wait_programmed(cluster, &vault(), &["192.0.2.2"]).await;
    assert_eq!(still, vault_message);
    drop(controller);
}

async fn wait_programmed(
    cluster: &TestCluster,
    gateway: &NamespacedName,
    addresses: &[&str],
) -> String {
    let path = gateway_path(gateway);
    let programmed =
        |gateway: &Value| condition(&gateway["status"]["conditions"], "Programmed").clone();
    let gateway = cluster
        .until("the Gateway is programmed", &path, |gateway| {
            let all = gateway["status"]["addresses"].as_array();
            let values = all.into_iter().flatten().map(|a| &a["value"]);
            values.eq(addresses) && programmed(gateway)["status"] == "True"
        })
        .await;
    let message = programmed(&gateway)["message"].as_str().map(str::to_owned);
    message.unwrap_or_default()
}

/// Removes the limits, which older releases did not have.
fn without_limits(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        for limit in ["maxItems", "maxLength"] {
            if fields.get(limit).is_some_and(Value::is_number) {
                fields.remove(limit);
            }
        }
        fields.values_mut().for_each(without_limits);
    } else if let Some(all) = schema.as_array_mut() {
        all.iter_mut().for_each(without_limits);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_report_flood_uses_little_memory() {
    const REPORTS_WRITTEN: usize = 40;
    let cluster = deployed(Channel::Standard).await;
    let admin = cluster.admin();
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    let objects = edge(&[http_listener("http", 80, "")]);
    cluster.apply_all(&objects).await;
    let edge = edge_name();
    let publication = eventually("the Gateway is published", TEST_TIMEOUT, async || {
        publication(admin, &edge).await
    })
    .await;
    let revision: String = publication.manifest.revision.chars().take(12).collect();
    let quiet = memory_mib(controller.pid()).1;

    // Only a CRD without limits accepts these reports.
    let entry = json!({"object": "o", "effect": "e", "envoyWords": "w".repeat(9000)});
    let large = |count: usize| {
        json!({
            "state": "Serving", "appliedRevision": revision, "addresses": ["192.0.2.1"],
            "heartbeat": jiff::Timestamp::now(), "refused": vec![entry.clone(); count],
            "refusedListeners": vec![json!({"name": "n", "reason": "r".repeat(8000)}); 4],
        })
    };
    let within = |path: String| {
        let large = large(1);
        async move { admin.merge(&path, &json!({"status": large})).await }
    };
    let host = |index: usize| format!("host-{index}");
    admin
        .apply_value(&report(
            &agent_name(&edge, "host-0"),
            "default/edge",
            "host-0",
        ))
        .await
        .expect("a report");
    let too_long = within(format!("{}/status", report_path(&edge, "host-0"))).await;
    refused(too_long, "envoyWords");
    let text = std::fs::read_to_string(workspace().join("controller/deploy/crds.yaml"));
    let all: Vec<Value> = serde_saphyr::from_multiple(&text.expect("a file")).expect("YAML");
    let mut definition = all
        .into_iter()
        .find(|one| one["spec"]["names"]["kind"] == "GatewayAgent")
        .expect("the GatewayAgent CRD");
    without_limits(&mut definition["spec"]["versions"]);
    cluster.install_crd(&definition).await;
    eventually("the limits are removed", TEST_TIMEOUT, async || {
        let path = format!("{}/status", report_path(&edge, "host-0"));
        let written = within(path).await;
        written.map_err(|error| error.to_string())
    })
    .await;
    futures::stream::iter(0..REPORTS_WRITTEN)
        .for_each_concurrent(4, |index| {
            let (edge, status) = (&edge, large(95));
            async move { wait_accepted(admin, edge, &host(index), &status).await }
        })
        .await;
    wait_hosts(admin, REPORTS_WRITTEN, &controller).await;
    let flooded = memory_mib(controller.pid()).1;
    drop(controller);
    // A new controller lists all existing reports.
    let listing = ControllerUnderTest::start(&cluster, &[]).await;
    listing.wait_ready().await;
    listing.wait_leads().await;
    // Reports that existed at startup cause no status update, so write a new report.
    let status = large(95);
    wait_accepted(admin, &edge, "one-more", &status).await;
    wait_hosts(admin, REPORTS_WRITTEN + 1, &listing).await;
    let listed = memory_mib(listing.pid()).1;
    for (how, peak) in [("watched", flooded), ("listed", listed)] {
        let more = peak - quiet;
        println!("{how}: peak {more:.0} MiB above {quiet:.0} MiB");
        assert!(more < 128.0, "{how}: peak {more:.0} MiB higher");
    }
}

async fn wait_hosts(admin: &Client, hosts: usize, controller: &ControllerUnderTest) {
    let wanted = format!("programmed on {hosts} of {hosts} hosts");
    let path = gateway_path(&edge_name());
    eventually(&wanted, Duration::from_secs(120), async || {
        let gateway = admin.get(&path).await.map_err(|error| error.to_string())?;
        let programmed = condition(&gateway["status"]["conditions"], "Programmed");
        let message = programmed["message"].as_str().unwrap_or_default();
        holds(message.starts_with(&wanted), || {
            format!("{message}\n{}", controller.log_tail())
        })
    })
    .await;
}
