//! The test cluster behaves like a real cluster.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sesame_tests::cluster::{Channel, Failure, TestCluster, User};
use sesame_tests::manifests::{self, backend_ref, http_listener, http_route};
use sesame_tests::wait::eventually;

const CLASSES: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";

/// Timeout for any expected event, long enough for a new RBAC binding to take effect.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn refusal(result: Result<Value, Failure>) -> (u16, String) {
    match result {
        Err(Failure::Refused { code, message, .. }) => (code, message),
        Err(error) => panic!("{error}"),
        Ok(object) => panic!("not rejected: {object}"),
    }
}

#[tokio::test]
async fn a_real_api_server_with_the_gateway_api() {
    let start = Instant::now();
    let mut cluster = TestCluster::start().await;
    eprintln!("started in {:?}", start.elapsed());
    let start = Instant::now();
    cluster.install_crds(Channel::Standard).await;
    eprintln!("standard channel installed in {:?}", start.elapsed());

    defaults_and_generations(&cluster).await;
    rules_of_the_definitions(&cluster).await;
    role_based_access(&cluster).await;

    cluster.stop_apiserver();
    let down = cluster.admin().get(CLASSES).await;
    assert!(matches!(down, Err(Failure::Unreachable(_))), "{down:?}");
    let start = Instant::now();
    cluster.start_apiserver().await;
    eprintln!("restarted in {:?}", start.elapsed());
    let route = cluster.admin().get(&format!("{ROUTES}/app")).await;
    assert_eq!(
        route.expect("the stored route")["metadata"]["generation"],
        2
    );

    let config = cluster.kubeconfig(&User::Admin).await;
    drop(cluster);
    assert!(!config.exists(), "{} still exists", config.display());
}

#[tokio::test]
async fn the_experimental_channel_has_more_kinds_and_fields() {
    let cluster = TestCluster::start().await;
    cluster.install_crds(Channel::Experimental).await;
    let mesh = json!({
        "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
        "kind": "XMesh",
        "metadata": {"name": "mesh"},
        "spec": {"controllerName": "example.com/mesh"},
    });
    let mesh = cluster.admin().apply_value(&mesh).await;
    mesh.expect("apply an experimental kind");
    let session = json!({"type": "Cookie", "cookie": {"name": "sid"}});
    let rule = json!({"backendRefs": [backend_ref("app")], "sessionPersistence": session});
    let route = http_route("app", &[], &[rule]);
    let route = cluster.admin().apply_value(&route).await;
    let route = route.expect("apply an experimental field");
    let stored = &route["spec"]["rules"][0]["sessionPersistence"];
    assert_eq!(stored["cookie"]["name"], "sid");
}

async fn defaults_and_generations(cluster: &TestCluster) {
    let mut objects = manifests::edge(&[http_listener("http", 80, "")]);
    // Omit `matches`, because an explicit empty list would not be replaced by the default.
    let rule = json!({"backendRefs": [backend_ref("app")]});
    let mut route = http_route("app", &["app.example.com"], &[rule]);
    objects.push(route.clone());
    let stored = cluster.apply(&manifests::yaml(&objects)).await;
    let stored = stored.expect("the three objects");
    let [class, gateway, first] = stored.as_slice() else {
        panic!("expected three objects, got {stored:?}");
    };
    assert_eq!(class["status"]["conditions"][0]["reason"], "Pending");
    let listener = &gateway["spec"]["listeners"][0];
    assert_eq!(listener["allowedRoutes"]["namespaces"]["from"], "Same");
    let conditions = gateway["status"]["conditions"].as_array();
    assert_eq!(conditions.map(Vec::len), Some(2), "{gateway}");
    assert_eq!(first["spec"]["parentRefs"][0]["kind"], "Gateway");
    assert_eq!(first["spec"]["rules"][0]["backendRefs"][0]["weight"], 1);
    let default = json!([{"path": {"type": "PathPrefix", "value": "/"}}]);
    assert_eq!(first["spec"]["rules"][0]["matches"], default);
    assert_eq!(first["metadata"]["generation"], 1);

    route["spec"]["hostnames"] = json!(["other.example.com"]);
    let second = cluster.admin().apply_value(&route).await.expect("a change");
    assert_eq!(second["metadata"]["generation"], 2);
    let status = json!({"status": {"parents": []}});
    let path = format!("{ROUTES}/app/status");
    let third = cluster.admin().merge(&path, &status).await;
    assert_eq!(third.expect("a status")["metadata"]["generation"], 2);
}

async fn rules_of_the_definitions(cluster: &TestCluster) {
    let mut gateway = manifests::gateway("edge", &[http_listener("http", 80, "")]);
    gateway["spec"]["listeners"][0]["tls"] = json!({"mode": "Terminate"});
    let (code, message) = refusal(cluster.admin().apply_value(&gateway).await);
    assert_eq!(code, 422, "{message}");
    let expected = "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']";
    assert!(message.contains(expected), "{message}");
}

async fn role_based_access(cluster: &TestCluster) {
    let user = User::service_account("default", "reader");
    let config = cluster.kubeconfig(&user).await;
    let mode = std::fs::metadata(&config).expect("a kubeconfig");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let reader = cluster.client(&user).await;
    let (code, message) = refusal(reader.get(ROUTES).await);
    assert_eq!(code, 403, "{message}");
    let name = "system:serviceaccount:default:reader";
    assert!(message.contains(name), "{message}");

    let role = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [gateway.networking.k8s.io], resources: [httproutes], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
";
    cluster.apply(role).await.expect("a role");
    let routes = eventually("the reader can list routes", TEST_TIMEOUT, async || {
        reader.get(ROUTES).await.map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(routes["items"].as_array().map(Vec::len), Some(1));
    let (code, message) = refusal(reader.delete(&format!("{ROUTES}/app")).await);
    assert_eq!(code, 403, "{message}");
}
