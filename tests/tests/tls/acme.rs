//! Certificates by ACME for hosts with manifests, from a real ACME server.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use serde_json::{Value, json};
use sesame_tests::acme::Pebble;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, words};
use sesame_tests::backend::Backend;
use sesame_tests::handshakes::Handshake;
use sesame_tests::joining::holding;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    GATEWAY, class_with_parameters, gateway, http_listener, http_route, https_listener, rule_to,
    served, yaml,
};
use sesame_tests::ports::free_port;
use sesame_tests::wait::{eventually, holds};

/// Longer than the lifetime of the certificates here.
const RENEWED: Duration = Duration::from_secs(90);

fn objects(acme: &Value, hostname: &str, backend: &Backend) -> Vec<Value> {
    let mut objects = class_with_parameters(GATEWAY, "acme", &json!({"acme": acme})).to_vec();
    let listeners = [
        http_listener("http", 80, ""),
        https_listener("https", 443, hostname, "pair"),
    ];
    let mut gateway = gateway(GATEWAY, &listeners);
    gateway["metadata"]["annotations"] = json!({"projectsesame.io/acme": "true"});
    objects.push(gateway);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    objects
}

async fn certificate(agent: &AgentUnderTest, trust: &Arc<RootCertStore>) -> Vec<u8> {
    let client = Handshake::with(agent.address(443), "a.test", trust);
    let agreed = client.shake().await.expect("a handshake");
    agreed.certificate.to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn host_orders_and_renews_under_load() {
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80, 443]).prepare();
    let pebble = Pebble::start(agent.address(80), 30).await;
    agent.write(
        "all.yaml",
        &yaml(&objects(&pebble.settings(), "a.test", &backend)),
    );
    agent.restart();
    let trust = pebble.trust().await;
    let request = agent.get(443, "a.test", "/").tls("a.test", &trust);
    agent.wait_ok(&request).await;
    let first = certificate(&agent, &trust).await;

    // A restart uses the stored certificate.
    agent.wait_stored().await;
    agent.restart();
    let load = Load::start(&Plan::new(vec![request, agent.get(80, "a.test", "/")]));
    eventually("the certificate is renewed", RENEWED, async || {
        let now = certificate(&agent, &trust).await;
        holds(now != first, || {
            format!("{}\n{}", agent.log_tail(), pebble.log())
        })
    })
    .await;
    assert_eq!(pebble.issued(), 2, "{}", pebble.log());
    // The server would reuse the first authorization.
    assert_eq!(pebble.validated(), 2, "{}", pebble.log());
    let report = load.stop().await;
    report.clean("renewal of a certificate by ACME");

    // The restarted agent counts from zero.
    agent
        .wait_status("the order is reported", |status| {
            let acme = &status["source"]["acme"];
            let is_listed = acme["certificates"][0]["secret"] == "default/pair";
            is_listed && acme["orders"] == 1 && acme["failures"] == 0
        })
        .await;
    let manifests = std::fs::read_dir(agent.manifests()).expect("a directory");
    assert_eq!(
        manifests.count(),
        1,
        "nothing is written to the manifest directory"
    );
    for file in std::fs::read_dir(agent.state().join("acme")).expect("a directory") {
        let path = file.expect("a file").path();
        let mode = std::fs::metadata(&path)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        let text = std::fs::read(&path).expect("readable");
        assert!(
            !text.windows(11).any(|part| part == b"PRIVATE KEY"),
            "{}",
            path.display()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wildcard_is_ordered_with_dns_hook() {
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80, 443]).prepare();
    let pebble = Pebble::start(agent.address(80), 3600).await;
    let hook = pebble.dns_hook();
    agent.add_flags(&[&format!("--acme-dns-hook={}", hook.display())]);
    let mut acme = pebble.settings();
    acme["challenge"] = json!("DNS01");
    agent.write("all.yaml", &yaml(&objects(&acme, "*.dns.test", &backend)));
    agent.restart();
    let trust = pebble.trust().await;
    let request = agent.get(443, "a.dns.test", "/").tls("a.dns.test", &trust);
    agent.wait_ok(&request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_ca_is_reported_and_harmless() {
    let backend = Backend::start("a").await;
    let acme = json!({
        "directory": format!("https://localhost:{}/dir", free_port()),
        "termsAgreed": true,
    });
    let objects = objects(&acme, "a.test", &backend);
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let reported = |status: &Value| {
        let problems = status["source"]["problems"]
            .as_array()
            .into_iter()
            .flatten();
        let mut problems = problems.filter(|it| it["object"] == "Gateway/default/edge");
        problems.any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            message.starts_with("cannot order a certificate for Secret default/pair: ")
                && message.contains("; retrying at ")
        })
    };
    tokio::time::timeout(
        TEST_TIMEOUT,
        agent.wait_status("the problem is reported", reported),
    )
    .await
    .expect("reported in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn validate_announces_orders() {
    let backend = Backend::start("a").await;
    let acme = json!({"directory": "https://ca.test/dir", "termsAgreed": true});
    let agent = Setup::with_ports(&[80, 443]).prepare();
    agent.write("all.yaml", &yaml(&objects(&acme, "a.test", &backend)));
    let manifests = agent.manifests().to_string_lossy().into_owned();
    let output = agent.command(&["validate", "--manifests", &manifests]);
    let said = words(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let ordered = "Secret default/pair will be ordered by ACME from https://ca.test/dir\n";
    assert!(said.contains(ordered), "{said}");
    let mut dns = acme.clone();
    dns["challenge"] = json!("DNS01");
    agent.write("all.yaml", &yaml(&objects(&dns, "a.test", &backend)));
    let output = agent.command(&["validate", "--manifests", &manifests]);
    let said = words(&output);
    let proviso = "from https://ca.test/dir, if acme-dns-hook is set\n";
    assert!(said.contains(proviso), "{said}");
    // Nothing is ordered without an agreement to the terms.
    agent.write("all.yaml", &yaml(&objects(&json!({}), "a.test", &backend)));
    let output = agent.command(&["validate", "--manifests", &manifests]);
    let said = words(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("Secret default/pair does not exist"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn external_account_is_bound_with_secret() {
    const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80, 443]).prepare();
    let pebble = Pebble::start_bound(agent.address(80), "key-1", KEY).await;
    let mut acme = pebble.settings();
    let unbound = yaml(&objects(&acme, "a.test", &backend));
    acme["externalAccount"] = json!({"keyID": "key-1", "secretRef": {"name": "external"}});
    let bound = yaml(&objects(&acme, "a.test", &backend));
    let problem = |status: &Value, words: &str| {
        let problems = status["source"]["problems"].as_array();
        let mut problems = problems.into_iter().flatten();
        problems.any(|it| it["message"].as_str().unwrap_or_default().contains(words))
    };
    agent.write("all.yaml", &unbound);
    agent.restart();
    agent
        .wait_status("the CA requires an external account", |status| {
            problem(status, "; set spec.acme.externalAccount")
        })
        .await;
    agent.write("all.yaml", &bound);
    agent
        .wait_status("the Secret is missing", |status| {
            let text = status.to_string();
            problem(status, "the Secret of spec.acme.externalAccount is missing")
                && text.contains("Secret default/external does not exist; create it")
        })
        .await;
    // Nothing else is harmed.
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "external", "namespace": "default"}, "stringData": {"key": KEY},
    });
    agent.write("secret.yaml", &yaml(&[secret]));
    let trust = pebble.trust().await;
    let request = agent.get(443, "a.test", "/").tls("a.test", &trust);
    agent.wait_ok(&request).await;
    assert!(!agent.log().contains(KEY), "the key is logged");
    assert_eq!(holding(&agent.state(), KEY), [] as [PathBuf; 0]);
}
