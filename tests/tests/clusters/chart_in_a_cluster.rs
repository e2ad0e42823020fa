//! Installs, upgrades and removes the chart with Helm.

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, condition, controller_user, publication,
};
use sesame_tests::deployed::{chart, helm, rendered_by_helm};
use sesame_tests::manifests::{
    edge, edge_name, gateway, http_listener, https_listener, plain_route, served_at,
};
use sesame_tests::wait::{eventually, holds};

const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";

fn full() -> Value {
    let digest = format!("sha256:{}", "0".repeat(64));
    let image = |name: &str| json!({"repository": format!("registry.example.com/{name}"), "digest": digest, "pullPolicy": "Always"});
    let placement = json!({
        "nodeSelector": {"example.com/edge": "true"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": null, "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}},
        "priorityClassName": "system-node-critical",
        "podAnnotations": {"example.com/team": "edge"},
        "resources": {"requests": {"cpu": "1"}},
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    });
    let with = |more: &Value| {
        let mut whole = placement.clone();
        let fields = more.as_object().expect("an object").clone();
        whole.as_object_mut().expect("an object").extend(fields);
        whole
    };
    json!({
        "images": {
            "controller": image("controller"), "agent": image("agent"), "envoy": image("envoy"),
            "pullSecrets": [{"name": "registry"}],
        },
        "fleet": "inner",
        "watchNamespaces": ["default", "shop"],
        "configuration": {"hosts": {"lostAfter": "5m"}},
        "controller": with(&json!({
            "replicas": 3, "extraArgs": ["--mode=multiple"], "podSecurityContext": {"fsGroup": 65532},
        })),
        "agent": with(&json!({"extraArgs": ["--port-map=80:8080"]})),
        "envoy": {
            "resources": {"requests": {"cpu": "2"}}, "extraArgs": ["--log=debug"], "podAnnotations": {"a": "b"},
            "drainSeconds": 30, "terminationGracePeriodSeconds": 45,
        },
        "cluster": {"roleName": "sesame-second", "admissionPolicies": true},
    })
}

async fn install(cluster: &TestCluster, objects: &[Value]) {
    for object in objects {
        if object["kind"] == "CustomResourceDefinition" {
            cluster.install_crd(object).await;
        } else {
            cluster.apply_all(std::slice::from_ref(object)).await;
        }
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn moved(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaced_controller_serves_only_namespaces_it_may_read() {
    let cluster = TestCluster::start().await;
    cluster.install_crds(Channel::Standard).await;
    cluster
        .apply_all(&[NAMESPACE, "shop", "elsewhere"].map(namespace))
        .await;
    let rendered = rendered_by_helm(NAMESPACE, &full());
    install(&cluster, &rendered).await;
    a_gateway_in_each(&cluster).await;

    let user = cluster.client(&controller_user()).await;
    for (namespace, made) in [
        ("default", "services"),
        ("shop", "services"),
        (NAMESPACE, "secrets"),
    ] {
        user.wait_allowed(true, "list", "secrets", namespace).await;
        user.wait_allowed(true, "create", made, namespace).await;
    }
    user.wait_allowed(true, "list", "namespaces", "").await;
    for namespace in ["elsewhere", "kube-system", ""] {
        user.wait_allowed(false, "list", "secrets", namespace).await;
        user.wait_allowed(false, "get", "secrets", namespace).await;
        user.wait_allowed(false, "create", "services", namespace)
            .await;
    }
    let listed = user.get("/api/v1/secrets").await;
    assert!(listed.is_err_and(|refused| refused.is(403)));

    let deployment = rendered
        .iter()
        .find(|object| object["kind"] == "Deployment");
    let flags =
        deployment.expect("a Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str);
    let flags: Vec<&str> = flags.filter(|flag| *flag != "run").collect();
    assert!(flags.contains(&"--watch-namespace=shop"), "{flags:?}");
    let controller = ControllerUnderTest::start(&cluster, &flags).await;
    controller.wait_ready().await;
    let shop = NamespacedName::new("shop", "edge");
    for gateway in [edge_name(), shop.clone()] {
        is_published(&cluster, &gateway, 1).await;
    }
    unwatched_namespaces_are_not_served(&cluster).await;

    for namespace in ["default", "shop"] {
        let route = moved(plain_route("more", "more.example.com", "app"), namespace);
        cluster.apply_all(&[route]).await;
    }
    for gateway in [edge_name(), shop] {
        is_published(&cluster, &gateway, 2).await;
    }
    let own =
        "/apis/projectsesame.io/v1alpha1/namespaces/sesame-system/sesameconfigurations/sesame";
    let judged =
        |own: &Value| condition(&own["status"]["conditions"], "Accepted")["status"] == "True";
    cluster
        .until("the configuration is accepted", own, judged)
        .await;

    let log = controller.log();
    assert!(!log.contains("forbidden"), "a permission is missing: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_changes_and_removes_a_release() {
    let cluster = TestCluster::start().await;
    let shop = namespace("shop");
    cluster.apply_all(std::slice::from_ref(&shop)).await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("values.json");
    std::fs::write(&file, full().to_string()).expect("write values");
    let (chart, file) = (chart().display().to_string(), file.display().to_string());
    let kubeconfig = cluster.kubeconfig(&User::Admin).await.display().to_string();
    let release = |arguments: &[&str]| {
        let common = ["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig];
        let done = helm(&[arguments, &common].concat());
        assert!(done.status.success(), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).expect("UTF-8")
    };
    let own = format!("/apis/apps/v1/namespaces/{NAMESPACE}");
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

    let notes = release(&["install", "sesame", &chart, "--create-namespace"]);
    assert!(
        notes.contains("kubectl get gatewayagents -n sesame-system"),
        "{notes}"
    );
    for name in [
        "deployments/sesame-controller",
        "daemonsets/sesame-agent",
        "daemonsets/sesame-envoy",
    ] {
        cluster.get(&format!("{own}/{name}")).await;
    }
    cluster
        .get(&format!("{roles}/sesame-controller-gateways"))
        .await;

    let notes = release(&["upgrade", "sesame", &chart, "--values", &file]);
    assert!(notes.contains("reads only default, shop"), "{notes}");
    let controller = cluster
        .get(&format!("{own}/deployments/sesame-controller"))
        .await;
    assert_eq!(controller["spec"]["replicas"], 3);
    cluster
        .get(&format!("{roles}/sesame-second-gateways"))
        .await;
    let before = cluster
        .admin()
        .get(&format!("{roles}/sesame-controller-gateways"))
        .await;
    assert!(before.is_err_and(|refused| refused.is(404)));

    release(&["uninstall", "sesame"]);
    let gone = cluster
        .admin()
        .get(&format!("{own}/deployments/sesame-controller"))
        .await;
    assert!(gone.is_err_and(|refused| refused.is(404)));
    // Uninstalling must keep the hosts' reports and their CRD.
    let definition =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gatewayagents.projectsesame.io";
    cluster.get(definition).await;
}

/// ReferenceGrants permit a route and a listener in `default` to refer to `elsewhere`.
async fn a_gateway_in_each(cluster: &TestCluster) {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served_at("app", "10.0.0.1:8080"));
    objects.push(plain_route("app", "app.example.com", "app"));
    for namespace in ["shop", "elsewhere"] {
        let namespaced = objects
            .iter()
            .filter(|object| object["kind"] != "GatewayClass");
        let copies: Vec<Value> = namespaced
            .map(|object| moved(object.clone(), namespace))
            .collect();
        cluster.apply_all(&copies).await;
    }
    cluster.apply_all(&objects).await;
    let mut abroad = plain_route("abroad", "abroad.example.com", "app");
    abroad["spec"]["rules"][0]["backendRefs"][0]["namespace"] = json!("elsewhere");
    let from = ["HTTPRoute", "Gateway"].map(
        |kind| json!({"group": "gateway.networking.k8s.io", "kind": kind, "namespace": "default"}),
    );
    let grant = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ReferenceGrant",
        "metadata": {"name": "routes", "namespace": "elsewhere"},
        "spec": {
            "from": from,
            "to": [{"group": "", "kind": "Service"}, {"group": "", "kind": "Secret"}],
        },
    });
    let mut listener = https_listener("https", 443, "", "certificate");
    listener["tls"]["certificateRefs"][0]["namespace"] = json!("elsewhere");
    let mut secure = gateway("secure", &[listener]);
    secure["spec"]["gatewayClassName"] = json!("edge");
    cluster.apply_all(&[abroad, grant, secure]).await;
}

async fn is_published(cluster: &TestCluster, gateway: &NamespacedName, hosts: usize) {
    eventually(
        &format!("{gateway} is published"),
        TEST_TIMEOUT,
        async || {
            let publication = publication(cluster.admin(), gateway).await?;
            let tables = &publication.snapshot.route_tables;
            let domains = tables
                .iter()
                .flat_map(|table| &table.virtual_hosts)
                .filter(|host| {
                    host.domain == "app.example.com" || host.domain == "more.example.com"
                });
            let endpoints = publication.endpoints();
            holds(
                domains.count() == hosts && endpoints == ["10.0.0.1:8080"],
                || format!("{:?}", publication.snapshot),
            )
        },
    )
    .await;
}

async fn unwatched_namespaces_are_not_served(cluster: &TestCluster) {
    let elsewhere = NamespacedName::new("elsewhere", "edge");
    assert!(publication(cluster.admin(), &elsewhere).await.is_err());
    let path = format!("{ROUTES}/abroad");
    let route = cluster
        .until("the cross-namespace route has a status", &path, |route| {
            route["status"]["parents"]
                .as_array()
                .is_some_and(|parents| !parents.is_empty())
        })
        .await;
    let resolved = condition(&route["status"]["parents"][0]["conditions"], "ResolvedRefs");
    assert_eq!(resolved["reason"], "RefNotPermitted", "{route:#}");
    let secure = path.replace("httproutes/abroad", "gateways/secure");
    let secure = cluster
        .until("the listener has a status", &secure, |secure| {
            secure["status"]["listeners"].is_array()
        })
        .await;
    let resolved = condition(
        &secure["status"]["listeners"][0]["conditions"],
        "ResolvedRefs",
    );
    assert_eq!(resolved["reason"], "RefNotPermitted", "{secure:#}");
    let gateway = path
        .replace("httproutes/abroad", "gateways/edge")
        .replace("default", "elsewhere");
    let gateway = cluster.get(&gateway).await;
    let accepted = condition(&gateway["status"]["conditions"], "Accepted");
    assert_eq!(accepted["reason"], "Pending", "{gateway:#}");
}
