//! Signed snapshots. An agent with trusted keys rejects snapshots without a trusted signature, even
//! if the author can write to the agent's source.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_files::directory;
use sesame_proto::bundle::BundleFile;
use sesame_proto::schema::{Endpoint, EndpointSet, Snapshot};
use sesame_proto::shard;
use sesame_proto::signature::SigningKeys;
use sesame_published::names::{SHARD_ENTRY, manifest_name};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary};
use sesame_tests::backend::Backend;
use sesame_tests::cluster::{Channel, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, deployed, give_rights};
use sesame_tests::manifests::{
    edge, edge_name, http_listener, http_route, path, rule_to, served, yaml,
};
use sesame_tests::network;
use sesame_tests::publications::{config_map_path, one};
use sesame_tests::wait::eventually;

const OLD: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----\n\
     MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
     -----END PRIVATE KEY-----\n",
    "-----BEGIN PUBLIC KEY-----\n\
     MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
     -----END PUBLIC KEY-----\n",
];
const NEW: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----\n\
     MC4CAQAwBQYDK2VwBCIEIEzNCJsoXb2Wlk8vptbPp2xE6nuXazJ27Jqmp6w4pvW4\n\
     -----END PRIVATE KEY-----\n",
    "-----BEGIN PUBLIC KEY-----\n\
     MCowBQYDK2VwAyEAb4SDQvuE1b/JhKVPBvoKklYC5nUKGanh9w77l5egMUk=\n\
     -----END PUBLIC KEY-----\n",
];

fn write(path: &Path, text: &str) {
    let _ = std::fs::remove_file(path);
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
}

fn has_state(status: &Value, state: &str, words: &[&str]) -> bool {
    let gateway = &status["gateways"][0];
    let message = gateway["message"].as_str().unwrap_or_default();
    gateway["state"] == *state && words.iter().all(|word| message.contains(word))
}

async fn wait(agent: &AgentUnderTest, backend: &Backend) {
    let request = agent.get(80, "signed.test", "/");
    agent.wait_backend(&request, backend.name()).await;
}

/// Exports with an agent's permissions.
fn export(kubeconfig: &Path, signing: &str, dir: &Path, backend: &Backend) {
    let file = dir.join("edge.bundle");
    let output = std::process::Command::new(sesame_tests::agent::beside_test("sesame-controller"))
        .args(["export", "--gateway", "default/edge", "--sequence", "7"])
        .args(["--signing-key", signing, "-o", &file.to_string_lossy()])
        .args(["--kubeconfig", &kubeconfig.to_string_lossy()])
        .args(["--namespace", NAMESPACE])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let bytes = std::fs::read(&file).unwrap();
    let bundle = BundleFile::read(&bytes).unwrap();
    let trusted = SigningKeys::from_pem(OLD[0].as_bytes()).unwrap().trusted();
    assert_eq!(bundle.verify(&trusted, 1).unwrap().stamp, 7);
    let exported = bundle.snapshot().unwrap();
    let endpoint = &exported.endpoints[0].endpoints[0];
    assert_eq!(endpoint.port, u32::from(backend.address().port()));
    assert_eq!(exported.gateway, "Gateway/default/edge");
}

fn objects(backend: &Backend) -> Vec<Value> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    let rule = rule_to("app", &[path("PathPrefix", "/")]);
    objects.push(http_route("app", &["signed.test"], &[rule]));
    objects
}

/// Drops the fields that the API server sets.
fn again(mut object: Value) -> Value {
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .retain(|name, _| ["name", "namespace", "labels", "annotations"].contains(&name.as_str()));
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn host_serves_only_signed_snapshots_through_key_rotation() {
    if !network::inside_own("host_serves_only_signed_snapshots_through_key_rotation") {
        return;
    }
    let at = (network::BACKENDS, 0).into();
    let a = Backend::start_at("a", at).await.expect("an address");
    let b = Backend::start_at("b", at).await.expect("an address");
    let keys = tempfile::tempdir().unwrap();
    let (signing, trusted) = (keys.path().join("signing"), keys.path().join("trusted"));
    write(&signing, OLD[0]);
    write(&trusted, OLD[1]);
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "agent/rbac.yaml").await;
    let flag = signing.to_string_lossy();
    let mut controller = ControllerUnderTest::start(&cluster, &["--signing-key-file", &flag]).await;
    controller.wait_ready().await;
    let user = User::service_account(NAMESPACE, "sesame-agent");
    let config = cluster.kubeconfig(&user).await;
    let mut agent = Setup::with_ports(&[80]).without_manifests().prepare();
    agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
    agent.add_flags(&[
        "--host",
        "host-1",
        "--trusted-key",
        &trusted.to_string_lossy(),
    ]);
    agent.restart();
    cluster.apply_all(&objects(&a)).await;
    wait(&agent, &a).await;

    export(&config, &flag, keys.path(), &a);
    let admin = cluster.admin();
    let name = edge_name();
    let shard_path = config_map_path("default.edge.endpoints-1-0");
    let manifest_path = config_map_path(&manifest_name(&name));
    let first = admin.get(&shard_path).await.unwrap();
    cluster.apply_all(&objects(&b)).await;
    wait(&agent, &b).await;
    // A running controller would revert the changes below.
    controller.kill9();
    let good = admin.get(&shard_path).await.unwrap();

    let resolved = one(&objects(&a));
    let set = &resolved.snapshot.endpoints[0];
    let forged = Snapshot {
        endpoints: vec![EndpointSet {
            name: set.name.clone(),
            endpoints: vec![Endpoint {
                address: a.address().ip().to_string(),
                port: a.address().port().into(),
                ..Endpoint::default()
            }],
            ..EndpointSet::default()
        }],
        ..Snapshot::default()
    };
    let forged = shard::split(&forged).unwrap().shards.pop().unwrap();
    let mut object = again(good.clone());
    object["binaryData"][SHARD_ENTRY] = json!(STANDARD.encode(&forged.bytes));
    admin.apply_value(&object).await.unwrap();
    let wait_degraded = |what: &'static str, words: &'static [&'static str]| {
        agent.wait_status(what, move |status| has_state(status, "Degraded", words))
    };
    wait_degraded(
        "the forged shard is reported",
        &["endpoints-1-0", "is for other content"],
    )
    .await;
    wait(&agent, &b).await;
    // The signature of the outdated shard is valid.
    admin.apply_value(&again(first)).await.unwrap();
    wait_degraded(
        "an old shard is reported",
        &[
            "endpoints-1-0",
            "is older than the previously accepted version",
        ],
    )
    .await;
    wait(&agent, &b).await;
    admin.apply_value(&again(good)).await.unwrap();
    let well = |status: &Value| has_state(status, "Serving", &[]);
    agent
        .wait_status("the original shard is accepted", well)
        .await;

    let manifest = admin.get(&manifest_path).await.unwrap();
    let mut other = again(manifest.clone());
    other["data"]["keySecrets"] = json!("1");
    admin.apply_value(&other).await.unwrap();
    wait_degraded(
        "a changed manifest is reported",
        &["edge.manifest", "is for other content"],
    )
    .await;
    other["binaryData"]["signature"] = json!("");
    admin.apply_value(&other).await.unwrap();
    wait_degraded(
        "an unsigned manifest is reported",
        &["edge.manifest", "malformed (0 bytes)"],
    )
    .await;
    wait(&agent, &b).await;

    // From now on, the controller signs with two keys.
    write(&signing, &[OLD[0], NEW[0]].concat());
    controller.restart();
    agent.wait_status("the agent recovers", well).await;
    let signed_by = async |keys: usize| {
        eventually("everything is re-signed", TEST_TIMEOUT, async || {
            for path in [&shard_path, &manifest_path] {
                let object = admin.get(path).await.map_err(|error| error.to_string())?;
                let signature = object["binaryData"]["signature"]
                    .as_str()
                    .unwrap_or_default();
                let length = STANDARD.decode(signature).unwrap().len();
                if length != 9 + 72 * keys {
                    return Err(format!("{length} bytes"));
                }
            }
            Ok(())
        })
        .await;
    };
    signed_by(2).await;
    write(&trusted, NEW[1]);
    agent.restart();
    agent.wait_status("the new key is trusted", well).await;
    write(&signing, NEW[0]);
    controller.restart();
    signed_by(1).await;
    cluster.apply_all(&objects(&a)).await;
    wait(&agent, &a).await;
    // The agent trusts only the old key.
    write(&trusted, OLD[1]);
    agent.wait_stored().await;
    agent.restart();
    agent
        .wait_status("the new key is not trusted", |status| {
            has_state(status, "Degraded", &["none of which is trusted here"])
        })
        .await;
    wait(&agent, &a).await;
}

struct Renderer {
    root: tempfile::TempDir,
}

impl Renderer {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["ours", "theirs"] {
            let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
            let (private, public) = (
                root.path().join(name),
                root.path().join(format!("{name}.pub")),
            );
            write(&private, &pair.serialize_pem());
            std::fs::write(public, pair.public_key_pem()).unwrap();
        }
        std::fs::create_dir(root.path().join("manifests")).unwrap();
        Self { root }
    }

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).to_string_lossy().into_owned()
    }

    /// Writes a snapshot, signed unless `key` is empty.
    fn render(&self, backend: &Backend, key: &str) {
        let objects = yaml(&objects(backend));
        std::fs::write(self.at("manifests/all.yaml"), objects).unwrap();
        let mut command = std::process::Command::new(agent_binary());
        command.args(["render", "--allow-local-endpoints"]);
        command.args(["--manifests", &self.at("manifests")]);
        command.args(["--snapshot-dir", &self.at("snapshots")]);
        if !key.is_empty() {
            command.args(["--signing-key", &self.at(key)]);
        }
        let output = command.output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_directory_needs_signature_of_trusted_key() {
    let names = ["one", "two", "three", "four"];
    let [one, two, three, four] = names.map(Backend::start);
    let (one, two, three, four) = (one.await, two.await, three.await, four.await);
    let renderer = Renderer::new();
    let dir = renderer.root.path().join("snapshots/default.edge");
    renderer.render(&one, "ours");
    let kept = renderer.root.path().join("kept");
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().flatten() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    copy(&dir, &kept);
    let mut agent = Setup::with_ports(&[80]).without_manifests().prepare();
    agent.add_flags(&["--snapshot-dir", &renderer.at("snapshots")]);
    agent.add_flags(&["--trusted-key", &renderer.at("ours.pub")]);
    agent.restart();
    wait(&agent, &one).await;
    renderer.render(&two, "ours");
    wait(&agent, &two).await;

    let refused = async |why: &'static str| {
        let degraded = move |status: &Value| has_state(status, "Degraded", &[why]);
        agent.wait_status(why, degraded).await;
        wait(&agent, &two).await;
    };
    renderer.render(&three, "theirs");
    refused("none of which is trusted here").await;
    renderer.render(&three, "");
    refused("is not signed").await;
    renderer.render(&three, "ours");
    wait(&agent, &three).await;
    renderer.render(&two, "ours");
    wait(&agent, &two).await;
    let mut manifest = directory::read_manifest(&dir).unwrap();
    "0".repeat(64).clone_into(&mut manifest.revision);
    let altered = prost::Message::encode_to_vec(&manifest);
    std::fs::write(dir.join(directory::MANIFEST), altered).unwrap();
    refused("is for other content").await;
    // The older snapshot's signature is valid.
    copy(&kept, &dir);
    refused("is older than the previously accepted version").await;

    renderer.render(&four, "ours");
    wait(&agent, &four).await;
    agent
        .wait_status("healthy again", |status| has_state(status, "Serving", &[]))
        .await;
}
