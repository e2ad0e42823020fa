//! A Gateway outside the cluster and a mesh, each of which verifies the other one in both directions; and what both are told of the
//! authorities that they trust. Asked of real agents with real Envoys, on manifests, on a snapshot directory and in a cluster.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_files::directory;
use sesame_proto::keys;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, SOON, condition, deployed};
use sesame_tests::envoy::workspace;
use sesame_tests::manifests::{
    edge, endpoint_slices, http_listener, http_route, https_listener, on_listener, rule_to,
    service, yaml,
};
use sesame_tests::network;
use sesame_tests::publications::one;
use sesame_tests::reports::allow_hosts;
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const POLICY: &str = "/apis/projectsesame.io/v1alpha1/namespaces/default/gatewaymeshpolicies/mesh";
const OCG_POLICY: &str = "/apis/projectsesame.io/v1alpha1/meshocgpolicies/mesh";
const OCG_BUNDLE: &str = "/api/v1/namespaces/mesh/configmaps/ocg-trust-bundle";
const CLIENT: &str = "/api/v1/namespaces/default/secrets/client";
const CALLER: &str = "spiffe://mesh.test/ns/default/sa/caller";
const TRUSTED: &str = "projectsesame.io/ClientCertificateTrusted";

/// Authorities of the mesh, of the Gateway's client certificates, and of nobody.
struct Authorities {
    mesh: Authority,
    gateway: Authority,
    stranger: Authority,
}

impl Authorities {
    fn new() -> Self {
        Self {
            mesh: Authority::new("mesh"),
            gateway: Authority::new("gateway"),
            stranger: Authority::new("stranger"),
        }
    }

    /// Returns the pair of a workload, which is called and calls.
    fn peer(&self) -> Leaf {
        self.mesh.issue_with_uris(&["peer.mesh.test"], &[CALLER])
    }

    /// Returns the pair that the Gateway shows to the mesh and to callers.
    fn client(&self) -> Leaf {
        let uri = "spiffe://gateway.test/edge";
        self.gateway.issue_with_uris(&["gateway.test"], &[uri])
    }

    /// Returns the Secret of that pair, with the CA certificate.
    fn secret(&self) -> Value {
        let mut secret = self.client().secret("client");
        secret["data"]["ca.crt"] = json!(STANDARD.encode(self.gateway.pem()));
        secret
    }
}

/// A ConfigMap of the mesh's namespace.
fn bundle(name: &str, authority: &Authority) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "mesh"},
        "data": {"ca-bundle.crt": authority.pem()}})
}

/// A Gateway that callers of the mesh reach on port 443, and everybody on port 80; what it sends on is meshed.
fn objects(all: &Authorities, peer: SocketAddr) -> Vec<Value> {
    let mut named = https_listener("https", 443, "", "client");
    named["tls"]["options"] =
        json!({"projectsesame.io/client-subject-alt-names": "spiffe://mesh.test/ns/*"});
    let mut objects = edge(&[http_listener("http", 80, ""), named]);
    objects[1]["spec"]["tls"] = json!({
        "backend": {"clientCertificateRef": {"name": "client"}},
        "frontend": {"default": {"validation": {
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "callers"}],
        }}},
    });
    let mut meshed = http_route("meshed", &["meshed.test"], &[rule_to("peer", &[])]);
    meshed["metadata"]["labels"] = json!({"mesh": "one"});
    let plain = http_route("plain", &["plain.test"], &[rule_to("peer", &[])]);
    objects.extend([
        meshed,
        on_listener(plain, "http"),
        service("peer", ""),
        all.secret(),
        Authority::config_map("callers", &[&all.mesh]),
        bundle("mesh-trust-bundle", &all.mesh),
        json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "GatewayMeshPolicy",
        "metadata": {"name": "mesh", "namespace": "default"},
        "spec": {
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}],
            "mesh": {
                "trustBundle": {"name": "mesh-trust-bundle", "namespace": "mesh"},
                "labelSelector": {"matchLabels": {"mesh": "one"}},
                "subjectAltNamePatterns": ["spiffe://mesh.test/ns/*"],
            },
        }}),
    ]);
    objects.extend(endpoint_slices("peer", &[peer]));
    objects
}

/// Asks in both directions: whoever is not of the other side is refused.
async fn each_lets_in_only_the_other(agent: &AgentUnderTest, all: &Authorities) {
    let meshed = agent.get(80, "meshed.test", "/");
    agent.wait_ok(&meshed).await;
    let mut checks = Checks::default();
    // Without TLS and a certificate the peer lets nobody in.
    let plain = agent.get(80, "plain.test", "/");
    if let Some(reply) = checks.reply(&plain).await {
        let refused = matches!(reply.status, 502 | 503);
        checks.that(refused, format!("{plain}: got {}", reply.status));
    }
    let at_gateway = agent
        .get(443, "meshed.test", "/")
        .tls("gateway.test", &all.gateway.trust());
    let other = |uri: &str| all.mesh.issue_with_uris(&["caller.mesh.test"], &[uri]);
    let stranger = all
        .stranger
        .issue_with_uris(&["caller.mesh.test"], &[CALLER]);
    for (who, request, let_in) in [
        ("a caller", at_gateway.clone().showing(&all.peer()), true),
        ("nobody", at_gateway.clone(), false),
        ("a stranger", at_gateway.clone().showing(&stranger), false),
        (
            "another name",
            at_gateway
                .clone()
                .showing(&other("spiffe://mesh.test/other")),
            false,
        ),
        (
            "another trust domain",
            at_gateway
                .clone()
                .showing(&other("spiffe://mesh.test.evil/ns/default")),
            false,
        ),
        (
            "no SPIFFE name",
            at_gateway.showing(&all.mesh.issue(&["caller.mesh.test"])),
            false,
        ),
        ("plain text", agent.get(443, "meshed.test", "/"), false),
    ] {
        let status = request.send().await.ok().map(|reply| reply.status);
        checks.same(who, status, let_in.then_some(200));
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_lets_in_only_the_other_one_on_manifests() {
    let all = Authorities::new();
    let peer = Backend::start_mutual_tls("peer", &all.peer(), &all.gateway).await;
    let agent = Setup::with_ports(&[80, 443])
        .flag("--extra-minimal-ocg")
        .start(&[("all.yaml", &yaml(&objects(&all, peer.address())))]);
    each_lets_in_only_the_other(&agent, &all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_lets_in_only_the_other_one_on_a_snapshot_directory() {
    let all = Authorities::new();
    let peer = Backend::start_mutual_tls("peer", &all.peer(), &all.gateway).await;
    let resolved = one(&objects(&all, peer.address()));
    let root = tempfile::tempdir().expect("a directory");
    let keys_file = root.path().join("keys.pb");
    std::fs::write(&keys_file, keys::encode(&resolved.keys)).expect("keys");
    std::fs::set_permissions(&keys_file, Permissions::from_mode(0o600)).expect("keys");
    directory::write(root.path(), &resolved.snapshot).expect("a snapshot");
    let mut agent = Setup::with_ports(&[80, 443]).without_manifests().prepare();
    agent.add_flags(&["--snapshot-dir", &root.path().to_string_lossy()]);
    agent.restart();
    each_lets_in_only_the_other(&agent, &all).await;
}

/// An address of a peer that nobody sends to.
fn nowhere() -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, 1), 80).into()
}

fn mesh() -> Value {
    json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XMesh",
        "metadata": {"name": "mesh"}, "spec": {"controllerName": "example.com/mesh"}})
}

/// The policy of the mesh's side.
fn ocg_policy(publish: bool) -> Value {
    json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "MeshOCGPolicy",
    "metadata": {"name": "mesh"},
    "spec": {
        "targetRefs": [{"group": "gateway.networking.x-k8s.io", "kind": "XMesh", "name": "mesh"}],
        "ocg": {"trustBundle": {"name": "ocg-trust-bundle", "namespace": "mesh"}},
        "gateways": [{"namespace": "default", "name": "edge"}],
        "publish": publish,
    }})
}

/// A cluster with a mesh, where Gateways outside the cluster are heeded.
async fn cluster_with_mesh() -> TestCluster {
    let cluster = deployed(Channel::Experimental).await;
    let configuration = json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": "sesame", "namespace": NAMESPACE},
        "spec": {"gateway": {"extraMinimalOCG": true}}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mesh"}});
    cluster.apply_all(&[namespace, configuration, mesh()]).await;
    cluster
}

/// Waits until the condition has this status and reason, and its message these words: of the object, or of the first ancestor.
async fn told(cluster: &TestCluster, path: &str, type_: &str, expected: (&str, &str), words: &str) {
    let what = format!("{type_} of {path} is {expected:?}: {words}");
    let is_so = |object: &Value| {
        let own = &object["status"]["conditions"];
        let of_ancestor = &object["status"]["ancestors"][0]["conditions"];
        let found = condition(if own.is_null() { of_ancestor } else { own }, type_);
        let message = found["message"].as_str().unwrap_or_default();
        (&found["status"], &found["reason"]) == (&json!(expected.0), &json!(expected.1))
            && message.contains(words)
    };
    cluster.until(&what, path, is_so).await;
}

/// Waits until the ConfigMap has these authorities and nothing else.
async fn published(cluster: &TestCluster, authorities: &[&Authority]) -> Value {
    let expected: String = authorities.iter().map(|it| it.pem()).collect();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let is_so = |map: &Value| {
        let data = map["data"].as_object();
        let only = data.filter(|data| data.len() == 1);
        let text = only.and_then(|data| data["ca-bundle.crt"].as_str());
        text.is_some_and(|text| lines(text) == lines(&expected))
    };
    let what = format!("{} authorities are published", authorities.len());
    cluster.until(&what, OCG_BUNDLE, is_so).await
}

async fn gone(cluster: &TestCluster, path: &str) {
    eventually("it is gone", SOON, async || {
        let found = cluster.admin().get(path).await;
        holds(found.is_err(), || format!("{path} is still there"))
    })
    .await;
}

async fn give_rights(cluster: &TestCluster, file: &str) {
    let path = workspace().join("controller/deploy").join(file);
    let text = std::fs::read_to_string(path).expect(file);
    cluster.apply(&text).await.expect(file);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_are_told_whether_the_mesh_trusts_the_gateway() {
    let all = Authorities::new();
    let cluster = cluster_with_mesh().await;
    cluster.apply_all(&objects(&all, nowhere())).await;
    cluster
        .apply_all(&[bundle("ocg-trust-bundle", &all.stranger), ocg_policy(false)])
        .await;
    let _controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    let bad = ("False", "CertificateNotTrusted");
    let good = ("True", "CertificateTrusted");
    told(&cluster, OCG_POLICY, TRUSTED, bad, "default/edge").await;
    told(&cluster, POLICY, TRUSTED, bad, "ocg-trust-bundle").await;
    told(&cluster, GATEWAY, TRUSTED, bad, "XMesh mesh").await;
    // Traffic goes on.
    let meshed = "projectsesame.io/Meshed";
    told(&cluster, GATEWAY, meshed, ("True", "Meshed"), "").await;

    let right = json!({"data": bundle("", &all.gateway)["data"]});
    cluster.merge(OCG_BUNDLE, &right).await;
    told(&cluster, OCG_POLICY, TRUSTED, good, "default/edge").await;
    told(&cluster, POLICY, TRUSTED, good, "ocg-trust-bundle").await;
    told(&cluster, GATEWAY, TRUSTED, good, "XMesh mesh").await;

    // Where nobody would see a change of it, no bundle is taken.
    for (path, field) in [(OCG_POLICY, "ocg"), (POLICY, "mesh")] {
        let change = json!({"spec": {field: {"trustBundle": {"namespace": NAMESPACE}}}});
        cluster.merge(path, &change).await;
        let refs = ("False", "InvalidTrustBundle");
        told(&cluster, path, "ResolvedRefs", refs, "is not watched").await;
    }
    // What is no namespace of a mesh is refused by the definition.
    let mut unnamed = ocg_policy(false);
    unnamed["spec"]["ocg"]["trustBundle"] = json!({"name": "ocg-trust-bundle"});
    let refused = cluster.apply(&unnamed.to_string()).await;
    refused.expect_err("a mesh has no namespace");
    let mut anybody = ocg_policy(true);
    anybody["spec"]["gateways"] = json!([]);
    let refused = cluster.apply(&anybody.to_string()).await;
    refused.expect_err("nobody may have any authority trusted");
    cluster
        .delete("/apis/gateway.networking.x-k8s.io/v1alpha1/xmeshes/mesh")
        .await;
    let missing = ("False", "TargetNotFound");
    told(&cluster, OCG_POLICY, "Accepted", missing, "XMesh mesh").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateways_authorities_are_published_for_the_mesh_and_only_they() {
    let all = Authorities::new();
    let cluster = cluster_with_mesh().await;
    // Somebody else's, of another name, with the label and an owner that is none of ours.
    let mut foreign = bundle("foreign", &all.stranger);
    foreign["metadata"]["labels"] = json!({"projectsesame.io/ocg-bundle": "true"});
    let foreign_path = "/api/v1/namespaces/mesh/configmaps/foreign";
    cluster.apply_all(&objects(&all, nowhere())).await;
    cluster
        .apply_all(&[
            foreign,
            bundle("ocg-trust-bundle", &all.stranger),
            ocg_policy(true),
        ])
        .await;
    let _controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    let refs = ("False", "InvalidTrustBundle");
    let told_refs = async |words: &str| {
        told(&cluster, OCG_POLICY, "ResolvedRefs", refs, words).await;
    };
    // What somebody else has written is left, even with the right to write it.
    give_rights(&cluster, "ocg-bundles.yaml").await;
    told_refs("written by somebody else").await;
    published(&cluster, &[&all.stranger]).await;
    cluster.delete(OCG_BUNDLE).await;
    let map = published(&cluster, &[&all.gateway]).await;
    let policy = cluster.get(OCG_POLICY).await;
    let owner = &map["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], policy["metadata"]["uid"], "{map:#}");
    let good = ("True", "CertificateTrusted");
    told(&cluster, GATEWAY, TRUSTED, good, "ocg-trust-bundle").await;

    // A change of somebody is undone.
    let change = json!({"data": bundle("", &all.stranger)["data"]});
    cluster.merge(OCG_BUNDLE, &change).await;
    published(&cluster, &[&all.gateway]).await;

    // What is no authority is not published, a key least of all; what was published stays.
    let secret = all.client();
    let key = format!("{}{}", all.gateway.pem(), secret.key_pem);
    for (text, words) in [
        (key.as_str(), "holds a private key"),
        (secret.certificate_pem.as_str(), "not that of an authority"),
        ("", "has no ca.crt"),
    ] {
        let encoded = Some(STANDARD.encode(text)).filter(|text| !text.is_empty());
        cluster
            .merge(CLIENT, &json!({"data": {"ca.crt": encoded}}))
            .await;
        told_refs(words).await;
        published(&cluster, &[&all.gateway]).await;
    }
    // Both authorities, while one replaces the other.
    let both = STANDARD.encode(format!("{}{}", all.gateway.pem(), all.stranger.pem()));
    cluster
        .merge(CLIENT, &json!({"data": {"ca.crt": both}}))
        .await;
    published(&cluster, &[&all.gateway, &all.stranger]).await;

    cluster.delete(OCG_POLICY).await;
    gone(&cluster, OCG_BUNDLE).await;
    let foreign = cluster.get(foreign_path).await;
    let data = &bundle("", &all.stranger)["data"];
    assert_eq!(&foreign["data"], data, "{foreign:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_lets_in_only_the_other_one_in_a_cluster() {
    if !network::inside_own("each_side_lets_in_only_the_other_one_in_a_cluster") {
        return;
    }
    let all = Authorities::new();
    let cluster = cluster_with_mesh().await;
    give_rights(&cluster, "ocg-bundles.yaml").await;
    give_rights(&cluster, "agent/rbac.yaml").await;
    allow_hosts(&cluster, &["host-1"]).await;
    let controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    controller.wait_ready().await;
    let at = (network::BACKENDS, 0).into();
    let peer = Backend::start_mutual_tls_at("peer", at, &all.peer(), &all.gateway).await;
    let peer = peer.expect("an address");
    cluster.apply_all(&objects(&all, peer.address())).await;
    cluster.apply_all(&[ocg_policy(true)]).await;
    // It is this that the workload of the mesh trusts.
    published(&cluster, &[&all.gateway]).await;
    let user = User::service_account(NAMESPACE, "sesame-agent");
    let agent = agent_of(&cluster.kubeconfig(&user).await);
    each_lets_in_only_the_other(&agent, &all).await;
    let good = ("True", "CertificateTrusted");
    told(&cluster, GATEWAY, TRUSTED, good, "ocg-trust-bundle").await;
}

/// An agent that follows the cluster.
fn agent_of(kubeconfig: &Path) -> AgentUnderTest {
    let mut agent = Setup::with_ports(&[80, 443]).without_manifests().prepare();
    agent.add_flags(&["--kube", "--kubeconfig", &kubeconfig.to_string_lossy()]);
    agent.add_flags(&["--host", "host-1"]);
    agent.restart();
    agent
}
