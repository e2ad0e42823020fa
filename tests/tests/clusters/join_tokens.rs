//! A join token admits one host, which gets permissions only for itself.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_published::host_access::{fleet_role, host_account, host_secret, invitation_account};
use sesame_published::join_token::JoinToken;
use sesame_published::names::{agent_name, key_secret_name};
use sesame_tests::agent::{TEST_TIMEOUT, words};
use sesame_tests::clock::Clock;
use sesame_tests::cluster::{Client, Failure};
use sesame_tests::controller::ControllerUnderTest;
use sesame_tests::joining::{Host, Site, join, refused, text};
use sesame_tests::manifests::{edge, gateway, http_listener};
use sesame_tests::reports::{REPORTS, report, report_path, write_report};
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
async fn join_token_admits_one_host_with_own_rights() {
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
    refused(&b.join(&first), "join token");
    let as_b = site.cluster.bearer(
        &b.joined(&site.token(&["--gateway", "bank/vault", "--host", "b"]))
            .await,
    );
    rights(&site, &as_a, &as_b).await;
    refused(
        &a.join(&site.token(&["--fleet", "default"])),
        "has already joined, as a",
    );
    refused(
        &site.hosts(&["token", "--gateway", "default/edge", "--host", "a"]),
        "has already joined",
    );

    let host = Host::new();
    let withdrawn = site.token(&["--gateway", "default/edge", "--host", "c"]);
    assert!(site.hosts(&["revoke", "c"]).status.success());
    eventually("the token is rejected", TEST_TIMEOUT, async || {
        let output = host.join(&withdrawn);
        if text(&output.stderr).contains("rejected this join token") {
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
    refused(&host.join("something"), "this is not a join token");
    refused(&host.join(&late[..late.len() - 9]), "damaged");
    assert!(!host.state().join("cluster").exists());

    leaves(&site, &b, &as_b).await;
    expired(&site).await;
    fleet(&site).await;
}

/// Removing expired invitations must not remove hosts that have joined.
async fn expired(site: &Site) {
    let account = |name: &str| format!("{CORE}/serviceaccounts/{name}");
    site.token(&["--gateway", "default/edge", "--host", "late"]);
    // Simulate that host `a` failed to remove its invitation.
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
    let stderr = text(&output.stderr);
    assert!(stderr.contains("more than a day ago: a, late"), "{stderr}");
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

/// A thief either gets no credential, or locks out the real host, which reveals the theft.
async fn stolen(site: &Site) {
    let token = site.token(&["--gateway", "default/edge", "--host", "s"]);
    let token = JoinToken::parse(&token).unwrap();
    let thief = site.cluster.bearer(&token.bearer);
    let secrets = format!("{CORE}/secrets");
    let secret = format!("{secrets}/{}", host_account("s"));
    assert!(site.is_gone(&secret).await, "only the host creates it");
    cannot_create(&thief, &token).await;
    assert!(site.is_gone(&secret).await, "nothing was created");

    // Neither a dry run nor a failing patch may reveal the UID of the host's Secret.
    let claim = json!(host_secret("s", &token.account_uid, "now"));
    let copied = json!([{"op": "copy", "from": "/metadata/uid", "path": "/metadata/name"}]);
    let dry = thief.create(&format!("{secrets}?dryRun=All"), &claim).await;
    let dry = dry.expect_err("a dry run");
    assert!(dry.is(422) && dry.to_string().contains("dry run"), "{dry}");
    let claimed = thief.create(&secrets, &claim).await;
    let claimed = claimed.expect("the first claim");
    let uid = claimed["metadata"]["uid"].as_str().expect("a UID");
    for refused in [
        thief.json_patch(&secret, &copied).await,
        thief.merge(&secret, &json!({"metadata": {}})).await,
        thief.get(&secret).await,
        thief.delete(&secret).await,
    ] {
        let refused = refused.expect_err("only creation is allowed");
        assert!(refused.is(403), "{refused}");
        assert!(!refused.to_string().contains(uid), "{refused}");
    }
    let again = thief.create(&secrets, &claim).await;
    let again = again.expect_err("the second claim");
    assert!(again.is(409), "{again}");
    assert!(!again.to_string().contains(uid), "{again}");

    let tokens = format!("{CORE}/serviceaccounts/{}/token", host_account("s"));
    let bound = |uid: Option<&str>| {
        let mut bound = json!({"apiVersion": "v1", "kind": "Secret", "name": host_account("s")});
        if let Some(uid) = uid {
            bound["uid"] = json!(uid);
        }
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "expirationSeconds": 3600}})
    };
    forbidden(thief.create(&tokens, &bound(None)).await, "has to be bound");
    let guessed = "00000000-0000-4000-8000-000000000000";
    assert!(thief.create(&tokens, &bound(Some(guessed))).await.is_err());
    let given = thief.create(&tokens, &bound(Some(uid))).await;
    given.expect("the claimer's token");
    // The real host's error asks the operator to revoke the token.
    let host = Host::new();
    refused(&host.join(&token.encode()), "hosts revoke s");
    assert!(site.hosts(&["revoke", "s"]).status.success());
}

/// The thief may create only the host's Secret, without data.
async fn cannot_create(thief: &Client, token: &JoinToken) {
    let with = |pointer: &str, value: Value| {
        let mut secret = json!(host_secret("s", &token.account_uid, "now"));
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        secret.pointer_mut(parent).expect("an object")[field] = value;
        secret
    };
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": token.account_uid}]);
    for secret in [
        with("/metadata/name", json!("default.edge.keys-3")),
        with("/metadata/name", json!(host_account("t"))),
        with("/type", json!("Opaque")),
        with("/data", json!({"keys.pb": "AAAA"})),
        with("/stringData", json!({"keys.pb": "AAAA"})),
        with("/immutable", json!(true)),
        with("/metadata/labels", json!({"a": "b"})),
        with("/metadata/annotations", json!({"a": "b"})),
        with("/metadata/finalizers", json!(["example.com/a"])),
        with("/metadata/ownerReferences", owner),
        with("/metadata/ownerReferences", json!([])),
    ] {
        let created = thief.create(&format!("{CORE}/secrets"), &secret).await;
        let refused = created.expect_err("a forbidden Secret");
        assert!(refused.is(422), "{refused}: {secret}");
        assert!(refused.to_string().contains("'sesame-hosts'"), "{refused}");
    }
    let loose =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let tokens = format!("{CORE}/serviceaccounts/{}/token", host_account("s"));
    forbidden(thief.create(&tokens, &loose).await, "has to be bound");
}

async fn rights(site: &Site, as_a: &Client, as_b: &Client) {
    let (edge, vault) = (our_edge(), NamespacedName::new("bank", "vault"));
    let serving = json!({"state": "Serving", "addresses": ["192.0.2.1"]});
    for (client, gateway, host) in [(as_a, &edge, "a"), (as_b, &vault, "b")] {
        eventually(
            "hosts may report for themselves",
            TEST_TIMEOUT,
            async || {
                let result = write_report(client, gateway, host, &serving).await;
                result.map_err(|error| error.to_string())
            },
        )
        .await;
    }
    let report_b = report_path(&vault, "b");
    let down = json!({"status": {"state": "Down"}});
    forbidden(
        as_a.merge(&format!("{report_b}/status"), &down).await,
        "does not speak for host b",
    );
    forbidden(as_a.delete(&report_b).await, "does not speak for host b");
    let forged = report(&agent_name(&vault, "a"), "bank/vault", "a");
    forbidden(
        as_a.apply_value(&forged).await,
        "does not speak for Gateway bank/vault",
    );

    let key = |gateway: &NamespacedName| format!("{CORE}/secrets/{}", key_secret_name(gateway, 0));
    eventually(
        "the host may read its keys",
        TEST_TIMEOUT,
        async || match as_a.get(&key(&edge)).await {
            Err(error) if error.is(404) => Ok(()),
            other => Err(format!("{:?}", other.map(|_| "a Secret"))),
        },
    )
    .await;
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
    assert!(
        site.is_gone(&invitation).await,
        "the invitation must be gone"
    );
}

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
    eventually(
        "the host's credential is rejected",
        TEST_TIMEOUT,
        async || match client.get(&format!("{CORE}/configmaps")).await {
            Err(error) if error.is(401) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
    refused(&host.leave(), "has not joined a cluster");
}

async fn fleet(site: &Site) {
    let host = Host::new();
    let credential = host
        .joined(&site.token(&["--fleet", "default", "--host", "f"]))
        .await;
    let client = site.cluster.bearer(&credential);
    let allowed = async |gateway: NamespacedName| {
        let path = format!("{CORE}/secrets/{}", key_secret_name(&gateway, 0));
        eventually(
            &format!("keys of {gateway}"),
            TEST_TIMEOUT,
            async || match client.get(&path).await {
                Err(error) if error.is(404) => Ok(()),
                other => {
                    let role = site
                        .admin()
                        .get(&format!("{RBAC}/roles/{}", fleet_role("default")))
                        .await;
                    Err(format!("{:?} {role:?}", other.map(|_| "a Secret")))
                }
            },
        )
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
