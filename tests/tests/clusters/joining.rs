//! A host outside the cluster joins with one token. It must keep serving even if it loses access to
//! the cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, words};
use sesame_tests::backend::Backend;
use sesame_tests::clock::Clock;
use sesame_tests::controller::{ControllerUnderTest, condition};
use sesame_tests::joining::{
    Host, Site, credential, credential_path, holding, join, leave, options, refused, text,
};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served};
use sesame_tests::network;
use sesame_tests::reports::report_path;
use sesame_tests::wait::eventually;

const CORE: &str = "/api/v1/namespaces/sesame-system";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";

fn our_edge() -> NamespacedName {
    NamespacedName::new("default", "edge")
}

async fn wait_addresses(
    site: &Site,
    addresses: &[&str],
    controller: &ControllerUnderTest,
) -> Value {
    eventually(
        &format!("the Gateway has addresses {addresses:?}"),
        3 * TEST_TIMEOUT,
        async || {
            let object = site
                .admin()
                .get(GATEWAY)
                .await
                .map_err(|error| error.to_string())?;
            let all = object["status"]["addresses"]
                .as_array()
                .into_iter()
                .flatten();
            let found: Vec<&str> = all.filter_map(|one| one["value"].as_str()).collect();
            if found == addresses {
                Ok(object)
            } else {
                Err(format!("{object:#}\n{}", controller.log_tail()))
            }
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn joined_host_serves_through_renewal_loss_and_revocation() {
    if !network::inside_own("joined_host_serves_through_renewal_loss_and_revocation") {
        return;
    }
    let site = Site::start().await;
    let flags = ["--host-lost-seconds", "90"];
    let controller = ControllerUnderTest::start(&site.cluster, &flags).await;
    controller.wait_ready().await;
    let at = (network::BACKENDS, 0).into();
    let backend = Backend::start_at("a", at).await.expect("an address");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    let rules = [rule_to("a", &[path("PathPrefix", "/")])];
    objects.push(http_route("app", &["join.test"], &rules));
    site.apply(&objects).await;

    let clock = Clock::new();
    let wrapper = clock.command();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let setup = Setup::with_ports(&[80])
        .without_manifests()
        .wrapper(&wrapper);
    let mut agent = setup.prepare();
    let config = agent.runtime().join("agent.yaml");
    let begun = Instant::now();
    let token = site.token(&[
        "--gateway",
        "default/edge",
        "--host",
        "host-1",
        "--lifetime",
        "10m",
    ]);
    assert_eq!(site.row("host-1")["access"], "invited");
    let joined = join(&agent.state(), &config, &token, &[]);
    assert!(joined.status.success(), "{}", words(&joined));
    let first = credential(&agent.state()).await;
    assert!(
        !words(&joined).contains(&first),
        "the credential is printed"
    );
    let state = agent.state();
    let mode = |name: &str| {
        let path = state.join("cluster").join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("token"), mode("kubeconfig")), (0o600, 0o600));
    let flags = options(&config);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    agent.add_flags(&flags);
    // Older releases stored the credential unencrypted.
    std::fs::write(credential_path(&agent.state()), &first).expect("a file");
    agent.restart();
    let request = agent.get(80, "join.test", "/");
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
    assert_eq!(credential(&agent.state()).await, first, "not sealed");
    println!("from join token to first response: {:.1?}", begun.elapsed());
    let load = Load::start(&Plan::new(vec![request]));

    inventory(&site).await;
    let other = Host::new();
    refused(&other.join(&token), "join token");
    assert!(
        !other.state().join("cluster").exists(),
        "a rejected host must store nothing"
    );

    // After half of the credential's lifetime, the agent renews it.
    clock.set(310);
    let second = eventually("the credential is renewed", TEST_TIMEOUT, async || {
        let now = credential(&agent.state()).await;
        if now == first {
            Err(agent.log_tail())
        } else {
            Ok(now)
        }
    })
    .await;
    assert_eq!((mode("token"), mode("kubeconfig")), (0o600, 0o600));
    for token in [&first, &second] {
        assert_eq!(holding(&agent.state(), token), [] as [PathBuf; 0]);
    }
    let renewed = site.cluster.bearer(&second);
    renewed
        .get(&format!("{CORE}/configmaps"))
        .await
        .expect("the next credential");
    assert!(!agent.log().contains(&second), "a credential is logged");

    lost_and_found(&site, &mut agent, &controller).await;
    load.pass(50).await;
    revoked(&site, &mut agent).await;
    load.pass(50).await;
    load.stop().await.assert_clean();
    assert!(agent.end().success(), "{}", agent.log_tail());
    let left = leave(&agent.state(), &config, &agent.runtime());
    assert!(left.status.success(), "{}", words(&left));
    assert!(!agent.state().join("cluster").exists());
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "");
}

async fn inventory(site: &Site) {
    let row = eventually("the inventory lists the host", TEST_TIMEOUT, async || {
        let row = site.row("host-1");
        if row["state"] == "Serving" {
            Ok(row)
        } else {
            Err(row.to_string())
        }
    })
    .await;
    assert_eq!(row["access"], "joined", "{row:#}");
    assert_eq!(row["gateways"], json!(["default/edge"]), "{row:#}");
    assert_eq!(row["addresses"], json!(["127.0.0.1"]), "{row:#}");
    assert_eq!(
        (&row["zone"], &row["envoyVersion"]),
        (&json!("rack-7"), &json!("1.40.0")),
        "{row:#}"
    );
    assert!(
        row["cores"].as_u64() > Some(0) && row["memoryMiB"].as_u64() > Some(0),
        "{row:#}"
    );
    let table = site.hosts(&["list"]);
    assert!(text(&table.stdout).contains("rack-7"), "{}", words(&table));
}

/// A lost host's address must be removed from the status until the host returns.
async fn lost_and_found(site: &Site, agent: &mut AgentUnderTest, controller: &ControllerUnderTest) {
    wait_addresses(site, &["127.0.0.1"], controller).await;
    agent.kill9();
    let object = wait_addresses(site, &[], controller).await;
    let programmed = condition(&object["status"]["conditions"], "Programmed");
    let message = programmed["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("no report for 90 seconds from host-1"),
        "{programmed:#}"
    );
    assert!(controller.metric("hosts_lost", "").await > 0.5);
    assert!(
        controller.log().contains("a host is lost"),
        "{}",
        controller.log_tail()
    );
    wait_event(site, "Warning", "HostLost").await;
    agent.restart();
    wait_addresses(site, &["127.0.0.1"], controller).await;
    wait_event(site, "Normal", "HostReturned").await;
    eventually("no host is lost", TEST_TIMEOUT, async || {
        let lost = controller.metric("hosts_lost", "").await;
        if lost < 0.5 {
            Ok(())
        } else {
            Err(controller.log_tail())
        }
    })
    .await;
}

async fn wait_event(site: &Site, type_: &str, reason: &str) {
    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    site.cluster
        .until(reason, EVENTS, |events| {
            let items = events["items"].as_array().into_iter().flatten();
            let matching = items.filter(|event| {
                event["reason"] == reason
                    && event["type"] == type_
                    && event["regarding"]["name"] == "edge"
                    && event["note"]
                        .as_str()
                        .is_some_and(|note| note.contains("host-1"))
            });
            matching.count() == 1
        })
        .await;
}

async fn revoked(site: &Site, agent: &mut AgentUnderTest) {
    let output = site.hosts(&["revoke", "host-1"]);
    assert!(output.status.success(), "{}", words(&output));
    refused(
        &site.hosts(&["revoke", "host-1"]),
        "host host-1 has neither joined nor been invited",
    );
    let stolen = site.cluster.bearer(&credential(&agent.state()).await);
    eventually("access is revoked", TEST_TIMEOUT, async || {
        match stolen.get(&format!("{CORE}/configmaps")).await {
            Err(error) if error.is(401) || error.is(403) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // Restart the agent, because an open watch may outlive the credential.
    agent.kill9();
    agent.restart();
    agent
        .wait_status("the agent serves without access to the cluster", |status| {
            status["source"]["available"] == false
                && status["gateways"][0]["gateway"] == "default/edge"
        })
        .await;
    assert!(site.is_gone(&report_path(&our_edge(), "host-1")).await);
}
