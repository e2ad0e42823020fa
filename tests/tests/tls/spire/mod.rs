//! Under load, SPIRE renews a host's files every few seconds and rotates its authority. `make
//! test-spire` builds SPIRE first.

mod server;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_tls_policy, edge, http_listener, http_route, rule_to, served, verified_by, yaml,
};
use sesame_tests::seeded::count;
use sesame_tests::wait::{eventually, holds};

use self::server::Spire;

/// Waits until Envoy uses this certificate or a newer one.
async fn wait_shown(agent: &AgentUnderTest, spire: &Spire, serial: &str) {
    eventually("Envoy has the certificate", TEST_TIMEOUT, async || {
        let output = agent.order(&["certs", "--output", "json"]).await;
        let certs: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let newest = spire.serial();
        let mut all = certs.as_array().into_iter().flatten();
        let good = |it: &Value| {
            it["served"] == true && (it["serial"] == *serial || it["serial"] == *newest)
        };
        holds(all.any(good), || format!("{certs}\n{}", agent.log_tail()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "requires SPIRE: make test-spire"]
async fn frequent_spire_renewals_fail_no_request() {
    let tools = std::env::var_os("SPIRE_TOOLS").expect("`make test-spire` sets SPIRE_TOOLS");
    let spire = Spire::start(tools.into()).await;
    let next_authority = spire.prepare_authority().await;
    let backend = Backend::start_accepting("a", spire.acceptor("peer.test")).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects[1]["spec"]["tls"] =
        json!({"backend": {"clientCertificateRef": {"name": "edge-client"}}});
    objects[1]["metadata"]["annotations"] =
        json!({"projectsesame.io/client-certificate-source": "host"});
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    objects.push(backend_tls_policy("a", &verified_by("mesh", "peer.test")));
    let files = spire.path("files").display().to_string();
    let pair = format!(
        "secret=default/edge-client,certFile={files}/svid.pem,keyFile={files}/svid_key.pem"
    );
    let bundle = format!("configMap=default/mesh,caFile={files}/svid_bundle.pem");
    let agent = Setup::with_ports(&[80])
        .flag(&format!("--local-certificate={pair}"))
        .flag(&format!("--local-bundle={bundle}"))
        .start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "a.test", "/");
    agent.wait_ok(&request).await;

    let load = Load::start(&Plan::new(vec![request]));
    let renewals = count("SESAME_RENEWALS", 10, 60);
    let mut seen = spire.serial();
    for number in 0..renewals {
        if number == renewals / 2 {
            spire.activate_authority(&next_authority);
        }
        seen = spire.renewed(&seen).await;
        wait_shown(&agent, &spire, &seen).await;
    }
    let report = load.stop().await;
    report.clean(&format!(
        "{renewals} renewals by SPIRE during an authority rotation"
    ));
}
