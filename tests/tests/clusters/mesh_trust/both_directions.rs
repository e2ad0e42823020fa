//! Requests from the Gateway to the mesh, and from the mesh to the Gateway.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use sesame_files::directory;
use sesame_proto::keys;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::controller::ControllerUnderTest;
use sesame_tests::followed::follow;
use sesame_tests::manifests::yaml;
use sesame_tests::network;
use sesame_tests::publications::one;

use super::{
    Authorities, CALLER, GATEWAY, TRUSTED, cluster_with_mesh, give_rights, objects, ocg_policy,
    published, wait_condition,
};

/// The Gateway and the mesh must accept each other, and reject all other peers.
async fn gateway_and_mesh_admit_only_each_other(agent: &AgentUnderTest, all: &Authorities) {
    let meshed = agent.get(80, "meshed.test", "/");
    agent.wait_ok(&meshed).await;
    let mut checks = Checks::default();
    let plain = agent.get(80, "plain.test", "/");
    if let Some(reply) = checks.reply(&plain).await {
        let refused = matches!(reply.status, 502 | 503);
        checks.that(refused, format!("{plain}: got {}", reply.status));
    }
    let at_gateway = agent
        .get(443, "meshed.test", "/")
        .tls("gateway.test", &all.gateway.trust());
    let other = |uri: &str| all.mesh.issue_with_uris(&["caller.mesh.test"], &[uri]);
    let stranger = all
        .stranger
        .issue_with_uris(&["caller.mesh.test"], &[CALLER]);
    for (who, request, let_in) in [
        ("a caller", at_gateway.clone().showing(&all.peer()), true),
        ("no certificate", at_gateway.clone(), false),
        ("a stranger", at_gateway.clone().showing(&stranger), false),
        (
            "another name",
            at_gateway
                .clone()
                .showing(&other("spiffe://mesh.test/other")),
            false,
        ),
        (
            "another trust domain",
            at_gateway
                .clone()
                .showing(&other("spiffe://mesh.test.evil/ns/default")),
            false,
        ),
        (
            "no SPIFFE name",
            at_gateway.showing(&all.mesh.issue(&["caller.mesh.test"])),
            false,
        ),
        ("plain text", agent.get(443, "meshed.test", "/"), false),
    ] {
        let status = request.send().await.ok().map(|reply| reply.status);
        checks.same(who, status, let_in.then_some(200));
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_admits_only_the_other_with_manifests() {
    let all = Authorities::new();
    let peer = Backend::start_mutual_tls("peer", &all.peer(), &all.gateway).await;
    let agent = Setup::with_ports(&[80, 443])
        .flag("--extra-minimal-ocg")
        .start(&[("all.yaml", &yaml(&objects(&all, peer.address())))]);
    gateway_and_mesh_admit_only_each_other(&agent, &all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_admits_only_the_other_with_snapshots() {
    let all = Authorities::new();
    let peer = Backend::start_mutual_tls("peer", &all.peer(), &all.gateway).await;
    let resolved = one(&objects(&all, peer.address()));
    let root = tempfile::tempdir().expect("a directory");
    let keys_file = root.path().join("keys.pb");
    std::fs::write(&keys_file, keys::encode(&resolved.keys)).expect("keys");
    std::fs::set_permissions(&keys_file, Permissions::from_mode(0o600)).expect("keys");
    directory::write(root.path(), &resolved.snapshot).expect("a snapshot");
    let mut agent = Setup::with_ports(&[80, 443]).without_manifests().prepare();
    agent.add_flags(&["--snapshot-dir", &root.path().to_string_lossy()]);
    agent.restart();
    gateway_and_mesh_admit_only_each_other(&agent, &all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_admits_only_the_other_in_cluster() {
    if !network::inside_own("both_directions::each_side_admits_only_the_other_in_cluster") {
        return;
    }
    let all = Authorities::new();
    let cluster = cluster_with_mesh().await;
    give_rights(&cluster, "ocg-bundles.yaml").await;
    let controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    controller.wait_ready().await;
    let at = (network::BACKENDS, 0).into();
    let peer = Backend::start_mutual_tls_at("peer", at, &all.peer(), &all.gateway).await;
    let peer = peer.expect("an address");
    cluster.apply_all(&objects(&all, peer.address())).await;
    cluster.apply_all(&[ocg_policy(true)]).await;
    published(&cluster, &[&all.gateway]).await;
    let agent = follow(&cluster, &[80, 443], &[]).await;
    gateway_and_mesh_admit_only_each_other(&agent, &all).await;
    let good = ("True", "CertificateTrusted");
    wait_condition(&cluster, GATEWAY, TRUSTED, good, "ocg-trust-bundle").await;
}
