//! Gateways of one class that share Envoy instances (`spec.fleet.gateways: Merged`). Changes to one
//! Gateway must not affect requests to the other Gateways.

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, condition, deployed, publication,
};
use sesame_tests::followed::follow;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge_with_parameters, gateway, http_listener, http_proxy, https_listener, ingress,
    ingress_class, ingress_rule, l4_listener, plain_route, rule_to, served, yaml,
};
use sesame_tests::network;
use sesame_tests::wait::{eventually, holds};

const YOUNG_ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/young";
const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways";

fn published_as() -> NamespacedName {
    NamespacedName::new(NAMESPACE, "edge")
}

fn class(publishing: &str) -> Vec<Value> {
    let spec = json!({"fleet": {"gateways": "Merged"}, "publishing": {"type": publishing}});
    let mut objects = edge_with_parameters(&spec);
    objects.truncate(2);
    objects
}

fn member(name: &str, listeners: &[Value]) -> Value {
    let mut gateway = gateway(name, listeners);
    gateway["spec"]["gatewayClassName"] = json!("edge");
    gateway
}

/// Sets the creation timestamp to a day in January 2026.
fn made(day: u8, mut gateway: Value) -> Value {
    gateway["metadata"]["creationTimestamp"] = json!(format!("2026-01-{day:02}T00:00:00Z"));
    gateway
}

/// Returns a route that attaches to the Gateway `name` and sends requests to the Service `name`.
fn route(name: &str, hostname: &str) -> Value {
    let mut route = plain_route(name, hostname, name);
    route["spec"]["parentRefs"] = json!([{"name": name}]);
    route
}

fn both(hostname: &str) -> Vec<Value> {
    vec![
        http_listener("http", 80, hostname),
        https_listener("https", 443, hostname, "pair"),
    ]
}

/// Returns an HTTPProxy and an Ingress of the Gateway `old`, with paths that lead to `new`.
fn layers() -> [Value; 3] {
    let mut class = ingress_class();
    class["spec"]["parameters"]["name"] = json!("old");
    let services = json!([{"name": "new", "port": 80}]);
    let routes = json!([{"conditions": [{"prefix": "/proxy"}], "services": services}]);
    let host = json!({"fqdn": "old.test"});
    let proxy = http_proxy("layer", &json!({"virtualhost": host, "routes": routes}));
    let rules = json!({"rules": [ingress_rule("old.test", &[("/ingress", "Prefix", "new")])]});
    [class, proxy, ingress("layer", &json!({}), &rules)]
}

/// Returns the condition's status, followed by the reason if the status is `False`.
fn verdict(status: &Value, gateway: &str, type_: &str) -> String {
    let mut all = status["objects"].as_array().into_iter().flatten();
    let object = all.find(|object| object["kind"] == "Gateway" && object["name"] == gateway);
    let conditions = object.map_or(&Value::Null, |object| &object["status"]["conditions"]);
    word(condition(conditions, type_))
}

fn word(condition: &Value) -> String {
    let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    match text("status").as_str() {
        "False" => format!("False {}", text("reason")),
        other => other.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_envoy_serves_merged_gateways_through_changes() {
    let authority = Authority::new("tests");
    let (old, new) = (Backend::start("old").await, Backend::start("new").await);
    let mut objects = class("None");
    objects.extend(served("old", &[old.address()]));
    objects.extend(served("new", &[new.address()]));
    let pair = authority.issue(&["old.test", "new.test", "third.test"]);
    objects.push(pair.secret("pair"));
    objects.push(made(1, member("old", &both("old.test"))));
    objects.extend([route("old", "old.test"), route("new", "new.test")]);
    objects.extend(layers());
    let agent = Setup::with_ports(&[80, 443, 9000]).start(&[("all.yaml", &yaml(&objects))]);
    let plain = |host: &str| agent.get(80, host, "/");
    let secure = |host: &str| agent.get(443, host, "/").tls(host, &authority.trust());
    agent.wait_ok(&plain("old.test")).await;
    agent.wait_ok(&secure("old.test")).await;
    for path in ["/proxy", "/ingress"] {
        let request = agent.get(80, "old.test", path);
        agent.wait_backend(&request, "new").await;
    }
    let envoys = agent.envoy_pids();
    let load = Load::start(&Plan::new(vec![
        plain("old.test"),
        secure("old.test"),
        secure("old.test").http2(),
    ]));

    for day in [2, 3] {
        // The same Envoy must serve both Gateways.
        let new = yaml(&[made(day, member("new", &both("new.test")))]);
        agent.write("new.yaml", &new);
        agent.wait_backend(&plain("new.test"), "new").await;
        agent.wait_backend(&secure("new.test"), "new").await;
        agent
            .wait_status("both are programmed", |status| {
                ["old", "new"].map(|name| verdict(status, name, "Programmed")) == ["True", "True"]
            })
            .await;

        // This version conflicts with shared settings, so the previous version must still be
        // served.
        let load = Load::start(&Plan::new(vec![plain("new.test"), secure("new.test")]));
        let mut other = made(day, member("new", &both("new.test")));
        other["metadata"]["annotations"] = json!({"projectsesame.io/request-timeout": "9s"});
        agent.write("new.yaml", &yaml(&[other.clone()]));
        agent
            .wait_status("the previous version is served", |status| {
                verdict(status, "new", "Accepted") == "False InvalidParameters"
                    && verdict(status, "new", "Programmed") == "True"
            })
            .await;
        load.pass(100).await;
        agent.write("new.yaml", &new);
        agent
            .wait_status("the Gateway is accepted again", |status| {
                verdict(status, "new", "Accepted") == "True"
            })
            .await;
        load.stop().await.assert_clean();

        let lost = yaml(&[made(day, member("new", &both("old.test")))]);
        agent.write("new.yaml", &lost);
        agent
            .wait_status("the younger Gateway is rejected", |status| {
                verdict(status, "new", "Accepted") == "False ListenersNotValid"
                    && verdict(status, "old", "Programmed") == "True"
            })
            .await;
        agent.wait_backend(&plain("old.test"), "old").await;

        // A rejected new Gateway has no previous version to serve.
        agent.write("new.yaml", &yaml(&[other]));
        agent
            .wait_status("the new Gateway is not served", |status| {
                verdict(status, "new", "Accepted") == "False InvalidParameters"
                    && verdict(status, "new", "Programmed") == "False Invalid"
            })
            .await;

        let more = [both("new.test"), vec![l4_listener("tcp", 9000, "TCP")]].concat();
        agent.write("new.yaml", &yaml(&[made(day, member("new", &more))]));
        agent.wait_backend(&plain("new.test"), "new").await;
        agent.remove("new.yaml");
        agent
            .wait_served(&plain("new.test"), |reply| reply.status == 404)
            .await;
    }
    load.stop().await.assert_clean();
    assert_eq!(agent.envoy_pids(), envoys);
    let gateways = agent.status().expect("a status")["gateways"].clone();
    assert_eq!(gateways.as_array().map(Vec::len), Some(1), "{gateways:#}");
    assert_eq!(gateways[0]["gateway"], "sesame-system/edge");
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_agent_serves_gateway_with_rejected_settings() {
    let backend = Backend::start("young").await;
    let mut objects = class("None");
    objects.extend(served("young", &[backend.address()]));
    objects.push(made(1, member("old", &listener("old.test"))));
    objects.push(route("young", "new.test"));
    let mut young = made(2, member("young", &listener("new.test")));
    let good = yaml(&[young.clone()]);
    let files = [("all.yaml", &*yaml(&objects)), ("young.yaml", &*good)];
    let mut agent = Setup::with_ports(&[80]).start(&files);
    let request = agent.get(80, "new.test", "/");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request]));
    young["metadata"]["annotations"] = json!({"projectsesame.io/request-timeout": "9s"});
    agent.write("young.yaml", &yaml(&[young]));
    let is_refused = |status: &Value| {
        verdict(status, "young", "Accepted") == "False InvalidParameters"
            && verdict(status, "young", "Programmed") == "True"
    };
    agent
        .wait_status("the previous version is served", is_refused)
        .await;
    agent.wait_stored().await;
    agent.restart();
    agent.wait_status("still rejected", is_refused).await;
    load.pass(100).await;
    load.stop().await.assert_clean();
}

fn path(gateway: &str) -> String {
    format!("{GATEWAYS}/{gateway}")
}

fn condition_word(gateway: &Value, type_: &str) -> String {
    word(condition(&gateway["status"]["conditions"], type_))
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_gateways_share_publication_service_and_envoys() {
    if !network::inside_own("merged_gateways_share_publication_service_and_envoys") {
        return;
    }
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let agent = follow(&cluster, &[80], &[]).await;
    let at = (network::BACKENDS, 0).into();
    let old = Backend::start_at("old", at).await.expect("an address");
    let new = Backend::start_at("young", at).await.expect("an address");
    let mut objects = class("ClusterIP");
    objects.extend(served("old", &[old.address()]));
    objects.extend(served("young", &[new.address()]));
    objects.push(member("old", &[http_listener("http", 80, "old.test")]));
    objects.extend([route("old", "old.test"), route("young", "new.test")]);
    cluster.apply_all(&objects).await;
    let request = agent.get(80, "old.test", "/");
    agent.wait_backend(&request, "old").await;
    let load = Load::start(&Plan::new(vec![request]));
    let service = "/api/v1/namespaces/sesame-system/services/gateways-edge";
    let service = cluster
        .until("the Service exists", service, |service| {
            service["spec"]["clusterIP"].is_string()
        })
        .await;
    assert_eq!(
        service["metadata"]["ownerReferences"][0]["kind"],
        "GatewayClass"
    );
    let address = json!([{"type": "IPAddress", "value": service["spec"]["clusterIP"]}]);

    a_gateway_comes(&cluster, &agent, &address).await;
    invalid_parameters_keep_previous_settings(&cluster, &mut controller, &agent).await;
    it_is_refused_and_goes(&cluster, &agent).await;

    load.stop().await.assert_clean();
    cluster.delete(&path("old")).await;
    eventually(
        "nothing is published",
        TEST_TIMEOUT,
        async || match publication(cluster.admin(), &published_as()).await {
            Ok(_) => Err("it is still published".to_owned()),
            Err(_) => Ok(()),
        },
    )
    .await;
    eventually("the Service is deleted", TEST_TIMEOUT, async || {
        let answer = cluster
            .admin()
            .get("/api/v1/namespaces/sesame-system/services/gateways-edge")
            .await;
        holds(answer.is_err(), || "the Service still exists".to_owned())
    })
    .await;
}

fn listener(hostname: &str) -> [Value; 1] {
    [http_listener("http", 80, hostname)]
}

async fn a_gateway_comes(cluster: &TestCluster, agent: &AgentUnderTest, address: &Value) {
    // The new Gateway has lower precedence, because it is younger or its name sorts later.
    cluster
        .apply_all(&[member("young", &listener("new.test"))])
        .await;
    for name in ["old", "young"] {
        let gateway = cluster
            .until("the Gateway is programmed", &path(name), |gateway| {
                let programmed = condition(&gateway["status"]["conditions"], "Programmed");
                programmed["message"] == "programmed on 1 of 1 hosts"
            })
            .await;
        assert_eq!(
            condition_word(&gateway, "Programmed"),
            "True",
            "{gateway:#}"
        );
        assert_eq!(gateway["status"]["addresses"], *address, "{gateway:#}");
        assert_eq!(gateway["status"]["listeners"][0]["attachedRoutes"], 1);
    }
    let request = agent.get(80, "new.test", "/");
    agent.wait_backend(&request, "young").await;
    let all = publication(cluster.admin(), &published_as()).await;
    all.expect("one publication");
    for name in ["old", "young"] {
        let own = NamespacedName::new("default", name);
        assert!(publication(cluster.admin(), &own).await.is_err(), "{name}");
    }
}

/// A Gateway with invalid parameters must keep its previous settings, even after a restart. Changes
/// to its routes must still take effect.
async fn invalid_parameters_keep_previous_settings(
    cluster: &TestCluster,
    controller: &mut ControllerUnderTest,
    agent: &AgentUnderTest,
) {
    let request = agent.get(80, "new.test", "/");
    let load = Load::start(&Plan::new(vec![request.clone()]));
    let none = json!({"group": "projectsesame.io", "kind": "SesameConfiguration", "name": "none"});
    let gone = json!({"spec": {"infrastructure": {"parametersRef": none}}});
    cluster.merge(&path("young"), &gone).await;
    let is_refused = |gateway: &Value| {
        let accepted = condition(&gateway["status"]["conditions"], "Accepted");
        let why = accepted["message"].as_str().unwrap_or_default();
        accepted["reason"] == "InvalidParameters"
            && why.contains("until that is fixed")
            && condition_word(gateway, "Programmed") == "True"
    };
    cluster
        .until("the previous version is served", &path("young"), is_refused)
        .await;
    controller.restart();
    controller.wait_ready().await;
    controller.wait_leads().await;
    for backend in ["old", "young"] {
        let rules = json!({"spec": {"rules": [rule_to(backend, &[])]}});
        cluster.merge(YOUNG_ROUTE, &rules).await;
        agent.wait_backend(&request, backend).await;
    }
    let gateway = cluster.get(&path("young")).await;
    assert!(is_refused(&gateway), "{gateway:#}");
    load.pass(100).await;
    let mended = json!({"spec": {"infrastructure": null}});
    cluster.merge(&path("young"), &mended).await;
    cluster
        .until("the Gateway is accepted again", &path("young"), |gateway| {
            condition_word(gateway, "Accepted") == "True"
                && condition_word(gateway, "Programmed") == "True"
        })
        .await;
    load.stop().await.assert_clean();
}

async fn it_is_refused_and_goes(cluster: &TestCluster, agent: &AgentUnderTest) {
    let request = agent.get(80, "new.test", "/");
    let lost = json!({"spec": {"listeners": listener("old.test")}});
    cluster.merge(&path("young"), &lost).await;
    let gateway = cluster
        .until(
            "the hostname conflict is reported",
            &path("young"),
            |gateway| condition_word(gateway, "Accepted") == "False ListenersNotValid",
        )
        .await;
    let conflicted = &gateway["status"]["listeners"][0]["conditions"];
    let why = &condition(conflicted, "Conflicted")["message"];
    assert!(
        why.as_str()
            .is_some_and(|why| why.contains("Gateway default/old")),
        "{why}"
    );
    assert_eq!(
        condition_word(&cluster.get(&path("old")).await, "Programmed"),
        "True"
    );

    let again = json!({"spec": {"listeners": listener("new.test"),
        "infrastructure": {"labels": {"team": "a"}}}});
    cluster.merge(&path("young"), &again).await;
    cluster
        .until(
            "the Gateway is rejected for shared settings",
            &path("young"),
            |gateway| {
                condition_word(gateway, "Accepted") == "False InvalidParameters"
                    && condition_word(gateway, "Programmed") == "False Invalid"
            },
        )
        .await;
    cluster.delete(&path("young")).await;
    agent
        .wait_served(&request, |reply| reply.status == 404)
        .await;
}
