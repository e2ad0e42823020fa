//! `kubectl sesame adopt`, and hosts that move from another controller's gateway under load.

use serde_json::json;
use sesame_tests::agent::{AgentUnderTest, words};
use sesame_tests::backend::Backend;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, deployed, give_rights};
use sesame_tests::followed::follow;
use sesame_tests::manifests::{edge, http_listener, ingress, ingress_rule, served};
use sesame_tests::moving::{
    Clients, HOSTS, OldGateway, PATH, access_log, comparison, foreign, of_class, our_class,
};
use sesame_tests::network;

use super::Plugin;

async fn cluster() -> TestCluster {
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "contour/crds.yaml").await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn adopt_lists_hosts_and_their_losses() {
    let cluster = cluster().await;
    let mut objects = foreign();
    let protected = json!({"nginx.ingress.kubernetes.io/auth-snippet": "deny all;"});
    let rules = json!({"rules": [ingress_rule("lossy.test", &[("/", "Prefix", "shop")])]});
    objects.push(of_class(ingress("lossy", &protected, &rules), "nginx"));
    objects.extend(served(
        "shop",
        &["192.0.2.7:80".parse().expect("an address")],
    ));
    cluster.apply_all(&objects).await;
    let plugin = Plugin::new(&cluster, &User::Admin).await;

    // The class and its Gateway are assumed.
    let report = plugin.json(&["adopt"]).expect("a report");
    assert_eq!(
        (&report["class"], &report["classExists"]),
        (&json!("sesame"), &json!(false))
    );
    let hosts = report["hosts"].as_array().expect("hosts");
    let names: Vec<&str> = hosts.iter().filter_map(|it| it["host"].as_str()).collect();
    assert_eq!(
        names,
        ["a.test", "b.test", "c.test", "lossy.test"],
        "{report:#}"
    );
    for host in &hosts[..3] {
        assert_eq!(host["losses"], json!([]), "{report:#}");
    }
    assert_eq!(
        hosts[2]["objects"],
        json!(["HTTPProxy/default/child", "HTTPProxy/default/root"])
    );
    let loss = hosts[3]["losses"].to_string();
    assert!(
        loss.contains("auth-snippet") && loss.contains("\"rejected\":true"),
        "{report:#}"
    );
    let table = plugin.run(&["adopt"]);
    assert_eq!(table.status.code(), Some(1), "{}", words(&table));
    for word in [
        "3 hosts without a loss",
        "1 host with a loss",
        "kubectl sesame adopt --class sesame 'a.test'",
    ] {
        assert!(words(&table).contains(word), "{word}: {}", words(&table));
    }

    for (arguments, problem) in [
        (&["adopt", "lossy.test"][..], "auth-snippet"),
        (&["adopt", "none.test"], "is not a host"),
        (&["adopt", "--class", "nginx"], "another controller"),
    ] {
        let refused = plugin.run(arguments);
        assert_eq!(refused.status.code(), Some(3), "{}", words(&refused));
        assert!(words(&refused).contains(problem), "{}", words(&refused));
    }
    let accepted = plugin.run(&["adopt", "lossy.test", "--accept-loss"]);
    assert_eq!(accepted.status.code(), Some(0), "{}", words(&accepted));

    // Sesame's own objects and hosts do not move.
    cluster
        .apply_all(&edge(&[http_listener("http", 80, "")]))
        .await;
    let own = json!({"rules": [ingress_rule("own.test", &[("/", "Prefix", "shop")])]});
    cluster
        .apply_all(&[our_class(), ingress("own", &json!({}), &own)])
        .await;
    let report = plugin.json(&["adopt"]).expect("a report");
    assert_eq!(
        (&report["class"], &report["classExists"]),
        (&json!("edge"), &json!(true))
    );
    assert_eq!(
        report["hosts"].as_array().map(Vec::len),
        Some(4),
        "{report:#}"
    );
    assert_eq!(report["hosts"][0]["losses"], json!([]), "{report:#}");
}

/// Applies the objects that serve a host, and checks that both gateways answer equally.
async fn serve(
    cluster: &TestCluster,
    plugin: &Plugin,
    agent: &AgentUnderTest,
    old: &OldGateway,
    host: &str,
) {
    let objects = plugin.run(&["adopt", host]);
    assert_eq!(objects.status.code(), Some(0), "{}", words(&objects));
    let objects = String::from_utf8(objects.stdout).expect("text");
    cluster.apply(&objects).await.expect("objects");
    agent.wait_ok(&agent.get(80, host, PATH)).await;
    let log = plugin.directory.path().join("access.log");
    std::fs::write(&log, access_log(host)).expect("a log");
    let arguments = comparison(&log, old.address, agent.address(80));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let compared = agent.command_beside(&arguments).await;
    assert_eq!(compared.status.code(), Some(0), "{}", words(&compared));
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_move_from_other_gateway_without_failures() {
    if !network::inside_own("hosts_move_from_other_gateway_without_failures") {
        return;
    }
    let cluster = cluster().await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let agent = follow(&cluster, &[80], &[]).await;
    let at = (network::BACKENDS, 0).into();
    let backend = Backend::start_at("shop", at).await.expect("an address");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(foreign());
    objects.push(our_class());
    objects.extend(served("shop", &[backend.address()]));
    cluster.apply_all(&objects).await;
    let mut old = OldGateway::start(backend.address()).await;
    let plugin = Plugin::new(&cluster, &User::Admin).await;
    let clients = Clients::start(old.address);
    let new = agent.address(80);
    clients.pass(100).await;
    for host in HOSTS {
        serve(&cluster, &plugin, &agent, &old, host).await;
        clients.shift(host, new);
        clients.pass(100).await;
    }

    // A host returns, and moves again.
    let objects = plugin.run(&["adopt", "b.test"]);
    let objects = String::from_utf8(objects.stdout).expect("text");
    clients.shift("b.test", old.address);
    clients.pass(100).await;
    let copy = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/shop-b.test";
    cluster.admin().delete(copy).await.expect("a deletion");
    let gone = agent.get(80, "b.test", PATH);
    agent.wait_served(&gone, |reply| reply.status == 404).await;
    clients.pass(100).await;
    cluster.apply(&objects).await.expect("objects");
    agent.wait_ok(&gone).await;
    clients.shift("b.test", new);
    clients.pass(100).await;

    old.stop();
    clients.pass(200).await;
    clients.stop().await;
}
