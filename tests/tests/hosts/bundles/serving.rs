//! The path from a bundle file to a response, without a network.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sesame_sources::seal::{SealMethod, SealSettings, SealingKeys};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, https_listener, layered};
use sesame_tests::network;

use super::site::{
    Workshop, accepted, apply, command, drop_in, host, printed, routed, stored, wait,
};

/// Counts outgoing packets and connections without a route.
fn lost() -> u64 {
    let text = fs::read_to_string("/proc/net/snmp").expect("the kernel's counters");
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names
        .split_whitespace()
        .position(|name| name == "OutNoRoutes");
    let value = values.split_whitespace().nth(at.expect("OutNoRoutes"));
    value.unwrap().parse().unwrap()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn host_without_network_serves_bundles() {
    if !network::inside_own("serving::host_without_network_serves_bundles") {
        return;
    }
    let before = lost();
    let outside = std::net::TcpStream::connect_timeout(
        &"198.51.100.1:80".parse().unwrap(),
        Duration::from_secs(1),
    );
    assert!(outside.is_err() && lost() > before, "no route, and counted");
    let before = lost();

    let [a, b, c] = ["a", "b", "c"].map(Backend::start);
    let (a, b, c) = (a.await, b.await, c.await);
    let authority = Authority::new("ours");
    let leaf = authority.issue(&["bundle.test"]);
    let workshop = Workshop::new();
    let mut agent = host(&workshop, &[80, 443], &[]);
    let state = agent.state().to_string_lossy().into_owned();
    let identity = command(&["identity", "--state-dir", &state]);
    assert!(identity.status.success(), "{}", printed(&identity));
    let again = command(&["identity", "--state-dir", &state]);
    assert_eq!(
        identity.stdout, again.stdout,
        "the identity must not change"
    );
    let key = String::from_utf8(identity.stdout).unwrap();
    let key = key.trim();
    let kept_at = agent.state().join("bundles/identity");
    let seal = SealSettings {
        method: SealMethod::Auto,
        directory: agent.state().join("seal"),
    };
    let keys = SealingKeys::found(&seal).await;
    let place = Path::new("bundles/identity");
    let opened = keys.open_text(fs::read(&kept_at).unwrap(), place);
    let (private, _) = opened.expect("the identity is sealed with this host's key");

    let with_tls = |backend: &Backend| {
        let mut objects = edge(&[
            http_listener("http", 80, ""),
            https_listener("https", 443, "bundle.test", "cert"),
        ]);
        objects.push(leaf.secret("cert"));
        objects.extend(routed(backend));
        objects.extend(layered("layers", "app"));
        objects
    };
    let create = |name: &str, backend: &Backend| {
        workshop.create(name, &with_tls(backend), &["--recipient", key])
    };
    let first = create("first", &a);
    agent.restart();
    wait_for_agent(&agent).await;
    let ready = Instant::now();
    accepted(&agent, &first).await;
    let applied = ready.elapsed();
    wait(&agent, &a).await;
    eprintln!("the first bundle was served after {applied:?}");
    let secure =
        Request::get(agent.address(443), "bundle.test", "/").tls("bundle.test", &authority.trust());
    let reply = secure.send().await.unwrap();
    assert_eq!(reply.status, 200);
    for host in ["proxy.test", "ingress.test"] {
        agent.wait_ok(&agent.get(80, host, "/")).await;
    }

    // Update the host twice with `apply`, and once by copying a file.
    let load = Load::start(&Plan::new(vec![
        agent.get(80, "bundle.test", "/"),
        secure.clone(),
    ]));
    load.pass(50).await;
    accepted(&agent, &create("second", &b)).await;
    wait(&agent, &b).await;
    let third = create("third", &c);
    drop_in(&agent, "from-a-stick.bundle", &fs::read(&third).unwrap());
    wait(&agent, &c).await;
    accepted(&agent, &create("fourth", &a)).await;
    wait(&agent, &a).await;
    load.pass(50).await;
    load.stop().await.clean("bundles: three updates");

    // An incomplete bundle is not yet an error, because copying may still be in progress.
    let fifth = fs::read(create("fifth", &b)).unwrap();
    fs::write(agent.manifests().join("x.bundle.part"), &fifth[..100]).unwrap();
    fs::write(
        agent.manifests().join("slow.bundle"),
        &fifth[..fifth.len() / 2],
    )
    .unwrap();
    let slow = |status: &serde_json::Value, state: &str| {
        let files = status["source"]["bundles"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let slow = files.iter().find(|file| file["file"] == "slow.bundle");
        slow.is_some_and(|file| file["state"] == state)
    };
    let status = agent
        .wait_status("the file is unfinished", |status| {
            slow(status, "unfinished")
        })
        .await;
    assert_eq!(
        status["source"]["problems"],
        serde_json::json!([]),
        "{status:#}"
    );
    agent
        .wait_status("the unfinished file is rejected", |status| {
            slow(status, "refused")
        })
        .await;
    fs::write(agent.manifests().join("slow.bundle"), &fifth).unwrap();
    wait(&agent, &b).await;

    stored(&agent, Path::new(&workshop.at("fifth.bundle"))).await;

    // Without the bundle files, the host must still serve the last bundle, including TLS.
    agent.kill9();
    agent.kill9_envoy();
    for file in files(&agent.manifests()) {
        fs::remove_file(file).unwrap();
    }
    fs::remove_dir_all(agent.runtime()).unwrap();
    let start = Instant::now();
    agent.restart();
    wait(&agent, &b).await;
    eprintln!(
        "served again {:?} after starting from the state directory",
        start.elapsed()
    );
    assert_eq!(secure.send().await.unwrap().status, 200);
    wait_for_agent(&agent).await;
    let output = apply(&agent, &first, &[]).await;
    let text = printed(&output);
    assert!(
        text.contains("is older than the last applied bundle"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(1));
    wait(&agent, &b).await;
    // `--allow-older` must last until a newer bundle is applied.
    let output = apply(&agent, &first, &["--allow-older"]).await;
    assert!(output.status.success(), "{}", printed(&output));
    wait(&agent, &a).await;
    assert!(agent.log().contains("applying an older bundle"));
    // The old Envoy responds without an agent, so wait for the agent.
    agent.restart();
    wait_for_agent(&agent).await;
    wait(&agent, &a).await;
    accepted(&agent, &create("sixth", &c)).await;
    wait(&agent, &c).await;

    // Other users must not be able to read plaintext keys.
    let secret = leaf.key_pem.lines().nth(1).unwrap();
    for bundle in [&first, &third] {
        assert!(!holds(&fs::read(bundle).unwrap(), secret));
    }
    let mut kept = 0;
    for file in [agent.state(), agent.runtime(), agent.manifests()]
        .iter()
        .flat_map(|at| files(at))
    {
        if !holds(&fs::read(&file).unwrap_or_default(), secret) {
            continue;
        }
        kept += 1;
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
    assert!(kept > 0, "the search finds keys");
    let mode = fs::metadata(&kept_at).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let sealed = fs::read(&kept_at).unwrap();
    assert!(!holds(&sealed, private.trim()), "the identity is sealed");
    for hidden in [secret, private.trim()] {
        assert!(!agent.log().contains(hidden), "a key in the log");
    }
    assert_eq!(lost(), before, "a packet was sent to another network");
}

async fn wait_for_agent(agent: &sesame_tests::agent::AgentUnderTest) {
    let up = |status: &serde_json::Value| status["source"]["kind"] == "bundles";
    agent.wait_status("the agent answers", up).await;
}

/// A bundle with different endpoints counts as new, even if its revision is unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_without_keys_uses_keys_of_host() {
    let [a, b] = ["a", "b"].map(Backend::start);
    let (a, b) = (a.await, b.await);
    let leaf = Authority::new("ours").issue(&["bundle.test"]);
    let workshop = Workshop::new();
    let mut agent = host(&workshop, &[80, 443], &[]);
    let state = agent.state().to_string_lossy().into_owned();
    let identity = command(&["identity", "--state-dir", &state]);
    let key = String::from_utf8(identity.stdout).unwrap();
    let all = |backend: &Backend| {
        let mut objects = edge(&[
            http_listener("http", 80, ""),
            https_listener("https", 443, "bundle.test", "cert"),
        ]);
        objects.push(leaf.secret("cert"));
        objects.extend(routed(backend));
        objects
    };
    agent.restart();
    wait_for_agent(&agent).await;
    // A host without keys must reject a bundle without keys.
    let bare = workshop.create("bare", &all(&a), &["--sequence", "1"]);
    let output = apply(&agent, &bare, &[]).await;
    let text = printed(&output);
    assert!(
        text.contains("needs keys that this host does not have (Secret/default/cert)"),
        "{text}"
    );
    let whole = workshop.create(
        "whole",
        &all(&a),
        &["--sequence", "2", "--recipient", key.trim()],
    );
    accepted(&agent, &whole).await;
    wait(&agent, &a).await;
    let later = workshop.create("later", &all(&b), &["--sequence", "3"]);
    accepted(&agent, &later).await;
    wait(&agent, &b).await;

    // Output must be reproducible.
    let fixed = ["--sequence", "3", "--created", "2026-01-01T00:00:00Z"];
    let [one, two] = ["one", "two"].map(|name| workshop.create(name, &all(&b), &fixed));
    assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
    let paths = [&whole, &later].map(|path| path.to_string_lossy().into_owned());
    let output = command(&["bundle", "diff", &paths[0], &paths[1], "--output", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found:#}");
    assert_eq!(found[0]["kind"], "endpoints", "{found:#}");
    stored(&agent, &later).await;
    let output = command(&["bundle", "show", &paths[0], "--output", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&shown["sequence"], &shown["keys"]["hosts"]),
        (&2.into(), &1.into()),
        "{shown:#}"
    );
}

/// Stops the agent while its engine waits for a timer.
#[tokio::test(flavor = "multi_thread")]
async fn agent_without_bundles_stops_without_panic() {
    let workshop = Workshop::new();
    let mut agent = host(&workshop, &[80], &[]);
    agent.restart();
    // An incomplete bundle makes the agent set a timer.
    drop_in(&agent, "broken.bundle", b"not a bundle");
    agent
        .wait_status("the broken bundle is listed", |status| {
            status["source"]["bundles"]
                .as_array()
                .is_some_and(|files| !files.is_empty())
        })
        .await;
    let ended = agent.stop();
    assert!(ended.success(), "{ended}");
    let log = agent.log();
    assert!(!log.contains("panicked"), "{log}");
}
