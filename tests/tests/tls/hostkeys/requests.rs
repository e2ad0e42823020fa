//! Certificates for keys that the agent generates, renewed under load. A certificate is never used
//! with the wrong key.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, deployed};
use sesame_tests::envoy::workspace;
use sesame_tests::followed::follow;
use sesame_tests::handshakes::Handshake;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_tls_policy, edge, http_listener, http_route, https_listener, rule_to, served,
    verified_by, yaml,
};
use sesame_tests::seeded::count;
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const LONG: Duration = Duration::from_secs(3600);

/// The backend trusts only client certificates issued by `clients`.
struct Site {
    clients: Authority,
    _backend: Backend,
    objects: Vec<Value>,
}

impl Site {
    async fn new() -> Self {
        let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
        let peer = servers.issue(&["peer.test"]);
        let backend = Backend::start_mutual_tls("a", &peer, &clients).await;
        let mut objects = edge(&[http_listener("http", 80, "")]);
        objects[1]["spec"]["tls"] =
            json!({"backend": {"clientCertificateRef": {"name": "client"}}});
        objects[1]["metadata"]["annotations"] =
            json!({"projectsesame.io/client-certificate-source": "host"});
        objects.extend(served("a", &[backend.address()]));
        objects.push(http_route("a", &[], &[rule_to("a", &[])]));
        objects.push(Authority::config_map("peers", &[&servers]));
        objects.push(backend_tls_policy("a", &verified_by("peers", "peer.test")));
        Self {
            clients,
            _backend: backend,
            objects,
        }
    }
}

/// Directory of the request `default/client`.
struct RequestDirectory(PathBuf);

impl RequestDirectory {
    fn new(agent: &AgentUnderTest) -> Self {
        Self(agent.state().join("requests/default/client"))
    }

    async fn wait(&self, before: &str) -> String {
        let path = self.0.join("request.pem");
        let mut found = String::new();
        eventually("the request exists", TEST_TIMEOUT, async || {
            found = fs::read_to_string(&path).unwrap_or_default();
            holds(!found.is_empty() && found != before, || found.clone())
        })
        .await;
        found
    }

    /// Overwrites the certificate in place, as `cp` does.
    fn put(&self, answer: &str) {
        fs::write(self.0.join("certificate.pem"), answer).expect("written");
    }
}

fn flag(rest: &str) -> String {
    format!(
        "--certificate-request=secret=default/client,commonName=edge-1,uri=spiffe://site.test/edge-1{rest}"
    )
}

fn has_problem(status: &Value, words: &str) -> bool {
    [&status["reasons"], &status["warnings"]]
        .iter()
        .any(|all| all.to_string().contains(words))
}

/// Returns the number of waiting requests, from the metrics.
async fn waiting(agent: &AgentUnderTest) -> f64 {
    let stream = UnixStream::connect(agent.runtime().join("agent.sock")).await;
    let mut stream = stream.expect("the agent's socket");
    let head = b"GET /metrics HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n";
    stream.write_all(head).await.expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    let name = "sesame_agent_certificate_requests_waiting ";
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.expect("the metric");
    value.parse().expect("a number")
}

async fn wait_served(agent: &AgentUnderTest, pem: &str) {
    let facts = CertificateFacts::from_pem(pem.as_bytes());
    let serial = &facts.first().expect("a certificate").serial;
    eventually("Envoy has the certificate", TEST_TIMEOUT, async || {
        let output = agent.order(&["certs", "--output", "json"]).await;
        let certs: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let all = certs.as_array().into_iter().flatten();
        let mut served = all.filter(|it| it["served"] == true);
        holds(served.any(|it| it["serial"] == **serial), || {
            format!("{certs}\n{}", agent.log_tail())
        })
    })
    .await;
}

fn encoded(pem: &str) -> String {
    let lines = pem.lines().filter(|line| !line.starts_with('-'));
    lines.map(str::trim).collect()
}

/// Replaces Envoy, because old connections keep the old certificate.
async fn wait_shown(agent: &AgentUnderTest, request: &Request, pem: &str) {
    wait_served(agent, pem).await;
    agent.envoy_is_replaced("auto", "hot").await;
    let ours = encoded(pem);
    agent
        .wait_served(request, |reply| {
            let tls = (reply.status == 200).then(|| reply.echo().tls).flatten();
            tls.is_some_and(|tls| tls.client_certificate == ours)
        })
        .await;
}

fn keys_in_clear(directory: &Path) -> Vec<PathBuf> {
    let all = super::found::files(directory).into_iter();
    all.filter(|path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(11).any(|it| it == b"PRIVATE KEY")
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_signed_renewals_fail_no_request() {
    let site = Site::new().await;
    let agent = Setup::with_ports(&[80])
        .flag(&flag(""))
        .start(&[("all.yaml", &yaml(&site.objects))]);
    let request = agent.get(80, "a.test", "/");
    let directory = RequestDirectory::new(&agent);
    let asked = directory.wait("").await;
    let waits = |status: &Value| {
        has_problem(status, "has no certificate yet")
            && has_problem(status, "have your CA sign")
            && status["healthy"] == false
    };
    agent
        .wait_status("the waiting request is reported", waits)
        .await;
    assert!(waiting(&agent).await > 0.5);
    directory.put(&site.clients.answer(&asked, LONG));
    agent.wait_ok(&request).await;
    let status = agent.wait_healthy().await;
    assert_eq!(status["source"]["requested"], Value::Null, "{status:#}");
    assert!(!has_problem(&status, "clients reject it"), "{status:#}");
    assert!(waiting(&agent).await < 0.5);

    // The agent renews certificates after at most two thirds of their lifetime.
    agent.wait_stored().await;
    let renewals = count("SESAME_RENEWALS", 2, 40);
    let life = Duration::from_secs(12);
    let mut agent = agent;
    agent.kill9();
    agent.change_flag(&flag(""), &flag(",dnsName=edge-1.site.test"));
    agent.restart();
    let mut asked = directory.wait(&asked).await;
    let load = Load::start(&Plan::new(vec![request.clone()]));
    let mut answer = String::new();
    for renewal in 0..renewals {
        if renewal > 0 {
            asked = directory.wait(&asked).await;
        }
        answer = site.clients.answer(&asked, life);
        directory.put(&answer);
        wait_served(&agent, &answer).await;
    }
    asked = directory.wait(&asked).await;
    assert_ne!(answer, "");
    let last = site.clients.answer(&asked, LONG);
    directory.put(&last);
    wait_shown(&agent, &request, &last).await;
    load.pass(50).await;
    let report = load.stop().await;
    report.clean(&format!("{renewals} renewals of requested certificates"));
    agent.wait_healthy().await;
    agent.wait_stored().await;
    assert_eq!(keys_in_clear(&agent.state()), Vec::<PathBuf>::new());
    assert!(!agent.log().contains("PRIVATE"), "{}", agent.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_matches_requested_key_after_agent_is_killed() {
    let site = Site::new().await;
    let mut agent = Setup::with_ports(&[80])
        .flag(&flag(""))
        .start(&[("all.yaml", &yaml(&site.objects))]);
    let request = agent.get(80, "a.test", "/");
    let directory = RequestDirectory::new(&agent);
    let asked = directory.wait("").await;
    // The certificate arrives while the agent is down.
    agent.kill9();
    directory.put(&site.clients.answer(&asked, LONG));
    agent.restart();
    agent.wait_ok(&request).await;
    agent.wait_healthy().await;
    agent.wait_stored().await;

    // Deliver a certificate for the previous key.
    agent.kill9();
    agent.change_flag(&flag(""), &flag(",dnsName=b.test"));
    agent.restart();
    let second = directory.wait(&asked).await;
    directory.put(&site.clients.answer(&asked, LONG));
    let refused = |status: &Value| {
        has_problem(status, "the answer is rejected")
            && has_problem(status, "the key of the request does not match")
            && has_problem(status, "the last valid content stays in use")
    };
    agent
        .wait_status("the certificate is rejected", refused)
        .await;
    agent.wait_ok(&request).await;
    // Write a longer part of the certificate each time, then kill and restart the agent.
    let answer = site.clients.answer(&second, LONG);
    for cut in [0, answer.len() / 2, answer.len()] {
        directory.put(&answer[..cut]);
        agent.kill9();
        agent.restart();
    }
    wait_shown(&agent, &request, &answer).await;
    agent.wait_healthy().await;
    assert!(!directory.0.join("pending").exists());
    assert_eq!(keys_in_clear(&agent.state()), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn command_receives_request_and_prints_certificate() {
    let site = Site::new().await;
    let ca = tempfile::tempdir().expect("a directory");
    let path = |name: &str| ca.path().join(name).display().to_string();
    fs::write(path("ca.pem"), site.clients.pem()).expect("written");
    fs::write(path("ca.key"), site.clients.key_pem()).expect("written");
    let rest = format!(
        ",command=/usr/bin/openssl x509 -req -CA {} -CAkey {} -days 1 -copy_extensions copyall",
        path("ca.pem"),
        path("ca.key"),
    );
    let mut agent = Setup::with_ports(&[80])
        .flag(&flag(&rest))
        .start(&[("all.yaml", &yaml(&site.objects))]);
    let request = agent.get(80, "a.test", "/");
    let reply = agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
    let shown = reply.echo().tls.expect("TLS").client_certificate;
    let shown = CertificateFacts::from_der(&STANDARD.decode(shown).expect("base64"));
    let shown = shown.expect("a certificate");
    assert!(shown.subject.contains("edge-1"), "{}", shown.subject);
    assert!(format!("{:?}", shown.names).contains("spiffe://site.test/edge-1"));
    agent.wait_healthy().await;
    agent.wait_stored().await;

    // If the command fails, the existing certificate must remain in use.
    agent.kill9();
    agent.change_flag(&flag(&rest), &flag(",dnsName=c.test,command=/bin/false"));
    agent.restart();
    let fails = |status: &Value| has_problem(status, "/bin/false failed (exit status: 1)");
    agent
        .wait_status("the command's failure is reported", fails)
        .await;
    agent.wait_ok(&request).await;
}

async fn approve_and_sign(cluster: &TestCluster, authority: &Authority) -> String {
    let mut found = Value::Null;
    eventually("the request exists", TEST_TIMEOUT, async || {
        let all = cluster.get(REQUESTS).await;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        found = items
            .into_iter()
            .find(|item| item["status"]["certificate"].is_null())
            .unwrap_or_default();
        holds(found.is_object(), || all.to_string())
    })
    .await;
    let name = found["metadata"]["name"].as_str().expect("a name");
    assert_eq!(found["spec"]["signerName"], "site.test/edge");
    assert_eq!(found["spec"]["expirationSeconds"], 3600);
    let pem = found["spec"]["request"].as_str().expect("a request");
    let pem = STANDARD.decode(pem).expect("base64");
    let answer = authority.answer(std::str::from_utf8(&pem).expect("PEM"), LONG);
    let approved =
        json!({"type": "Approved", "status": "True", "reason": "Test", "message": "by the test"});
    let path = format!("{REQUESTS}/{name}");
    let admin = cluster.admin();
    let approval = json!({"status": {"conditions": [approved]}});
    let done = admin.merge(&format!("{path}/approval"), &approval).await;
    done.expect("approved");
    let signed = json!({"status": {"certificate": STANDARD.encode(&answer)}});
    let done = admin.merge(&format!("{path}/status"), &signed).await;
    done.expect("signed");
    answer
}

/// Extracts the RBAC rules from `docs/host-certificates.md`.
fn rights() -> String {
    let page = workspace().join("docs/host-certificates.md");
    let page = fs::read_to_string(page).expect("the page");
    let mut blocks = page.split("```yaml\n").skip(1);
    let block = blocks.find(|block| block.contains("kind: ClusterRoleBinding"));
    let block = block.and_then(|block| block.split("```").next());
    block.expect("the rights").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_signer_signs_for_host_listener() {
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let mut listener = https_listener("https", 443, "", "pair");
    listener["tls"]["options"] = json!({"projectsesame.io/certificate-source": "host"});
    cluster
        .apply_all(&edge(&[listener, http_listener("http", 80, "")]))
        .await;

    let flag = |name: &str| {
        format!(
            "--certificate-request=secret=default/pair,dnsName=a.test{name},usage=server,signerName=site.test/edge,expirationSeconds=3600"
        )
    };
    let mut agent = follow(&cluster, &[443, 80], &[&flag("")]).await;
    let forbidden =
        |status: &Value| has_problem(status, "cannot get resource") && has_problem(status, "(403)");
    agent
        .wait_status("the missing permission is reported", forbidden)
        .await;
    cluster.apply(&rights()).await.expect("the rights");
    let unapproved = |status: &Value| has_problem(status, "kubectl certificate approve sesame-");
    agent
        .wait_status("the request awaits approval", unapproved)
        .await;
    // The agent must reuse the pending request.
    agent.kill9();
    agent.restart();
    agent
        .wait_status("the request awaits approval", unapproved)
        .await;
    let authority = Authority::new("servers");
    let shown = async |agent: &AgentUnderTest, answer: &str| {
        let handshake = Handshake::with(agent.address(443), "a.test", &authority.trust());
        eventually("the certificate is shown", TEST_TIMEOUT, async || {
            let agreed = handshake.shake().await;
            let agreed = agreed.map_err(|error| format!("{error:#}\n{}", agent.log_tail()))?;
            holds(
                STANDARD.encode(&agreed.certificate) == encoded(answer),
                || format!("another one\n{}", agent.log_tail()),
            )
        })
        .await;
    };
    let answer = approve_and_sign(&cluster, &authority).await;
    shown(&agent, &answer).await;
    agent.wait_healthy().await;
    agent.wait_stored().await;
    let all = cluster.get(REQUESTS).await;
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "{all:#}");

    // The old pair must remain in use until the new request is signed.
    agent.kill9();
    agent.change_flag(&flag(""), &flag(",dnsName=b.test"));
    agent.restart();
    shown(&agent, &answer).await;
    let answer = approve_and_sign(&cluster, &authority).await;
    shown(&agent, &answer).await;
    assert!(!agent.log().contains("PRIVATE"), "{}", agent.log());
}
