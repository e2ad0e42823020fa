//! Builds publications with the real resolver, so agents can be tested without a controller.

use std::net::SocketAddr;

use base64::Engine as _;
use kube::CustomResourceExt as _;
use prost::Message as _;
use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_proto::digest::sha256;
use sesame_proto::schema::Manifest;
use sesame_proto::{keys, shard};
use sesame_published::GatewayAgent;
use sesame_published::names::{
    DEFAULT_FLEET, DEFAULT_NAMESPACE, FLEET_LABEL, GATEWAY_LABEL, KEYS_ENTRY, MANIFEST_ENTRY,
    PART_LABEL, Part, SHARD_ENTRY, agent_name, gateway_id, key_secret_name, manifest_name,
    shard_name,
};
use sesame_resolver::{Options, ResolvedGateway, resolve};
use sesame_sources::last_good::LastGood;
use sesame_sources::manifests::Manifests;

use crate::agent::TEST_TIMEOUT;
use crate::cluster::{Client, TestCluster, User};
use crate::manifests::{edge, http_listener, http_route, path, rule_to, served};
use crate::wait::eventually;

/// Namespace of all publications.
pub const NAMESPACE: &str = DEFAULT_NAMESPACE;

/// Name of the host on which test agents run.
pub const HOST: &str = "host-1";

/// Resolves the objects, and allows loopback endpoints.
pub fn resolved(objects: &[Value]) -> Vec<ResolvedGateway> {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("all.yaml"), crate::manifests::yaml(objects)).expect("write");
    let mut manifests = Manifests::new(dir.path(), LastGood::none());
    manifests.scan();
    let options = Options {
        allow_local_endpoints: true,
        extra_minimal_ocg: true,
        ..Options::default()
    };
    resolve(manifests.world(), &options).gateways
}

/// Resolves the objects, which must contain only one Gateway.
pub fn one(objects: &[Value]) -> ResolvedGateway {
    let mut all = resolved(objects);
    assert_eq!(all.len(), 1, "one Gateway: {all:#?}");
    all.remove(0)
}

/// The publication of one Gateway.
pub struct Published {
    /// The manifest's revision.
    pub revision: String,
    /// ConfigMaps with the configuration. They are immutable.
    pub config: Vec<Value>,
    /// ConfigMaps with the endpoints.
    pub endpoints: Vec<Value>,
    /// Secrets with the private keys.
    pub keys: Vec<Value>,
    /// The manifest's ConfigMap, which lists the shards.
    pub manifest: Value,
}

impl Published {
    /// Builds the objects of a publication, as a controller would.
    pub fn of(resolved: &ResolvedGateway) -> Self {
        let ResolvedGateway {
            gateway,
            snapshot,
            keys,
        } = resolved;
        let shard::Sharded { manifest, shards } = shard::split(snapshot).expect("shards");
        let (mut config, mut endpoints) = (Vec::new(), Vec::new());
        for shard in shards {
            let name = shard_name(gateway, &shard.name);
            let is_config = shard.name.starts_with("config-");
            let part = if is_config {
                Part::Config
            } else {
                Part::Endpoints
            };
            let mut object = object("ConfigMap", gateway, &name, part);
            object["binaryData"] = json!({SHARD_ENTRY: base64(&shard.bytes)});
            if is_config {
                object["immutable"] = json!(true);
                config.push(object);
            } else {
                endpoints.push(object);
            }
        }
        let secrets: Vec<Value> = keys
            .chunks(2)
            .enumerate()
            .map(|(index, keys)| {
                let name = key_secret_name(gateway, index);
                let mut object = object("Secret", gateway, &name, Part::Keys);
                object["data"] = json!({KEYS_ENTRY: base64(&keys::encode(keys))});
                object
            })
            .collect();
        let mut named = object(
            "ConfigMap",
            gateway,
            &manifest_name(gateway),
            Part::Manifest,
        );
        named["binaryData"] = json!({MANIFEST_ENTRY: base64(&manifest.encode_to_vec())});
        named["data"] = json!({
            "revision": manifest.revision,
            "keySecrets": secrets.len().to_string(),
        });
        Self {
            revision: manifest.revision,
            config,
            endpoints,
            keys: secrets,
            manifest: named,
        }
    }

    /// Adds an unknown field, as newer controllers might.
    #[must_use]
    pub fn with_unknown_field(mut self) -> Self {
        let shard = self.config.last_mut().expect("a shard");
        let stored = decoded(&shard["binaryData"][SHARD_ENTRY]);
        let manifest = decoded(&self.manifest["binaryData"][MANIFEST_ENTRY]);
        let mut manifest = Manifest::decode(&*manifest).expect("a manifest");
        let mut references = manifest.config.iter_mut();
        let reference = references
            .find(|reference| reference.sha256 == sha256(&stored))
            .expect("the shard's manifest entry");
        let mut plain = zstd::decode_all(&*stored).expect("a shard");
        // Append field 500, a one-letter string.
        plain.extend([0xa2, 0x1f, 1, b'a']);
        let stored = zstd::encode_all(&*plain, 3).expect("compression in memory");
        reference.sha256 = sha256(&stored);
        reference.size = plain.len() as u64;
        shard["binaryData"] = json!({SHARD_ENTRY: base64(&stored)});
        self.manifest["binaryData"] = json!({MANIFEST_ENTRY: base64(&manifest.encode_to_vec())});
        self
    }

    /// Writes all objects, the manifest last.
    pub async fn publish(&self, client: &Client) {
        for object in self.config.iter().chain(&self.endpoints).chain(&self.keys) {
            apply(client, object).await;
        }
        apply(client, &self.manifest).await;
    }

    /// Returns the prefix of the revision that agents report.
    pub fn short(&self) -> &str {
        &self.revision[..12]
    }

    /// Returns a predicate that is true if an agent's status reports this revision as wanted and
    /// served.
    pub fn is_served(&self) -> impl Fn(&Value) -> bool + use<> {
        let revision = self.short().to_owned();
        move |status| {
            status["state"] == "Serving"
                && status["appliedRevision"] == *revision
                && status["wantedRevision"] == *revision
        }
    }
}

/// Writes one object.
pub async fn apply(client: &Client, object: &Value) -> Value {
    let applied = client.apply_value(object).await;
    applied.unwrap_or_else(|error| panic!("{error}: {object}"))
}

/// Creates the namespace, the CRD, and a ServiceAccount that may serve these Gateways.
pub async fn prepare(cluster: &TestCluster, gateways: &[&NamespacedName]) -> User {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    apply(cluster.admin(), &namespace).await;
    let definition = serde_json::to_value(GatewayAgent::crd()).expect("JSON");
    cluster.install_crd(&definition).await;
    let user = User::service_account(NAMESPACE, "agent");
    let secrets: Vec<String> = gateways
        .iter()
        .flat_map(|gateway| (0..2).map(|index| key_secret_name(gateway, index)))
        .collect();
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": secrets, "verbs": ["get"]},
        {"apiGroups": ["projectsesame.io"], "resources": ["gatewayagents"],
         "verbs": ["get", "create", "patch", "delete"]},
        {"apiGroups": ["projectsesame.io"], "resources": ["gatewayagents/status"], "verbs": ["patch"]},
    ]);
    cluster.allow(NAMESPACE, "agent", "agent", &rules).await;
    user
}

/// Builds a publication of [`crate::manifests::GATEWAY`] whose route matches the path `prefix`.
pub fn version(endpoint: SocketAddr, prefix: &str, listeners: &[Value]) -> Published {
    let mut objects = edge(listeners);
    objects.extend(served("app", &[endpoint]));
    let matches = [path("PathPrefix", prefix), path("PathPrefix", "/all")];
    let rule = rule_to("app", &matches);
    objects.push(http_route("app", &["kube.test"], &[rule]));
    Published::of(&one(&objects))
}

/// Like [`version`], with one HTTP listener on port 80.
pub fn at_port_80(endpoint: SocketAddr, prefix: &str) -> Published {
    version(endpoint, prefix, &[http_listener("http", 80, "")])
}

/// Returns the API path of a ConfigMap in [`NAMESPACE`].
pub fn config_map_path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")
}

/// Returns the API path of the report from the agent on [`HOST`].
pub fn agent_path(gateway: &NamespacedName) -> String {
    let name = agent_name(gateway, HOST);
    format!("/apis/projectsesame.io/v1alpha1/namespaces/{NAMESPACE}/gatewayagents/{name}")
}

/// Polls the report from the agent on [`HOST`] until `good` accepts it.
pub async fn wait_report(
    cluster: &TestCluster,
    gateway: &NamespacedName,
    what: &str,
    good: impl Fn(&Value) -> bool,
) -> Value {
    let path = agent_path(gateway);
    eventually(what, TEST_TIMEOUT, async || {
        match cluster.admin().get(&path).await {
            Ok(object) if good(&object["status"]) => Ok(object["status"].clone()),
            Ok(object) => Err(format!("{:#}", object["status"])),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

fn object(kind: &str, gateway: &NamespacedName, name: &str, part: Part) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                GATEWAY_LABEL: gateway_id(gateway),
                PART_LABEL: part.as_str(),
                FLEET_LABEL: DEFAULT_FLEET,
            },
        },
    })
}

fn decoded(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("text");
    let engine = base64::engine::general_purpose::STANDARD;
    engine.decode(text).expect("base64")
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
