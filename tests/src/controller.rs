//! A real `sesame-controller run` with the permissions from `controller/deploy`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message as _;
use serde_json::Value;
use sesame_kinds::api::NamespacedName;
use sesame_proto::schema::{Manifest, Snapshot};
use sesame_proto::shard;
use sesame_published::names::{
    self, GATEWAY_LABEL, KEYS_ENTRY, MANIFEST_ENTRY, PART_LABEL, SHARD_ENTRY,
};
use tempfile::TempDir;

pub use crate::agent::TEST_TIMEOUT;
use crate::agent::beside_test;
use crate::client::Request;
use crate::cluster::{Channel, Client, TestCluster, User};
use crate::envoy::workspace;
use crate::logs::{log_to, tail};
use crate::ports::free_port;
use crate::wait::{eventually, holds};

/// Namespace that the controller publishes to.
pub const NAMESPACE: &str = names::DEFAULT_NAMESPACE;

/// Applies `controller/deploy` and waits until its permissions take effect.
pub async fn deploy(cluster: &TestCluster) {
    let directory = workspace().join("controller/deploy");
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let kustomization: Value = serde_saphyr::from_str(&read("kustomization.yaml")).expect("YAML");
    for file in kustomization["resources"].as_array().expect("a list") {
        let file = file.as_str().expect("a file's name");
        let applied = cluster.apply(&read(file)).await;
        applied.unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    let path = format!("/apis/projectsesame.io/v1alpha1/namespaces/{NAMESPACE}/gatewayagents");
    let user = cluster.client(&controller_user()).await;
    eventually(
        "the controller may read GatewayAgents",
        TEST_TIMEOUT,
        async || user.get(&path).await.map_err(|error| error.to_string()),
    )
    .await;
    for (verb, resource, namespace) in [
        ("list", "namespaces", ""),
        ("create", "services", "default"),
        ("create", "configmaps", NAMESPACE),
    ] {
        user.wait_allowed(true, verb, resource, namespace).await;
    }
}

/// Starts a cluster with Gateway API CRDs and `controller/deploy`.
pub async fn deployed(channel: Channel) -> TestCluster {
    let cluster = TestCluster::start().await;
    cluster.install_crds(channel).await;
    deploy(&cluster).await;
    cluster
}

/// Applies one file from `controller/deploy`.
pub async fn give_rights(cluster: &TestCluster, file: &str) {
    let path = workspace().join("controller/deploy").join(file);
    let text = std::fs::read_to_string(path).expect(file);
    cluster.apply(&text).await.expect(file);
}

/// Returns the controller's ServiceAccount from `controller/deploy`.
pub fn controller_user() -> User {
    User::service_account(NAMESPACE, "sesame-controller")
}

/// A running controller, which is killed on drop.
pub struct ControllerUnderTest {
    directory: TempDir,
    kubeconfig: PathBuf,
    flags: Vec<String>,
    variables: Vec<(String, PathBuf)>,
    listen: SocketAddr,
    program: PathBuf,
    child: Option<Child>,
}

impl ControllerUnderTest {
    /// Starts a controller.
    pub async fn start(cluster: &TestCluster, flags: &[&str]) -> Self {
        Self::start_with(cluster, flags, &[]).await
    }

    /// Starts a controller with additional environment variables.
    pub async fn start_with(
        cluster: &TestCluster,
        flags: &[&str],
        variables: &[(&str, PathBuf)],
    ) -> Self {
        let variables = variables.iter();
        let mut controller = Self {
            directory: tempfile::Builder::new()
                .prefix("sesame-controller-")
                .tempdir()
                .expect("a directory"),
            kubeconfig: cluster.kubeconfig(&controller_user()).await,
            flags: flags.iter().map(ToString::to_string).collect(),
            variables: variables
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            listen: (Ipv4Addr::LOCALHOST, free_port()).into(),
            program: beside_test("sesame-controller"),
            child: None,
        };
        controller.restart();
        controller
    }

    /// Kills the controller if it is running, and starts it again.
    pub fn restart(&mut self) {
        self.kill9();
        let given = |name: &str| self.flags.iter().any(|flag| flag == name);
        let mut command = Command::new(&self.program);
        command
            .arg("run")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", NAMESPACE])
            .args(["--listen", &self.listen.to_string()])
            .args(["--log", "info,sesame_controller=debug"])
            .args(&self.flags)
            .envs(deployed_environment())
            .envs(self.variables.iter().cloned())
            .process_group(0);
        if !given("--lease-seconds") {
            command.args(["--lease-seconds", "6"]);
        }
        // Most test clusters have no nodes, so allow all host addresses.
        if !given("--host-addresses") {
            command.args(["--host-addresses", "0.0.0.0/0,::/0"]);
        }
        log_to(&mut command, &self.log_path());
        self.child = Some(command.spawn().expect("start the controller"));
    }

    /// Replaces the controller's binary for the next start.
    pub fn replace(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
        self.restart();
    }

    /// Returns true if the controller was started and has exited by itself.
    pub fn has_exited(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Sends SIGKILL to the controller.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            child.wait().expect("the controller is our child");
        }
    }

    /// Sends SIGTERM and returns the exit status.
    pub async fn stop(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the controller runs");
        let pid = i32::try_from(child.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the controller is our child");
        eventually("the controller stops", TEST_TIMEOUT, async || {
            let ended = child.try_wait().expect("the controller is our child");
            ended.ok_or_else(|| self.log_tail())
        })
        .await
    }

    /// Waits until the controller is ready, and returns how long that took.
    pub async fn wait_ready(&self) -> Duration {
        let start = Instant::now();
        eventually(
            "the controller is ready",
            TEST_TIMEOUT,
            async || match self.get("/readyz").await {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}\n{}", self.log_tail())),
            },
        )
        .await;
        start.elapsed()
    }

    /// Returns the address of the controller's HTTP pages.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Returns the status and body of the page at `path`.
    pub async fn get(&self, path: &str) -> Result<(u16, String), String> {
        let request = Request::get(self.listen, "localhost", path);
        let reply = request.send().await.map_err(|error| format!("{error:#}"))?;
        let body = String::from_utf8_lossy(&reply.body).into_owned();
        Ok((reply.status, body))
    }

    /// Returns the metric's sum over series whose labels contain `with`, or 0.
    pub async fn metric(&self, name: &str, with: &str) -> f64 {
        let (_, text) = self.get("/metrics").await.expect("metrics");
        text.lines()
            .filter_map(|line| line.rsplit_once(' '))
            .filter(|(series, _)| {
                let (series_name, labels) = series.split_once('{').unwrap_or((series, ""));
                series_name == format!("sesame_controller_{name}") && labels.contains(with)
            })
            .map(|(_, value)| value.parse::<f64>().expect("a number"))
            .sum()
    }

    /// Waits until this controller is the leader.
    pub async fn wait_leads(&self) {
        eventually("the controller leads", TEST_TIMEOUT, async || {
            holds(self.metric("leader", "").await > 0.5, || self.log_tail())
        })
        .await;
    }

    /// Returns the controller's process ID.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the controller runs").id()
    }

    /// Returns the controller's resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let pid = self.pid();
        let text =
            std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|text| text.parse::<u64>().ok())
            .expect("a number")
            * 1024
    }

    /// Returns the last lines of the controller's log.
    pub fn log_tail(&self) -> String {
        tail(&self.log_path(), 30)
    }

    /// Returns the controller's complete log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

impl Drop for ControllerUnderTest {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            eprintln!("end of the controller's log:\n{}", self.log_tail());
        }
    }
}

/// Returns the Deployment's environment variables that have a literal value.
fn deployed_environment() -> Vec<(String, String)> {
    let path = workspace().join("controller/deploy/deployment.yaml");
    let text = std::fs::read_to_string(&path).expect("read the Deployment");
    let deployment: Value = serde_saphyr::from_str(&text).expect("YAML");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    variables
        .iter()
        .filter_map(|variable| Some((text(&variable["name"])?, text(&variable["value"])?)))
        .collect()
}

/// A Gateway's current publication, as agents read it.
#[derive(Debug)]
pub struct Publication {
    /// The manifest's ConfigMap.
    pub manifest_object: Value,
    /// The manifest.
    pub manifest: Manifest,
    /// All published ConfigMaps, by name.
    pub config_maps: BTreeMap<String, Value>,
    /// The snapshot, assembled from the verified shards.
    pub snapshot: Snapshot,
}

impl Publication {
    /// Returns the manifest's `metadata.resourceVersion`.
    pub fn manifest_version(&self) -> &str {
        let version = &self.manifest_object["metadata"]["resourceVersion"];
        version.as_str().expect("a version")
    }

    /// Returns the addresses of all endpoints in the snapshot.
    pub fn endpoints(&self) -> Vec<String> {
        let sets = self.snapshot.endpoints.iter();
        sets.flat_map(|set| &set.endpoints)
            .map(|endpoint| format!("{}:{}", endpoint.address, endpoint.port))
            .collect()
    }
}

/// Returns a Gateway's published ConfigMaps or Secrets.
pub async fn objects(admin: &Client, plural: &str, gateway: &NamespacedName) -> Vec<Value> {
    let id = names::gateway_id(gateway);
    let label = GATEWAY_LABEL.replace('/', "%2F");
    let path = format!("/api/v1/namespaces/{NAMESPACE}/{plural}?labelSelector={label}%3D{id}");
    let list = admin.get(&path).await.expect("a list");
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Returns a Gateway's publication, or an error that names missing objects.
pub async fn publication(admin: &Client, gateway: &NamespacedName) -> Result<Publication, String> {
    let config_maps: BTreeMap<String, Value> = objects(admin, "configmaps", gateway)
        .await
        .into_iter()
        .map(|object| {
            let name = object["metadata"]["name"].as_str().expect("a name");
            (name.to_owned(), object)
        })
        .collect();
    let name = names::manifest_name(gateway);
    let manifest_object = config_maps.get(&name).cloned();
    let manifest_object = manifest_object.ok_or_else(|| format!("{name} does not exist"))?;
    let manifest =
        Manifest::decode(entry(&manifest_object, "binaryData", MANIFEST_ENTRY).as_slice());
    let manifest = manifest.expect("a manifest");
    let mut shards = BTreeMap::new();
    for reference in manifest.config.iter().chain(&manifest.endpoints) {
        let name = names::shard_name(gateway, &reference.name);
        let object = config_maps
            .get(&name)
            .ok_or_else(|| format!("{name} does not exist"))?;
        let part = &object["metadata"]["labels"][PART_LABEL];
        assert!(part == "config" || part == "endpoints", "{part}");
        assert_eq!(object["immutable"] == true, part == "config", "{name}");
        shards.insert(
            reference.name.clone(),
            entry(object, "binaryData", SHARD_ENTRY),
        );
    }
    let snapshot = shard::join(&manifest, &shards).map_err(|error| error.to_string())?;
    Ok(Publication {
        manifest_object,
        manifest,
        config_maps,
        snapshot,
    })
}

/// Returns a Gateway's published key pairs.
pub async fn keys(admin: &Client, gateway: &NamespacedName) -> Vec<sesame_proto::keys::KeyPair> {
    let secrets = objects(admin, "secrets", gateway).await;
    secrets
        .iter()
        .flat_map(|secret| {
            let bytes = entry(secret, "data", KEYS_ENTRY);
            sesame_proto::keys::decode(&bytes).expect("keys")
        })
        .collect()
}

/// Decodes a base64 entry in a ConfigMap or Secret.
pub fn entry(object: &Value, field: &str, name: &str) -> Vec<u8> {
    let text = object[field][name].as_str();
    let text =
        text.unwrap_or_else(|| panic!("no {field}.{name} in {}", object["metadata"]["name"]));
    STANDARD.decode(text).expect("base64")
}

/// Returns the condition of this type, or null.
pub fn condition<'a>(conditions: &'a Value, type_: &str) -> &'a Value {
    let all = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == type_);
    found.unwrap_or(&Value::Null)
}
