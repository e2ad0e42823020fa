//! Policies in a cluster: CRDs must reject invalid policies, and statuses must match the hosts'
//! reports.

use serde_json::{Value, json};
use sesame_tests::agent::AgentUnderTest;
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::cluster::TestCluster;
use sesame_tests::controller::condition;
use sesame_tests::followed::followed;
use sesame_tests::issuing::Issuing;
use sesame_tests::manifests::{
    access_policy, backend_policy, edge, http_listener, plain_route, served, traffic_policy,
};
use sesame_tests::network::{self, BACKENDS};
use sesame_tests::tokens::Issuer;

const POLICIES: &str = "/apis/projectsesame.io/v1alpha1/namespaces/default";
const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/app";

fn route_traffic_policy(spec: &Value) -> Value {
    traffic_policy("app", json!({"kind": "HTTPRoute", "name": "app"}), spec)
}

fn route_access_policy(spec: &Value) -> Value {
    access_policy("app", json!({"kind": "HTTPRoute", "name": "app"}), spec)
}

fn tokens(jwks: &Value) -> Value {
    let provider = json!({"name": "a", "issuer": "i", "jwks": jwks});
    json!({"jwt": {"providers": [provider]}})
}

fn limit(requests: usize) -> Value {
    json!({"rateLimits": [{"name": "all", "requests": requests, "per": "Hour"}]})
}

fn condition_status<'v>(policy: &'v Value, type_: &str) -> &'v Value {
    &condition(&policy["status"]["ancestors"][0]["conditions"], type_)["status"]
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_programmed_when_hosts_serve_them() {
    if !network::inside_own("policies_are_programmed_when_hosts_serve_them") {
        return;
    }
    let (cluster, _controller, agent) = followed(&[80], &[]).await;
    let at = (network::BACKENDS, 0).into();
    let backend = Backend::start_at("app", at).await.expect("an address");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects.push(plain_route("app", "app.test", "app"));
    objects.push(route_traffic_policy(&limit(2)));
    objects.push(backend_policy(
        "app",
        &json!({"connection": {"timeout": "2s"}}),
    ));
    cluster.apply_all(&objects).await;
    let admitted = route_access_policy(&json!({"ipFilter": {"deny": ["192.0.2.0/24"]}}));
    cluster.apply_all(&[admitted]).await;
    for path in [
        "trafficpolicies/app",
        "backendpolicies/app",
        "accesspolicies/app",
    ] {
        let path = format!("{POLICIES}/{path}");
        let programmed = |policy: &Value| condition_status(policy, "Programmed") == "True";
        cluster.until("programmed policy", &path, programmed).await;
    }
    let request = agent.get(80, "app.test", "/");
    agent
        .wait_served(&request, |reply| reply.status == 429)
        .await;
    let affected = |route: &Value| {
        let conditions = &route["status"]["parents"][0]["conditions"];
        condition(conditions, "projectsesame.io/TrafficPolicyAffected")["status"] == "True"
    };
    cluster.until("affected route", ROUTE, affected).await;

    for (policy, field) in [
        (
            route_traffic_policy(&limit(0)),
            "spec.rateLimits[0].requests",
        ),
        (route_traffic_policy(&json!({})), "spec"),
        (
            traffic_policy("app", json!({"kind": "TCPRoute", "name": "app"}), &limit(1)),
            "spec.targetRefs[0]",
        ),
        (
            route_traffic_policy(&json!({"requestBody": {"maxSize": "1 MB"}})),
            "spec.requestBody.maxSize",
        ),
        (route_traffic_policy(&json!({"fault": {}})), "spec.fault"),
        (
            route_access_policy(&json!({"ipFilter": {"deny": ["192.0.2.0/24"]},
                "exemptions": [{"kind": "HTTPRoute", "name": "a"}]})),
            "exemptions",
        ),
        (route_access_policy(&json!({})), "spec"),
        (
            route_access_policy(&tokens(&json!({}))),
            "spec.jwt.providers[0].jwks",
        ),
        (
            route_access_policy(&json!({"authorization": {"rules": [{"action": "Allow",
                "claims": [{"name": "a", "values": ["b"]}]}]}})),
            "claims",
        ),
        (
            backend_policy("app", &json!({"loadBalancer": {"type": "Maglev"}})),
            "spec.loadBalancer",
        ),
        (
            backend_policy(
                "app",
                &json!({"loadBalancer": {"type": "Maglev", "hash": [{"type": "Header"}]}}),
            ),
            "spec.loadBalancer.hash[0]",
        ),
        (
            backend_policy(
                "app",
                &json!({"healthCheck": {"active": {"tcp": {}, "grpc": {}}}}),
            ),
            "spec.healthCheck.active",
        ),
    ] {
        let refused = cluster.admin().try_value(&policy).await;
        let why = refused.expect_err(field).to_string();
        assert!(why.contains(field), "{field}: {why}");
    }

    let path = format!("{POLICIES}/trafficpolicies/app");
    cluster.delete(&path).await;
    agent.wait_ok(&request).await;
    cluster
        .until("unaffected route", ROUTE, |route| !affected(route))
        .await;

    // Until the ConfigMap exists, requests are rejected.
    let policy = route_access_policy(&tokens(&json!({"configMapRef": {"name": "issuer"}})));
    cluster.apply_all(&[policy]).await;
    agent
        .wait_served(&request, |reply| reply.status == 500)
        .await;
    let issuer = Issuer::new("i", "a");
    let keys = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "issuer", "namespace": "default"},
        "data": {"jwks": Issuer::jwks(&[&issuer])}});
    cluster.apply_all(&[keys]).await;
    agent
        .wait_served(&request, |reply| reply.status == 401)
        .await;
    let token = format!("Bearer {}", issuer.token(&json!({})));
    let with_token = request.clone().header("authorization", &token);
    agent.wait_ok(&with_token).await;
    fetched_keys(&cluster, &agent, &request).await;
}

async fn fetched_keys(cluster: &TestCluster, agent: &AgentUnderTest, request: &Request) {
    let authority = Authority::new("issuer");
    let issuer = Issuer::new("i", "fetched");
    let keys = Issuer::jwks(&[&issuer]);
    let host = BACKENDS.to_string();
    let server = Issuing::start_at((&host, BACKENDS), &authority, &keys).await;
    let remote = json!({"uri": server.uri(), "caCertificateRef": {"name": "issuer-ca"}});
    let policy = route_access_policy(&tokens(&json!({"remote": remote})));
    let ca = Authority::config_map("issuer-ca", &[&authority]);
    cluster.apply_all(&[ca, policy]).await;
    let token = format!("Bearer {}", issuer.token(&json!({})));
    let with_token = request.clone().header("authorization", &token);
    agent.wait_ok(&with_token).await;
    let copies =
        "/api/v1/namespaces/sesame-system/configmaps?labelSelector=projectsesame.io/key-set";
    let has = |count: usize| {
        move |list: &Value| {
            list["items"]
                .as_array()
                .is_some_and(|items| items.len() == count)
        }
    };
    let list = cluster.until("copied keys", copies, has(1)).await;
    assert_eq!(list["items"][0]["data"]["uri"], server.uri());
    // The controller must not fetch keys from addresses that are forbidden for endpoints.
    for (host, expected) in [
        ("localhost", "(loopback)"),
        ("169.254.169.254", "link-local"),
    ] {
        let remote = json!({"uri": format!("https://{host}/keys")});
        let policy = route_access_policy(&tokens(&json!({"remote": remote})));
        cluster.apply_all(&[policy]).await;
        let refuses = |list: &Value| {
            let error = list["items"][0]["data"]["error"].as_str();
            error.is_some_and(|error| error.contains(expected))
        };
        cluster.until("rejected address", copies, refuses).await;
    }
    cluster
        .delete(&format!("{POLICIES}/accesspolicies/app"))
        .await;
    cluster.until("deleted copy", copies, has(0)).await;
}
