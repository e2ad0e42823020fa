//! Creates bundles, and prepares a host that serves them.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sesame_proto::signature::SigningKeys;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary};
use sesame_tests::backend::Backend;
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served, yaml};
use sesame_tests::wait::eventually;

/// Contains manifests, and the key pairs `ours`, `theirs` and `third`.
pub(crate) struct Workshop {
    root: tempfile::TempDir,
}

impl Workshop {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["ours", "theirs", "third"] {
            let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
            let file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(root.path().join(name));
            std::io::Write::write_all(&mut file.unwrap(), pair.serialize_pem().as_bytes()).unwrap();
            let public = root.path().join(format!("{name}.pub"));
            fs::write(public, pair.public_key_pem()).unwrap();
        }
        fs::create_dir(root.path().join("manifests")).unwrap();
        Self { root }
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.root.path().join(name).to_string_lossy().into_owned()
    }

    pub(crate) fn signing(&self, name: &str) -> SigningKeys {
        SigningKeys::from_pem(&fs::read(self.at(name)).unwrap()).unwrap()
    }

    pub(crate) fn create(&self, name: &str, objects: &[Value], more: &[&str]) -> PathBuf {
        fs::write(self.at("manifests/all.yaml"), yaml(objects)).unwrap();
        let file = self.at(&format!("{name}.bundle"));
        let (manifests, ours) = (self.at("manifests"), self.at("ours"));
        let mut line = vec!["bundle", "create", "--manifests", &manifests];
        line.extend(["--gateway", "default/edge", "-o", &file]);
        if !more.contains(&"--signing-key") {
            line.extend(["--signing-key", &ours]);
        }
        line.extend(more);
        let output = command(&line);
        assert!(output.status.success(), "{}", printed(&output));
        file.into()
    }
}

pub(crate) fn command(arguments: &[&str]) -> Output {
    Command::new(agent_binary())
        .args(arguments)
        // Some commands reject the flag for loopback backends, so set the variable.
        .env("SESAME_ALLOW_LOCAL_ENDPOINTS", "true")
        .stdin(Stdio::null())
        .output()
        .expect("the agent's binary runs")
}

pub(crate) fn host(workshop: &Workshop, ports: &[u16], flags: &[&str]) -> AgentUnderTest {
    let mut agent = Setup::with_ports(ports).without_manifests().prepare();
    agent.add_flags(&["--bundle-dir", &agent.manifests().to_string_lossy()]);
    agent.add_flags(flags);
    trust(&agent, &["add", &workshop.at("ours.pub")]);
    agent
}

pub(crate) fn trust(agent: &AgentUnderTest, line: &[&str]) -> String {
    let state = agent.state();
    let state = ["--state-dir", &state.to_string_lossy()];
    let output = command(&[&["trust"], line, &state].concat());
    assert!(output.status.success(), "{}", printed(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) async fn apply(agent: &AgentUnderTest, bundle: &Path, more: &[&str]) -> Output {
    let (bundle, runtime) = (bundle.to_string_lossy(), agent.runtime());
    let (runtime, state) = (runtime.to_string_lossy(), agent.state());
    let state = state.to_string_lossy();
    let line = ["apply", &bundle, "--runtime-dir", &runtime];
    let mut line = line.to_vec();
    line.extend(["--state-dir", &state]);
    line.extend(more);
    agent.command_beside(&line).await
}

pub(crate) async fn accepted(agent: &AgentUnderTest, bundle: &Path) {
    let output = apply(agent, bundle, &[]).await;
    assert!(
        output.status.success(),
        "{}\n{}",
        printed(&output),
        agent.log_tail()
    );
}

pub(crate) fn printed(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{}: {out}{err}", output.status)
}

pub(crate) fn objects(backend: &Backend) -> Vec<Value> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(routed(backend));
    objects
}

pub(crate) fn routed(backend: &Backend) -> Vec<Value> {
    let mut objects = served("app", &[backend.address()]);
    let rule = rule_to("app", &[path("PathPrefix", "/")]);
    objects.push(http_route("app", &["bundle.test"], &[rule]));
    objects
}

/// If only endpoints have changed, storing takes up to a second.
pub(crate) async fn stored(agent: &AgentUnderTest, bundle: &Path) {
    let (bundle, state) = (bundle.to_string_lossy(), agent.state());
    let state = state.to_string_lossy();
    eventually("the bundle is stored", TEST_TIMEOUT, async || {
        let output = command(&["bundle", "diff", &bundle, "--state-dir", &state]);
        if output.status.success() {
            Ok(())
        } else {
            Err(printed(&output))
        }
    })
    .await;
}

pub(crate) async fn wait(agent: &AgentUnderTest, backend: &Backend) {
    let request = agent.get(80, "bundle.test", "/");
    agent
        .wait_served(&request, |reply| {
            reply.status == 200 && reply.backend().as_deref() == Some(backend.name())
        })
        .await;
}

/// Moves the file atomically.
pub(crate) fn drop_in(agent: &AgentUnderTest, name: &str, bytes: &[u8]) {
    let hidden = agent.manifests().join(format!(".{name}"));
    fs::write(&hidden, bytes).unwrap();
    fs::rename(&hidden, agent.manifests().join(name)).unwrap();
}
