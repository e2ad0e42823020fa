//! Permissions to read private keys, and the manifests that grant these permissions.

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_published::host_access::host_secret;
use sesame_published::names::key_secret_name;
use sesame_tests::agent::{TEST_TIMEOUT, words};
use sesame_tests::cluster::User;
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE};
use sesame_tests::envoy::workspace;
use sesame_tests::joining::{Host, Site};
use sesame_tests::manifests::{edge, edge_name, gateway, http_listener};
use sesame_tests::wait::{eventually, holds};

const CORE: &str = "/api/v1/namespaces/sesame-system";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/sesame-system";

#[tokio::test(flavor = "multi_thread")]
async fn default_agents_read_only_their_fleets_keys() {
    let site = Site::start().await;
    let rights = workspace().join("controller/deploy/agent/rbac.yaml");
    let rights = std::fs::read_to_string(rights).expect("the agents' rights");
    site.cluster.apply(&rights).await.expect("Roles");
    let agent = User::service_account(NAMESPACE, "sesame-agent");
    let agent = site.cluster.client(&agent).await;
    let may_get = async |name: &str| {
        let allowed = agent.may_get_secret(NAMESPACE, name).await;
        allowed.expect("an answer")
    };
    let controller = ControllerUnderTest::start(&site.cluster, &[]).await;
    controller.wait_ready().await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let mut inner = gateway("inner", &[http_listener("http", 80, "")]);
    inner["spec"]["gatewayClassName"] = json!("edge");
    inner["metadata"]["labels"] = json!({"projectsesame.io/fleet": "inner"});
    objects.push(inner);
    site.apply(&objects).await;
    let own = key_secret_name(&edge_name(), 0);
    eventually("the agent may read its keys", TEST_TIMEOUT, async || {
        holds(may_get(&own).await, || controller.log_tail())
    })
    .await;
    let others = key_secret_name(&NamespacedName::new("default", "inner"), 0);
    for name in ["sesame-signing-key", &others, "sesame-host.a", ""] {
        assert!(!may_get(name).await, "the agent may read {name:?}");
    }

    // Applying the manifest again must keep permissions that were added later.
    let role = format!("{RBAC}/roles/sesame-agent-keys");
    let before = site.cluster.get(&role).await;
    site.cluster.apply(&rights).await.expect("Roles");
    assert_eq!(site.cluster.get(&role).await, before);
    assert!(may_get(&own).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_operators_read_no_secret() {
    let site = Site::start().await;
    let controller = ControllerUnderTest::start(&site.cluster, &[]).await;
    controller.wait_ready().await;
    site.apply(&edge(&[http_listener("http", 80, "")])).await;
    let operator = User::service_account("default", "operator");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "operators", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
            "name": "sesame-hosts-operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "default"}],
    });
    site.apply(&[binding]).await;
    let config = site.cluster.kubeconfig(&operator).await;
    let operator = site.cluster.client(&operator).await;
    operator
        .wait_allowed(true, "create", "secrets", NAMESPACE)
        .await;

    // The controller adds permissions to the fleet's Role.
    for (scope, name, host) in [
        ("--gateway", "default/edge", "a"),
        ("--fleet", "default", "b"),
        ("--fleet", "default", "c"),
    ] {
        let token = site.token_as(&config, &[scope, name, "--host", host]);
        let client = site.cluster.bearer(&Host::new().joined(&token).await);
        let own = key_secret_name(&edge_name(), 0);
        eventually("the host may read its keys", TEST_TIMEOUT, async || {
            let allowed = client.may_get_secret(NAMESPACE, &own).await;
            holds(allowed.map_err(|error| error.to_string())?, || {
                controller.log_tail()
            })
        })
        .await;
    }

    for name in ["sesame-signing-key", &key_secret_name(&edge_name(), 0), ""] {
        let allowed = operator.may_get_secret(NAMESPACE, name).await;
        assert!(!allowed.expect("an answer"), "{name:?}");
    }
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = format!("{CORE}/serviceaccounts/sesame-controller/token");
    eventually(
        "the admission policy takes effect",
        TEST_TIMEOUT,
        async || match operator.create(&token, &request).await {
            Err(error) if error.to_string().contains("tokens of hosts") => Ok(()),
            other => Err(format!("{:?}", other.map(|_| "a token"))),
        },
    )
    .await;
    let mut secret = json!(host_secret("s", "u", "now"));
    secret["metadata"]["name"] = json!(key_secret_name(&edge_name(), 23));
    secret["metadata"]["annotations"] =
        json!({"kubernetes.io/service-account.name": "sesame-controller"});
    secret["type"] = json!("kubernetes.io/service-account-token");
    let created = operator.create(&format!("{CORE}/secrets"), &secret).await;
    let refused = created.expect_err("a foreign Secret").to_string();
    assert!(
        refused.contains("may create only Secrets of hosts"),
        "{refused}"
    );
    let expired = site.hosts_as(&config, &["revoke", "a"]);
    assert!(expired.status.success(), "{}", words(&expired));
}

/// `kubectl apply` reports an object as changed if the API server stores a list differently.
#[tokio::test(flavor = "multi_thread")]
async fn reapplied_manifests_change_nothing() {
    let site = Site::start().await;
    let deploy = workspace().join("controller/deploy");
    for file in [
        "hosts.yaml",
        "reports.yaml",
        "rbac.yaml",
        "fleets.yaml",
        "priority.yaml",
    ] {
        let text = std::fs::read_to_string(deploy.join(file)).expect(file);
        let written: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        let before = site.cluster.apply(&text).await.expect(file);
        let after = site.cluster.apply(&text).await.expect(file);
        for (index, written) in written.iter().enumerate() {
            let stored = &after[index];
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            assert_eq!(version(stored), version(&before[index]), "{file}");
            let mut found = Vec::new();
            changed_lists("", written, stored, &mut found);
            assert!(found.is_empty(), "{file}: {found:#?}");
        }
    }
}

/// Outside of lists, ignores fields that only the stored object has, such as defaults.
fn changed_lists(at: &str, written: &Value, stored: &Value, found: &mut Vec<String>) {
    match written {
        Value::Object(fields) => {
            for (name, written) in fields {
                changed_lists(&format!("{at}/{name}"), written, &stored[name], found);
            }
        }
        written if written == stored => {}
        written => found.push(format!("{at}: {written} is stored as {stored}")),
    }
}
