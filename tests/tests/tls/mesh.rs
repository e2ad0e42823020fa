//! A Gateway outside the cluster and a mesh verify each other. Both reject certificates from other
//! authorities.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_proto::schema;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, TEST_TIMEOUT, deployed, publication,
};
use sesame_tests::manifests::{
    edge, edge_name, endpoint_slices, http_listener, http_route, rule_to, service, yaml,
};
use sesame_tests::wait::{eventually, holds};

const OWN: &str =
    "/apis/projectsesame.io/v1alpha1/namespaces/sesame-system/sesameconfigurations/sesame";
const POLICY: &str = "/apis/projectsesame.io/v1alpha1/namespaces/default/gatewaymeshpolicies/mesh";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/labelled";
const BUNDLE: &str = "/api/v1/namespaces/mesh/configmaps/mesh-trust-bundle";
const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";

fn host(name: &str) -> String {
    format!("{name}.mesh.test")
}

fn bundle(authorities: &[&Authority]) -> Value {
    let pem: String = authorities.iter().map(|it| it.pem()).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "mesh-trust-bundle", "namespace": "mesh"},
        "data": {"ca-bundle.crt": pem}})
}

/// Applies to routes with the label `mesh: one`.
fn policy(names: &[&str]) -> Value {
    let names: Vec<Value> = names
        .iter()
        .map(|uri| json!({"type": "URI", "uri": uri}))
        .collect();
    json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "GatewayMeshPolicy",
    "metadata": {"name": "mesh", "namespace": "default"},
    "spec": {
        "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}],
        "mesh": {
            "trustBundle": {"name": "mesh-trust-bundle", "namespace": "mesh"},
            "labelSelector": {"matchLabels": {"mesh": "one"}},
            "subjectAltNames": names,
        },
    }})
}

fn gateway(client: &Leaf) -> Vec<Value> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects[1]["spec"]["tls"] = json!({"backend": {"clientCertificateRef": {"name": "client"}}});
    objects.push(client.secret("client"));
    objects
}

/// If `meshed` is true, the policy applies to the route.
fn routed(name: &str, backend: &Backend, meshed: bool) -> Vec<Value> {
    let mut route = http_route(name, &[&host(name)], &[rule_to(name, &[])]);
    if meshed {
        route["metadata"]["labels"] = json!({"mesh": "one"});
    }
    let mut objects = vec![service(name, ""), route];
    objects.extend(endpoint_slices(name, &[backend.address()]));
    objects
}

async fn answered(agent: &AgentUnderTest, name: &str, status: u16) {
    let request = agent.get(80, &host(name), "/");
    agent
        .wait_served(&request, |reply| reply.status == status)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_and_mesh_verify_each_other() {
    let (mesh_authority, gateway_authority, stranger) = (
        Authority::new("mesh"),
        Authority::new("gateway"),
        Authority::new("stranger"),
    );
    let uri = "spiffe://mesh.test/ns/default/sa/peer";
    let peer = mesh_authority.issue_with_uris(&["peer.mesh.test"], &[uri]);
    let client =
        gateway_authority.issue_with_uris(&["gateway.test"], &["spiffe://gateway.test/edge"]);
    let meshed = Backend::start_mutual_tls("meshed", &peer, &gateway_authority).await;
    // The peer's name is correct, but its authority is not in the bundle.
    let impostor = stranger.issue_with_uris(&["peer.mesh.test"], &[uri]);
    let false_peer = Backend::start_tls("false", &impostor).await;
    let plain = Backend::start("plain").await;
    let mut objects = Vec::new();
    for (name, backend, is_meshed) in [
        ("labelled", &meshed, true),
        ("false", &false_peer, true),
        ("unencrypted", &plain, true),
        ("plain", &plain, false),
        // The mesh requires a client certificate.
        ("unmeshed", &meshed, false),
    ] {
        objects.extend(routed(name, backend, is_meshed));
    }
    let agent = Setup::with_ports(&[80])
        .flag("--extra-minimal-ocg")
        .start(&[
            ("all.yaml", &yaml(&objects)),
            ("gateway.yaml", &yaml(&gateway(&client))),
            ("policy.yaml", &yaml(&[policy(&[])])),
            ("bundle.yaml", &yaml(&[bundle(&[&mesh_authority])])),
        ]);
    let request = agent.get(80, &host("labelled"), "/");
    agent.wait_ok(&request).await;

    let mut checks = Checks::default();
    if let Some(reply) = checks.reply(&request).await {
        let shown = reply.echo().tls.map(|tls| tls.client_certificate);
        let ours = STANDARD.encode(&client.der);
        checks.same(&request, shown.as_deref(), Some(ours.as_str()));
    }
    for (name, status) in [("plain", 200), ("false", 503), ("unencrypted", 503)] {
        checks.status(agent.get(80, &host(name), "/"), status).await;
    }
    // The status depends on whether the peer sends a TLS alert or closes the connection.
    let unmeshed = agent.get(80, &host("unmeshed"), "/");
    if let Some(reply) = checks.reply(&unmeshed).await {
        let refused = matches!(reply.status, 502 | 503);
        checks.that(refused, format!("{unmeshed}: got {}", reply.status));
    }
    checks.finish();

    // The mesh does not trust this certificate. The policy's new names force new connections.
    let unknown = stranger.issue(&["gateway.test"]);
    agent.write("gateway.yaml", &yaml(&gateway(&unknown)));
    agent.write("policy.yaml", &yaml(&[policy(&[uri])]));
    answered(&agent, "labelled", 503).await;
    agent.write("gateway.yaml", &yaml(&gateway(&client)));
    answered(&agent, "labelled", 200).await;

    let other = "spiffe://mesh.test/other";
    agent.write("policy.yaml", &yaml(&[policy(&[other])]));
    answered(&agent, "labelled", 503).await;
    agent.write("policy.yaml", &yaml(&[policy(&[uri])]));
    answered(&agent, "labelled", 200).await;

    // Without a bundle, nothing may be sent to the peer.
    agent.remove("bundle.yaml");
    answered(&agent, "labelled", 503).await;
    answered(&agent, "unencrypted", 503).await;
    answered(&agent, "plain", 200).await;
    agent.write("bundle.yaml", &yaml(&[bundle(&[&mesh_authority])]));
    answered(&agent, "labelled", 200).await;
}

/// Waits until the publication has exactly one backend, and `good` accepts it.
async fn published(cluster: &TestCluster, what: &str, good: impl Fn(&schema::Backend) -> bool) {
    eventually(what, TEST_TIMEOUT, async || {
        let found = publication(cluster.admin(), &edge_name()).await?;
        let backends = &found.snapshot.backends;
        holds(backends.iter().all(&good) && backends.len() == 1, || {
            format!("{backends:?}")
        })
    })
    .await;
}

/// Returns null if the condition is not set yet.
fn gateway_condition<'p>(policy: &'p Value, type_: &str) -> &'p Value {
    let conditions = policy["status"]["ancestors"][0]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == type_);
    found.unwrap_or(&Value::Null)
}

fn own_configuration(on: bool) -> Value {
    json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": "sesame", "namespace": NAMESPACE},
        "spec": {"gateway": {"extraMinimalOCG": on}}})
}

async fn meshed(cluster: &TestCluster, what: &str, path: &str, status: &str) {
    let is_so = |object: &Value| {
        let own = &object["status"]["conditions"];
        let parent_conditions = &object["status"]["parents"][0]["conditions"];
        let conditions = if own.is_null() {
            parent_conditions
        } else {
            own
        };
        let found = conditions.as_array().into_iter().flatten();
        let mut found = found.filter(|it| it["type"] == "projectsesame.io/Meshed");
        found.next().is_some_and(|it| it["status"] == status)
    };
    cluster.until(what, path, is_so).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mesh_policy_in_cluster_applies_if_feature_enabled() {
    let mesh_authority = Authority::new("mesh");
    let client = Authority::new("gateway").issue(&["gateway.test"]);
    let cluster = deployed(Channel::Standard).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mesh"}});
    cluster
        .apply_all(&[namespace, own_configuration(false)])
        .await;
    let controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    let mut objects = gateway(&client);
    let mut route = http_route(
        "labelled",
        &[&host("labelled")],
        &[rule_to("labelled", &[])],
    );
    route["metadata"]["labels"] = json!({"mesh": "one"});
    objects.extend([service("labelled", ""), route, policy(&[])]);
    cluster.apply_all(&objects).await;
    controller.wait_ready().await;
    let claims = |class: &Value| {
        let features = class["status"]["supportedFeatures"].to_string();
        features.contains("GatewayExtraMinimalOCG")
    };
    let accepted = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "Accepted" && it["status"] == "True")
    };
    let class = cluster
        .until("the class is accepted", CLASS, accepted)
        .await;
    assert!(!claims(&class), "{class:#}");
    cluster
        .until("the Gateway is accepted", GATEWAY, accepted)
        .await;
    assert!(cluster.get(POLICY).await["status"].is_null());

    cluster.merge(OWN, &own_configuration(true)).await;
    cluster.until("the feature is claimed", CLASS, claims).await;
    let policy = cluster
        .until("the bundle is missing", POLICY, |policy| {
            gateway_condition(policy, "ResolvedRefs")["reason"] == "InvalidTrustBundle"
        })
        .await;
    assert_eq!(
        gateway_condition(&policy, "Accepted")["status"],
        "True",
        "{policy:#}"
    );
    meshed(
        &cluster,
        "the Gateway reports the problem",
        GATEWAY,
        "False",
    )
    .await;
    meshed(&cluster, "the route reports the problem", ROUTE, "False").await;

    cluster.apply_all(&[bundle(&[&mesh_authority])]).await;
    cluster
        .until("the bundle is found", POLICY, |policy| {
            gateway_condition(policy, "ResolvedRefs")["status"] == "True"
        })
        .await;
    meshed(&cluster, "the Gateway is meshed", GATEWAY, "True").await;
    meshed(&cluster, "the route is meshed", ROUTE, "True").await;
    published(&cluster, "mTLS is published", |backend| {
        backend.tls.as_ref().is_some_and(|tls| tls.mesh)
    })
    .await;

    let broken = json!({"data": {"ca-bundle.crt": "no certificate"}});
    cluster.merge(BUNDLE, &broken).await;
    meshed(&cluster, "the Gateway is not meshed", GATEWAY, "False").await;
    published(&cluster, "no endpoint is published", |backend| {
        backend.tls.is_none() && backend.endpoints.is_empty()
    })
    .await;
}
