//! A cluster without containers: the real `etcd` and `kube-apiserver` on loopback ports. Without
//! controllers and nodes, Deployments have no Pods, and namespaces have no default
//! `ServiceAccount`.

mod assets;
mod client;
mod guard;
mod identity;
mod outages;
mod rights;
mod servers;

use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

pub use self::assets::{
    Channel, crd_files, definitions, gateway_api_version, kube_binary, kube_version,
};
pub use self::client::{Client, Failure};
pub use self::guard::Guard;
use self::identity::{Credentials, Identity};
use self::servers::Servers;
use crate::agent::TEST_TIMEOUT;
use crate::wait::{eventually, holds};

/// Lifetime of tokens, longer than any test or the conformance suite.
const TOKEN_SECONDS: u64 = 6 * 3600;

/// The identity of an API client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A member of `system:masters`, authenticated by a client certificate.
    Admin,
    /// A `ServiceAccount`, created if missing and authenticated by its token.
    ServiceAccount {
        /// The namespace of the `ServiceAccount`, which must exist.
        namespace: String,
        /// The name of the `ServiceAccount`.
        name: String,
    },
    /// A Pod on a node, authenticated by a token bound to the Pod. All are created if missing.
    OnNode {
        /// The namespace of the `ServiceAccount`, which must exist.
        namespace: String,
        /// The name of the `ServiceAccount`.
        name: String,
        /// The name of the node.
        node: String,
    },
}

impl User {
    /// Returns a user that is a `ServiceAccount`.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns a Pod of a `ServiceAccount` on a node.
    pub fn on_node(namespace: &str, name: &str, node: &str) -> Self {
        Self::OnNode {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            node: node.to_owned(),
        }
    }

    /// Returns a valid file name that is unique per user.
    fn file_stem(&self) -> String {
        match self {
            Self::Admin => "admin".to_owned(),
            Self::ServiceAccount { namespace, name } => format!("{namespace}_{name}"),
            Self::OnNode {
                namespace,
                name,
                node,
            } => format!("{namespace}_{name}_{node}"),
        }
    }
}

/// An API server and its etcd, killed on drop or if the test dies.
pub struct TestCluster {
    servers: Servers,
    identity: Identity,
    admin: Client,
}

impl TestCluster {
    /// Starts both servers and waits until they are ready. Panics if a binary is missing or a
    /// server fails.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST).await
    }

    /// Like [`Self::start`], but reachable from other network namespaces.
    pub async fn start_at(address: Ipv4Addr) -> Self {
        let identity = Identity::new(address);
        let servers = Servers::start(&identity, address).await;
        let admin = Client::new(servers.address(), &identity, identity.admin());
        let mut cluster = Self {
            servers,
            identity,
            admin,
        };
        cluster.wait_ready().await;
        cluster
            .wait_served("/api/v1/namespaces/default", |_| true)
            .await;
        cluster
    }

    /// Returns the API server's URL, which restarts do not change.
    pub fn url(&self) -> String {
        format!("https://{}", self.servers.address())
    }

    /// Returns the PIDs of the API server and of etcd.
    pub fn pids(&self) -> (u32, u32) {
        self.servers.pids()
    }

    /// Returns a client with all permissions.
    pub fn admin(&self) -> &Client {
        &self.admin
    }

    /// Returns a client that authenticates as `user`.
    pub async fn client(&self, user: &User) -> Client {
        let credentials = self.credentials(user).await;
        Client::new(self.servers.address(), &self.identity, credentials)
    }

    /// Returns a client that authenticates with the given token.
    pub fn bearer(&self, token: &str) -> Client {
        let credentials = Credentials::Token(token.to_owned());
        Client::new(self.servers.address(), &self.identity, credentials)
    }

    /// Writes a kubeconfig with mode 0600, which is deleted with the cluster.
    pub async fn kubeconfig(&self, user: &User) -> PathBuf {
        let credentials = self.credentials(user).await;
        let text = self.identity.kubeconfig(&self.url(), &credentials);
        let name = format!("kubeconfig-{}.yaml", user.file_stem());
        let path = self.servers.directory().join(name);
        // A program may be using the file, so replace it atomically.
        let staged = path.with_extension("new");
        let _ = std::fs::remove_file(&staged);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&staged)
            .expect("create a kubeconfig");
        std::io::Write::write_all(&mut file, text.as_bytes()).expect("write a kubeconfig");
        std::fs::rename(&staged, &path).expect("rename a kubeconfig");
        path
    }

    /// Installs a channel's CRDs and waits until they are served. After the standard channel,
    /// the API server rejects experimental CRDs.
    pub async fn install_crds(&self, channel: Channel) {
        self.install_release(gateway_api_version(), channel).await;
    }

    /// Like [`Self::install_crds`], for the given release, such as `v1.6.3`.
    pub async fn install_release(&self, release: &str, channel: Channel) {
        let mut objects = Vec::new();
        for object in assets::crds(release, channel) {
            let applied = self.admin.apply_value(&object).await;
            objects.push(applied.expect("apply a Gateway API manifest"));
        }
        self.wait_kinds_served(&objects).await;
    }

    /// Installs one CRD and waits until it is served.
    pub async fn install_crd(&self, definition: &Value) {
        let applied = self.admin.apply_value(definition).await;
        self.wait_kinds_served(&[applied.expect("a definition")])
            .await;
    }

    /// Applies the YAML's objects as an administrator, in order, and waits until the kinds of
    /// its CRDs are served.
    pub async fn apply(&self, yaml: &str) -> Result<Vec<Value>, Failure> {
        let applied = self.admin.apply(yaml).await?;
        self.wait_kinds_served(&applied).await;
        Ok(applied)
    }

    /// Applies objects as an administrator, or panics.
    pub async fn apply_all(&self, objects: &[Value]) {
        for object in objects {
            self.make(object).await;
        }
    }

    /// Returns the object or list at a path, or panics.
    pub async fn get(&self, path: &str) -> Value {
        let got = self.admin.get(path).await;
        got.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Applies a merge patch to the object at a path, or panics.
    pub async fn merge(&self, path: &str, change: &Value) {
        let merged = self.admin.merge(path, change).await;
        merged.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Deletes the object at a path, or panics.
    pub async fn delete(&self, path: &str) {
        let deleted = self.admin.delete(path).await;
        deleted.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Polls the object at a path until `good` accepts it.
    pub async fn until(&self, what: &str, path: &str, good: impl Fn(&Value) -> bool) -> Value {
        eventually(what, TEST_TIMEOUT, async || {
            let object = self.admin.get(path).await.map_err(|e| e.to_string())?;
            holds(good(&object), || format!("{object:#}"))?;
            Ok(object)
        })
        .await
    }

    /// Restarts the API server with the same address, keys and data.
    pub async fn start_apiserver(&mut self) {
        self.servers.start_apiserver();
        self.wait_ready().await;
    }

    /// Replaces all CAs and keys, which invalidates all credentials, and restarts the API server.
    pub async fn rotate(&mut self) {
        self.stop_apiserver();
        let address = self.servers.address();
        self.identity = Identity::new(address.ip());
        self.servers.change_identity(&self.identity);
        self.admin = Client::new(address, &self.identity, self.identity.admin());
        self.start_apiserver().await;
    }

    async fn credentials(&self, user: &User) -> Credentials {
        let (namespace, name) = match user {
            User::Admin => return self.identity.admin(),
            User::ServiceAccount { namespace, name }
            | User::OnNode {
                namespace, name, ..
            } => (namespace, name),
        };
        self.make(&json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace},
        }))
        .await;
        let mut spec = json!({"expirationSeconds": TOKEN_SECONDS});
        if let User::OnNode { node, .. } = user {
            self.make(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}))
                .await;
            let pod = self
                .make(&json!({
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": format!("{name}-{node}"), "namespace": namespace},
                    "spec": {
                        "serviceAccountName": name,
                        "nodeName": node,
                        "containers": [{"name": "agent", "image": "none"}],
                    },
                }))
                .await;
            let metadata = &pod["metadata"];
            spec["boundObjectRef"] = json!({
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"],
            });
        }
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": spec,
        });
        let answer = self.admin.create(&path, &request).await;
        let answer =
            answer.unwrap_or_else(|error| panic!("cannot create a token for {name}: {error}"));
        let token = answer["status"]["token"].as_str();
        Credentials::Token(token.expect("a token").to_owned())
    }

    async fn make(&self, object: &Value) -> Value {
        let applied = self.admin.apply_value(object).await;
        applied.unwrap_or_else(|error| panic!("{error}: {object}"))
    }

    async fn wait_ready(&mut self) {
        let admin = &self.admin;
        let servers = &mut self.servers;
        eventually("the API server is ready", TEST_TIMEOUT, async || {
            servers.assert_alive();
            let ready = admin.get_text("/readyz?verbose").await;
            ready.map_err(|error| format!("{error}\n{}", servers.log_tail()))
        })
        .await;
    }

    /// Skips objects that are not CRDs.
    async fn wait_kinds_served(&self, objects: &[Value]) {
        for object in objects {
            if object["kind"] == "CustomResourceDefinition" {
                self.wait_kind_served(object).await;
            }
        }
        self.admin.forget_kinds().await;
    }

    async fn wait_kind_served(&self, crd: &Value) {
        let text = |value: &Value| value.as_str().expect("a definition's field").to_owned();
        let group = text(&crd["spec"]["group"]);
        let plural = text(&crd["spec"]["names"]["plural"]);
        let name = text(&crd["metadata"]["name"]);
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        self.wait_served(&path, |crd| {
            let conditions = crd["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "Established" && condition["status"] == "True"
            })
        })
        .await;
        let versions = crd["spec"]["versions"].as_array();
        for version in versions.expect("a definition's versions") {
            if version["served"] == true {
                let version = text(&version["name"]);
                let list = format!("/apis/{group}/{version}");
                self.wait_served(&format!("{list}/{plural}"), |_| true)
                    .await;
                // Discovery may list the kind later than the API server serves it.
                self.wait_served(&list, |list| {
                    let mut kinds = list["resources"].as_array().into_iter().flatten();
                    kinds.any(|kind| kind["name"] == *plural)
                })
                .await;
            }
        }
    }

    async fn wait_served(&self, path: &str, good: impl Fn(&Value) -> bool) {
        eventually(path, TEST_TIMEOUT, async || {
            match self.admin.get(path).await {
                Ok(value) if good(&value) => Ok(()),
                Ok(value) => Err(value["status"].to_string()),
                Err(error) => Err(format!("{error}\n{}", self.servers.log_tail())),
            }
        })
        .await;
    }
}
