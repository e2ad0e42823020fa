//! A Gateway outside the cluster and a mesh authenticate each other. The configuration comes from
//! manifests, a snapshot directory or a cluster.

mod both_directions;
mod dates;
mod policies;

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{NAMESPACE, condition, deployed, give_rights};
use sesame_tests::manifests::{
    edge, endpoint_slices, http_listener, http_route, https_listener, on_listener, rule_to, service,
};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const OCG_BUNDLE: &str = "/api/v1/namespaces/mesh/configmaps/ocg-trust-bundle";
const CALLER: &str = "spiffe://mesh.test/ns/default/sa/caller";
const TRUSTED: &str = "projectsesame.io/ClientCertificateTrusted";

/// Neither side trusts `stranger`.
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

    fn peer(&self) -> Leaf {
        self.mesh.issue_with_uris(&["peer.mesh.test"], &[CALLER])
    }

    fn client(&self) -> Leaf {
        let uri = "spiffe://gateway.test/edge";
        self.gateway.issue_with_uris(&["gateway.test"], &[uri])
    }

    fn secret(&self) -> Value {
        let mut secret = self.client().secret("client");
        secret["data"]["ca.crt"] = json!(STANDARD.encode(self.gateway.pem()));
        secret
    }
}

fn bundle(name: &str, authority: &Authority) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "mesh"},
        "data": {"ca-bundle.crt": authority.pem()}})
}

/// Port 443 is for callers from the mesh, and port 80 for all other callers.
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

fn mesh() -> Value {
    json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XMesh",
        "metadata": {"name": "mesh"}, "spec": {"controllerName": "example.com/mesh"}})
}

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

async fn cluster_with_mesh() -> TestCluster {
    let cluster = deployed(Channel::Experimental).await;
    let configuration = json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": "sesame", "namespace": NAMESPACE},
        "spec": {"gateway": {"extraMinimalOCG": true}}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mesh"}});
    cluster.apply_all(&[namespace, configuration, mesh()]).await;
    cluster
}

async fn wait_condition(
    cluster: &TestCluster,
    path: &str,
    type_: &str,
    expected: (&str, &str),
    words: &str,
) {
    let what = format!("{type_} of {path} is {expected:?}: {words}");
    let is_so = |object: &Value| {
        let own = &object["status"]["conditions"];
        let ancestor_conditions = &object["status"]["ancestors"][0]["conditions"];
        let found = condition(
            if own.is_null() {
                ancestor_conditions
            } else {
                own
            },
            type_,
        );
        let message = found["message"].as_str().unwrap_or_default();
        (&found["status"], &found["reason"]) == (&json!(expected.0), &json!(expected.1))
            && message.contains(words)
    };
    cluster.until(&what, path, is_so).await;
}

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
