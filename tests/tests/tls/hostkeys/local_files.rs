//! Certificate files on a host, used instead of Secrets. Invalid files never replace a valid pair.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_envoy::Admin;
use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{ControllerUnderTest, condition, deployed, keys};
use sesame_tests::followed::follow;
use sesame_tests::handshakes::Handshake;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_tls_policy, edge, edge_name, http_listener, http_route, https_listener, rule_to,
    served, verified_by, yaml,
};
use sesame_tests::seeded::count;
use sesame_tests::wait::{eventually, holds};

use super::found::Traces;
use super::renewed::{Renewal, RenewedPair, write};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";

/// The HTTPS listener's Secret exists only as local files.
fn objects(backend: &Backend) -> Vec<Value> {
    let mut objects = edge(&[
        https_listener("https", 443, "", "pair"),
        http_listener("http", 80, ""),
    ]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    objects
}

async fn wait_shown(agent: &AgentUnderTest, authority: &Authority, leaf: &Leaf) {
    let handshake = Handshake::with(agent.address(443), "a.test", &authority.trust());
    eventually("the certificate is shown", TEST_TIMEOUT, async || {
        let agreed = handshake.shake().await;
        let agreed = agreed.map_err(|error| format!("{error:#}\n{}", agent.log_tail()))?;
        holds(agreed.certificate == leaf.der, || {
            format!("another certificate\n{}", agent.log_tail())
        })
    })
    .await;
}

/// Returns Envoy's counters of changed listeners and drained connections.
async fn moved(agent: &AgentUnderTest) -> Vec<(String, u64)> {
    let status = agent.wait_healthy().await;
    let path = status["gateways"][0]["envoy"]["admin"].as_str();
    let admin = Admin::new(PathBuf::from(path.expect("an admin socket")));
    let moved =
        r"^listener_manager\.listener_(added|modified|removed|in_place_updated)$|cx_drain_close$";
    let mut all: Vec<(String, u64)> = admin
        .counters(moved)
        .await
        .expect("Envoy answers")
        .into_iter()
        .collect();
    all.sort();
    all
}

async fn wait_served(agent: &AgentUnderTest, leaf: &Leaf) {
    let facts = CertificateFacts::from_pem(leaf.certificate_pem.as_bytes());
    let serial = &facts.first().expect("a certificate").serial;
    eventually("Envoy has the certificate", TEST_TIMEOUT, async || {
        let output = agent.order(&["certs", "--output", "json"]).await;
        let certs: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let all = certs.as_array().into_iter().flatten();
        let mut served = all.filter(|it| it["served"] == true);
        holds(served.any(|it| it["serial"] == **serial), || {
            certs.to_string()
        })
    })
    .await;
}

fn has_reason(status: &Value, words: &str) -> bool {
    status["reasons"].to_string().contains(words)
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_local_files_are_served_without_failed_request() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let renewals = count("SESAME_RENEWALS", 12, 300);
    for renewal in [
        Renewal::DirectoryMoved,
        Renewal::LinksMoved,
        Renewal::InPlace,
    ] {
        let mut files = RenewedPair::new(renewal, &authority.issue(&["a.test"]));
        let agent = Setup::with_ports(&[443, 80])
            .flag(&files.flag("pair"))
            .start(&[("all.yaml", &yaml(&objects(&backend)))]);
        let request = agent
            .get(443, "a.test", "/")
            .tls("a.test", &authority.trust());
        agent.wait_ok(&request).await;
        let before = moved(&agent).await;
        let load = Load::start(&Plan::new(vec![request.clone(), request.http2()]));
        for _ in 0..renewals {
            let leaf = authority.issue(&["a.test"]);
            files.renew(&leaf);
            wait_shown(&agent, &authority, &leaf).await;
        }
        load.pass(50).await;
        let report = load.stop().await;
        report.clean(&format!("{renewals} renewals of local files: {renewal:?}"));
        assert_eq!(moved(&agent).await, before, "nothing was drained");
        let certs = agent.order(&["certs"]).await;
        let table = String::from_utf8_lossy(&certs.stdout).into_owned();
        let from = format!("Secret/default/pair ({}", files.path("tls.crt").display());
        assert!(table.contains(&from), "{table}");
        assert!(!agent.log().contains("PRIVATE"), "{}", agent.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_local_file_never_replaces_valid_pair() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let first = authority.issue(&["a.test"]);
    let second = authority.issue(&["a.test"]);
    let mut files = RenewedPair::new(Renewal::InPlace, &first);
    let mut agent = Setup::with_ports(&[443, 80])
        .flag(&files.flag("pair"))
        .start(&[("all.yaml", &yaml(&objects(&backend)))]);
    wait_shown(&agent, &authority, &first).await;
    agent.wait_healthy().await;
    agent.wait_stored().await;

    // Replace the certificate, but not yet its key.
    fs::write(files.path("tls.crt"), &second.certificate_pem).expect("written");
    let kept =
        |status: &Value| has_reason(status, "does not match") && has_reason(status, "stays in use");
    agent.wait_status("the problem is reported", kept).await;
    wait_shown(&agent, &authority, &first).await;
    agent.kill9();
    agent.kill9_envoy();
    agent.restart();
    wait_shown(&agent, &authority, &first).await;
    agent.wait_status("the problem is reported", kept).await;

    // Make the key readable by every user.
    let key = files.path("tls.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("a mode");
    let open =
        |status: &Value| has_reason(status, "every user of this host can access it (mode 0644)");
    agent.wait_status("the problem is reported", open).await;
    wait_shown(&agent, &authority, &first).await;
    files.renew(&second);
    wait_shown(&agent, &authority, &second).await;
    agent.wait_healthy().await;
    assert!(!agent.log().contains("PRIVATE"), "{}", agent.log());

    // Without `--local-certificate`, the agent must not use the stored key.
    agent.wait_stored().await;
    agent.kill9();
    agent.change_flag(
        &files.flag("pair"),
        "--local-bundle=configMap=default/none,caFile=/none",
    );
    agent.restart();
    let gone = |status: &Value| has_reason(status, "ConfigMap default/none: caFile /none");
    agent.wait_status("the new flag takes effect", gone).await;
    let request = agent
        .get(443, "a.test", "/")
        .tls("a.test", &authority.trust());
    eventually("the request fails", TEST_TIMEOUT, async || {
        let sent = request.send().await;
        holds(sent.is_err(), || "an answer".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_uses_client_certificate_from_host_files() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let peer = servers.issue(&["peer.test"]);
    let backend = Backend::start_mutual_tls("a", &peer, &clients).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects[1]["spec"]["tls"] = json!({"backend": {"clientCertificateRef": {"name": "client"}}});
    objects[1]["metadata"]["annotations"] =
        json!({"projectsesame.io/client-certificate-source": "host"});
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    objects.push(Authority::config_map("peers", &[&servers]));
    objects.push(backend_tls_policy("a", &verified_by("peers", "peer.test")));
    let mut leaf = clients.issue(&["edge.test"]);
    let mut files = RenewedPair::new(Renewal::LinksMoved, &leaf);
    let agent = Setup::with_ports(&[80])
        .flag(&files.flag("client"))
        .start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "a.test", "/");
    for _ in 0..3 {
        let ours = STANDARD.encode(&leaf.der);
        agent
            .wait_served(&request, |reply| {
                let tls = (reply.status == 200).then(|| reply.echo().tls).flatten();
                tls.is_some_and(|tls| tls.client_certificate == ours)
            })
            .await;
        leaf = clients.issue(&["edge.test"]);
        files.renew(&leaf);
        wait_served(&agent, &leaf).await;
        // Existing connections keep the old certificate, so replace Envoy.
        agent.envoy_is_replaced("auto", "hot").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_host_uses_local_key_unknown_to_controller() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let mut listener = https_listener("https", 443, "", "pair");
    listener["tls"]["options"] = json!({"projectsesame.io/certificate-source": "host"});
    let mut objects = edge(&[listener, http_listener("http", 80, "")]);
    let mut plain = https_listener("shared", 443, "shared.test", "shared");
    plain["tls"]["options"] = json!({"projectsesame.io/certificate-source": "secret"});
    objects[1]["spec"]["listeners"]
        .as_array_mut()
        .expect("listeners")
        .push(plain);
    let authority = Authority::new("servers");
    let shared = authority.issue(&["shared.test"]);
    objects.push(shared.secret("shared"));
    cluster.apply_all(&objects).await;

    let mut agent = follow(&cluster, &[443, 80], &[]).await;
    let find_condition = |gateway: &Value, type_: &str| {
        let listener = &gateway["status"]["listeners"][0];
        condition(&listener["conditions"], type_).clone()
    };
    let gateway = cluster
        .until("the certificate is missing", GATEWAY, |gateway| {
            let shown = find_condition(gateway, "projectsesame.io/CertificatesShown");
            shown["status"] == "False"
                && shown["message"].as_str().is_some_and(|message| {
                    message
                        .contains("no local-certificate of this host provides Secret/default/pair")
                })
        })
        .await;
    let resolved = find_condition(&gateway, "ResolvedRefs");
    assert_eq!(resolved["status"], "True", "{gateway:#}");
    let programmed = find_condition(&gateway, "Programmed");
    let actual = (&programmed["status"], &programmed["reason"]);
    assert_eq!(actual, (&json!("False"), &json!("CertificateNotShown")));
    let gateway_condition = condition(&gateway["status"]["conditions"], "Programmed");
    assert_eq!(
        gateway_condition["status"], "True",
        "other listeners are programmed: {gateway:#}"
    );

    let first = authority.issue(&["a.test"]);
    let mut files = RenewedPair::new(Renewal::DirectoryMoved, &first);
    agent.kill9();
    agent.add_flags(&[&files.flag("pair")]);
    agent.restart();
    wait_shown(&agent, &authority, &first).await;
    cluster
        .until("all certificates are shown", GATEWAY, |gateway| {
            let programmed = find_condition(gateway, "Programmed");
            let shown = find_condition(gateway, "projectsesame.io/CertificatesShown");
            programmed["status"] == "True" && shown.is_null()
        })
        .await;
    for _ in 0..3 {
        let leaf = authority.issue(&["a.test"]);
        files.renew(&leaf);
        wait_shown(&agent, &authority, &leaf).await;
    }
    let published = keys(cluster.admin(), &edge_name()).await;
    let names: Vec<&str> = published.iter().map(|pair| pair.name.as_str()).collect();
    assert_eq!(names, ["Secret/default/shared"]);
    // The search must find the shared key, which is in the cluster.
    let traces = [Traces::from_leaf(&first), Traces::from_leaf(&shared)];
    let mut found = [false, false];
    for path in [
        "/api/v1/secrets",
        "/api/v1/configmaps",
        "/api/v1/events",
        "/apis/events.k8s.io/v1/events",
        "/apis/projectsesame.io/v1alpha1/gatewayagents",
        "/apis/gateway.networking.k8s.io/v1/gateways",
    ] {
        let text = cluster.get(path).await.to_string();
        for (found, traces) in found.iter_mut().zip(&traces) {
            *found |= traces.are_in(text.as_bytes());
        }
    }
    assert_eq!(found, [false, true]);
    for log in [controller.log(), agent.log()] {
        assert!(!traces.iter().any(|it| it.are_in(log.as_bytes())), "{log}");
    }

    // Restart the host without its key file while the controller is down.
    agent.wait_stored().await;
    let last = authority.issue(&["a.test"]);
    files.renew(&last);
    wait_shown(&agent, &authority, &last).await;
    agent.wait_stored().await;
    agent.kill9();
    agent.kill9_envoy();
    drop(controller);
    fs::remove_file(files.path("tls.key")).expect("a file");
    agent.restart();
    wait_shown(&agent, &authority, &last).await;
    let directory = files.path("..data");
    write(&directory, &first);
    std::os::unix::fs::symlink("..data/tls.key", files.path("tls.key")).expect("a link");
    wait_shown(&agent, &authority, &first).await;
}
