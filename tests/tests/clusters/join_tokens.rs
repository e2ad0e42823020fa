//! A join token lets in one host, and a host that has joined has rights of its own only.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use serde_json::json;
use sesame_gateway_api::api::NamespacedName;
use sesame_published::host_access::{fleet_role, host_account, invitation_account};
use sesame_published::join_token::JoinToken;
use sesame_published::names::{agent_name, key_secret_name};
use sesame_tests::agent::{SOON, words};
use sesame_tests::clock::Clock;
use sesame_tests::cluster::{Client, Failure};
use sesame_tests::controller::ControllerUnderTest;
use sesame_tests::joining::{Host, Site, join, refused, text};
use sesame_tests::manifests::{edge, gateway, http_listener};
use sesame_tests::reports::{REPORTS, report, report_path, say};
use sesame_tests::wait::eventually;

const CORE: &str = "/api/v1/namespaces/sesame-system";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/sesame-system";

fn our_edge() -> NamespacedName {
    NamespacedName::new("default", "edge")
}

fn forbidden<T: std::fmt::Debug>(result: Result<T, Failure>, word: &str) {
    let failure = result.expect_err(word);
    assert!(failure.is(403), "{failure}");
    assert!(failure.to_string().contains(word), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_for_one_host_and_a_host_for_itself() {
    let site = Site::start().await;
    let controller = ControllerUnderTest::start(&site.cluster, &[]).await;
    controller.wait_ready().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bank"}});
    let mut vault = gateway("vault", &[http_listener("http", 80, "")]);
    vault["metadata"]["namespace"] = json!("bank");
    vault["spec"]["gatewayClassName"] = json!("edge");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend([namespace, vault]);
    site.apply(&objects).await;

    stolen(&site).await;
    let (a, b) = (Host::new(), Host::new());
    let first = site.token(&["--gateway", "default/edge", "--host", "a"]);
    let as_a = site.cluster.bearer(&a.joined(&first).await);
    // Another joins with a copy.
    refused(&b.join(&first), "join token");
    let as_b = site.cluster.bearer(
        &b.joined(&site.token(&["--gateway", "bank/vault", "--host", "b"]))
            .await,
    );
    rights(&site, &as_a, &as_b).await;
    refused(
        &a.join(&site.token(&["--fleet", "default"])),
        "has joined already, as a",
    );
    refused(
        &site.hosts(&["token", "--gateway", "default/edge", "--host", "a"]),
        "has joined already",
    );

    // One that was withdrawn, one that has expired, and one that is none.
    let host = Host::new();
    let withdrawn = site.token(&["--gateway", "default/edge", "--host", "c"]);
    assert!(site.hosts(&["revoke", "c"]).status.success());
    eventually("the invitation has ended", SOON, async || {
        let output = host.join(&withdrawn);
        if text(&output.stderr).contains("does not know this join token") {
            Ok(())
        } else {
            Err(words(&output))
        }
    })
    .await;
    let late = site.token(&["--gateway", "default/edge", "--host", "c", "--ttl", "10m"]);
    let clock = Clock::new();
    clock.set(601);
    refused(
        &join(&host.state(), &host.config(), &late, &clock.variables()),
        "this join token expired at",
    );
    refused(&host.join("something"), "this is no join token");
    refused(&host.join(&late[..late.len() - 9]), "damaged");
    assert!(!host.state().join("cluster").exists());

    leaves(&site, &b, &as_b).await;
    expired(&site).await;
    fleet(&site).await;
}

/// An invitation that expired long ago goes with the next one; a host that has joined stays.
async fn expired(site: &Site) {
    let account = |name: &str| format!("{CORE}/serviceaccounts/{name}");
    site.token(&["--gateway", "default/edge", "--host", "late"]);
    // As if `a`, which has joined, had not been able to end its invitation.
    let invitation = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
        "name": invitation_account("a"), "namespace": "sesame-system",
        "labels": {"projectsesame.io/access": "invitation"},
        "annotations": {"projectsesame.io/host": "a"},
    }});
    site.apply(&[invitation]).await;
    let long_ago =
        json!({"metadata": {"annotations": {"projectsesame.io/expires": "2020-01-01T00:00:00Z"}}});
    for host in ["late", "a"] {
        let path = account(&invitation_account(host));
        let patched = site.admin().merge(&path, &long_ago).await;
        patched.expect("the invitation");
    }
    let output = site.hosts(&["token", "--gateway", "default/edge", "--host", "next"]);
    assert!(output.status.success(), "{}", words(&output));
    let told = text(&output.stderr);
    assert!(told.contains("more than a day ago: a, late"), "{told}");
    for name in [
        invitation_account("late"),
        host_account("late"),
        invitation_account("a"),
    ] {
        assert!(site.is_gone(&account(&name)).await, "{name}");
    }
    assert!(!site.is_gone(&account(&host_account("a"))).await);
    assert!(!site.is_gone(&account(&invitation_account("next"))).await);
}

/// Whoever has a copy of a token gets nothing that the first to join does not give away.
async fn stolen(site: &Site) {
    let token = site.token(&["--gateway", "default/edge", "--host", "s"]);
    let token = JoinToken::parse(&token).unwrap();
    let thief = site.cluster.bearer(&token.bearer);
    let account = host_account("s");
    let secret = format!("{CORE}/secrets/{account}");
    let tokens = format!("{CORE}/serviceaccounts/{account}/token");
    let asking = |uid: Option<&str>| {
        let mut bound = json!({"apiVersion": "v1", "kind": "Secret", "name": account});
        if let Some(uid) = uid {
            bound["uid"] = json!(uid);
        }
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "expirationSeconds": 3600}})
    };
    let loose =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    eventually("the policy is in force", SOON, async || {
        match thief.create(&tokens, &loose).await {
            Err(error) if error.to_string().contains("has to be bound") => Ok(()),
            other => Err(format!("{:?}", other.map(|_| "a token"))),
        }
    })
    .await;
    // Without a claim nothing tells the UID.
    forbidden(thief.get(&secret).await, "secrets");
    eventually("the claim alone is let through", SOON, async || match thief
        .merge(&secret, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
    {
        Err(error) if error.is(422) => Ok(()),
        other => Err(format!("{:?}", other.map(|_| "the Secret"))),
    })
    .await;
    forbidden(
        thief.create(&tokens, &asking(None)).await,
        "has to be bound",
    );
    let claim = json!({"metadata": {"annotations": {"projectsesame.io/claimed": "now"}}});
    let claimed = thief.merge(&secret, &claim).await.expect("the first claim");
    let again = thief
        .merge(&secret, &claim)
        .await
        .expect_err("the second claim");
    assert!(
        again.is(422) && again.to_string().contains("has joined"),
        "{again}"
    );
    let guessed = "00000000-0000-4000-8000-000000000000";
    assert!(thief.create(&tokens, &asking(Some(guessed))).await.is_err());
    let uid = claimed["metadata"]["uid"].as_str();
    thief
        .create(&tokens, &asking(uid))
        .await
        .expect("the claimer's token");
    // The host that comes second learns of it, and its operator ends it.
    let host = Host::new();
    refused(&host.join(&token.encode()), "hosts revoke s");
    assert!(site.hosts(&["revoke", "s"]).status.success());
}

/// A host reads its own Gateway's keys and writes its own reports.
async fn rights(site: &Site, as_a: &Client, as_b: &Client) {
    let (edge, vault) = (our_edge(), NamespacedName::new("bank", "vault"));
    let serving = json!({"state": "Serving", "addresses": ["192.0.2.1"]});
    for (client, gateway, host) in [(as_a, &edge, "a"), (as_b, &vault, "b")] {
        eventually("a host reports for itself", SOON, async || {
            let said = say(client, gateway, host, &serving).await;
            said.map_err(|error| error.to_string())
        })
        .await;
    }
    let of_b = report_path(&vault, "b");
    let down = json!({"status": {"state": "Down"}});
    forbidden(
        as_a.merge(&format!("{of_b}/status"), &down).await,
        "does not speak for host b",
    );
    forbidden(as_a.delete(&of_b).await, "does not speak for host b");
    let forged = report(&agent_name(&vault, "a"), "bank/vault", "a");
    forbidden(
        as_a.apply_value(&forged).await,
        "does not speak for Gateway bank/vault",
    );

    let key = |gateway: &NamespacedName| format!("{CORE}/secrets/{}", key_secret_name(gateway, 0));
    let own = as_a.get(&key(&edge)).await.expect_err("there is none");
    assert!(own.is(404), "{own}");
    forbidden(as_a.get(&key(&vault)).await, "secrets");
    forbidden(as_a.get(&format!("{CORE}/secrets")).await, "secrets");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    for account in [host_account("b"), "sesame-controller".to_owned()] {
        let path = format!("{CORE}/serviceaccounts/{account}/token");
        forbidden(as_a.create(&path, &request).await, "serviceaccounts");
    }
    let own = format!("{CORE}/serviceaccounts/{}/token", host_account("a"));
    forbidden(as_a.create(&own, &request).await, "has to be bound");
    forbidden(
        as_a.delete(&format!("{CORE}/serviceaccounts/{}", host_account("b")))
            .await,
        "serviceaccounts",
    );
    let invitation = format!("{CORE}/serviceaccounts/{}", invitation_account("a"));
    assert!(site.is_gone(&invitation).await, "the invitation has ended");
}

/// A host that leaves is gone on both sides.
async fn leaves(site: &Site, host: &Host, client: &Client) {
    let output = host.leave();
    assert!(output.status.success(), "{}", words(&output));
    assert!(!host.state().join("cluster").exists());
    assert_eq!(std::fs::read_to_string(host.config()).unwrap(), "");
    assert!(
        site.is_gone(&format!("{CORE}/serviceaccounts/{}", host_account("b")))
            .await
    );
    let reports = site.admin().get(REPORTS).await.expect("a list");
    let reports = reports["items"].as_array().cloned().unwrap_or_default();
    assert!(
        reports.iter().all(|report| report["spec"]["host"] != "b"),
        "{reports:#?}"
    );
    eventually("its credential is of no use", SOON, async || {
        match client.get(&format!("{CORE}/configmaps")).await {
            Err(error) if error.is(401) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    refused(&host.leave(), "has joined no cluster");
}

/// A fleet's hosts have the keys of its Gateways, also of one that comes later.
async fn fleet(site: &Site) {
    let host = Host::new();
    let credential = host
        .joined(&site.token(&["--fleet", "default", "--host", "f"]))
        .await;
    let client = site.cluster.bearer(&credential);
    let allowed = async |gateway: NamespacedName| {
        let path = format!("{CORE}/secrets/{}", key_secret_name(&gateway, 0));
        eventually(&format!("keys of {gateway}"), SOON, async || {
            match client.get(&path).await {
                Err(error) if error.is(404) => Ok(()),
                other => {
                    let role = site
                        .admin()
                        .get(&format!("{RBAC}/roles/{}", fleet_role("default")))
                        .await;
                    Err(format!("{:?} {role:?}", other.map(|_| "a Secret")))
                }
            }
        })
        .await;
    };
    allowed(our_edge()).await;
    let mut later = gateway("later", &[http_listener("http", 80, "")]);
    later["spec"]["gatewayClassName"] = json!("edge");
    site.apply(&[later]).await;
    allowed(NamespacedName::new("default", "later")).await;
    let others = key_secret_name(&NamespacedName::new("default", "other"), 0);
    forbidden(
        client.get(&format!("{CORE}/secrets/{others}")).await,
        "secrets",
    );
}
