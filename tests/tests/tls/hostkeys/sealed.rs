//! An agent can start from its state directory alone. The directory's keys are sealed, and revoked
//! keys are removed.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::client::Request;
use sesame_tests::handshakes::Handshake;
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, rule_to, served, yaml,
};
use sesame_tests::wait::{eventually, holds};

use super::found::Traces;

fn objects(backend: &Backend) -> String {
    let mut objects = edge(&[
        https_listener("https", 443, "", "pair"),
        http_listener("http", 80, ""),
    ]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    yaml(&objects)
}

fn secret(leaf: &Leaf) -> String {
    yaml(&[leaf.secret("pair")])
}

struct Host {
    agent: AgentUnderTest,
    authority: Authority,
    leaf: Leaf,
    _backend: Backend,
}

impl Host {
    async fn start(flags: &[&str]) -> Self {
        let backend = Backend::start("a").await;
        let authority = Authority::new("servers");
        let leaf = authority.issue(&["a.test"]);
        let setup = Setup::with_ports(&[443, 80]);
        let setup = flags.iter().fold(setup, |setup, flag| setup.flag(flag));
        let agent = setup.start(&[
            ("all.yaml", &objects(&backend)),
            ("secret.yaml", &secret(&leaf)),
        ]);
        let host = Self {
            agent,
            authority,
            leaf,
            _backend: backend,
        };
        host.agent.wait_ok(&host.over_tls()).await;
        host.wait_stored().await;
        host
    }

    async fn wait_stored(&self) {
        let accepted = |status: &Value| {
            let gateway = &status["gateways"][0];
            gateway["applied"].as_str().is_some_and(|it| !it.is_empty())
                && gateway["applied"] == gateway["wanted"]
                && gateway["applied"] == gateway["stored"]
        };
        self.agent
            .wait_status("the served state is stored", accepted)
            .await;
    }

    fn over_tls(&self) -> Request {
        let request = self.agent.get(443, "a.test", "/");
        request.tls("a.test", &self.authority.trust())
    }

    fn in_clear(&self) -> Request {
        self.agent.get(80, "a.test", "/")
    }

    /// Restarts the agent with only its state directory.
    fn start_alone(&mut self) {
        self.agent.kill9();
        self.agent.kill9_envoy();
        let manifests = self.agent.manifests();
        if manifests.exists() {
            std::fs::rename(&manifests, manifests.with_extension("away")).expect("rename");
        }
        std::fs::remove_dir_all(self.agent.runtime()).expect("remove");
        std::fs::create_dir(self.agent.runtime()).expect("create");
        self.agent.restart();
    }

    fn bring_manifests_back(&self) {
        let manifests = self.agent.manifests();
        std::fs::rename(manifests.with_extension("away"), manifests).expect("rename");
    }

    async fn wait_shown(&self, leaf: &Leaf) {
        let handshake = Handshake::with(self.agent.address(443), "a.test", &self.authority.trust());
        eventually("the certificate is shown", TEST_TIMEOUT, async || {
            let agreed = handshake
                .shake()
                .await
                .map_err(|error| format!("{error:#}"))?;
            holds(agreed.certificate == leaf.der, || {
                "a different certificate".to_owned()
            })
        })
        .await;
    }

    fn gateway(&self) -> PathBuf {
        let gateways = self.agent.state().join("gateways");
        let mut gateways = std::fs::read_dir(gateways).expect("a directory").flatten();
        gateways.next().expect("a Gateway").path()
    }

    fn accepted(&self) -> u64 {
        let text = std::fs::read_to_string(self.gateway().join("accepted")).expect("a number");
        text.trim().parse().expect("a number")
    }

    fn oldest(&self) -> u64 {
        let generations = std::fs::read_dir(self.gateway().join("generations"));
        let entries = generations.expect("a directory").flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.min().expect("a generation")
    }
}

fn keys_at_rest(status: &Value) -> &str {
    status["agent"]["keysAtRest"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_start_restores_sealed_keys() {
    for (flag, place) in [("--seal=auto", ""), ("--seal=key-file", "the key file")] {
        let mut host = Host::start(&[flag]).await;
        let status = host.agent.wait_healthy().await;
        assert!(keys_at_rest(&status).starts_with(place), "{status:#}");
        assert_ne!(keys_at_rest(&status), "off");
        let traces = Traces::from_leaf(&host.leaf);
        host.start_alone();
        host.agent.wait_ok(&host.over_tls()).await;
        host.wait_stored().await;
        let found = traces.files(&host.agent.state());
        assert!(found.is_empty(), "{found:?}");
        assert!(
            !host.agent.log().contains("PRIVATE"),
            "{}",
            host.agent.log()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_creds_seals_where_available() {
    let host = Host::start(&[]).await;
    let status = host.agent.wait_healthy().await;
    let seal = host.agent.state().join("seal");
    let by_systemd = seal.join("systemd.cred").exists();
    assert_eq!(seal.join("host.key").exists(), !by_systemd);
    let place = keys_at_rest(&status);
    assert_eq!(place.starts_with("systemd-creds"), by_systemd, "{place}");
    // The agent must use systemd-creds if it works for this user.
    let tried = std::process::Command::new("systemd-creds")
        .args(["encrypt", "--name=sesame-seal-key", "/dev/null", "-"])
        .stdin(std::process::Stdio::null())
        .output();
    assert_eq!(by_systemd, tried.is_ok_and(|tried| tried.status.success()));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_seal_key_is_reported_and_source_followed() {
    let mut host = Host::start(&[]).await;
    let seal = host.agent.state().join("seal");
    let away = seal.with_extension("away");
    host.agent.kill9();
    std::fs::rename(&seal, &away).expect("rename");
    for _ in 0..3 {
        host.start_alone();
        host.agent.wait_ok(&host.in_clear()).await;
        host.wait_stored().await;
    }
    // Once the seal key is back, the state can be unsealed.
    host.agent.kill9();
    std::fs::remove_dir_all(&seal).expect("remove");
    std::fs::rename(&away, &seal).expect("rename");
    host.start_alone();
    host.agent.wait_ok(&host.over_tls()).await;
    host.wait_stored().await;

    host.agent.kill9();
    std::fs::remove_dir_all(&seal).expect("remove");
    host.start_alone();
    // Without the seal key, HTTPS listeners must wait for the manifests.
    host.agent.wait_ok(&host.in_clear()).await;
    let log = host.agent.log();
    assert!(
        log.contains("the key of Secret/default/pair is sealed with key")
            && log.contains("which this host does not have"),
        "{log}"
    );
    assert!(host.over_tls().send().await.is_err());
    host.wait_stored().await;
    let before = host.accepted();
    host.bring_manifests_back();
    host.agent.wait_ok(&host.over_tls()).await;
    host.agent.wait_healthy().await;
    // The revision is unchanged, but the key must be stored again.
    eventually("the key is stored", TEST_TIMEOUT, async || {
        let now = host.accepted();
        holds(now > before, || format!("generation {now}"))
    })
    .await;
    host.start_alone();
    host.agent.wait_ok(&host.over_tls()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_state_is_sealed_and_can_be_unsealed() {
    let mut host = Host::start(&["--seal=off"]).await;
    let traces = Traces::from_leaf(&host.leaf);
    let state = host.agent.state();
    assert!(!traces.files(&state).is_empty(), "the search finds keys");
    let status = host.agent.wait_healthy().await;
    assert_eq!(keys_at_rest(&status), "off");
    host.agent.change_flag("--seal=off", "--seal=auto");
    host.agent.restart();
    host.agent.wait_healthy().await;
    host.wait_stored().await;
    let nothing = async || {
        let found = traces.files(&state);
        holds(found.is_empty(), || format!("{found:?}"))
    };
    // The agent stores manifests only after it has served them.
    eventually("no key is stored in plaintext", TEST_TIMEOUT, nothing).await;
    host.start_alone();
    host.agent.wait_ok(&host.over_tls()).await;

    // Older agents cannot unseal keys, so `--seal=off` must store them in plaintext.
    host.agent.change_flag("--seal=auto", "--seal=off");
    host.start_alone();
    host.agent.wait_ok(&host.over_tls()).await;
    let kept = traces.files(&state.join("gateways"));
    assert!(!kept.is_empty());
    let pairs = sesame_proto::keys::decode(&std::fs::read(&kept[0]).expect("keys"));
    assert!(pairs.is_ok_and(|pairs| !pairs[0].private_key.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_drop_replaced_keys_and_rollback_uses_current() {
    // The test can find keys only if they are not sealed.
    let mut host = Host::start(&["--seal=off"]).await;
    let first = host.leaf.clone();
    let second = host.authority.issue(&["a.test"]);
    let gateways = host.agent.state().join("gateways");
    let is_in =
        |leaf: &Leaf, directory: &Path| !Traces::from_leaf(leaf).files(directory).is_empty();
    assert!(is_in(&first, &gateways));

    host.agent.write("secret.yaml", &secret(&second));
    host.wait_shown(&second).await;
    host.agent.wait_healthy().await;
    host.wait_stored().await;
    assert!(is_in(&second, &gateways) && !is_in(&first, &gateways));
    let oldest = host.oldest();

    let output = host.agent.order(&["rollback", &oldest.to_string()]).await;
    assert!(output.status.success(), "{output:?}");
    let rolled_back = |status: &Value| {
        let message = status["gateways"][0]["message"].as_str();
        message.is_some_and(|message| message.contains("rolled back to generation"))
    };
    host.agent
        .wait_status("it is rolled back", rolled_back)
        .await;
    host.wait_shown(&second).await;
    host.wait_stored().await;
    host.start_alone();
    host.wait_shown(&second).await;
    host.bring_manifests_back();
    let output = host.agent.order(&["resume"]).await;
    assert!(output.status.success(), "{output:?}");
    host.agent.wait_healthy().await;

    // Deleting a Secret must remove its key from every generation.
    host.agent.remove("secret.yaml");
    let gone =
        |status: &Value| status["healthy"] == false && status["gateways"][0]["state"] == "Serving";
    host.agent
        .wait_status("the listener has no certificate", gone)
        .await;
    host.wait_stored().await;
    assert!(!is_in(&second, &gateways));
    let output = host.agent.order(&["rollback", &oldest.to_string()]).await;
    assert!(output.status.success(), "{output:?}");
    host.agent
        .wait_status("it is rolled back", rolled_back)
        .await;
    host.agent.wait_ok(&host.in_clear()).await;
    assert!(host.over_tls().send().await.is_err());
}
