//! Searches a host for its private keys. Plaintext keys may exist only in files that Envoy reads,
//! with mode 0600.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::manifests::{edge, http_route, https_listener, rule_to, served, yaml};
use sesame_tests::processes;

use super::found::{Traces, files};
use super::renewed::{Renewal, RenewedPair};

fn rsa(authority: &Authority) -> Leaf {
    let made = std::process::Command::new("openssl")
        .args([
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
        ])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let pem = String::from_utf8(made.stdout).expect("PEM");
    authority.issue_for_key(&["rsa.test"], &pem)
}

/// Returns the log, command lines, environments and command output.
async fn outputs(agent: &AgentUnderTest) -> Vec<(String, Vec<u8>)> {
    let mut all = vec![("the log".to_owned(), agent.log().into_bytes())];
    for process in processes::below(agent.runtime().parent().expect("a directory")) {
        for file in ["cmdline", "environ"] {
            let path = format!("/proc/{}/{file}", process.pid);
            all.push((path.clone(), fs::read(path).unwrap_or_default()));
        }
    }
    for command in [
        &["status"][..],
        &["status", "--output", "json"],
        &["certs", "--output", "json"],
        &["history"],
        &["dump"],
    ] {
        let output = agent.order(command).await;
        all.push((command.join(" "), [output.stdout, output.stderr].concat()));
    }
    all
}

/// Returns files that contain a key but are not mode-0600 files in the runtime directory.
fn open_files(traces: &[Traces], state: &Path, runtime: &Path) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        traces.iter().any(|key| key.are_in(&bytes))
    };
    let is_open = |path: &PathBuf| {
        let mode = fs::metadata(path).map(|it| it.permissions().mode() & 0o777);
        !path.starts_with(runtime) || mode.is_ok_and(|mode| mode != 0o600)
    };
    let all = [files(state), files(runtime)].concat().into_iter();
    all.filter(|path| is_open(path) && holds(path)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn private_keys_are_only_sealed_or_for_envoy() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let (ecdsa, in_files) = (authority.issue(&["a.test"]), authority.issue(&["b.test"]));
    let client = authority.issue(&["client.test"]);
    let rsa = rsa(&authority);
    let mut objects = edge(&[
        https_listener("ecdsa", 443, "a.test", "ecdsa"),
        https_listener("in-files", 443, "b.test", "in-files"),
        https_listener("rsa", 443, "rsa.test", "rsa"),
    ]);
    objects[1]["spec"]["tls"] = json!({"backend": {"clientCertificateRef": {"name": "client"}}});
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    for (name, leaf) in [("ecdsa", &ecdsa), ("rsa", &rsa), ("client", &client)] {
        objects.push(leaf.secret(name));
    }
    let local = RenewedPair::new(Renewal::DirectoryMoved, &in_files);
    let agent = Setup::with_ports(&[443])
        .flag(&local.flag("in-files"))
        .start(&[("all.yaml", &yaml(&objects))]);
    for host in ["a.test", "b.test", "rsa.test"] {
        let request = agent.get(443, host, "/");
        agent.wait_ok(&request.tls(host, &authority.trust())).await;
    }
    agent.wait_healthy().await;
    agent.wait_stored().await;
    let mut traces: Vec<Traces> = [&ecdsa, &in_files, &client, &rsa]
        .into_iter()
        .map(Traces::from_leaf)
        .collect();
    let tickets = fs::read(agent.runtime().join("session-ticket-keys")).expect("keys");
    traces.push(Traces::from_bytes(&tickets[tickets.len() - 32..]));

    let (state, runtime) = (agent.state(), agent.runtime());
    for (key, name) in traces
        .iter()
        .zip(["ECDSA", "local", "client", "RSA", "ticket"])
    {
        let found = key.files(&runtime);
        // No backend uses the client certificate, so its key is not in the runtime directory.
        assert_eq!(found.is_empty(), name == "client", "{name}: {found:?}");
    }
    assert_eq!(open_files(&traces, &state, &runtime), Vec::<PathBuf>::new());
    for (place, bytes) in outputs(&agent).await {
        assert!(!bytes.is_empty(), "{place} is empty");
        for key in &traces {
            assert!(!key.are_in(&bytes), "a key is in {place}");
        }
    }

    // The search must find planted keys.
    let planted = state.join("planted");
    fs::write(&planted, yaml(&[in_files.secret("planted")])).expect("written");
    let found = open_files(&traces, &state, &runtime);
    assert_eq!(found, std::slice::from_ref(&planted));
    fs::remove_file(planted).expect("removed");
    let planted = runtime.join("planted");
    fs::write(&planted, &tickets).expect("written");
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o644)).expect("a mode");
    assert_eq!(open_files(&traces, &state, &runtime), [planted]);
}
