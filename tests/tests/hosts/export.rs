//! Exports a publication as a bundle, with keys for a host that the cluster does not know.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use sesame_proto::bundle::{BundleFile, sealed};
use sesame_tests::agent::{Setup, TEST_TIMEOUT, agent_binary, beside_test, words};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::cluster::{Channel, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, deployed, give_rights};
use sesame_tests::manifests::{edge, http_route, https_listener, path, rule_to, served};
use sesame_tests::network;
use sesame_tests::wait::{eventually, holds};

fn run(program: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.expect("the binary runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_keys_are_sealed_to_host_and_served() {
    if !network::inside_own("exported_keys_are_sealed_to_host_and_served") {
        return;
    }
    let at = (network::BACKENDS, 0).into();
    let backend = Backend::start_at("app", at).await.expect("an address");
    let authority = Authority::new("ours");
    let leaf = authority.issue(&["export.test"]);
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "agent/rbac.yaml").await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let mut objects = edge(&[https_listener("https", 443, "export.test", "pair")]);
    objects.push(leaf.secret("pair"));
    objects.extend(served("app", &[backend.address()]));
    let rule = rule_to("app", &[path("PathPrefix", "/")]);
    objects.push(http_route("app", &["export.test"], &[rule]));
    cluster.apply_all(&objects).await;

    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let signer = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut private = std::fs::OpenOptions::new();
    let private = private.write(true).create_new(true).mode(0o600);
    let mut private = private.open(name("signer")).unwrap();
    std::io::Write::write_all(&mut private, signer.serialize_pem().as_bytes()).unwrap();
    std::fs::write(name("signer.pub"), signer.public_key_pem()).unwrap();
    let mut agent = Setup::with_ports(&[443]).without_manifests().prepare();
    agent.add_flags(&["--bundle-dir", &agent.manifests().to_string_lossy()]);
    agent.add_flags(&["--trusted-key", &name("signer.pub")]);
    let state = agent.state().to_string_lossy().into_owned();
    let identity = run(&agent_binary(), &["identity", "--state-dir", &state]);
    assert!(identity.status.success(), "{}", words(&identity));
    let host = String::from_utf8(identity.stdout).unwrap();

    // An agent's permissions must suffice for the export.
    let user = User::service_account(NAMESPACE, "sesame-agent");
    let config = cluster.kubeconfig(&user).await;
    let config = config.to_string_lossy();
    let export = |file: &str, more: &[&str]| {
        let (signer, file) = (name("signer"), name(file));
        let line = [
            "export",
            "--gateway",
            "default/edge",
            "--signing-key",
            &signer,
        ];
        let to = [
            "-o",
            &file,
            "--kubeconfig",
            &config,
            "--namespace",
            NAMESPACE,
        ];
        run(
            &beside_test("sesame-controller"),
            &[&line[..], &to, more].concat(),
        )
    };
    let recipient = ["--recipient", host.trim()];
    // The controller may publish several revisions.
    eventually("the whole Gateway is published", TEST_TIMEOUT, async || {
        let output = export("edge.bundle", &recipient);
        if !output.status.success() {
            return Err(words(&output));
        }
        let bytes = std::fs::read(name("edge.bundle")).map_err(|error| error.to_string())?;
        let bundle = BundleFile::read(&bytes).map_err(|error| error.to_string())?;
        let snapshot = bundle.snapshot().map_err(|error| error.to_string())?;
        let has_routes = !snapshot.route_tables.is_empty();
        let endpoints = snapshot.endpoints.iter();
        let has_endpoints = endpoints.flat_map(|set| &set.endpoints).next().is_some();
        holds(has_routes && has_endpoints, || format!("{snapshot:?}"))
    })
    .await;
    let explained = run(
        &beside_test("sesame-controller"),
        &[
            "explain",
            "--gateway",
            "default/edge",
            "--kubeconfig",
            &config,
            "--namespace",
            NAMESPACE,
            "https://export.test/a",
        ],
    );
    assert_eq!(explained.status.code(), Some(0), "{}", words(&explained));
    let taken = "TAKEN   HTTPRoute/default/app/rules/0/matches/0";
    assert!(words(&explained).contains(taken), "{}", words(&explained));
    let without = export("without.bundle", &[]);
    assert!(without.status.success(), "{}", words(&without));
    assert!(
        words(&without).contains("1 private keys omitted"),
        "{}",
        words(&without)
    );
    let refused = export("edge.txt", &[]);
    assert_eq!(refused.status.code(), Some(3), "{}", words(&refused));
    assert!(
        words(&refused).contains("only files named *.bundle"),
        "{}",
        words(&refused)
    );

    let bytes = std::fs::read(name("edge.bundle")).unwrap();
    let bundle = BundleFile::read(&bytes).unwrap();
    let keys = bundle.keys().expect("sealed keys");
    assert!(sealed::is_sealed_to(keys, &host.trim().parse().unwrap()));
    assert_eq!(sealed::host_count(keys).unwrap(), 1);
    let plain = std::fs::read(name("without.bundle")).unwrap();
    assert!(BundleFile::read(&plain).unwrap().keys().is_none());

    std::fs::copy(name("edge.bundle"), agent.manifests().join("edge.bundle")).unwrap();
    agent.restart();
    let secure = Request::get(agent.address(443), "export.test", "/");
    let secure = secure.tls("export.test", &authority.trust());
    agent
        .wait_served(&secure, |reply| {
            reply.status == 200 && reply.backend().as_deref() == Some("app")
        })
        .await;
}
