//! Managed fleets, tested against a real API server.

mod merged;
mod workloads;

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_tests::cluster::{Channel, Client, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, condition, deployed};
use sesame_tests::manifests::{edge_name, edge_with_parameters, gateway, http_listener};
use sesame_tests::wait::{eventually, holds};

const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways";
const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";
const DAEMONSETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CONFIGURATIONS: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/default/sesameconfigurations";

fn access(plural: &str, gateway: &NamespacedName, more: &str) -> String {
    let name = sesame_published::host_access::fleet_agents(gateway);
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{plural}/{name}{more}")
}

fn fleet(gateway: &NamespacedName) -> [String; 6] {
    let name = format!("{}-edge", gateway.name);
    [
        format!("{DAEMONSETS}/{name}-envoy"),
        format!("{DAEMONSETS}/{name}-agent"),
        format!("{ACCOUNTS}/{name}-agent"),
        access("roles", gateway, ""),
        access("rolebindings", gateway, ""),
        access("rolebindings", gateway, ".agents"),
    ]
}

async fn there(admin: &Client, path: &str) -> Value {
    eventually(&format!("{path} exists"), TEST_TIMEOUT, async || {
        admin.get(path).await.map_err(|error| error.to_string())
    })
    .await
}

async fn gone(admin: &Client, path: &str) {
    eventually(
        &format!("{path} is deleted"),
        TEST_TIMEOUT,
        async || match admin.get(path).await {
            Err(error) if error.to_string().contains("404") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
}

async fn managed(cluster: &TestCluster) {
    let fleet = json!({
        "management": "Managed",
        "nodeSelector": {"edge": "yes"},
        "resources": {"envoy": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 1}}},
    });
    let mut objects = edge_with_parameters(&json!({"fleet": fleet}));
    let gateway = objects.iter_mut().find(|it| it["kind"] == "Gateway");
    gateway.expect("the Gateway")["spec"]["infrastructure"] =
        json!({"labels": {"team": "a"}, "annotations": {"note": "b"}});
    cluster.apply_all(&objects).await;
}

fn gateway_condition<'a>(gateway: &'a Value, type_: &str) -> &'a Value {
    condition(&gateway["status"]["conditions"], type_)
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_gateway_fleet_is_repaired_and_recreated() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let admin = cluster.admin();
    managed(&cluster).await;
    let edge = edge_name();
    for path in fleet(&edge) {
        there(admin, &path).await;
    }
    let launcher = cluster.get(&fleet(&edge)[0]).await;
    assert_eq!(launcher["metadata"]["labels"]["team"], "a", "{launcher:#}");
    assert_eq!(launcher["metadata"]["annotations"]["note"], "b");
    let pod = &launcher["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"edge": "yes"}));
    let image = pod["containers"][0]["image"].as_str().expect("an image");
    assert!(image.starts_with("localhost/sesame-envoy:"), "{image}");
    the_agents_may_serve_their_gateway_alone(&cluster).await;

    // The API server normalizes quantities, which must not make the controller write them again.
    let versions = versions(&cluster).await;
    controller.restart();
    controller.wait_ready().await;
    controller.wait_leads().await;
    cluster
        .merge(
            CLASS,
            &json!({"metadata": {"labels": {"projectsesame.io/fleet": "seen"}}}),
        )
        .await;
    seen_by_the_controller(&cluster, "seen").await;
    assert_eq!(
        self::versions(&cluster).await,
        versions,
        "{}",
        controller.log_tail()
    );

    for path in fleet(&edge) {
        let before = cluster.get(&path).await["metadata"]["uid"].clone();
        cluster.delete(&path).await;
        eventually(
            &format!("{path} is recreated"),
            std::time::Duration::from_secs(5),
            async || {
                let object = admin.get(&path).await.map_err(|error| error.to_string())?;
                holds(object["metadata"]["uid"] != before, || {
                    "not deleted yet".to_owned()
                })
            },
        )
        .await;
    }
    let agent = &fleet(&edge)[1];
    let other = json!({"spec": {"template": {"spec": {"nodeSelector": {"edge": "no"}}}}});
    cluster.merge(agent, &other).await;
    let is_repaired =
        |daemonset: &Value| daemonset["spec"]["template"]["spec"]["nodeSelector"]["edge"] == "yes";
    cluster
        .until("the DaemonSet is repaired", agent, is_repaired)
        .await;
    let more = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    cluster.merge(&access("roles", &edge, ""), &more).await;
    let is_narrow = |role: &Value| {
        role["rules"]
            .as_array()
            .is_some_and(|rules| rules.len() == 2)
    };
    cluster
        .until(
            "permissions are restored",
            &access("roles", &edge, ""),
            is_narrow,
        )
        .await;

    let image = json!({"spec": {"fleet": {"images": {"envoy": "localhost/other:1"}}}});
    cluster
        .merge(&format!("{CONFIGURATIONS}/template"), &image)
        .await;
    let launcher = &fleet(&edge)[0];
    let is_new = |daemonset: &Value| {
        daemonset["spec"]["template"]["spec"]["initContainers"][0]["image"] == "localhost/other:1"
    };
    cluster
        .until("the image is updated", launcher, is_new)
        .await;

    cluster.delete(&format!("{GATEWAYS}/edge")).await;
    for path in fleet(&edge) {
        gone(admin, &path).await;
    }
}

async fn manage(cluster: &TestCluster, management: &str) {
    let change = json!({"spec": {"fleet": {"management": management}}});
    let template = format!("{CONFIGURATIONS}/template");
    cluster.merge(&template, &change).await;
}

/// Waits until the controller has seen the current class.
async fn seen_by_the_controller(cluster: &TestCluster, fleet: &str) {
    let manifest = sesame_published::names::manifest_name(&edge_name());
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{manifest}");
    let is_of =
        |manifest: &Value| manifest["metadata"]["labels"]["projectsesame.io/fleet"] == fleet;
    cluster
        .until("the manifest has the fleet label", &path, is_of)
        .await;
}

async fn versions(cluster: &TestCluster) -> Vec<Value> {
    let mut versions = Vec::new();
    for path in fleet(&edge_name()) {
        versions.push(cluster.get(&path).await["metadata"]["resourceVersion"].clone());
    }
    versions
}

async fn the_agents_may_serve_their_gateway_alone(cluster: &TestCluster) {
    seen_by_the_controller(cluster, "managed").await;
    let agent = cluster
        .client(&User::service_account("default", "edge-edge-agent"))
        .await;
    let path = |name: &str| format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
    let answer = |name: &str| {
        let path = path(name);
        let agent = &agent;
        async move {
            agent
                .get(&path)
                .await
                .expect_err("no access to keys")
                .to_string()
        }
    };
    eventually("the agent may read its keys", TEST_TIMEOUT, async || {
        let why = answer("default.edge.keys-0").await;
        holds(why.contains("404"), || why.clone())
    })
    .await;
    for other in ["default.other.keys-0", "default.edge.keys-24"] {
        let why = answer(other).await;
        assert!(why.contains("403"), "{other}: {why}");
    }
    agent
        .wait_allowed(true, "list", "configmaps", NAMESPACE)
        .await;
    let refused = agent.get("/api/v1/namespaces/default/configmaps").await;
    let why = refused.expect_err("another namespace").to_string();
    assert!(why.contains("403"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn released_fleet_stays_and_foreign_objects_stay_untouched() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    let admin = cluster.admin();
    managed(&cluster).await;
    let edge = edge_name();
    let mut before = Vec::new();
    for path in fleet(&edge) {
        before.push(there(admin, &path).await);
    }
    let foreign = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "other-edge-agent", "namespace": "default"}});
    let mut other = gateway("other", &[http_listener("http", 81, "")]);
    other["spec"]["gatewayClassName"] = json!("edge");
    cluster.apply_all(&[foreign, other]).await;
    let path = format!("{ACCOUNTS}/other-edge-agent");
    let stored = cluster.get(&path).await;
    let gateway = cluster
        .until(
            "the Gateway reports it",
            &format!("{GATEWAYS}/other"),
            |gateway| {
                let why = gateway_condition(gateway, "projectsesame.io/Fleet")["message"].as_str();
                why.is_some_and(|why| {
                    why.contains("other-edge-agent exists and does not belong to this Gateway")
                })
            },
        )
        .await;
    assert_eq!(
        gateway_condition(&gateway, "projectsesame.io/Fleet")["status"],
        "False"
    );
    assert_eq!(gateway_condition(&gateway, "Accepted")["status"], "True");
    let now = cluster.get(&path).await;
    assert_eq!(
        now["metadata"]["resourceVersion"],
        stored["metadata"]["resourceVersion"]
    );

    // Released objects have no owner, but are otherwise unchanged.
    manage(&cluster, "Unmanaged").await;
    let released = cluster
        .until(
            "the Gateway reports it",
            &format!("{GATEWAYS}/edge"),
            |gateway| gateway_condition(gateway, "projectsesame.io/Released")["status"] == "True",
        )
        .await;
    let why = gateway_condition(&released, "projectsesame.io/Released")["message"].as_str();
    assert!(
        why.is_some_and(|why| why.contains("DaemonSet default/edge-edge-envoy")),
        "{why:?}"
    );
    for (path, before) in fleet(&edge).iter().zip(&before) {
        let now = cluster
            .until("the object is released", path, |object| {
                let metadata = &object["metadata"];
                metadata["ownerReferences"].is_null()
                    && metadata["annotations"]["projectsesame.io/owner-uid"].is_null()
            })
            .await;
        assert_eq!(now["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(
            now["metadata"]["generation"],
            before["metadata"]["generation"]
        );
        assert_eq!(now["spec"], before["spec"]);
        assert_eq!(now["rules"], before["rules"]);
    }

    // Without approval, the controller must not take over the objects.
    manage(&cluster, "Managed").await;
    let path = format!("{GATEWAYS}/edge");
    cluster
        .until("the Gateway reports it", &path, |gateway| {
            let why = gateway_condition(gateway, "projectsesame.io/Fleet")["message"].as_str();
            why.is_some_and(|why| {
                why.contains(
                    "edge-edge-agent exists and does not belong to \
                this Gateway",
                )
            }) && gateway_condition(gateway, "projectsesame.io/Released").is_null()
        })
        .await;

    let manifest = sesame_published::names::manifest_name(&edge);
    cluster.delete(&path).await;
    // Once the manifest is deleted, the controller has handled the Gateway's deletion.
    gone(
        admin,
        &format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{manifest}"),
    )
    .await;
    gone(admin, "/api/v1/namespaces/default/services/edge-edge").await;
    for path in fleet(&edge) {
        assert!(
            admin.get(&path).await.is_ok(),
            "{path}: {}",
            controller.log_tail()
        );
    }
}
