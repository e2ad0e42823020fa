//! Hosts outside a test cluster that join it, and the operator who invites them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sesame_proto::at_rest;
use sesame_sources::seal::{SealMethod, SealSettings, SealingKeys};
use tempfile::TempDir;

use crate::agent::{agent_binary, beside_test, words};
use crate::cluster::{Channel, Client, TestCluster, User};
use crate::controller::{NAMESPACE, deploy};
use crate::manifests::yaml;

fn run(program: &Path, arguments: &[&str], input: &str, variables: &[(&str, PathBuf)]) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .envs(variables.iter().cloned())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // The program may exit without reading its input.
    let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the program exits")
}

/// Returns a command's output as a string.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// A cluster with a Gateway, and an administrator for `sesame-controller hosts`.
pub struct Site {
    /// The cluster.
    pub cluster: TestCluster,
    admin_config: PathBuf,
}

impl Site {
    /// Starts the cluster with everything in `controller/deploy`.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST).await
    }

    /// Like [`Self::start`], but the API server listens on this address.
    pub async fn start_at(address: Ipv4Addr) -> Self {
        let cluster = TestCluster::start_at(address).await;
        cluster.install_crds(Channel::Standard).await;
        deploy(&cluster).await;
        let admin_config = cluster.kubeconfig(&User::Admin).await;
        Self {
            cluster,
            admin_config,
        }
    }

    /// Returns a client with all permissions.
    pub fn admin(&self) -> &Client {
        self.cluster.admin()
    }

    /// Runs `sesame-controller hosts` as an administrator.
    pub fn hosts(&self, arguments: &[&str]) -> Output {
        self.hosts_as(&self.admin_config, arguments)
    }

    /// Runs `sesame-controller hosts` with the given kubeconfig.
    pub fn hosts_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Output {
        let config = kubeconfig.to_string_lossy();
        let at = ["hosts", "--kubeconfig", &config, "--namespace", NAMESPACE];
        run(
            &beside_test("sesame-controller"),
            &[&at[..], arguments].concat(),
            "",
            &[],
        )
    }

    /// Creates a join token.
    pub fn token(&self, arguments: &[&str]) -> String {
        self.token_as(&self.admin_config, arguments)
    }

    /// Creates a join token with the given kubeconfig.
    pub fn token_as(&self, kubeconfig: &Path, arguments: &[&str]) -> String {
        let arguments = [&["token", "--output", "json"], arguments].concat();
        let output = self.hosts_as(kubeconfig, &arguments);
        assert!(output.status.success(), "{}", words(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        answer["token"].as_str().expect("a token").to_owned()
    }

    /// Returns the hosts in the cluster's inventory.
    pub fn list(&self) -> Vec<Value> {
        let output = self.hosts(&["list", "--output", "json"]);
        assert!(output.status.success(), "{}", words(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Returns a host from the inventory, or null.
    pub fn row(&self, host: &str) -> Value {
        let mut all = self.list().into_iter();
        all.find(|row| row["host"] == host).unwrap_or_default()
    }

    /// Applies the given objects as an administrator.
    pub async fn apply(&self, objects: &[Value]) {
        let applied = self.cluster.apply(&yaml(objects)).await;
        applied.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns true if no object exists at the path.
    pub async fn is_gone(&self, path: &str) -> bool {
        matches!(self.admin().get(path).await, Err(error) if error.is(404))
    }
}

/// The directories of a host on which no agent runs.
pub struct Host {
    directory: TempDir,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// Creates empty directories.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { directory }
    }

    /// Returns the state directory.
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Returns the path of the settings file.
    pub fn config(&self) -> PathBuf {
        self.directory.path().join("agent.yaml")
    }

    /// Runs `sesame-agent join` with the token on standard input.
    pub fn join(&self, token: &str) -> Output {
        join(&self.state(), &self.config(), token, &[])
    }

    /// Makes the host join the cluster, and returns its credential.
    pub async fn joined(&self, token: &str) -> String {
        let output = self.join(token);
        assert!(output.status.success(), "{}", words(&output));
        credential(&self.state()).await
    }

    /// Runs `sesame-agent leave`.
    pub fn leave(&self) -> Output {
        leave(
            &self.state(),
            &self.config(),
            &self.directory.path().join("run"),
        )
    }
}

/// Runs `sesame-agent join` with the token on standard input.
pub fn join(state: &Path, config: &Path, token: &str, variables: &[(&str, PathBuf)]) -> Output {
    let (state, config) = (state.to_string_lossy(), config.to_string_lossy());
    let arguments = [
        "join",
        "--token-file",
        "-",
        "--state-dir",
        &state,
        "--config",
        &config,
        "--no-service",
        "--zone",
        "rack-7",
    ];
    run(&agent_binary(), &arguments, token, variables)
}

/// Runs `sesame-agent leave`.
pub fn leave(state: &Path, config: &Path, runtime: &Path) -> Output {
    let (state, config) = (state.to_string_lossy(), config.to_string_lossy());
    let runtime = runtime.to_string_lossy();
    let arguments = [
        "leave",
        "--state-dir",
        &state,
        "--config",
        &config,
        "--no-service",
        "--runtime-dir",
        &runtime,
    ];
    run(&agent_binary(), &arguments, "", &[])
}

/// Returns the stored credential. Panics unless it is sealed.
pub async fn credential(state: &Path) -> String {
    let stored = std::fs::read(credential_path(state)).expect("a credential");
    assert!(at_rest::is_sealed(&stored), "the credential is not sealed");
    let settings = SealSettings {
        method: SealMethod::Auto,
        directory: state.join("seal"),
    };
    let keys = SealingKeys::found(&settings).await;
    let opened = keys.open_text(stored, Path::new("cluster/token"));
    opened.expect("unseal with this host's key").0
}

/// Returns the path of the credential in a state directory.
pub fn credential_path(state: &Path) -> PathBuf {
    state.join("cluster/token")
}

/// Converts the settings that `join` wrote to options of `run`.
pub fn options(config: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(config).expect("settings");
    let settings: Value = serde_saphyr::from_str(&text).expect("YAML");
    let mut options = Vec::new();
    for (name, value) in settings.as_object().expect("names and values") {
        let values = value.as_array().cloned().unwrap_or(vec![value.clone()]);
        for value in values.iter().filter(|_| name != "state-dir") {
            options.push(format!("--{name}"));
            options.extend(value.as_str().map(str::to_owned));
        }
    }
    options
}

/// Asserts that the command failed with a message that contains `word`.
pub fn refused(output: &Output, word: &str) {
    assert!(!output.status.success(), "{}", words(output));
    assert!(text(&output.stderr).contains(word), "{}", words(output));
}

/// Returns the files below a directory that contain the text.
pub fn holding(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            let mut parts = bytes.windows(text.len());
            found.extend(parts.any(|part| part == text.as_bytes()).then_some(path));
        }
    }
    found
}
